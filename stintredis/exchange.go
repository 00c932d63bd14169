package stintredis

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// An exchange is one attempt, as the context that go-redis gets for it, and the
// connections that go-redis takes for it.
//
// go-redis honours a deadline in flight, but not a cancel, and tells nobody which
// connection it took. But it gives the context's deadline to the connection,
// unchanged: so the deadline carries a mark, its Location, by which our connections
// know the exchange. To cancel is then to move their deadline into the past. If
// go-redis should ever make a deadline of its own, a cancel waits until that.
type exchange struct {
	context.Context
	limit time.Duration // of one command, from when it is sent: a little less than the client's own
	wait  time.Duration // how much longer this one may take, since it blocks
	mark  time.Location

	gone  atomic.Bool
	mu    sync.Mutex
	conns []*conn // one, but for a cluster's pipeline
	stop  func() bool
}

// exchanges are those under way, by their marks. A client may be dialling before
// it is attached, so they are one for all.
var exchanges sync.Map

type exchangeKey struct{}

func begin(ctx context.Context, limit, wait time.Duration) *exchange {
	x := &exchange{Context: ctx, limit: limit, wait: wait}
	exchanges.Store(&x.mark, x)
	x.stop = context.AfterFunc(ctx, x.abort)
	return x
}

func (x *exchange) Deadline() (time.Time, bool) { return x.within(x.limit + x.wait), true }

func (x *exchange) within(limit time.Duration) time.Time {
	d, ok := x.Context.Deadline()
	if own := time.Now().Add(limit); !ok || own.Before(d) {
		d = own
	}
	return d.In(&x.mark)
}

// A greeting is an exchange as the context of what go-redis says to a new
// connection: that does not block.
type greeting struct{ *exchange }

func (g greeting) Deadline() (time.Time, bool) { return g.within(g.limit), true }

func (x *exchange) Value(key any) any {
	if key == (exchangeKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// abort makes everything that the exchange still waits for fail.
func (x *exchange) abort() {
	x.gone.Store(true)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		c.abort(x)
	}
}

// end lets go of the connections: they are others' from now on.
func (x *exchange) end() {
	x.stop()
	exchanges.Delete(&x.mark)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		c.serves.CompareAndSwap(x, nil)
	}
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// A conn is a connection that knows which exchange it serves.
type conn struct {
	net.Conn
	serves atomic.Pointer[exchange]
	mu     sync.Mutex // orders deadlines that are set and the abort
}

// watched makes a connection one that an exchange can abort.
func watched(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *conn, *rawConn:
		return c
	case rawNetConn:
		return &rawConn{conn{Conn: c}, c}
	}
	return &conn{Conn: c}
}

// A rawConn is a conn whose socket go-redis may look at, to see whether an idle
// one is still alive.
type rawConn struct {
	conn
	syscall.Conn
}

type rawNetConn interface {
	net.Conn
	syscall.Conn
}

// NetConn returns what is inside, as tls.Conn has it.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) SetReadDeadline(t time.Time) error  { return c.set(t, c.Conn.SetReadDeadline) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.set(t, c.Conn.SetWriteDeadline) }

func (c *conn) set(t time.Time, set func(time.Time) error) error {
	x, _ := exchanges.Load(t.Location())
	next, _ := x.(*exchange)
	if next != nil && c.serves.Load() != next {
		next.mu.Lock()
		next.conns = append(next.conns, c)
		next.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if next != nil {
		c.serves.Store(next)
	}
	if now := c.serves.Load(); now != nil && now.gone.Load() {
		t = past
	}
	return set(t)
}

func (c *conn) abort(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves.Load() == x {
		c.Conn.SetDeadline(past)
	}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.hide(err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.hide(err)
}

// hide keeps the nature of an error from go-redis, whose cluster client would
// otherwise send the command again, whatever it is. Pub/Sub serves no exchange,
// and needs to know.
func (c *conn) hide(err error) error {
	if err == nil || c.serves.Load() == nil {
		return err
	}
	return &lost{err}
}

// lost is an error of a connection. It has no Unwrap on purpose.
type lost struct{ err error }

func (l *lost) Error() string { return l.err.Error() }

// found returns the error with what was hidden in it.
func found(err error) error {
	if l, ok := errors.AsType[*lost](err); ok {
		return l.err
	}
	return err
}
