package stinthttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// exchange is one logical call over HTTP: its stint.Sender, and afterwards the
// body of its response.
type exchange struct {
	transport *Transport
	native    *http.Transport // the base, if it is net/http's: then we know how it works
	orig      *http.Request   // the caller's
	req       *http.Request   // what is sent: under hedging a copy, since losers outlive the caller's claim to leave its own alone
	content   []byte          // the request's body, if it was read beforehand
	cancel    context.CancelFunc
	peer      Peer
	moved     bool // a redirect led to another host

	sent bool       // the request's own body has been handed to the base; under mu:
	mu   sync.Mutex // copies are sent at the same time

	flight stint.Flight
	first  try
	body   io.ReadCloser // the response's own
}

var errNoResponse = errors.New("stinthttp: Transport.Base returned neither a response nor an error")

// redirected looks at the requests that led to this one: where they led to
// another host, that is an external party and stays so, since where it led is
// not ours to know. It returns when the first of them had to be over, if that is
// sooner than the request's own deadline.
func (x *exchange) redirected() (ends time.Time, ok bool) {
	from := redirectedFrom(x.req)
	if from == nil {
		return ends, false
	}
	first, ok := from.Context().(inTime)
	for r := x.req; from != nil; r, from = from, redirectedFrom(from) {
		if from.URL.Host != r.URL.Host {
			x.peer, x.moved = PeerExternal, true
		}
	}
	own, bounded := x.req.Context().Deadline()
	return first.deadline, ok && (!bounded || first.deadline.Before(own))
}

// redirectedFrom returns the request whose response sent the client to r, or nil.
func redirectedFrom(r *http.Request) *http.Request {
	if r.Response == nil {
		return nil
	}
	return r.Response.Request
}

// buffer reads the request's body, if it is no longer than limit.
func (x *exchange) buffer(ctx context.Context, limit int64) error {
	body := x.req.Body
	limit = min(limit, math.MaxInt64-1)
	said := x.req.ContentLength
	if said > limit {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { body.Close() }) // or a stalled one would hold the call
	content, err := io.ReadAll(io.LimitReader(body, limit+1))
	if !stop() && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	x.sent = true
	switch {
	case err != nil:
		body.Close()
		return fmt.Errorf("stinthttp: nothing was sent: reading the request's body into memory: %w", err)
	case int64(len(content)) > limit:
		x.sent = false
		req := *x.req
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(content), body), body}
		x.req = &req
		return nil
	}
	if said > 0 && int64(len(content)) != said { // as net/http has it
		body.Close()
		return fmt.Errorf("stinthttp: nothing was sent: ContentLength=%d with Body length %d", said, len(content))
	}
	x.content = content
	return body.Close()
}

// again produces a body that was read beforehand.
func (x *exchange) again() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(x.content)), nil
}

// bodyFor gives an attempt its request's body.
func (x *exchange) bodyFor(r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if x.content != nil && len(x.content) == 0 {
		r.Body, r.ContentLength = http.NoBody, 0
		return nil
	}
	if x.content != nil {
		if len(r.Trailer) == 0 { // they need chunks
			r.ContentLength = int64(len(x.content))
		}
		r.GetBody = x.again
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.sent {
		x.sent = true
		return nil
	}
	body, err := r.GetBody()
	if err == nil {
		r.Body = body
	}
	return err
}

// closeUnsent closes the request's own body if no attempt has taken it, and none
// will: a copy that lost may only now be getting there.
func (x *exchange) closeUnsent() {
	if x.req.Body == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.sent {
		x.sent = true
		closeBody(x.req)
	}
}

// Send makes one attempt.
func (x *exchange) Send(ctx context.Context, hop stint.Hop, copy int) (any, stint.Outcome, error) {
	t := &x.first
	if hop.Attempt > 1 {
		t = new(try) // the first may still be under way
	}
	r := t.request(x, ctx, hop)
	defer t.end()
	if err := x.bodyFor(r); err != nil {
		return nil, stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "body"}, err
	}
	t.takeOver(r)
	base := x.transport.base()
	if copy > 0 && x.native != nil && x.transport.multiplexed.Load() && r.URL == x.req.URL {
		base = x.transport.rival(x.native)
	}
	resp, err := base.RoundTrip(r)
	if err == nil && resp == nil {
		err = errNoResponse
	}
	if err != nil {
		o, err := t.outcome(err, r)
		return nil, o, err
	}
	if resp.ProtoMajor > 1 {
		x.transport.multiplexed.Store(true)
	}
	if resp.Body == nil { // http.Client lets a RoundTripper leave it out
		resp.Body = http.NoBody
	}
	t.keep = true
	return resp, responseOutcome(resp, x.peer), nil
}

// Drain bounds: what is read of a response that nobody wants, so that its
// connection can be used again. Beyond them closing the connection is cheaper.
const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// Drop throws away a response.
func (x *exchange) Drop(result any, within time.Duration) {
	body := result.(*http.Response).Body
	if within = min(within, drainTime); within > 0 {
		timer := time.AfterFunc(within, func() { body.Close() })
		defer timer.Stop()
		io.CopyN(io.Discard, body, drainBytes)
	}
	body.Close()
}

// deliver gives the response to the caller: the attempt's context lives until
// its body has been read or closed, or the deadline.
func (x *exchange) deliver(resp *http.Response) *http.Response {
	x.body = resp.Body
	resp.Request = x.orig
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		resp.Request = x.orig.WithContext(inTime{x.req.Context(), x.flight.Deadline()})
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

// CloseWrite ends this side's half, as net/http's body does.
func (u *upgraded) CloseWrite() error {
	if c, ok := u.body.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return fmt.Errorf("CloseWrite: %w", http.ErrNotSupported)
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
