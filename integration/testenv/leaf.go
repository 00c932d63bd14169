package testenv

import (
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// A Leaf is an HTTP server of ours, the last of a path. Its methods may be
// called at the same time.
type Leaf struct {
	// Addr is the host and port that it listens on.
	Addr string

	server http.Server

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// StartLeaf serves h until the test ends. It logs nothing: the handlers of these
// tests panic on purpose.
func StartLeaf(t testing.TB, h http.Handler) *Leaf {
	t.Helper()
	l := Listen(t)
	leaf := &Leaf{Addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	leaf.server = http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), ConnState: leaf.track}
	done := make(chan struct{})
	go func() {
		defer close(done)
		leaf.server.Serve(l)
	}()
	t.Cleanup(func() {
		leaf.server.Close()
		<-done
	})
	return leaf
}

func (l *Leaf) track(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s {
	case http.StateNew:
		l.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(l.conns, c)
	}
}

// Kill does what the kernel does for a process that is killed: nobody listens
// any more, and every connection is reset. A handler may call it.
func (l *Leaf) Kill() {
	l.mu.Lock()
	for c := range l.conns {
		c.(*net.TCPConn).SetLinger(0)
	}
	l.mu.Unlock()
	l.server.Close()
}

// RefusingAddr returns a host and port where every connection is refused until
// the test ends: the port is taken, and nobody listens. The port of a server
// that has ended may be another test's the next moment.
func RefusingAddr(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}
