package stint

import "time"

// finish is step 8 of a call: settle the breaker, the budget and the slot, and
// then report. It runs exactly once, whatever happened, and everything is given
// back before an observer is asked.
func (f *Flight) finish(o Outcome, r Reason, err error) {
	c := f.caller
	if f.settle != nil {
		f.settle(verdict(o))
	}
	if f.withdrawn {
		c.budget.Return()
	}
	if o.Kind == OK {
		c.budget.Deposit()
	}
	if f.up != nil && f.up.never != nil && (o.Never || f.gaveUp(o, r)) {
		f.up.never.Store(true)
	}
	a := f.current
	switch {
	case a == nil:
	case a.has && r == CallerGone: // nobody is there to read it
		f.drop(a, 0)
		f.freeSlot(a)
	case a.has && a.slot:
		a.slot = false
		c.bulkhead.handOver(f)
	default:
		f.freeSlot(a)
	}
	if f.slot { // for an attempt that did not come about
		f.slot = false
		c.bulkhead.release()
	}
	if a == nil || !a.has {
		f.drop(a, 0)
		f.call.end()
	}
	if f.settle != nil {
		c.tellChanges(f.call.parent, f.breaker)
	}
	if a != nil && a.open { // it panicked
		a.outcome, a.err = o, err
		f.report(a, 0)
	}
	if c.opts.Observer != nil {
		e := f.event(CallDone, f.started)
		e.Time, e.Attempt = time.Now(), f.attempts+int(f.resent.Load())
		e.Elapsed, e.Budget = e.Time.Sub(f.started), f.call.deadline.Sub(e.Time)
		e.Outcome, e.Reason, e.Err = o, r, err
		c.opts.Observer.Observe(f.call.parent, e)
	}
}

// gaveUp reports whether this layer failed under another owner after it had
// claimed the retries all the same (OwnerAlways), or had made several attempts
// because they provably never started. Then nobody above must start over, or
// the layers would multiply after all.
func (f *Flight) gaveUp(o Outcome, r Reason) bool {
	if o.Kind == OK || r == CallerGone || f.attempts == 0 || !f.owned() {
		return false
	}
	return f.attempts > 1 || f.claims("somebody above")
}

// report tells of an attempt, and of what it overran its limit by.
func (f *Flight) report(a *attempt, delay time.Duration) {
	obs := f.caller.opts.Observer
	if obs == nil {
		return
	}
	a.open = false
	e := f.event(AttemptDone, a.since)
	e.Attempt, e.Copy = a.number, a.copy
	e.Time = time.Now()
	e.Elapsed, e.Outcome, e.Delay, e.Err = e.Time.Sub(a.since), a.outcome, delay, a.err
	obs.Observe(a.told, e)
	wasted := e.Time.Sub(a.deadline)
	if a.outcome.Code == hedgeLost {
		wasted = e.Elapsed // all of it
	}
	if wasted >= wasteFrom {
		e.Kind, e.Elapsed, e.Delay = WorkWasted, wasted, 0
		obs.Observe(a.told, e)
	}
}

// event fills in what every event of the call has.
func (f *Flight) event(kind EventKind, at time.Time) Event {
	e := Event{Kind: kind, Time: at, Service: f.caller.opts.Service, Dependency: f.caller.dependency, Op: f.op.Name,
		RequestID: f.path.requestID(), Owner: f.path.owner, Class: f.path.class,
		Budget: f.call.deadline.Sub(at)}
	def(&e.Service, f.path.service)
	return e
}
