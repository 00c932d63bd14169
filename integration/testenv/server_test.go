package testenv

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("STINT_TEST_CHILD"); name != "" {
		leave(name)
	}
	os.Exit(Main(m))
}

// sockets start a server and say which socket it listens on.
var sockets = map[string]func(path string) (string, error){
	"postgresql": func(path string) (string, error) {
		pg, err := startPostgres(path)
		if err != nil {
			return "", err
		}
		return filepath.Join(pg.process.dir, ".s.PGSQL.5432"), nil
	},
	"mariadb": func(path string) (string, error) {
		m, err := startMariaDB(path)
		if err != nil {
			return "", err
		}
		return m.socket(), nil
	},
}

// leave starts a server, says where it listens and ends without another word.
func leave(name string) {
	path, err := program(name)
	var socket string
	if err == nil {
		socket, err = sockets[name](path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(socket)
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// TestMissing: a server that is not there skips a test, or fails it where all are
// required, and says the one command that gets it.
func TestMissing(t *testing.T) {
	for require, want := range map[string]string{"": "SKIP", "all": "FAIL"} {
		t.Setenv("STINT_TEST_REQUIRE", require)
		r := &verdict{TB: t}
		done := make(chan struct{})
		go func() { // Skip and Fatal end a goroutine
			defer close(done)
			need(r, "no-such-server")
		}()
		<-done
		if r.verdict != want || !strings.Contains(r.said, "scripts/setup-servers.sh") {
			t.Errorf("STINT_TEST_REQUIRE=%q: %s %q, want %s and the command", require, r.verdict, r.said, want)
		}
	}
}

// verdict is a test that keeps how it ended.
type verdict struct {
	testing.TB
	verdict, said string
}

func (v *verdict) Helper() {}
func (v *verdict) Skip(args ...any) {
	v.verdict, v.said = "SKIP", fmt.Sprint(args...)
	runtime.Goexit()
}
func (v *verdict) Fatal(args ...any) {
	v.verdict, v.said = "FAIL", fmt.Sprint(args...)
	runtime.Goexit()
}

// TestKilled: a server ends with a test process that has no time to end it.
func TestKilled(t *testing.T) {
	for name := range sockets {
		t.Run(name, func(t *testing.T) { killed(t, name) })
	}
}

func killed(t *testing.T, name string) {
	need(t, name)
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), "STINT_TEST_CHILD="+name)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	socket, err := bufio.NewReader(stdout).ReadString('\n')
	child.Process.Kill()
	child.Wait()
	if err != nil {
		t.Fatal(err)
	}
	socket = strings.TrimSpace(socket)
	defer os.RemoveAll(filepath.Dir(socket))
	for start := time.Now(); ; {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return // nobody listens any more
		}
		c.Close()
		if time.Since(start) > patience {
			t.Fatalf("the server at %s lives on after %v", socket, patience)
		}
	}
}

// TestLongPath: a directory in which no server could have a socket is an error that
// says what to do, and is not left behind.
func TestLongPath(t *testing.T) {
	tmp := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	_, _, err := newPlace("mariadb", os.Args[0])
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR to a shorter directory") {
		t.Errorf("error %v, want one that says what to do", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// echo is a server that sends back what it gets, line by line.
func echo(t *testing.T) string {
	l := Listen(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// A line is a connection on which one line at a time goes there and back.
type line struct {
	t *testing.T
	net.Conn
	*bufio.Reader
}

func dial(t *testing.T, p *Proxy) line {
	t.Helper()
	c, err := net.Dial("tcp4", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return line{t, c, bufio.NewReader(c)}
}

func (l line) send(s string) {
	l.t.Helper()
	if _, err := io.WriteString(l, s+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

func (l line) Read(p []byte) (int, error) { return l.Reader.Read(p) }

// silent fails if anything comes; a moment is enough on one machine.
func (l line) silent() {
	l.t.Helper()
	l.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	defer l.SetReadDeadline(time.Now().Add(patience))
	if s, err := l.ReadString('\n'); err == nil || s != "" {
		l.t.Errorf("%q came, want silence", s)
	}
}

func (l line) expect(want string) {
	l.t.Helper()
	if s, err := l.ReadString('\n'); err != nil || s != want+"\n" {
		l.t.Errorf("%q, error %v: want %q", s, err, want)
	}
}

func TestProxy(t *testing.T) {
	p := StartProxy(t, "tcp4", echo(t))
	a := dial(t, p)
	a.send("one")
	a.expect("one")
	for name, hold := range map[string]func(){"Freeze": p.Freeze, "HoldReplies": p.HoldReplies} {
		hold()
		a.send(name)
		b := dial(t, p) // nobody refuses it, and nobody answers
		b.send("new")
		a.silent()
		b.silent()
		p.Thaw()
		a.expect(name)
		b.expect("new")
	}
	if n := p.Opened(); n != 3 {
		t.Errorf("%d connections opened, want 3", n)
	}
	const delay = 50 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	a.send("delayed")
	a.expect("delayed")
	if took := time.Since(start); took < 2*delay {
		t.Errorf("there and back in %v, want at least %v", took, 2*delay)
	}
	p.Delay(0)
	p.CutReply()
	a.send("cut")
	if s, err := a.ReadString('\n'); err == nil {
		t.Errorf("%q came, want a reset", s)
	}
	b := dial(t, p)
	b.send("the next")
	b.expect("the next")
	p.Kill()
	if s, err := b.ReadString('\n'); err == nil {
		t.Errorf("%q came, want a reset", s)
	}
	if c, err := net.Dial("tcp4", p.Addr); err == nil {
		c.Close()
		t.Error("a killed proxy lets somebody in")
	}
}
