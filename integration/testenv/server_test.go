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
	if os.Getenv("STINT_TEST_CHILD") != "" {
		leave()
	}
	os.Exit(Main(m))
}

// leave starts a server, says so and ends without another word.
func leave() {
	path, err := program("postgresql")
	var pg *Postgres
	if err == nil {
		pg, err = startPostgres(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(pg.process.dir)
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
	need(t, "postgresql")
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), "STINT_TEST_CHILD=1")
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
	dir, err := bufio.NewReader(stdout).ReadString('\n')
	child.Process.Kill()
	child.Wait()
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(dir)
	defer os.RemoveAll(dir)
	for start := time.Now(); ; {
		c, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.5432"))
		if err != nil {
			return // nobody listens any more
		}
		c.Close()
		if time.Since(start) > patience {
			t.Fatalf("the server in %s lives on after %v", dir, patience)
		}
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
