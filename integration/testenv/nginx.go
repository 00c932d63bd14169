package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds what should take no time at all: starting, answering, ending.
const patience = 20 * time.Second

// Nginx is one nginx, master and worker. Its methods may be called at the same
// time.
type Nginx struct {
	// Addr is the host and port that it listens on.
	Addr string

	t      testing.TB
	dir    string
	cmd    *exec.Cmd
	output output
	ended  chan struct{} // closed when no process of it is left
}

// An NginxConfig is what a test says of its nginx.
type NginxConfig struct {
	// Listen is what stands behind the address in the directive listen: empty
	// for HTTP/1.1, "http2" for HTTP/2 without TLS and nothing else, or
	// "ssl http2".
	Listen string
	// HTTP are directives of the block http: upstreams, zones.
	HTTP string
	// Server are directives of the block server.
	Server string
}

// One worker: what nginx knows of an upstream's state each worker knows for itself, and counts are to be exact.
const nginxConf = `
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr info;
%s
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	%s
	server {
		listen %s %s;
		ssl_certificate cert.pem;
		ssl_certificate_key key.pem;
		%s
	}
}
`

// Installed returns an error that says what to do if the servers are not there.
func Installed() error {
	_, err := program("nginx")
	return err
}

// program returns where scripts/setup-servers.sh has put a server: in .bin, at the root of the repository.
func program(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	root := dir
	for !exists(filepath.Join(root, "modules")) {
		if root == filepath.Dir(root) {
			return "", fmt.Errorf("testenv: no directory above %s has the file modules, so it is not in the repository", dir)
		}
		root = filepath.Dir(root)
	}
	path := filepath.Join(root, ".bin", name)
	if !exists(path) {
		return "", fmt.Errorf("testenv: these tests need %s, and there is no .bin/%s: run scripts/setup-servers.sh, "+
			"or make test, which does", name, name)
	}
	return path, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Listen takes a free port for an nginx; the caller closes the socket.
func Listen(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.(*net.TCPListener)
}

// StartNginx starts an nginx that ends with the test, and waits until it answers.
func StartNginx(t testing.TB, c NginxConfig) *Nginx {
	t.Helper()
	l := Listen(t)
	defer l.Close()
	return StartNginxOn(t, l, c)
}

// StartNginxOn is StartNginx on a socket that listens already, as when a new
// nginx takes over from an old one. No two tests can choose the same port so,
// and who connects too early waits.
func StartNginxOn(t testing.TB, l *net.TCPListener, c NginxConfig) *Nginx {
	t.Helper()
	path, err := program("nginx")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()

	n := &Nginx{Addr: l.Addr().String(), t: t, dir: t.TempDir(), ended: make(chan struct{})}
	pair := certificate()
	n.write("cert.pem", pair.cert)
	n.write("key.pem", pair.key)
	n.Configure(c)
	n.cmd = exec.Command(path, "-p", n.dir, "-c", "nginx.conf", "-e", "stderr")
	n.cmd.Env = append(os.Environ(), "NGINX=3;")
	n.cmd.ExtraFiles = []*os.File{socket}
	n.cmd.Stderr = &n.output
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Start has put the socket into blocking mode, for everybody who has it. nginx
	// leaves an inherited one as it is, and of two workers that hear of the same
	// connection, as at a reload, one would wait in accept for the next.
	errNonblock := syscall.SetNonblock(int(socket.Fd()), true)
	unwatch, err := watchWith("TERM", n.cmd.Process.Pid)
	go func() {
		n.cmd.Wait() // until the workers have closed stderr as well
		unwatch()
		close(n.ended)
	}()
	t.Cleanup(n.stop)
	if err := errors.Join(err, errNonblock); err != nil {
		t.Fatal(err)
	}
	n.ready()
	return n
}

// watchWith starts a shell that sends the process group a signal if the test has no time to end it: then the shell's
// standard input ends.
func watchWith(signal string, group int) (unwatch func(), err error) {
	shell := exec.Command("sh", "-c", "read -r _; kill -s "+signal+" -- -"+strconv.Itoa(group))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a key that ends the test is not to end the shell
	stdin, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		return func() {}, err
	}
	return func() {
		shell.Process.Kill()
		shell.Wait()
		stdin.Close()
	}, nil
}

// ready waits for a first answer, be it that nginx does not understand.
func (n *Nginx) ready() {
	n.t.Helper()
	c, err := net.DialTimeout("tcp4", n.Addr, patience)
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "nonsense\r\n\r\n"); err != nil {
		n.t.Fatal(err)
	}
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-n.ended: // its configuration was wrong
			c.Close()
		case <-answered:
		}
	}()
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		n.t.Fatalf("nginx did not start: %v", err)
	}
}

// Configure writes the configuration; a running nginx reads it at Reload.
func (n *Nginx) Configure(c NginxConfig) {
	n.t.Helper()
	user := ""
	if os.Geteuid() == 0 { // else root's workers are nobody, who can't write into the directory
		user = "user root;"
	}
	n.write("nginx.conf", fmt.Appendf(nil, nginxConf, user, c.HTTP, n.Addr, c.Listen, c.Server))
}

func (n *Nginx) write(name string, data []byte) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), data, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// Reload makes nginx start a new worker, and end the old one when it has
// answered what it has begun. It does not wait for that.
func (n *Nginx) Reload() { n.signal(syscall.SIGHUP) }

// Quit ends nginx when it has answered what it has begun. It does not wait for
// that.
func (n *Nginx) Quit() { n.signal(syscall.SIGQUIT) }

// Kill kills every process of nginx.
func (n *Nginx) Kill() {
	if err := syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		n.t.Errorf("kill nginx: %v", err)
	}
}

// Ended is closed when no process of nginx is left.
func (n *Nginx) Ended() <-chan struct{} { return n.ended }

// signal sends the master process a signal.
func (n *Nginx) signal(s syscall.Signal) {
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Errorf("%v to nginx: %v", s, err)
	}
}

func (n *Nginx) stop() {
	select {
	case <-n.ended:
	default:
		syscall.Kill(-n.cmd.Process.Pid, syscall.SIGTERM)
	}
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.t.Errorf("nginx did not end within %v", patience)
		n.Kill()
		<-n.ended
	}
	if n.t.Failed() {
		n.t.Logf("nginx said:\n%s", n.output.String())
	}
}

// output keeps what several processes write.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.buf.String())
}
