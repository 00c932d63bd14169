package stinthttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// Peer says what the other side of a Transport is.
type Peer uint8

const (
	// PeerExternal is anybody: it is told the deadline and the idempotency key
	// only, and its X-Not-Started is not believed, since a stranger could make
	// us repeat a POST. Its Retry-After and its "X-Retry: never" are honoured.
	// It is the zero value.
	PeerExternal Peer = iota
	// PeerStint is a service of the same organisation that keeps this contract:
	// it gets the whole wire, and its marks are believed.
	PeerStint
)

// A Transport makes the requests of an ordinary http.Client under a Caller. It
// keeps http.RoundTripper's contract: the request is not changed, and if the
// last attempt obtained a response, it is returned with its body intact and a
// nil error, whatever its status. Else the error is an *stint.Error, which names
// the statuses seen before.
//
// Set its fields before its first use and not after. Its methods may be called
// at the same time.
type Transport struct {
	// Caller bounds, guards and repeats the requests. It must not be nil.
	Caller *stint.Caller

	// Base sends each attempt. Nil means http.DefaultTransport; NewTransport
	// makes one with every phase bounded.
	Base http.RoundTripper

	// Peer says who is on the other side. Zero is PeerExternal. A redirect to
	// another host is always external.
	Peer Peer

	// Op names a request and says whether it may be repeated; see RouteOp. It is
	// asked twice about a request whose body BufferBody reads. Nil means RequestOp.
	Op func(*http.Request) stint.Op

	// Alternates are further hosts ("host:port") that serve the same, under the
	// same Peer: every retry and every hedge goes to the next of them, after the
	// URL's own and round again. The Host header stays the request's. Nil: all go
	// to the URL's host, a hedge over another connection.
	Alternates []string

	// BufferBody is how many bytes of a body that can't be produced again (a pipe,
	// an inbound request's; under a Hedge also one that GetBody only rewinds, as
	// connect-go's does) are read into memory before the first attempt, so that
	// it can be repeated. A longer body stays as it is, and the call OneShot. Zero
	// or less: none is.
	BufferBody int64

	// AlsoWrite lists further headers that say the deadline of an attempt, for
	// services that don't read X-Deadline-Ms: X-Timeout-Ms, grpc-timeout, or
	// X-Request-Deadline, which is an instant of this machine's clock in Unix
	// milliseconds. Any other name makes RoundTrip fail. Nil: none.
	AlsoWrite []string

	multiplexed atomic.Bool                    // HTTP/2 has been seen
	second      atomic.Pointer[http.Transport] // another pool, for hedges over HTTP/2
}

// RequestOp is what a request says of itself: GET, HEAD, OPTIONS and TRACE are
// ReadOnly, PUT and DELETE Idempotent (RFC 9110, 9.2), the rest Unrepeatable
// unless it carries an Idempotency-Key. A body that GetBody can't produce again
// makes it OneShot. The name is the method.
func RequestOp(r *http.Request) stint.Op {
	op := stint.Op{Name: r.Method, OneShot: oneShot(r)}
	if key := r.Header[headerKey]; key != nil {
		op.Key = stint.ParseHop(map[string][]string{headerKey: key}).Key
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		op.Safety = stint.ReadOnly
	case http.MethodPut, http.MethodDelete:
		op.Safety = stint.Idempotent
	}
	switch r.Method {
	case "":
		op.Name = http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut,
		http.MethodDelete, http.MethodPost, http.MethodPatch, http.MethodConnect:
	default:
		op.Name = "other" // the name is a metric label, so its set is closed
	}
	return op
}

func oneShot(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.GetBody == nil
}

// sharesBody reports whether GetBody returns the one body that there is, rewound
// (connect-go's does): of two copies at a time each would take the other's bytes.
func sharesBody(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody || r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	if err != nil || body == nil {
		return false
	}
	if reflect.ValueOf(body).Comparable() && body == r.Body {
		return true
	}
	body.Close()
	return false
}

var errNoCaller = errors.New("stinthttp: Transport.Caller is nil: make one with stint.NewCaller")

// RoundTrip makes one logical call; see Transport.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	err := t.check()
	if err != nil {
		closeBody(req)
		return nil, err
	}
	x := &exchange{transport: t, peer: t.Peer, orig: req, req: req}
	if t.Caller.Hedges() {
		x.req = ownRequest(req)
		if sharesBody(req) {
			x.req.GetBody = nil
		}
	}
	x.native, _ = t.base().(*http.Transport)
	op := t.op(req)
	ctx := req.Context()
	var cancel context.CancelFunc
	if ends, ok := x.redirected(); ok { // it goes on in the first request's time
		ctx, cancel = context.WithDeadline(ctx, ends.Add(t.Caller.PolicyFor(op).Reserve))
	} else if t.BufferBody > 0 && oneShot(x.req) {
		ctx, cancel = t.callTime(ctx, op)
		err = x.buffer(ctx, t.BufferBody)
	}
	if cancel != nil {
		x.cancel = cancel
		defer func() {
			if x.flight.Result() == nil {
				cancel()
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	if x.content == nil {
		op.OneShot = op.OneShot || oneShot(x.req)
	} else { // it is not what it was
		again := *req
		again.GetBody = x.again
		op = t.op(&again)
	}
	err = t.Caller.Send(ctx, op, x, &x.flight)
	x.closeUnsent()
	if resp, ok := x.flight.Result().(*http.Response); ok {
		return x.deliver(resp), nil
	}
	return nil, err
}

func (t *Transport) op(r *http.Request) stint.Op {
	if t.Op == nil {
		return RequestOp(r)
	}
	return t.Op(r)
}

// check reports a Transport that can't work.
func (t *Transport) check() error {
	if t.Caller == nil {
		return errNoCaller
	}
	for _, host := range t.Alternates {
		if u, err := url.Parse("//" + host); err != nil || u.Host != host || host == "" {
			return fmt.Errorf("stinthttp: Transport.Alternates has %q: must be a host with or without a port, such as \"replica-2:8080\"", host)
		}
	}
	return checkAlsoWrite(t.AlsoWrite)
}

// callTime is the time of a call that begins now, for what comes before it.
func (t *Transport) callTime(ctx context.Context, op stint.Op) (context.Context, context.CancelFunc) {
	p := t.Caller.PolicyFor(op)
	timeout := p.Timeout
	if timeout == 0 {
		if _, bounded := ctx.Deadline(); bounded {
			return context.WithCancel(ctx)
		}
		timeout = 10 * time.Second // the Caller's own default
	}
	return context.WithTimeoutCause(ctx, sum(timeout, p.Reserve), stint.ErrCallTimeout)
}

// ownRequest returns a copy of r that may still be read when r has been changed.
func ownRequest(r *http.Request) *http.Request {
	own := *r
	if r.URL != nil {
		u := *r.URL
		own.URL = &u
	}
	own.Header = r.Header.Clone()
	return &own
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// CloseIdleConnections closes Base's, as http.Client.CloseIdleConnections expects.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	if second := t.second.Load(); second != nil {
		second.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// rival returns another pool of connections, with base's settings.
func (t *Transport) rival(base *http.Transport) *http.Transport {
	if t.second.Load() == nil {
		t.second.CompareAndSwap(nil, base.Clone())
	}
	return t.second.Load()
}
