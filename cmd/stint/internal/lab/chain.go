package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint"
)

// A hop is how one layer calls the next.
type hop interface {
	// call makes one logical call. The status is that of the last answer; the
	// error says that there was none, or is a gRPC answer.
	call(ctx context.Context) (status int, err error)
}

// A chain is a spec's servers, running on the loopback interface.
type chain struct {
	first   hop
	leaf    *leaf
	replica *leaf // nil if there is one leaf only
	rec     *record
	asked   *watched  // what the leaf asks; nil if there is none
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
	c.leaf = &leaf{rec: c.rec, work: s.work}
	if s.store == NoStore {
		c.leaf.serve = s.serve(s, c.rec)
	} else {
		if c.asked, err = openStore(s, c.rec); err != nil {
			return c, err
		}
		c.leaf.serve = c.asked.ServeHTTP
	}
	var to []*server // the next one, and its replicas
	if s.replica != "" {
		c.replica = &leaf{rec: c.rec, replica: true, serve: func(http.ResponseWriter, *http.Request) {}}
		srv, err := newServer(s.replica, overHTTP{}, c.replica, nil)
		if err != nil {
			return c, err
		}
		c.servers, to = []*server{srv}, []*server{srv}
	}
	name, here := s.leaf, service(c.leaf)
	var gate *stint.Gate
	if s.gated {
		if gate, err = newGate(name, s.slots, s.guard); err != nil {
			return c, err
		}
	}
	for i := len(s.callers) - 1; ; i-- {
		over, caller := s.transport.carrier(len(s.callers)-1-i), s.callers[i]
		srv, err := newServer(name, over, here, gate)
		if err != nil {
			return c, err
		}
		c.servers = append([]*server{srv}, c.servers...)
		to = append([]*server{srv}, to...)

		var owner *stint.Caller
		if s.mode == Stint {
			if owner, err = newCaller(s, i, name, c.rec); err != nil {
				return c, err
			}
			if gate, err = newGate(caller.name, 0, 0); err != nil {
				return c, err
			}
		}
		next, leave, err := over.dial(s, i, to, owner)
		if err != nil {
			return c, err
		}
		for _, srv := range to {
			srv.leave = leave
		}
		if s.mode == Stint {
			c.first, here = stintCaller{next}, stintLayer{next}
		} else {
			naive := &naiveCaller{layer: caller.name, attempts: caller.attempts, next: next, rec: c.rec}
			c.first, here = naive, naiveLayer{naive, s.passContext}
		}
		if i == 0 { // the first caller is no service
			return c, nil
		}
		name, to = caller.name, nil // the replicas are the leaf's
	}
}

// quiet waits until no request is under way any more, and no query in the store,
// those whose caller has left included. From the outermost server on, each is
// closed to new requests when nobody is left who could send one.
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
		// The look of http.Server.Shutdown is up to 500 ms apart.
		if err := until(func() bool { return s.inside.Load() == 0 }, s.name); err != nil {
			return err
		}
		s.closeIdle()
		if err := s.shutdown(ctx); err != nil {
			return fmt.Errorf("%s is still at work: %w", s.name, err)
		}
	}
	if c.asked == nil {
		return nil
	}
	var failed error
	since := time.Now()
	err := until(func() (over bool) {
		over, failed = c.asked.quiet(since)
		return over || failed != nil
	}, "the store")
	return errors.Join(failed, err)
}

// stopLimit is how long stop waits; it is only reached if something hangs.
const stopLimit = 10 * time.Second

// stop closes every server and connection, and waits until they are gone.
func (c *chain) stop() error {
	c.rec.end()
	var err error
	if c.asked != nil {
		err = c.asked.close()
	}
	for _, s := range c.servers {
		s.close()
		s.closeIdle()
	}
	gone := make(chan struct{})
	go func() {
		for _, s := range c.servers {
			s.wait()
		}
		close(gone)
	}()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-gone:
		return err
	case <-timer.C:
		return errors.Join(err, fmt.Errorf("connections are still open after %v", stopLimit))
	}
}
