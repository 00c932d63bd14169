package testenv

import (
	"net"
	"syscall"
	"testing"
)

// Redis is one private redis-server, without a file on disk. Its methods may be
// called at the same time.
type Redis struct {
	// Addr is the host and port that it listens on.
	Addr string

	t testing.TB
	p *process
}

// StartRedis starts a redis-server that ends with the test, and waits until it
// answers; settings are further arguments of it. Where none is installed the test
// is skipped, or fails if STINT_TEST_REQUIRE is "all".
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	path := need(t, "redis-server")
	var err error
	for range 5 { // redis-server opens its port itself, so another may have been quicker
		var r *Redis
		if r, err = startRedis(t, path, settings); err == nil {
			r.p.stopWith(t)
			t.Cleanup(func() { r.p.cmd.Process.Signal(syscall.SIGCONT) }) // a frozen one does not end
			return r
		}
	}
	t.Fatal(err)
	return nil
}

func startRedis(t testing.TB, path string, settings []string) (*Redis, error) {
	place, program, err := newPlace("redis", path)
	if err != nil {
		return nil, err
	}
	l := Listen(t)
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	args := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"}
	p, err := place.start("redis-server", "Ready to accept connections", program, append(args, settings...)...)
	if err != nil {
		return nil, err
	}
	return &Redis{addr, t, p}, nil
}

// Freeze stops the process where it is: connections stay, nobody answers.
func (r *Redis) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (r *Redis) Thaw() { r.signal(syscall.SIGCONT) }

// Kill kills the process.
func (r *Redis) Kill() { r.signal(syscall.SIGKILL) }

func (r *Redis) signal(s syscall.Signal) {
	if err := r.p.cmd.Process.Signal(s); err != nil {
		r.t.Errorf("%v to redis-server: %v", s, err)
	}
}
