package stinthttp

import (
	"context"
	"errors"
	"io"
	"net/http"
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

	// Op names a request and says whether it may be repeated. Nil means RequestOp.
	Op func(*http.Request) stint.Op
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

var errNoResponse = errors.New("stinthttp: Transport.Base returned neither a response nor an error")

var errNoCaller = errors.New("stinthttp: Transport.Caller is nil: make one with stint.NewCaller")

// RoundTrip makes one logical call; see Transport.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.Caller == nil {
		closeBody(req)
		return nil, errNoCaller
	}
	x := &exchange{base: t.Base, peer: t.Peer, req: req}
	if x.base == nil {
		x.base = http.DefaultTransport
	}
	ctx := req.Context()
	if from := redirectedFrom(req); from != nil {
		for r := req; from != nil; r, from = from, redirectedFrom(from) {
			if from.URL.Host != r.URL.Host {
				x.peer = PeerExternal // and stays so: where it led is not ours to know
			}
		}
		if first, ok := redirectedFrom(req).Context().(inTime); ok { // it goes on in the first request's time
			// A Caller takes its reserve from a context's deadline; here it has.
			ends := first.deadline.Add(t.Caller.Policy().Reserve)
			if own, ok := ctx.Deadline(); !ok || ends.Before(own) {
				ctx, x.cancel = context.WithDeadline(ctx, ends)
				defer func() {
					if !x.flight.Result() {
						x.cancel()
					}
				}()
			}
		}
	}
	var op stint.Op
	if t.Op != nil {
		op = t.Op(req)
		op.OneShot = op.OneShot || oneShot(req)
	} else {
		op = RequestOp(req)
	}
	err := t.Caller.Send(ctx, op, x, &x.flight)
	if !x.sent {
		closeBody(req)
	}
	if !x.flight.Result() {
		return nil, err
	}
	return x.deliver(), nil
}

// redirectedFrom returns the request whose response sent the client to r, or nil.
func redirectedFrom(r *http.Request) *http.Request {
	if r.Response == nil {
		return nil
	}
	return r.Response.Request
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// CloseIdleConnections closes Base's, as http.Client.CloseIdleConnections expects.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// exchange is one logical call over HTTP: its stint.Sender, and afterwards the
// body of its response.
type exchange struct {
	base   http.RoundTripper
	req    *http.Request
	peer   Peer
	sent   bool // the request's own body has been handed to base
	cancel context.CancelFunc

	flight stint.Flight
	resp   *http.Response
	body   io.ReadCloser // resp's own

	first [maxFields - 1]string // header values of the first attempt, which is not numbered
}

// Send makes one attempt.
func (x *exchange) Send(ctx context.Context, hop stint.Hop) (stint.Outcome, error) {
	r := x.req.WithContext(ctx)
	r.Header = x.header(hop)
	if x.sent && r.Body != nil && r.Body != http.NoBody {
		body, err := r.GetBody()
		if err != nil {
			return stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "body"}, err
		}
		r.Body = body
	}
	x.sent = true
	resp, err := x.base.RoundTrip(r)
	if err == nil && resp == nil {
		err = errNoResponse
	}
	if err != nil {
		return errorOutcome(err, r), err
	}
	if resp.Body == nil { // http.Client lets a RoundTripper leave it out
		resp.Body = http.NoBody
	}
	x.resp = resp
	return responseOutcome(resp, x.peer), nil
}

// Drain bounds: what is read of a response that nobody wants, so that its
// connection can be used again. Beyond them closing the connection is cheaper.
const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// Drop throws away the last response.
func (x *exchange) Drop(within time.Duration) {
	body := x.resp.Body
	x.resp = nil
	if within = min(within, drainTime); within > 0 {
		timer := time.AfterFunc(within, func() { body.Close() })
		defer timer.Stop()
		io.CopyN(io.Discard, body, drainBytes)
	}
	body.Close()
}

// deliver gives the response to the caller: the attempt's context lives until
// its body has been read or closed, or the deadline.
func (x *exchange) deliver() *http.Response {
	resp := x.resp
	x.body = resp.Body
	resp.Request = x.req
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		resp.Request = x.req.WithContext(inTime{x.req.Context(), x.flight.Deadline()})
	}
	if x.body == http.NoBody {
		x.end()
	}
	resp.Body = x
	if w, ok := x.body.(io.Writer); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &upgraded{x, w} // the body is the connection
	}
	return resp
}

// inTime tells a redirect, through the request that led to it, when the call
// has to be over.
type inTime struct {
	context.Context
	deadline time.Time
}

func (c inTime) Deadline() (time.Time, bool) { return c.deadline, true }

type upgraded struct {
	*exchange
	io.Writer
}

// Read reads the response's body.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if err != nil {
		x.end()
	}
	return n, err
}

// Close closes the response's body.
func (x *exchange) Close() error {
	err := x.body.Close()
	x.end()
	return err
}

func (x *exchange) end() {
	x.flight.End()
	if x.cancel != nil {
		x.cancel()
	}
}
