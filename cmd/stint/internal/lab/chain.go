package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Mode says who makes the retries of a row.
type Mode string

const (
	// Naive rows have a retry loop written by hand in every layer.
	Naive Mode = "naive"
	// Stint rows have a stint.Caller and a stint.Gate in every layer.
	Stint Mode = "stint"
)

// A spec is a chain as data.
type spec struct {
	mode Mode
	// callers are who calls, outermost first. The first one is in the lab
	// itself, each further one is a service of its own.
	callers     []caller
	leaf        string        // the last service's name
	calls       int           // that the first caller makes
	deadline    time.Duration // of each
	work        time.Duration // at the leaf
	guard       time.Duration // stint: Policy.MinUseful of who retries
	hopTimeout  time.Duration // naive: http.Client.Timeout of each service
	passContext bool          // naive: the request's context goes to the next call
	breakerOff  bool          // stint
}

// A caller is one layer of a spec.
type caller struct {
	name     string
	attempts int
}

// A hop is how one layer calls the next.
type hop interface {
	// call makes one logical call. The status is that of the last answer; the
	// error says that there was none.
	call(ctx context.Context) (status int, err error)
}

// A chain is a spec's servers, running on the loopback interface.
type chain struct {
	first      hop
	leaf       *leaf
	rec        *record
	servers    []*server         // outermost first
	transports []*http.Transport // transports[i] leads to servers[i]
}

// newChain starts the servers of s. stop must be called.
func newChain(s spec) (c *chain, err error) {
	c = &chain{rec: newRecord()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	c.leaf = &leaf{work: s.work, rec: c.rec}
	name, handler := s.leaf, http.Handler(c.leaf)
	for i := len(s.callers) - 1; ; i-- {
		srv, err := serve(name, handler)
		if err != nil {
			return c, err
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		c.servers = append([]*server{srv}, c.servers...)
		c.transports = append([]*http.Transport{t}, c.transports...)

		caller := s.callers[i]
		if s.mode == Stint {
			next, err := newStintCaller(s, i, name, srv.url, t, c.rec)
			if err != nil {
				return c, err
			}
			c.first = next
			if handler, err = stintLayer(caller.name, next); err != nil {
				return c, err
			}
		} else {
			next := &naiveCaller{layer: caller.name, attempts: caller.attempts, url: srv.url,
				client: &http.Client{Transport: t, Timeout: s.hopTimeout}, rec: c.rec}
			c.first, handler = next, naiveLayer(next, s.passContext)
		}
		if i == 0 { // the first caller is no service
			return c, nil
		}
		name = caller.name
	}
}

// quiet waits until no request is under way any more, those whose caller has
// left included. From the outermost server on, each is closed to new requests
// when nobody is left who could send one.
func (c *chain) quiet(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i, s := range c.servers {
		for s.inside.Load() > 0 { // Shutdown's own look is up to 500 ms apart
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%s is still at work: %w", s.name, ctx.Err())
			}
		}
		c.transports[i].CloseIdleConnections()
		if err := s.http.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s is still at work: %w", s.name, err)
		}
	}
	return nil
}

// stopLimit is how long stop waits; it is only reached if something hangs.
const stopLimit = 10 * time.Second

// stop closes every server and connection, and waits until they are gone.
func (c *chain) stop() error {
	for i, s := range c.servers {
		s.http.Close()
		c.transports[i].CloseIdleConnections()
	}
	gone := make(chan struct{})
	go func() {
		for _, s := range c.servers {
			<-s.served
			s.conns.Wait()
		}
		close(gone)
	}()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-gone:
		return nil
	case <-timer.C:
		return fmt.Errorf("connections are still open after %v", stopLimit)
	}
}

// A server is one service of a chain.
type server struct {
	name   string
	url    string
	http   *http.Server
	inside atomic.Int64   // requests in its handler
	served chan struct{}  // closed when it accepts no more
	conns  sync.WaitGroup // its connections
}

func serve(name string, h http.Handler) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", name, err)
	}
	s := &server{name: name, url: "http://" + l.Addr().String() + "/", served: make(chan struct{})}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.inside.Add(1)
			defer s.inside.Add(-1)
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: patience,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.conns.Add(1)
			case http.StateClosed:
				s.conns.Done()
			}
		},
	}
	go func() {
		defer close(s.served)
		s.http.Serve(l)
	}()
	return s, nil
}
