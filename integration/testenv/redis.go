package testenv

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Redis is one private redis-server, without a file on disk. Its methods may be
// called at the same time.
type Redis struct {
	// Addr is the host and port that it listens on.
	Addr string

	t      testing.TB
	cmd    *exec.Cmd
	output output
	ended  chan struct{} // closed when the process is gone
}

// StartRedis starts a redis-server that ends with the test, and waits until it
// answers; settings are further arguments of it. Where none is installed the test
// is skipped, or fails if STINT_TEST_REQUIRE is "all".
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	path, err := program("redis-server")
	if err != nil {
		if os.Getenv("STINT_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var r *Redis
	for range 5 { // redis-server opens its port itself, so another may have been quicker
		if r, err = startRedis(t, path, settings); err == nil {
			return r
		}
	}
	t.Fatalf("redis-server did not start: %v\n%s", err, r.output.String())
	return nil
}

func startRedis(t testing.TB, path string, settings []string) (*Redis, error) {
	l := Listen(t)
	r := &Redis{Addr: l.Addr().String(), t: t, ended: make(chan struct{})}
	_, port, _ := net.SplitHostPort(r.Addr)
	l.Close()
	args := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"}
	r.cmd = exec.Command(path, append(args, settings...)...)
	r.cmd.Dir = t.TempDir()
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	unwatch, err := watch(r.cmd.Process.Pid)
	go func() {
		r.cmd.Wait()
		unwatch()
		close(r.ended)
	}()
	t.Cleanup(r.stop)
	if err != nil {
		t.Fatal(err)
	}
	return r, r.ready()
}

// ready waits for a first answer.
func (r *Redis) ready() error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-r.ended:
			return errors.New("it has ended")
		default:
		}
		c, err := net.Dial("tcp4", r.Addr)
		if err != nil {
			continue
		}
		c.SetDeadline(time.Now().Add(patience))
		c.Write([]byte("PING\r\n"))
		line, err := bufio.NewReader(c).ReadString('\n')
		c.Close()
		if err == nil && strings.HasPrefix(line, "+PONG") {
			return nil
		}
	}
	return errors.New("it does not answer")
}

// Freeze stops the process where it is: connections stay, nobody answers.
func (r *Redis) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (r *Redis) Thaw() { r.signal(syscall.SIGCONT) }

// Kill kills the process.
func (r *Redis) Kill() { r.signal(syscall.SIGKILL) }

func (r *Redis) signal(s syscall.Signal) {
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Errorf("%v to redis-server: %v", s, err)
	}
}

func (r *Redis) stop() {
	select {
	case <-r.ended:
		return
	default:
	}
	r.cmd.Process.Kill() // there is nothing to save
	<-r.ended
	if r.t.Failed() {
		r.t.Logf("redis-server said:\n%s", r.output.String())
	}
}
