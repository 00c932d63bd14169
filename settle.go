package stint

import "time"

// finish is step 8 of a call: settle the breaker, the budget and the slot, and
// report. It runs exactly once, whatever happened.
func (f *Flight) finish(o Outcome, r Reason, err error) {
	c := f.caller
	if f.settle != nil {
		f.settle(verdict(o))
		c.tellChanges(f.call.parent, f.breaker)
	}
	if o.Kind == OK {
		c.budget.Deposit()
	}
	if up := pathOf(f.call.parent); up != nil && up.never != nil && (o.Never || f.gaveUp(o, r)) {
		up.never.Store(true)
	}
	if c.opts.Observer != nil {
		e := f.event(CallDone, f.started)
		e.Time = time.Now()
		e.Elapsed, e.Budget = e.Time.Sub(f.started), f.deadline.Sub(e.Time)
		e.Outcome, e.Reason, e.Err = o, r, err
		c.opts.Observer.Observe(f.call.parent, e)
	}
	if f.result && f.slot {
		f.slot = false
		c.bulkhead.handOver(f)
		return
	}
	f.drop()
	f.call.end()
}

// gaveUp reports whether this layer made attempts of its own under another
// owner, and failed: because its policy says OwnerAlways, or because they
// provably never started. Then nobody above must start over, or the layers
// would multiply after all.
func (f *Flight) gaveUp(o Outcome, r Reason) bool {
	if o.Kind == OK || r == CallerGone || f.attempts == 0 || !f.owned() {
		return false
	}
	return f.attempts > 1 || f.policy.Retry.Owner == OwnerAlways
}

// report tells of an attempt, and of what it overran its limit by.
func (f *Flight) report(o Outcome, delay time.Duration, err error) {
	obs := f.caller.opts.Observer
	if obs == nil {
		return
	}
	e := f.event(AttemptDone, f.since)
	e.Time = time.Now()
	e.Elapsed, e.Outcome, e.Delay, e.Err = e.Time.Sub(f.since), o, delay, err
	obs.Observe(f.told, e)
	if over := e.Time.Sub(f.current.deadline); over >= wasteFrom {
		e.Kind, e.Elapsed, e.Delay = WorkWasted, over, 0
		obs.Observe(f.told, e)
	}
}

// event fills in what every event of the call has.
func (f *Flight) event(kind EventKind, at time.Time) Event {
	e := Event{Kind: kind, Time: at, Service: f.caller.opts.Service, Dependency: f.caller.dependency, Op: f.op.Name,
		RequestID: f.path.requestID(), Owner: f.path.hop.Owner, Class: f.path.hop.Class,
		Attempt: f.attempts, Budget: f.deadline.Sub(at)}
	def(&e.Service, f.path.service)
	return e
}
