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
// in a bubble, it belongs to that bubble. Each direction of a connection holds
// 128 KiB. Its methods may be called at the same time.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	dials     map[string]int
}

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{listeners: make(map[string]*listener), dials: make(map[string]int)}
}

// Serve runs h at http://host until the test ends. It speaks HTTP/1.1 and
// unencrypted HTTP/2, whichever the client begins with.
func (n *Network) Serve(t testing.TB, host string, h http.Handler) {
	t.Helper()
	n.ServeServer(t, host, &http.Server{Handler: h})
}

// ServeServer runs s (its Addr is not used) at http://host until the test ends.
// It speaks what s.Protocols says; nil means HTTP/1.1 and unencrypted HTTP/2.
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
	if s.Protocols == nil {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	work := &atWork{handler: s.Handler}
	s.Handler = work
	var conns sync.WaitGroup // an HTTP/1.1 connection is closed when its handler has returned
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
		work.stop()
	})
}

// atWork knows which handlers of HTTP/2 requests are at work: their connection
// does not wait for them.
type atWork struct {
	handler http.Handler
	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

func (h *atWork) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		h.mu.Lock()
		if h.stopped {
			h.mu.Unlock()
			return // its connection has gone
		}
		h.running.Add(1)
		h.mu.Unlock()
		defer h.running.Done()
	}
	if h.handler == nil { // as http.Server has it
		http.DefaultServeMux.ServeHTTP(w, r)
		return
	}
	h.handler.ServeHTTP(w, r)
}

func (h *atWork) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.running.Wait()
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
	client, server := newConn(host)
	select {
	case l.conns <- server:
		return client, nil
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

// Transport returns an http.Transport over the network that speaks HTTP/1.1. It
// closes its idle connections when the test ends.
func (n *Network) Transport(t testing.TB) *http.Transport {
	tr := &http.Transport{DialContext: n.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// TransportHTTP2 is Transport for unencrypted HTTP/2, also at http://: all
// requests to a host are streams of one connection, as far as it allows.
func (n *Network) TransportHTTP2(t testing.TB) *http.Transport {
	tr := n.Transport(t)
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
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

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) + ":80" }
