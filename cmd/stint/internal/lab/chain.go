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

// A hop is how one layer calls the next.
type hop interface {
	// call makes one logical call. The status is that of the last answer; the
	// error says that there was none.
	call(ctx context.Context) (status int, err error)
}

// A chain is a spec's servers, running on the loopback interface.
type chain struct {
	first   hop
	leaf    *leaf
	replica *leaf // nil if there is one leaf only
	rec     *record
	servers []*server // outermost first, leaf and replica last
}

// newChain starts the servers of s. stop must be called.
func newChain(s spec) (c *chain, err error) {
	c = &chain{rec: newRecord()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if s.serve == nil {
		s.serve = unavailable
	}
	c.leaf = &leaf{rec: c.rec, serve: s.serve(s, c.rec)}
	var replicas []*server
	if s.replica != "" {
		c.replica = &leaf{rec: c.rec, replica: true, serve: func(http.ResponseWriter, *http.Request) {}}
		srv, err := serve(s.replica, c.replica)
		if err != nil {
			return c, err
		}
		c.servers, replicas = []*server{srv}, []*server{srv}
	}
	name, handler := s.leaf, http.Handler(c.leaf)
	if s.gated {
		if handler, err = gated(name, handler, s.slots, s.guard); err != nil {
			return c, err
		}
	}
	for i := len(s.callers) - 1; ; i-- {
		srv, err := serve(name, handler)
		if err != nil {
			return c, err
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		t.MaxIdleConnsPerHost = t.MaxIdleConns // calls that end at once keep their connections
		if s.mode == Naive && i == 0 {
			t.ResponseHeaderTimeout = s.timeout // none, if zero
		}
		c.servers = append([]*server{srv}, c.servers...)
		srv.from = t
		for _, other := range replicas {
			other.from = t
		}

		caller := s.callers[i]
		q := query{url: "http://" + srv.host + "/", method: s.method, key: s.key}
		if s.mode == Stint {
			next, err := newStintCaller(s, i, name, q, t, replicas, c.rec)
			if err != nil {
				return c, err
			}
			c.first = next
			if handler, err = stintLayer(caller.name, next); err != nil {
				return c, err
			}
		} else {
			if s.absolute {
				q.sign = absoluteDeadline(s.skew)
			}
			next := &naiveCaller{layer: caller.name, attempts: caller.attempts, query: q,
				client: &http.Client{Transport: t, Timeout: s.hopTimeout}, rec: c.rec}
			c.first, handler = next, naiveLayer(next, s.passContext)
		}
		replicas = nil // are the leaf's
		if i == 0 {    // the first caller is no service
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
	until := func(over func() bool, what string) error {
		for !over() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%s is still at work: %w", what, ctx.Err())
			}
		}
		return nil
	}
	if err := until(c.rec.complete, "an attempt"); err != nil { // a copy that lost is reported after its call
		return err
	}
	for _, s := range c.servers {
		// Shutdown's own look is up to 500 ms apart.
		if err := until(func() bool { return s.inside.Load() == 0 }, s.name); err != nil {
			return err
		}
		s.closeIdle()
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
	c.rec.end()
	for _, s := range c.servers {
		s.http.Close()
		s.closeIdle()
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
	host   string // with its port
	http   *http.Server
	from   *http.Transport // whose connections lead to it
	inside atomic.Int64    // requests in its handler
	served chan struct{}   // closed when it accepts no more
	conns  sync.WaitGroup  // its connections
}

// closeIdle closes the connections that nobody uses. Before it has any there is
// no transport.
func (s *server) closeIdle() {
	if s.from != nil {
		s.from.CloseIdleConnections()
	}
}

func serve(name string, h http.Handler) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", name, err)
	}
	s := &server{name: name, host: l.Addr().String(), served: make(chan struct{})}
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
