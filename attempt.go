package stint

import (
	"context"
	"time"
)

// attempt is one attempt, and its context. It ends with it, so that what the
// attempt left behind does not run beside the next.
type attempt struct {
	scope
	path   *path
	number int             // 1-based
	copy   int             // which hedge; 0: the attempt itself
	since  time.Time       // when it started
	told   context.Context // itself, as the observer wants it
	open   bool            // its AttemptDone is still to come
	slot   bool            // it holds a bulkhead slot

	has     bool // the sender has brought a result, and nobody has dropped it
	result  any
	outcome Outcome
	err     error
}

func (a *attempt) Value(key any) any {
	if key == (pathKey{}) {
		return a.path
	}
	return a.scope.Value(key)
}

// What Flight.work is, beside a Sender.
type (
	doing   func(context.Context) error        // of Do
	calling func(context.Context) (any, error) // of Call, where it may be hedged
)

// begin makes an attempt's context, and lets the observer have it.
func (f *Flight) begin(copy int, now time.Time) (*attempt, Reason) {
	a := &f.first
	if f.attempts > 0 {
		a = new(attempt)
	}
	a.path, a.number, a.copy, a.since = &f.path, f.attempts+1, copy, now
	a.slot, f.slot = f.slot, false
	a.parent, a.deadline, a.limit = f.call.parent, f.call.deadline, f.call.limit
	if own := f.policy.Retry.AttemptTimeout; own > 0 && a.since.Add(own).Before(a.deadline) {
		a.deadline, a.limit = a.since.Add(own), attemptLimit
	}
	a.told = a
	if obs := f.caller.opts.Observer; obs != nil {
		e := f.event(AttemptDone, a.since)
		e.Attempt, e.Copy = a.number, a.copy
		a.open = true
		f.current = a // finish settles it, should the observer panic
		a.told = obs.StartAttempt(a, e)
		if time.Until(a.deadline) < time.Millisecond { // it took what there was
			a.outcome = Outcome{Kind: Refused, NotStarted: true, Code: NoTime.String()}
			f.report(a, 0)
			return a, NoTime
		}
	}
	f.attempts++
	return a, 0
}

// try makes one attempt and judges it.
func (f *Flight) try(a *attempt) {
	var o Outcome
	var err error
	switch work := f.work.(type) {
	case doing:
		err = work(a.told)
		o = f.judge(a, err)
	case calling:
		a.result, err = work(a.told)
		o = f.judge(a, err)
	default:
		hop := Hop{
			// The guard has just seen at least 1 ms; what passed since is not worth
			// a refusal that could no longer say "nothing was sent".
			Remaining: max(time.Until(a.deadline), time.Millisecond),
			Attempt:   a.number, Owner: f.path.owner, Class: f.path.class, Key: f.path.key, RequestID: f.path.requestID(),
		}
		a.result, o, err = work.(Sender).Send(a.told, hop, a.copy)
		a.has = err == nil
	}
	if err != nil {
		if over := f.ended(); over.Kind != OK {
			over.Never = o.Never
			o, err = over, limited(err, context.Cause(&f.call))
		} else if a.limit == attemptLimit && a.Err() != nil {
			o = Outcome{Kind: TimedOut, NotStarted: o.NotStarted, Never: o.Never, Code: "attempt_timeout"}
			err = limited(err, ErrAttemptTimeout)
		}
	}
	if o.Kind != OK {
		o.Never = o.Never || f.never.Load()
	}
	a.outcome, a.err = o, err
}

// judge is the verdict on what a function returned.
func (f *Flight) judge(a *attempt, err error) Outcome {
	switch {
	case err == nil:
		return Outcome{Kind: OK}
	case f.caller.opts.Classify != nil:
		return f.caller.opts.Classify(a.told, err)
	}
	return classify(err)
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
	case f.call.limit == callLimit:
		return Outcome{Kind: Expired, Code: "call_timeout"}
	}
	return Outcome{Kind: Expired, Code: "deadline"}
}

// drop gives up what an attempt brought, in at most so much time.
func (f *Flight) drop(a *attempt, within time.Duration) {
	if a == nil {
		return
	}
	if a.has {
		a.has = false
		f.work.(Sender).Drop(a.result, max(within, 0))
	}
	a.end()
}

func (f *Flight) freeSlot(a *attempt) {
	if a != nil && a.slot {
		a.slot = false
		f.caller.bulkhead.release()
	}
}
