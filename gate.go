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
	places  *places

	noTime, full, draining *Error // the refusals, made once so that refusing costs nothing
}

// places are taken by the requests inside, whatever the Trust under which they
// were let in.
type places struct {
	taken atomic.Int64  // and closed more, once nobody is let in
	empty chan struct{} // closed when the last one has left after that
}

// closed is above every number of requests.
const closed = 1 << 62

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
		places:  &places{empty: make(chan struct{})},

		noTime:   &Error{Reason: NoTime, Service: service},
		full:     &Error{Reason: Full, Service: service, after: fullRetryAfter},
		draining: &Error{Reason: Draining, Service: service, after: drainRetryAfter},
	}
	g.log()
	return g, nil
}

func (g *Gate) log() {
	l := g.opts.Logger
	if l == nil {
		l = slog.Default()
	}
	l.Info("stint gate", "service", g.service, "trust", g.opts.Trust.String(), "max_timeout", g.opts.MaxTimeout.String())
}

// WithTrust returns a view of the Gate that believes its callers as t says: for
// a listener or a route of its own. It is the same Gate in all else: places,
// limit and draining are shared. Any t but TrustPeers is TrustDeadlineOnly. A
// route is no wall: where strangers reach the listener, they can ask for every
// path, and so TrustPeers is for routes that something in front keeps from them.
func (g *Gate) WithTrust(t Trust) *Gate {
	view := *g
	view.opts.Trust = TrustDeadlineOnly
	if t == TrustPeers {
		view.opts.Trust = t
	}
	if g.service != "" {
		view.log()
	}
	return &view
}

// Drain lets nobody in from now on, in all views of the Gate: a request is
// refused with Draining, and may be sent to another instance at once. Whoever is
// inside goes on within its deadline. The channel is closed when nobody is
// inside any more. There is no way back.
func (g *Gate) Drain() (empty <-chan struct{}) {
	if g.service == "" { // nobody was ever let in
		none := make(chan struct{})
		close(none)
		return none
	}
	p := g.places
	for {
		n := p.taken.Load()
		if n >= closed {
			break
		}
		if p.taken.CompareAndSwap(n, n+closed) {
			if n == 0 {
				close(p.empty)
			}
			break
		}
	}
	return p.empty
}

// leave gives a place back.
func (p *places) leave() {
	if p.taken.Add(-1) == closed {
		close(p.empty)
	}
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

// Admit lets a request in, or refuses it with an *Error of Reason NoTime, Full,
// Draining or, where ctx is cancelled already, CallerGone. The request's deadline is
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
	refused, entered := g.enter(ctx, left)
	if !entered {
		if g.opts.Observer != nil {
			g.entered(ctx, Event{Time: now, Budget: left, Skew: skew, Reason: refused.Reason, RequestID: newPath(hop).requestID(),
				Outcome: Outcome{Kind: Refused, NotStarted: true, Code: refused.Reason.String()}}, hop)
		}
		return refused
	}
	var observed Reason
	if refused != nil {
		observed = refused.Reason
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
				g.places.leave()
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

// enter takes a place for a request, or refuses it. With ObserveOnly it can be
// both.
func (g *Gate) enter(ctx context.Context, left time.Duration) (refused *Error, entered bool) {
	if ctx.Err() == context.Canceled {
		return &Error{Reason: CallerGone, Service: g.service, Err: context.Cause(ctx)}, false
	}
	for {
		n := g.places.taken.Load()
		switch {
		case left < g.opts.MinUseful:
			refused = g.noTime
		case n >= closed:
			refused = g.draining
		case g.opts.Limit >= 0 && n >= int64(g.opts.Limit):
			refused = g.full
		default:
			refused = nil
		}
		if n >= closed || refused != nil && !g.opts.ObserveOnly {
			return refused, false
		}
		if g.places.taken.CompareAndSwap(n, n+1) {
			return refused, true
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
	g.places.leave()
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
