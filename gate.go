package stint

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// wasteFrom is the least overrun that is reported: below the wire's unit of
// 1 ms it is scheduling, not work.
const wasteFrom = time.Millisecond

// A Gate lets requests into one service: each with a deadline, none that can't
// finish, no more than fit. Its methods may be called at the same time.
type Gate struct {
	service string
	opts    GateOptions
	inside  atomic.Int64

	noTime, full *Error // the refusals, made once so that refusing costs nothing
}

// NewGate returns a Gate for the named service; opts may be nil. The name is
// this service's on the wire, so it has to be 1 to 64 token characters (RFC 9110,
// 5.6.2: letters, digits, "-", "_", "." and a few more). The error names every bad option.
func NewGate(service string, opts *GateOptions) (*Gate, error) {
	if opts == nil {
		opts = &GateOptions{}
	}
	if err := validName("service", service); err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	g := &Gate{
		service: service,
		opts:    opts.withDefaults(),
		noTime:  &Error{Reason: NoTime, Service: service},
		full:    &Error{Reason: Full, Service: service, after: fullRetryAfter},
	}
	l := opts.Logger
	if l == nil {
		l = slog.Default()
	}
	l.Info("stint gate", "service", service, "trust", g.opts.Trust.String(), "max_timeout", g.opts.MaxTimeout.String())
	return g, nil
}

// Service returns the service's name.
func (g *Gate) Service() string { return g.service }

// Options returns the options in force, with every default filled in but
// Reserve's, which depends on the request.
func (g *Gate) Options() GateOptions { return g.opts }

// An Admission is one request that a Gate let in, for carriers. Finish must be
// called when its work is done. Its methods may be called at the same time.
type Admission struct {
	gate      *Gate
	hop       Hop
	ctx       admissionContext
	arrived   time.Time
	deadline  time.Time    // the true one: ctx ends a reserve before it
	abandoned atomic.Int64 // when nobody waited any more, in ns after arrived; 0: somebody does
	unwatch   func() bool
	never     atomic.Bool
	finished  atomic.Bool
}

// admissionContext is the handler's context.
type admissionContext struct {
	scope
	path path
}

func (c *admissionContext) Value(key any) any {
	if key == (pathKey{}) {
		return &c.path
	}
	return c.scope.Value(key)
}

// Admit lets a request in, or refuses it with an *Error of Reason NoTime, Full
// or, where ctx is cancelled already, CallerGone. The request's deadline is
// fixed here, from now on, so call it as soon as the request's head is read.
// ctx is the request's own; a deadline in it counts as well. a must be zero and
// not be used again: it lies best inside a carrier's own struct.
func (g *Gate) Admit(ctx context.Context, hop Hop, a *Admission) error {
	if g.service == "" {
		return errUnmadeGate
	}
	now := time.Now()
	hop = g.believe(hop)
	skew := hop.readClock(now, g.opts.ClockSkew, g.opts.MaxTimeout)
	left := g.timeFor(ctx, hop, now)
	refused := g.refusal(ctx, left)
	if refused != nil && (!g.opts.ObserveOnly || refused.Reason == CallerGone) {
		if g.opts.Observer != nil {
			g.entered(ctx, Event{Time: now, Budget: left, Skew: skew, Reason: refused.Reason, RequestID: newPath(hop).requestID(),
				Outcome: Outcome{Kind: Refused, NotStarted: true, Code: refused.Reason.String()}}, hop)
		}
		return refused
	}
	var observed Reason
	if refused != nil {
		observed = refused.Reason
		g.inside.Add(1)         // it takes a place like any other
		if observed == NoTime { // a dead context would refuse it all the same
			left = g.timeFor(ctx, Hop{}, now)
		}
	}
	a.gate, a.hop, a.arrived, a.deadline = g, hop, now, now.Add(left)
	a.ctx.parent = ctx
	a.ctx.deadline = a.deadline.Add(-g.opts.reserve(left))
	a.ctx.cause = context.DeadlineExceeded
	a.ctx.path = newPath(hop)
	a.ctx.path.service, a.ctx.path.admission, a.ctx.path.never = g.service, a, &a.never
	if g.opts.Observer != nil {
		told := false
		defer func() {
			if !told { // the observer panicked, and nobody will call Finish
				g.inside.Add(-1)
			}
		}()
		g.entered(&a.ctx, Event{Time: now, Budget: left, Skew: skew, RequestID: a.ctx.path.requestID(),
			Reason: observed, Observed: observed != 0}, hop)
		told = true
		a.unwatch = context.AfterFunc(ctx, a.Abandon)
	}
	return nil
}

var errUnmadeGate = errors.New("stint: a Gate that NewGate did not make lets nobody in")

// believe drops what the gate's trust does not cover.
func (g *Gate) believe(h Hop) Hop {
	if g.opts.Trust == TrustPeers {
		return h
	}
	own := Hop{Remaining: h.Remaining, Until: h.Until, Key: h.Key, Ignored: h.Ignored, Anomalies: h.Anomalies}
	for _, claimed := range [...]bool{h.Owner != "", h.Class != ClassUnset, h.Attempt != 0, h.RequestID != ""} {
		if claimed {
			own.Ignored++
		}
	}
	return own
}

// timeFor returns the time that the request has: the smallest of what it named
// (or the default), the cap, and ctx's own deadline.
func (g *Gate) timeFor(ctx context.Context, hop Hop, now time.Time) time.Duration {
	left := hop.Remaining
	if left == 0 {
		left = g.opts.DefaultTimeout
	}
	left = min(left, g.opts.MaxTimeout)
	if d, ok := ctx.Deadline(); ok {
		left = min(left, d.Sub(now))
	}
	return left
}

// refusal refuses a request, or takes a place for it and returns nil.
func (g *Gate) refusal(ctx context.Context, left time.Duration) *Error {
	if ctx.Err() == context.Canceled {
		return &Error{Reason: CallerGone, Service: g.service, Err: context.Cause(ctx)}
	}
	if left < g.opts.MinUseful {
		return g.noTime
	}
	for {
		n := g.inside.Load()
		if g.opts.Limit >= 0 && n >= int64(g.opts.Limit) {
			return g.full
		}
		if g.inside.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// entered reports an arrival: e holds what the gate found, hop what was claimed.
func (g *Gate) entered(ctx context.Context, e Event, hop Hop) {
	e.Kind, e.Service, e.Owner, e.Class = GateEntered, g.service, hop.Owner, hop.Class
	e.Attempt, e.Ignored, e.Anomalies = hop.Attempt, hop.Ignored, hop.Anomalies
	g.opts.Observer.Observe(ctx, e)
}

// Context returns the context for the request's work. It ends the Gate's
// reserve before the deadline, or when the caller leaves.
func (a *Admission) Context() context.Context { return &a.ctx }

// Deadline returns the request's true deadline, by which the answer has to be
// out.
func (a *Admission) Deadline() time.Time { return a.deadline }

// Hop returns what the request brought, as far as the Gate believes it.
func (a *Admission) Hop() Hop { return a.hop }

// Never reports whether the answer, if it is a failure, has to tell everybody
// above not to try again: a dependency said so, or a layer that retried on its
// own account gave up.
func (a *Admission) Never() bool { return a.never.Load() }

// Abandon records that from now on nobody waits for the answer: it was given
// in the handler's place, or the caller left. What the handler still does is
// wasted work. Only the first call counts.
func (a *Admission) Abandon() {
	a.abandoned.CompareAndSwap(0, max(int64(time.Since(a.arrived)), 1))
}

// Finish ends the request: it frees its place and its context, and reports the
// outcome and any wasted work. Only the first call counts.
func (a *Admission) Finish(o Outcome) {
	if a.gate == nil || a.finished.Swap(true) {
		return
	}
	g := a.gate
	g.inside.Add(-1)
	defer a.ctx.end()
	if obs := g.opts.Observer; obs != nil {
		a.unwatch()
		now := time.Now()
		e := Event{Kind: GateLeft, Time: now, Service: g.service, RequestID: a.ctx.path.requestID(), Owner: a.hop.Owner,
			Class: a.hop.Class, Attempt: a.hop.Attempt, Budget: a.deadline.Sub(now), Elapsed: now.Sub(a.arrived), Outcome: o}
		obs.Observe(&a.ctx, e)
		useful := a.deadline
		if n := time.Duration(a.abandoned.Load()); n > 0 && a.arrived.Add(n).Before(useful) {
			useful = a.arrived.Add(n)
		}
		if e.Elapsed = now.Sub(useful); e.Elapsed >= wasteFrom {
			e.Kind = WorkWasted
			obs.Observe(&a.ctx, e)
		}
	}
}
