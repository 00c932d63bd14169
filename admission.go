package stint

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// An Admission is one request that a Gate let in, for carriers. Finish must be
// called when its work is done. Its methods may be called at the same time.
type Admission struct {
	gate      *Gate
	opts      *GateOptions // of the Gate, as it came in
	ctx       admissionContext
	arrived   time.Time
	waited    time.Duration // for its place
	called    chan bool     // says when it is its turn, and whether it gets in; nil: it did not wait
	reserve   time.Duration // ctx ends so much before the true deadline
	said      time.Duration // the hop's Remaining; the rest of it is here and in ctx.path
	attempt   int
	ignored   int32
	anomalies int32
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
// Draining or, where ctx has been cancelled, CallerGone. Where the service is full
// it may wait first, no longer than the request can spare. The request's deadline is
// fixed here, from now on, so call it as soon as the request's head is read.
// ctx is the request's own; a deadline in it counts as well. a must be zero and
// not be used again: it lies best inside a carrier's own struct.
func (g *Gate) Admit(ctx context.Context, hop Hop, a *Admission) error {
	if g.service == "" {
		return errUnmadeGate
	}
	now, o := time.Now(), g.opts.Load()
	none, most := g.bounds(o)
	hop = o.believe(hop)
	skew := hop.readClock(now, o.ClockSkew, most)
	left := timeFor(ctx, hop.Remaining, none, most, now)
	in, reason, never := false, CallerGone, false
	if ctx.Err() != context.Canceled {
		asked := hop
		asked.Remaining = left
		a.arrived = now
		in, reason, never = g.door.enter(ctx, g.kind, o, asked, a)
	}
	e := Event{Time: now.Add(a.waited), Budget: left - a.waited, Skew: skew, Waited: a.waited, Reason: reason}
	if !in {
		if o.Observer != nil {
			e.RequestID = newPath(hop).requestID()
			e.Outcome = Outcome{Kind: Refused, NotStarted: true, Never: never, Code: reason.String()}
			g.entered(ctx, o.Observer, e, hop)
		}
		return g.refusal.of(ctx, g.service, reason, never)
	}
	if reason == NoTime { // and it is let in all the same: a dead context would refuse it in the end
		left = timeFor(ctx, 0, none, most, now)
		e.Budget = left
	}
	a.gate, a.opts, a.reserve = g, o, o.reserve(left)
	a.said, a.attempt, a.ignored, a.anomalies = hop.Remaining, hop.Attempt, int32(hop.Ignored), int32(hop.Anomalies)
	a.ctx.parent = ctx
	a.ctx.deadline = now.Add(left - a.reserve)
	a.ctx.limit = plainLimit
	a.ctx.path = newPath(hop)
	a.ctx.path.service, a.ctx.path.admission, a.ctx.path.never = g.service, a, &a.never
	if o.Observer != nil {
		told := false
		defer func() {
			if !told { // the observer panicked, and nobody will call Finish
				g.door.leave(g.kind, e.Time, 0)
			}
		}()
		e.RequestID, e.Observed = a.ctx.path.requestID(), reason != 0
		g.entered(&a.ctx, o.Observer, e, hop)
		told = true
		a.unwatch = context.AfterFunc(ctx, a.Abandon)
	}
	return nil
}

var errUnmadeGate = errors.New("stint: a Gate that NewGate did not make lets nobody in")

// believe drops what the gate's trust does not cover, and a class above its own.
func (o *GateOptions) believe(h Hop) Hop {
	if o.Trust != TrustPeers {
		h = h.unbelieved()
	}
	h.Class = o.Class.lower(h.Class)
	return h
}

// unbelieved is what counts of a stranger's hop.
func (h Hop) unbelieved() Hop {
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
func timeFor(ctx context.Context, said, none, most time.Duration, now time.Time) time.Duration {
	left := said
	def(&left, none)
	left = min(left, most)
	if d, ok := ctx.Deadline(); ok {
		left = min(left, d.Sub(now))
	}
	return left
}

// entered reports an arrival: e holds what the gate found, hop what was claimed.
func (g *Gate) entered(ctx context.Context, obs Observer, e Event, hop Hop) {
	e.Kind, e.Service, e.Owner, e.Class = GateEntered, g.service, hop.Owner, hop.Class
	e.Attempt, e.Ignored, e.Anomalies = hop.Attempt, hop.Ignored, hop.Anomalies
	obs.Observe(ctx, e)
}

// Context returns the context for the request's work. It ends the Gate's
// reserve before the deadline, or when the caller leaves.
func (a *Admission) Context() context.Context { return &a.ctx }

// Deadline returns the request's true deadline, by which the answer has to be
// out.
func (a *Admission) Deadline() time.Time { return a.ctx.deadline.Add(a.reserve) }

// Hop returns what the request brought, as far as the Gate believes it.
func (a *Admission) Hop() Hop {
	p := &a.ctx.path
	return Hop{Remaining: a.said, Attempt: a.attempt, Owner: p.owner, Class: p.class, Key: p.key, RequestID: p.id,
		Ignored: int(a.ignored), Anomalies: int(a.anomalies)}
}

// Trust returns what the Gate believed of the request.
func (a *Admission) Trust() Trust {
	if a.opts == nil { // it was not let in
		return TrustDeadlineOnly
	}
	return a.opts.Trust
}

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
	now := a.arrived.Add(time.Since(a.arrived)) // half of what time.Now costs
	var took time.Duration
	switch o.Kind {
	case OK, TimedOut, Expired: // other failures can be quick, and would make the rest look slow
		took = max(now.Sub(a.arrived)-a.waited, 1)
	}
	g.door.leave(g.kind, now, took)
	defer a.ctx.end()
	if obs := a.opts.Observer; obs != nil {
		a.unwatch()
		e := Event{Kind: GateLeft, Time: now, Service: g.service, RequestID: a.ctx.path.requestID(), Owner: a.ctx.path.owner,
			Class: a.ctx.path.class, Attempt: a.attempt, Budget: a.Deadline().Sub(now), Elapsed: now.Sub(a.arrived), Outcome: o}
		obs.Observe(&a.ctx, e)
		useful := a.Deadline()
		if n := time.Duration(a.abandoned.Load()); n > 0 && a.arrived.Add(n).Before(useful) {
			useful = a.arrived.Add(n)
		}
		if e.Elapsed = now.Sub(useful); e.Elapsed >= wasteFrom {
			e.Kind = WorkWasted
			obs.Observe(&a.ctx, e)
		}
	}
}
