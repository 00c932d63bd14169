package stinttest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
)

// A Network is a set of hosts in memory. Its connections block only on each
// other, so that in a synctest bubble time moves on while everybody waits; made
// in a bubble, it belongs to that bubble. Its methods may be called at the same
// time.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	dials     map[string]int
}

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{listeners: make(map[string]*listener), dials: make(map[string]int)}
}

// Serve runs h as an HTTP/1.1 server at http://host until the test ends.
func (n *Network) Serve(t testing.TB, host string, h http.Handler) {
	t.Helper()
	n.ServeServer(t, host, &http.Server{Handler: h})
}

// ServeServer runs s (its Addr is not used) at http://host until the test ends.
// The end of the test waits for handlers that are still at work.
func (n *Network) ServeServer(t testing.TB, host string, s *http.Server) {
	t.Helper()
	l, err := n.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	if s.ErrorLog == nil {
		s.ErrorLog = log.New(io.Discard, "", 0)
	}
	var conns sync.WaitGroup // a connection is closed when its handler has returned
	seen := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			conns.Done()
		}
		if seen != nil {
			seen(c, state)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
		conns.Wait()
	})
}

// Listen starts listening at host (without a port). It is an error if somebody
// does already.
func (n *Network) Listen(host string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[host] != nil {
		return nil, fmt.Errorf("stinttest: host %q is taken", host)
	}
	l := &listener{network: n, host: host, conns: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[host] = l
	return l, nil
}

// DialContext connects to a host; the port does not matter. A host where nobody
// listens refuses at once, with a *net.OpError of Op "dial", as the kernel does.
func (n *Network) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	n.mu.Lock()
	l := n.listeners[host]
	if l != nil {
		n.dials[host]++
	}
	n.mu.Unlock()
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(host), Err: err}
	}
	if l == nil {
		return fail(fmt.Errorf("connection refused by host %q", host))
	}
	client, server := net.Pipe()
	select {
	case l.conns <- named{server, memAddr(host)}:
		return named{client, memAddr(host)}, nil
	case <-l.done:
		return fail(net.ErrClosed)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// Dials returns how many connections to host have been made.
func (n *Network) Dials(host string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[host]
}

// Transport returns an http.Transport over the network, which closes its idle
// connections when the test ends.
func (n *Network) Transport(t testing.TB) *http.Transport {
	tr := &http.Transport{DialContext: n.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

type listener struct {
	network *Network
	host    string
	conns   chan net.Conn
	once    sync.Once
	done    chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.network.mu.Lock()
		delete(l.network.listeners, l.host)
		l.network.mu.Unlock()
	})
	return nil
}

func (l *listener) Addr() net.Addr { return memAddr(l.host) }

// named is a pipe's end that says whose it is.
type named struct {
	net.Conn
	addr memAddr
}

func (c named) LocalAddr() net.Addr  { return c.addr }
func (c named) RemoteAddr() net.Addr { return c.addr }

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) + ":80" }
