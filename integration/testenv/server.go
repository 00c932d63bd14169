package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// This file is what servers have in common that refuse to run as root. Each is a child in a directory of its own, ends
// with the test or, if the tests of a package share it, with Main, and ends also if the test process is killed.

// Main runs the tests of a package that shares servers among them, and ends the servers. Use it as
// os.Exit(testenv.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	common.mu.Lock()
	defer common.mu.Unlock()
	for _, p := range common.running {
		if err := p.end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

var common struct {
	mu      sync.Mutex
	running []*process
}

// A server is a process with methods of its own.
type server interface{ itself() *process }

// shared returns what returns the server that the tests of a package share. It is started for the first that asks, and
// ended by Main.
func shared[S server](name string, start func(path string) (S, error)) func(testing.TB) S {
	once := sync.OnceValues(func() (s S, err error) {
		path, err := program(name)
		if err != nil {
			return s, err
		}
		if s, err = start(path); err == nil {
			common.mu.Lock()
			defer common.mu.Unlock()
			common.running = append(common.running, s.itself())
		}
		return s, err
	})
	return func(t testing.TB) S {
		t.Helper()
		need(t, name)
		s, err := once()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// own starts a server that ends with the test.
func own[S server](t testing.TB, name string, start func(path string) (S, error)) S {
	t.Helper()
	s, err := start(need(t, name))
	if err != nil {
		t.Fatal(err)
	}
	s.itself().stopWith(t)
	return s
}

// need returns where a server's program is. A missing one skips the test, or fails it where STINT_TEST_REQUIRE is all.
func need(t testing.TB, name string) string {
	t.Helper()
	path, err := program(name)
	switch {
	case err == nil:
	case os.Getenv("STINT_TEST_REQUIRE") == "all":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return path
}

// A place is a directory of a server's own, which it may read and write.
type place struct {
	dir  string
	cred *syscall.Credential // who the server runs as; nil: as we do
	env  []string
}

// longestSocket is the longest name that a server gives its socket.
const longestSocket = ".s.PGSQL.5432"

// newPlace makes a place for the named server. Its program, given as .bin has it, is put there if it could not be
// reached otherwise: what root has unpacked, nobody may not be allowed to see.
func newPlace(name, path string) (p place, program string, err error) {
	if p.dir, err = os.MkdirTemp("", "stint-"+name+"-"); err != nil {
		return p, "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(p.dir)
		}
	}()
	if len(p.dir)+len("/"+longestSocket) > 107 { // what the kernel takes for the path of a socket
		return p, "", fmt.Errorf("testenv: %s is too long for a path of sockets: set TMPDIR to a shorter directory", p.dir)
	}
	p.env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	if os.Geteuid() == 0 {
		p.cred = &syscall.Credential{Uid: 65534, Gid: 65534} // Debian's nobody
		if u, err := user.Lookup("nobody"); err == nil {
			uid, errUID := strconv.Atoi(u.Uid)
			gid, errGID := strconv.Atoi(u.Gid)
			if errUID == nil && errGID == nil {
				p.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			}
		}
	}
	if program, err = linked(path); err != nil {
		return p, "", err
	}
	unpacked := path + "-package"
	if inside, ok := strings.CutPrefix(program, unpacked); ok {
		if p.cred != nil {
			own := filepath.Join(p.dir, "package")
			if err = os.CopyFS(own, os.DirFS(unpacked)); err != nil {
				return p, "", err
			}
			unpacked, program = own, own+inside
		}
		libraries, _ := filepath.Glob(filepath.Join(unpacked, "usr/lib/*-linux-gnu"))
		p.env = append(p.env, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	}
	return p, program, p.own(p.dir)
}

// linked returns where the link in .bin leads to. The program's own name stays, though
// it be another link: Debian's redis-server is one, and goes by the name that it is called.
func linked(path string) (string, error) {
	if target, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	if i, err := os.Stat(path); err == nil && i.IsDir() {
		return filepath.EvalSymlinks(path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// own gives a directory and all that is in it to who the server runs as.
func (p place) own(dir string) error {
	if p.cred == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(p.cred.Uid), int(p.cred.Gid)))
	})
}

// command is a program in its place.
func (p place) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.cred}
	return cmd
}

// A process is a server under way.
type process struct {
	place
	name   string
	cmd    *exec.Cmd
	output awaited
	ended  chan struct{} // closed when it is over
}

func (p *process) itself() *process { return p }

// start starts a server and waits until it has written ready. It is to end at SIGQUIT. If it fails the place is gone.
func (p place) start(name, ready, program string, args ...string) (*process, error) {
	s := &process{place: p, name: name, ended: make(chan struct{})}
	s.output.text, s.output.seen = ready, make(chan struct{})
	s.cmd = p.command(program, args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	s.cmd.WaitDelay = time.Second // what it leaves behind may have its output open
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	unwatch, err := watchWith("QUIT", s.cmd.Process.Pid)
	go func() {
		s.cmd.Wait()
		unwatch()
		close(s.ended)
	}()
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	select {
	case <-s.output.seen:
		return s, nil
	case <-s.ended:
	case <-time.After(patience):
	}
	err = fmt.Errorf("%s did not start; it said:\n%s", name, s.output.String())
	return nil, errors.Join(err, s.end())
}

// stopWith ends the server with the test.
func (p *process) stopWith(t testing.TB) {
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.output.String())
		}
	})
}

// end ends the server and removes its directory.
func (p *process) end() error {
	p.cmd.Process.Signal(syscall.SIGQUIT)
	var err error
	select {
	case <-p.ended:
	case <-time.After(patience):
		err = fmt.Errorf("%s did not end within %v", p.name, patience)
		p.kill()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// kill kills the server's process group and waits for it.
func (p *process) kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// awaited is an output in which a text is waited for.
type awaited struct {
	output
	text string
	once sync.Once
	seen chan struct{} // closed when the text is there
}

func (a *awaited) Write(p []byte) (int, error) {
	n, err := a.output.Write(p)
	if strings.Contains(a.output.String(), a.text) {
		a.once.Do(func() { close(a.seen) })
	}
	return n, err
}
