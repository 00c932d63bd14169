package stint

import (
	"context"
	"time"
)

// A Flight is one logical call under way. It is also the context of its
// attempts, so that it costs one allocation. A carrier holds it while the
// result is being read; End may be called more than once and at the same time
// as anything else.
type Flight struct {
	scope
	path path

	ticket
	fn     func(context.Context) error // of Do
	sender Sender                      // of Send

	attempts int
	outcomes []string
	attempt  *scope // the present attempt's own limit, if it has one
	slot     bool   // holds a bulkhead slot
	result   bool   // the sender holds a result

	// The bulkhead's list of results being read, under its lock.
	loose      bool
	prev, next *Flight
}

// Result reports whether the last attempt brought a result.
func (f *Flight) Result() bool { return f.result }

// Value gives what is below this call the call's own path.
func (f *Flight) Value(key any) any {
	if key == (pathKey{}) {
		return &f.path
	}
	return f.scope.Value(key)
}

// End says that the result has been read, or is not wanted: it ends the
// attempt's context and frees its bulkhead slot.
func (f *Flight) End() {
	if f.caller == nil {
		return // it never started
	}
	if f.attempt != nil {
		f.attempt.end()
	}
	f.end()
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
	if up != nil {
		f.path = path{requestSeed: up.requestSeed, service: up.service, admission: up.admission}
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
	up := pathOf(f.parent)
	return up != nil && up.hop.Owner != ""
}

// panicked is the outcome of an attempt that did not return: neutral, since a
// panic of ours says nothing about the dependency.
var panicked = Outcome{Kind: Canceled, Code: "panic"}

// run makes the attempts: steps 4 to 8 of a call.
func (f *Flight) run(ctx context.Context) (err error) {
	f.scope.parent, f.scope.deadline, f.scope.cause = ctx, f.ticket.deadline, f.limit
	f.inherit(pathOf(ctx))

	// Settle exactly once, also if the attempt panics.
	last, reason := panicked, Reason(0)
	defer func() { f.finish(last, reason, err) }()

	c, p := f.caller, f.policy
	var withdrawn bool // a token taken for a retry that has not left yet
	var lastErr error  // of the last attempt that ran
	for {
		// 4. attempt
		if r := f.ready(); r != 0 {
			if withdrawn {
				c.budget.Return()
			}
			if f.attempts == 0 {
				last, reason = Outcome{Kind: Refused, NotStarted: true, Code: r.String()}, r
				return f.refusal(r)
			}
			err = f.failure(last, r, lastErr)
			if reason = r; r == CallerGone {
				last = Outcome{Kind: Canceled}
			}
			return err
		}
		withdrawn = false
		f.attempts++
		last = panicked // until the attempt has returned
		start := time.Now()
		o, aerr := f.try(start) // 5. send and 6. classify
		last, lastErr = o, aerr
		if o.Kind == OK {
			f.told(start, o, 0, aerr)
			return aerr // not nil where Classify says that the error is none
		}
		f.outcomes = append(f.outcomes, o.String())

		// 7. decide
		d := p.Decide(Attempt{
			Number: f.attempts, Outcome: o, Remaining: time.Until(f.scope.deadline), Op: f.op, Owned: f.owned(),
			BreakerClosed: f.breaker == nil || f.breaker.closed(), Balance: c.budget.Balance(),
		}, c.opts.Rand())
		if d.Retry && !c.budget.Withdraw() {
			d = Decision{Reason: BudgetSpent} // another call took the last token
		}
		if !d.Retry {
			f.told(start, o, 0, aerr)
			reason = d.Reason
			return f.failure(o, d.Reason, aerr)
		}
		withdrawn = true
		f.told(start, o, d.Delay, aerr)
		f.drop()
		f.sleep(d.Delay)
	}
}

// ready guards an attempt and takes its bulkhead slot.
func (f *Flight) ready() Reason {
	if f.attempts > 0 && f.Err() != nil { // at the first, start has just looked
		return f.why()
	}
	left := time.Until(f.scope.deadline)
	if left < f.policy.MinUseful {
		return NoTime
	}
	var waited bool
	f.slot, waited = f.caller.bulkhead.acquire(f, left-f.policy.MinUseful)
	switch {
	case waited && f.Err() != nil:
		return f.why() // finish gives a slot back that came at the same moment
	case !f.slot:
		return Full
	}
	return 0
}

// why tells a caller that left from time that ran out.
func (f *Flight) why() Reason {
	if f.Err() == context.Canceled {
		return CallerGone
	}
	return NoTime
}

// try makes one attempt and judges it.
func (f *Flight) try(start time.Time) (o Outcome, err error) {
	ctx := context.Context(f)
	own := f.policy.Retry.AttemptTimeout
	if own > 0 && start.Add(own).Before(f.scope.deadline) {
		f.attempt = &scope{parent: f, deadline: start.Add(own), cause: ErrAttemptTimeout}
		ctx = f.attempt
	}
	if obs := f.caller.opts.Observer; obs != nil {
		ctx = obs.StartAttempt(ctx, f.event(AttemptDone, start))
	}
	if f.sender != nil {
		hop := f.path.hop
		hop.Attempt, hop.RequestID = f.attempts, f.path.requestID()
		// The guard has just seen at least 1 ms; what passed since is not worth
		// a refusal that could no longer say "nothing was sent".
		hop.Remaining = max(time.Until(f.attemptEnds()), time.Millisecond)
		o, err = f.sender.Send(ctx, hop)
		f.result = err == nil
	} else if err = f.fn(ctx); err == nil {
		o = Outcome{Kind: OK}
	} else if f.caller.opts.Classify != nil {
		o = f.caller.opts.Classify(ctx, err)
	} else {
		o = classify(err)
	}
	if err != nil {
		if over := f.ended(); over.Kind != OK {
			o, err = over, limited(err, context.Cause(f))
		} else if f.attempt != nil && f.attempt.Err() != nil {
			o = Outcome{Kind: TimedOut, NotStarted: o.NotStarted}
			err = limited(err, ErrAttemptTimeout)
		}
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

// attemptEnds is when the present attempt has to be over.
func (f *Flight) attemptEnds() time.Time {
	if f.attempt != nil {
		return f.attempt.deadline
	}
	return f.scope.deadline
}

// ended judges the call's own context: OK while it lives. Whatever error an
// attempt returns then, the caller's cancel is neutral, and time that ran out
// is the dependency's failure.
func (f *Flight) ended() Outcome {
	switch err := f.Err(); {
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
	case <-f.Done():
	}
}

// drop gives up what the last attempt brought and held.
func (f *Flight) drop() {
	if f.result {
		f.sender.Drop()
		f.result = false
	}
	if f.attempt != nil {
		f.attempt.end()
		f.attempt = nil
	}
	if f.slot {
		f.caller.bulkhead.release()
		f.slot = false
	}
}

func (f *Flight) refusal(r Reason) error {
	switch r {
	case NoTime:
		return f.caller.noTime
	case Full:
		return f.caller.full
	}
	return f.caller.over(f.parent)
}

func (f *Flight) failure(o Outcome, r Reason, err error) error {
	if r == CallerGone && err == nil {
		err = context.Cause(f.parent)
	}
	e := &Error{Reason: r, Dependency: f.caller.dependency, Attempts: f.attempts, Outcomes: f.outcomes,
		Remaining: max(time.Until(f.scope.deadline), 0), Last: o, Err: err}
	if o.Hinted {
		e.after = o.RetryAfter
	}
	return e
}

// finish is step 8: settle the breaker, the budget and the slot, and report.
func (f *Flight) finish(o Outcome, r Reason, err error) {
	c := f.caller
	if f.settle != nil {
		f.settle(verdict(o))
		c.tellChanges(f, f.breaker)
	}
	if o.Kind == OK {
		c.budget.Deposit()
	}
	if a := f.path.admission; a != nil && (o.Never || f.gaveUp(o, r)) {
		a.never.Store(true)
	}
	if c.opts.Observer != nil {
		e := f.event(CallDone, f.started)
		e.Time = time.Now()
		e.Elapsed, e.Budget = e.Time.Sub(f.started), f.scope.deadline.Sub(e.Time)
		e.Outcome, e.Reason, e.Err = o, r, err
		c.opts.Observer.Observe(f, e)
	}
	switch {
	case f.result && f.slot:
		f.slot = false
		c.bulkhead.handOver(f)
	default:
		f.drop()
		f.end()
	}
}

// gaveUp reports whether this layer retried on its own account under another
// owner, and failed: then nobody above must start over.
func (f *Flight) gaveUp(o Outcome, r Reason) bool {
	return f.policy.Retry.Owner == OwnerAlways && f.attempts > 0 && o.Kind != OK && r != CallerGone && f.owned()
}

// told reports an attempt, and what it overran its limit by.
func (f *Flight) told(start time.Time, o Outcome, delay time.Duration, err error) {
	obs := f.caller.opts.Observer
	if obs == nil {
		return
	}
	e := f.event(AttemptDone, start)
	e.Time = time.Now()
	e.Elapsed, e.Outcome, e.Delay, e.Err = e.Time.Sub(start), o, delay, err
	obs.Observe(f, e)
	if over := e.Time.Sub(f.attemptEnds()); over >= wasteFrom {
		e.Kind, e.Elapsed, e.Delay = WorkWasted, over, 0
		obs.Observe(f, e)
	}
}

// event fills in what every event of the call has.
func (f *Flight) event(kind EventKind, at time.Time) Event {
	e := Event{Kind: kind, Time: at, Service: f.caller.opts.Service, Dependency: f.caller.dependency, Op: f.op.Name,
		RequestID: f.path.requestID(), Owner: f.path.hop.Owner, Class: f.path.hop.Class,
		Attempt: f.attempts, Budget: f.scope.deadline.Sub(at)}
	def(&e.Service, f.path.service)
	return e
}
