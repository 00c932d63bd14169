package stinthttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// try is one attempt over HTTP. It watches net/http, which may send a request
// more than once by itself: over HTTP/1 one without a body, or with one that it
// can produce again, whose kept-alive connection turned out to be dead; over
// HTTP/2 whatever the server says it has not processed, up to seven times with a
// backoff of its own, or without end if it closes each connection.
//
// What a server refused on a connection that goes on, and over HTTP/1 what has a
// body, stint takes over, where the policy allows more than one attempt: it costs
// an attempt and a token like any other retry. What was on a connection that an
// HTTP/2 server ended in good order, net/http may send again as long as attempts
// are left, without a token: every long-lived connection ends like that. HTTP/1
// without a body can't be stopped. Both are reported as the event Resent.
type try struct {
	context.Context // the attempt's, with trace
	exchange        *exchange
	cancel          context.CancelFunc // set where HTTP/2 may be spoken
	keep            bool               // the response has been handed on
	alone           bool               // nobody else traces the attempt
	attempt         int
	told            time.Duration // of the time left, on the wire
	wire            http.Header
	values          [3]string // what wire's slices hold, as far as they fit
	trace           httptrace.ClientTrace

	conn  net.Conn     // the last one that net/http got to send it over
	asked atomic.Bool  // net/http looked for a connection, as a registered protocol does not
	conns atomic.Int32 // how many it got to send it over
	h2    atomic.Bool  // the last of them speaks HTTP/2
	taken atomic.Bool  // it was about to send it again
}

// traceKey is the key under which httptrace looks for a trace in a context. A
// context that answers to it by itself saves an allocation on every hop.
var traceKey = func() any {
	var k keyCatcher
	httptrace.ContextClientTrace(&k)
	return k.key
}()

type keyCatcher struct {
	context.Context
	key any
}

func (k *keyCatcher) Value(key any) any { k.key = key; return nil }

// Value returns the trace, where nobody else has one.
func (t *try) Value(key any) any {
	if key == traceKey && t.alone {
		return &t.trace
	}
	return t.Context.Value(key)
}

// request makes the attempt's request, but for its body.
func (t *try) request(x *exchange, ctx context.Context, hop stint.Hop) *http.Request {
	if x.http2() {
		ctx, t.cancel = context.WithCancel(ctx)
	}
	t.exchange, t.attempt, t.told = x, hop.Attempt, hop.Remaining
	if _, ours := x.transport.base().(*Transport); !ours { // else it tells of its own attempts and copies
		t.trace.GotConn = t.gotConn
		if x.native != nil && !replayable(x.req) { // one that is, needs no proof that it was not started
			t.trace.GetConn = t.getConn
		}
	}
	if t.alone = httptrace.ContextClientTrace(ctx) == nil; !t.alone {
		ctx = httptrace.WithClientTrace(ctx, &t.trace) // both are called
	}
	t.Context = ctx
	r := x.req.WithContext(t)
	r.Header = t.header(hop)
	alsoWrite(ctx, r.Header, x.transport.AlsoWrite)
	t.wire = r.Header
	if others := x.transport.Alternates; len(others) > 0 && !x.moved {
		if i := (hop.Attempt - 1) % (len(others) + 1); i > 0 {
			u := *r.URL
			u.Host = others[i-1]
			r.URL = &u
			if r.Host == "" {
				r.Host = x.req.URL.Host
			}
		}
	}
	return r
}

// http2 reports whether the request may go over HTTP/2.
func (x *exchange) http2() bool {
	if x.native == nil {
		return false
	}
	p := x.native.Protocols
	if x.req.URL.Scheme == "https" {
		return p == nil || p.HTTP2()
	}
	return p != nil && p.UnencryptedHTTP2() && !p.HTTP1()
}

// end frees what the attempt has, unless its response lives on.
func (t *try) end() {
	if t.cancel != nil && !t.keep { // else it ends with the attempt's context
		t.cancel()
	}
}

// getConn is called by net/http before it looks for a connection.
func (t *try) getConn(string) { t.asked.Store(true) }

// gotConn is called by net/http when it has a connection, before it sends.
func (t *try) gotConn(info httptrace.GotConnInfo) {
	n, last, f := t.conns.Add(1), t.conn, &t.exchange.flight
	was := t.h2.Swap(t.speaksHTTP2(info.Conn))
	t.conn = info.Conn
	switch {
	case n == 1:
		if !info.WasIdle { // else it was there at once
			t.waited()
		}
	case !was:
		f.Resent(t, t.attempt)
	case f.Repeats() && same(last, info.Conn), !f.MayResend(t, t.attempt):
		t.taken.Store(true)
		t.cancel() // HTTP/2 looks at the context before it writes
	}
}

// same reports whether two connections are one.
func same(a, b net.Conn) bool { return reflect.TypeOf(a).Comparable() && a == b }

// waited takes the time that the connection took off what the peer is told.
func (t *try) waited() {
	ends, _ := t.Deadline()
	left := time.Until(ends)
	if t.told-left < time.Millisecond || left < time.Millisecond {
		return
	}
	var buf [1]stint.Field
	t.wire[headerDeadline][0] = stint.Hop{Remaining: left}.Append(buf[:0])[0].Value // every attempt says it
	for _, f := range [...]struct{ name, unit string }{{headerTimeoutMs, ""}, {headerConnectTimeout, ""}, {headerGRPCTimeout, "m"}} {
		if own := t.wire[f.name]; own != nil {
			t.wire[f.name] = shrink(f.name, own, f.unit, left)
		}
	}
}

// speaksHTTP2 reports whether c does: over TLS net/http speaks it only on a
// *tls.Conn; without, only if nothing else is allowed. A connection from a
// DialTLSContext that wraps it is HTTP/1.
func (t *try) speaksHTTP2(c net.Conn) bool {
	if t.cancel == nil {
		return false
	}
	if t.exchange.req.URL.Scheme != "https" {
		return true
	}
	tc, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	return ok && tc.ConnectionState().NegotiatedProtocol == "h2"
}

var errTakenOver = errors.New("stinthttp: net/http would have sent the request again by itself")

// takeOver keeps net/http from sending a request with a body again.
func (t *try) takeOver(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.GetBody == nil || t.exchange.native == nil || !t.exchange.flight.Repeats() {
		return
	}
	again := r.GetBody
	r.GetBody = func() (io.ReadCloser, error) {
		if t.h2.Load() {
			return again() // gotConn decides
		}
		t.taken.Store(true)
		return nil, errTakenOver
	}
}

// outcome judges an attempt that brought no response.
func (t *try) outcome(err error, r *http.Request) (stint.Outcome, error) {
	if t.taken.Load() {
		// HTTP/2 repeats only what was not processed; HTTP/1 also what may have
		// been, if its method or a key says that it may be repeated.
		return stint.Outcome{Kind: stint.Transient, NotStarted: t.h2.Load() || !replayable(r), Code: "not_processed"}, errTakenOver
	}
	o := errorOutcome(err, r)
	if t.exchange.native != nil {
		var judged interface{ Outcome() stint.Outcome }
		switch {
		case t.conns.Load() > 0:
			if errors.As(err, &judged) {
				o.NotStarted = false // the request's own body said so, of something else
			}
		case malformed(r):
			return stint.Outcome{Kind: stint.Rejected, NotStarted: true, Code: "invalid_request"}, err
		case t.asked.Load():
			o.NotStarted = true // it never had a connection
		}
	}
	return o, err
}

// replayable reports whether net/http holds r for one that may be repeated.
func replayable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return r.Header[headerKey] != nil || r.Header["X-Idempotency-Key"] != nil
}

// malformed reports whether net/http refuses to write r: its method, or a header
// or trailer, could not stand on the wire.
func malformed(r *http.Request) bool {
	if r.Method != "" && !token(r.Method) {
		return true
	}
	for _, h := range [...]http.Header{r.Header, r.Trailer} {
		for name, values := range h {
			if !token(name) {
				return true
			}
			for _, v := range values {
				for i := range len(v) {
					if v[i] < ' ' && v[i] != '\t' || v[i] == 0x7f {
						return true
					}
				}
			}
		}
	}
	return false
}

// token reports whether s is one (RFC 9110, 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
