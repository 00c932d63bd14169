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
	fn        func(context.Context) error // of Do
	sender    Sender                      // of Send
	call      scope                       // what waits between attempts end with
	path      path
	never     atomic.Bool // a call inside an attempt said that nobody must start over
	attempts  int
	outcomes  []string
	begun     bool // an attempt may have been started by the dependency
	withdrawn bool // a token is taken for a retry that has not left yet

	// The present attempt.
	first   attempt
	current *attempt
	since   time.Time       // when it started
	told    context.Context // current, as the observer wants it
	open    bool            // its AttemptDone is still to come
	slot    bool            // it holds a bulkhead slot
	result  bool            // the sender holds a result of it, or of the one before

	// The bulkhead's list of results being read, under its lock.
	loose      bool
	prev, next *Flight
}

// attempt is the context of one attempt. It ends with it, so that what the
// attempt left behind does not run beside the next.
type attempt struct {
	scope
	path *path
}

func (a *attempt) Value(key any) any {
	if key == (pathKey{}) {
		return a.path
	}
	return a.scope.Value(key)
}

// Result reports whether the last attempt brought a result.
func (f *Flight) Result() bool { return f.result }

// Deadline returns when the call has to be over.
func (f *Flight) Deadline() time.Time { return f.deadline }

// End says that the result has been read, or is not wanted: it ends the
// attempt's context and frees its bulkhead slot. Once Send has returned it may
// be called more than once, from any goroutine.
func (f *Flight) End() {
	if f.current == nil {
		return // it never started
	}
	f.current.end()
	f.call.end()
	f.caller.bulkhead.end(f)
}

// inherit works out what the call's attempts say on the wire. A layer claims
// the retries if it may make more than one attempt and this very call may be
// repeated; else it passes on who claimed them before it.
func (f *Flight) inherit(up *path) {
	h := Hop{Class: f.op.Class}
	if f.op.keyed() {
		h.Key = f.op.Key
	}
	f.path.never = &f.never
	if up != nil {
		f.path.requestSeed, f.path.service, f.path.admission = up.requestSeed, up.service, up.admission
		h.Owner, h.RequestID, h.Class = up.hop.Owner, up.hop.RequestID, up.hop.Class.lower(f.op.Class)
	}
	if f.claims(h.Owner) {
		h.Owner = f.caller.opts.Service
		def(&h.Owner, f.path.service)
		def(&h.Owner, "client")
	}
	f.path.hop = h
}

func (f *Flight) claims(above string) bool {
	r := &f.policy.Retry
	return r.Attempts > 1 && f.op.repeatable() && (r.Owner == OwnerAlways || r.Owner == OwnerAuto && above == "")
}

// owned reports whether a layer further up owns the retries.
func (f *Flight) owned() bool {
	up := pathOf(f.call.parent)
	return up != nil && up.hop.Owner != ""
}

// panicked is the outcome of an attempt that did not return: neutral, since a
// panic of ours says nothing about the dependency.
var panicked = Outcome{Kind: Canceled, Code: "panic"}

// run makes the attempts: steps 4 to 8 of a call.
func (f *Flight) run(ctx context.Context) (err error) {
	f.call.parent, f.call.deadline, f.call.cause = ctx, f.deadline, f.limit
	f.inherit(pathOf(ctx))

	// Settle exactly once, also if the attempt panics.
	last, reason := panicked, Reason(0)
	defer func() { f.finish(last, reason, err) }()

	c, p := f.caller, f.policy
	if f.breaker != nil {
		c.tellChanges(ctx, f.breaker)
	}
	var lastErr error // of the last attempt that ran
	for {
		// 4. attempt
		if reason = f.ready(); reason == 0 {
			if f.result { // of the attempt before
				f.drop(time.Until(f.deadline) - p.MinUseful)
			}
			reason = f.begin()
		}
		if reason != 0 {
			if f.attempts == 0 {
				last = Outcome{Kind: Refused, NotStarted: true, Code: reason.String()}
				return f.refusal(reason)
			}
			err = f.failure(last, reason, lastErr)
			if reason == CallerGone {
				last = Outcome{Kind: Canceled}
			}
			return err
		}
		f.withdrawn = false
		f.attempts++
		last = panicked    // until the attempt has returned
		o, aerr := f.try() // 5. send and 6. classify
		last, lastErr = o, aerr
		if o.Kind == OK {
			f.report(o, 0, aerr)
			return aerr // not nil where Classify says that the error is none
		}
		f.outcomes = append(f.outcomes, o.String())
		f.begun = f.begun || !o.NotStarted

		// 7. decide
		d := p.Decide(Attempt{
			Number: f.attempts, Outcome: o, Remaining: time.Until(f.deadline), Op: f.op, Owned: f.owned(),
			BreakerClosed: f.breaker == nil || f.breaker.closed(), Balance: c.budget.Balance(),
		}, c.opts.Rand())
		if d.Retry && !c.budget.Withdraw() {
			d = Decision{Reason: BudgetSpent} // another call took the last token
		}
		if !d.Retry {
			f.report(o, 0, aerr)
			reason = d.Reason
			return f.failure(o, reason, aerr)
		}
		f.withdrawn = true
		f.report(o, d.Delay, aerr)
		f.freeSlot()
		if !f.result { // a result stays: it is the answer, should the retry not come about
			f.current.end()
		}
		f.sleep(d.Delay)
	}
}

// ready guards an attempt and takes its bulkhead slot.
func (f *Flight) ready() Reason {
	f.since = f.started // at the first, start has just looked: a look at the clock is a tenth of a call without work
	if f.attempts > 0 {
		f.since = time.Now()
		if f.call.Err() != nil {
			return f.why()
		}
		if f.breaker != nil && !f.breaker.closed() {
			return BreakerOpen // it opened during the wait
		}
	}
	left := f.deadline.Sub(f.since)
	if left < f.policy.MinUseful {
		return NoTime
	}
	var waited bool
	f.slot, waited = f.caller.bulkhead.acquire(&f.call, left-f.policy.MinUseful)
	switch {
	case waited && f.call.Err() != nil:
		return f.why() // finish gives a slot back that came at the same moment
	case !f.slot:
		return Full
	case waited:
		f.since = time.Now()
	}
	return 0
}

// begin makes the attempt's context, and lets the observer have it.
func (f *Flight) begin() Reason {
	f.current = &f.first
	if f.attempts > 0 {
		f.current = new(attempt)
	}
	f.current.path = &f.path
	f.current.parent, f.current.deadline, f.current.cause = f.call.parent, f.deadline, f.limit
	if own := f.policy.Retry.AttemptTimeout; own > 0 && f.since.Add(own).Before(f.deadline) {
		f.current.deadline, f.current.cause = f.since.Add(own), ErrAttemptTimeout
	}
	f.told = f.current
	if obs := f.caller.opts.Observer; obs != nil {
		e := f.event(AttemptDone, f.since)
		e.Attempt++
		f.told = obs.StartAttempt(f.current, e)
		f.open = true
		if time.Until(f.current.deadline) < time.Millisecond { // it took what there was
			f.attempts++ // for the event of this one alone: nothing was sent
			f.report(Outcome{Kind: Refused, NotStarted: true, Code: NoTime.String()}, 0, nil)
			f.attempts--
			return NoTime
		}
	}
	return 0
}

// why tells a caller that left from time that ran out.
func (f *Flight) why() Reason {
	if f.call.Err() == context.Canceled {
		return CallerGone
	}
	return NoTime
}

// try makes one attempt and judges it.
func (f *Flight) try() (o Outcome, err error) {
	if f.sender != nil {
		hop := f.path.hop
		hop.Attempt, hop.RequestID = f.attempts, f.path.requestID()
		// The guard has just seen at least 1 ms; what passed since is not worth
		// a refusal that could no longer say "nothing was sent".
		hop.Remaining = max(time.Until(f.current.deadline), time.Millisecond)
		o, err = f.sender.Send(f.told, hop)
		f.result = err == nil
	} else if err = f.fn(f.told); err == nil {
		o = Outcome{Kind: OK}
	} else if f.caller.opts.Classify != nil {
		o = f.caller.opts.Classify(f.told, err)
	} else {
		o = classify(err)
	}
	if err != nil {
		if over := f.ended(); over.Kind != OK {
			over.Never = o.Never
			o, err = over, limited(err, context.Cause(&f.call))
		} else if f.current.cause == ErrAttemptTimeout && f.current.Err() != nil {
			o = Outcome{Kind: TimedOut, NotStarted: o.NotStarted, Never: o.Never, Code: "attempt_timeout"}
			err = limited(err, ErrAttemptTimeout)
		}
	}
	if o.Kind != OK {
		o.Never = o.Never || f.never.Load()
	}
	return o, err
}

// limited is the error of an attempt that a limit ended: what it returned, and
// the cause that names the limit.
func limited(err, cause error) error {
	if cause == context.DeadlineExceeded || cause == context.Canceled {
		return err // says no more than the context's own error
	}
	return &limitError{err, cause}
}

type limitError struct{ err, cause error }

func (e *limitError) Error() string   { return e.cause.Error() + ": " + e.err.Error() }
func (e *limitError) Unwrap() []error { return []error{e.cause, e.err} }

// ended judges the call's own context: OK while it lives. Whatever error an
// attempt returns then, the caller's cancel is neutral, and time that ran out
// is the dependency's failure.
func (f *Flight) ended() Outcome {
	switch err := f.call.Err(); {
	case err == nil:
		return Outcome{Kind: OK}
	case err == context.Canceled:
		return Outcome{Kind: Canceled}
	case f.limit == ErrCallTimeout:
		return Outcome{Kind: Expired, Code: "call_timeout"}
	}
	return Outcome{Kind: Expired, Code: "deadline"}
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

// drop gives up what the last attempt brought, in at most so much time.
func (f *Flight) drop(within time.Duration) {
	if f.result {
		f.result = false
		f.sender.Drop(max(within, 0))
	}
	if f.current != nil {
		f.current.end()
	}
}

func (f *Flight) freeSlot() {
	if f.slot {
		f.slot = false
		f.caller.bulkhead.release()
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
	e := &Error{Reason: r, Dependency: f.caller.dependency, Attempts: f.attempts, Outcomes: f.outcomes,
		Remaining: max(time.Until(f.deadline), 0), Last: o, Err: err, started: f.begun}
	if o.Hinted {
		e.after = o.RetryAfter
	}
	return e
}
