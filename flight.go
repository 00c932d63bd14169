package stint

import (
	"context"
	"sync/atomic"
	"time"
)

// A Flight is one logical call under way, for carriers. It holds the call's
// state and the first attempt's context, so that a call is one allocation. A
// carrier keeps it while the result is being read.
type Flight struct {
	// The call, from start to finish.
	ticket
	work      any   // what Do or Call was given (see doing, calling), or Send's Sender
	call      scope // what waits between attempts end with
	up        *path // the caller's; nil where it has none
	path      path
	resent    atomic.Int32 // attempts that the carrier's client made by itself
	never     atomic.Bool  // a call inside an attempt said that nobody must start over
	attempts  int          // all that were made, copies included
	copies    int
	outcomes  []string
	begun     bool        // an attempt may have been started by the dependency
	withdrawn bool        // a token is taken for a retry that has not left yet
	slot      bool        // a bulkhead slot is taken for an attempt that has not begun yet
	loose     bool        // it is in the bulkhead's list; under the bulkhead's lock
	done      atomic.Bool // End has nothing left to do

	first   attempt
	current *attempt // the latest; of several copies, the one that counts

	prev, next *Flight // in the bulkhead's list of results being read, under its lock
}

// Result returns what the attempt that counts brought; nil if there is nothing.
func (f *Flight) Result() any {
	if f.current == nil || !f.current.has {
		return nil
	}
	return f.current.result
}

// Deadline returns when the call has to be over.
func (f *Flight) Deadline() time.Time { return f.call.deadline }

// Op returns the operation, with the least safety that the policy gives it.
func (f *Flight) Op() Op { return f.op }

// MinUseful returns the policy's, for a carrier that had to wait before it could
// send.
func (f *Flight) MinUseful() time.Duration { return f.policy.MinUseful }

// Repeats reports whether the policy allows more than one attempt: then a
// carrier leaves what its client would repeat by itself to the Caller.
func (f *Flight) Repeats() bool { return f.policy.Retry.Attempts > 1 }

// MayResend reports whether the carrier's client may send an attempt that was
// not processed again by itself. If so it counts as an attempt, though not against
// the retry budget, and is reported as Resent. A policy of one attempt allows it
// once. ctx is the attempt's. It may be called from any goroutine.
func (f *Flight) MayResend(ctx context.Context, attempt int) bool {
	most := max(f.policy.Retry.Attempts, 2)
	for {
		n := f.resent.Load()
		if int(n)+attempt >= most {
			return false
		}
		if f.resent.CompareAndSwap(n, n+1) {
			f.Resent(ctx, attempt)
			return true
		}
	}
}

// Resent reports that the carrier's client has sent an attempt again by itself,
// where that could not be prevented: it does not count as an attempt. ctx is the
// attempt's. It may be called from any goroutine.
func (f *Flight) Resent(ctx context.Context, attempt int) {
	if obs := f.caller.opts.Observer; obs != nil {
		e := f.event(Resent, time.Now())
		e.Attempt = attempt
		obs.Observe(ctx, e)
	}
}

// Follows says that the call goes on with one that the carrier's client has begun
// anew: so many attempts were made before. Call it before the first attempt's Send
// returns.
func (f *Flight) Follows(attempts int) { f.resent.Add(int32(attempts)) }

// End says that the result has been read, or is not wanted: it ends the
// attempt's context and frees its bulkhead slot. Once Send has returned it may
// be called more than once, from any goroutine.
func (f *Flight) End() {
	if f.current == nil || f.done.Load() {
		return // it never started, or the end of a body came before its Close
	}
	f.current.end()
	f.call.end()
	f.caller.bulkhead.end(f)
	f.done.Store(true)
}

// inherit works out what the call's attempts say on the wire. A layer claims
// the retries if it may make more than one attempt and this very call may be
// repeated; else it passes on who claimed them before it.
func (f *Flight) inherit() {
	p, up := &f.path, f.up
	p.class, p.never = f.op.Class, &f.never
	if f.op.keyed() {
		p.key = f.op.Key
	}
	if up != nil {
		p.owner, p.id, p.requestSeed, p.class = up.owner, up.id, up.requestSeed, up.class.lower(p.class)
		p.service, p.admission = up.service, up.admission
	}
	if f.claims(p.owner) {
		p.owner = f.caller.opts.Service
		def(&p.owner, p.service)
		def(&p.owner, "client")
	}
}

func (f *Flight) claims(above string) bool {
	r := &f.policy.Retry
	return (r.Attempts > 1 || f.policy.Hedge.Copies > 0) && f.op.repeatable() && (r.Owner == OwnerAlways || r.Owner == OwnerAuto && above == "")
}

// owned reports whether a layer further up owns the retries.
func (f *Flight) owned() bool {
	return f.up != nil && f.up.owner != ""
}

// panicked is the outcome of an attempt that did not return: neutral, since a
// panic of ours says nothing about the dependency.
var panicked = Outcome{Kind: Canceled, Code: "panic"}

// run makes the attempts: steps 4 to 8 of a call.
func (f *Flight) run(ctx context.Context, b bound) (err error) {
	f.call.parent, f.call.deadline, f.call.limit = ctx, b.deadline, b.limit
	f.up = pathOf(ctx)
	f.inherit()

	// Settle exactly once, also if the attempt panics.
	last, reason, done := panicked, Reason(0), false
	defer func() {
		if !done && f.current != nil { // an observer's panic: nobody gets the result
			f.drop(f.current, 0)
			f.freeSlot(f.current)
		}
		f.finish(last, reason, err)
	}()

	c, p := f.caller, f.policy
	if f.breaker != nil {
		c.tellChanges(ctx, f.breaker)
	}
	var lastErr error // of the last attempt that ran
	for {
		// 4. attempt
		var now time.Time
		if now, reason = f.ready(); reason == 0 {
			if f.attempts > 0 {
				f.drop(f.current, f.call.deadline.Sub(now)-p.MinUseful) // the attempt before
				now = time.Now()
			}
			f.current, reason = f.begin(0, now)
		}
		if reason != 0 {
			if f.attempts == 0 {
				last = Outcome{Kind: Refused, NotStarted: true, Code: reason.String()}
				done = true
				return f.refusal(reason)
			}
			done = true
			err = f.failure(last, reason, lastErr)
			if reason == CallerGone {
				last = Outcome{Kind: Canceled}
			}
			return err
		}
		f.withdrawn = false
		last = panicked // until the attempt has returned
		f.fly()         // 5. send and 6. classify
		last, lastErr = f.current.outcome, f.current.err
		if last.Kind == OK {
			f.report(f.current, 0)
			done = true
			return lastErr // not nil where Classify says that the error is none
		}
		f.failed(f.current)

		// 7. decide
		d := p.Decide(f.state(last), c.opts.Rand())
		if d.Retry && !c.budget.Withdraw() {
			d = Decision{Reason: BudgetSpent} // another call took the last token
		}
		f.report(f.current, d.wait())
		if !d.Retry {
			reason = d.Reason
			done = true
			return f.failure(last, reason, lastErr)
		}
		f.withdrawn = true
		f.freeSlot(f.current)
		if !f.current.has { // a result stays: it is the answer, should the retry not come about
			f.current.end()
		}
		f.sleep(d.Delay)
	}
}

// state is what the decisions depend on.
func (f *Flight) state(o Outcome) Attempt {
	return Attempt{
		Number: f.attempts - f.copies + int(f.resent.Load()), Copies: f.copies, Outcome: o, Remaining: time.Until(f.call.deadline), Op: f.op, Owned: f.owned(),
		BreakerClosed: f.breaker == nil || f.breaker.closed(), Balance: f.caller.budget.Balance(),
	}
}

// failed takes note of an attempt that did not succeed.
func (f *Flight) failed(a *attempt) {
	f.outcomes = append(f.outcomes, a.outcome.String())
	f.begun = f.begun || !a.outcome.NotStarted
}

// fly makes an attempt, with copies of it where hedging says so.
func (f *Flight) fly() {
	if after, ok := f.hedged(); ok {
		f.race(after)
		return
	}
	f.try(f.current)
	f.learn(f.current)
}

// ready guards an attempt and takes its bulkhead slot. now is when it last looked
// at the clock.
func (f *Flight) ready() (now time.Time, r Reason) {
	now = f.started // at the first, start has just looked: a look at the clock is a tenth of a call without work
	if f.attempts > 0 {
		now = time.Now()
		if f.call.Err() != nil {
			return now, f.why()
		}
		if f.breaker != nil && !f.breaker.closed() {
			return now, BreakerOpen // it opened during the wait
		}
	}
	left := f.call.deadline.Sub(now)
	if left < f.policy.MinUseful {
		return now, NoTime
	}
	if f.op.Within {
		return now, 0
	}
	var waited bool
	f.slot, waited = f.caller.bulkhead.acquire(&f.call, left-f.policy.MinUseful)
	switch {
	case waited && f.slot && f.call.Err() != nil, waited && f.call.Err() == context.Canceled:
		return now, f.why() // finish gives a slot back that came at the same moment
	case !f.slot: // also if the time ran out while it waited: that is why
		return now, Full
	case waited:
		now = time.Now()
	}
	return now, 0
}

// why tells a caller that left from time that ran out.
func (f *Flight) why() Reason {
	if f.call.Err() == context.Canceled {
		return CallerGone
	}
	return NoTime
}

// sleep waits before the next attempt, or until the call is over.
func (f *Flight) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.call.Done():
	}
}

func (f *Flight) refusal(r Reason) error {
	switch r {
	case NoTime:
		return f.caller.noTime
	case Full:
		return f.caller.full
	}
	return f.caller.over(f.call.parent)
}

func (f *Flight) failure(o Outcome, r Reason, err error) error {
	if r == CallerGone && err == nil {
		err = context.Cause(f.call.parent)
	}
	e := &Error{Reason: r, Dependency: f.caller.dependency, Attempts: f.attempts + int(f.resent.Load()), Outcomes: f.outcomes,
		Remaining: max(time.Until(f.call.deadline), 0), Last: o, Err: err, started: f.begun}
	if o.Hinted {
		e.after = o.RetryAfter
	}
	return e
}
