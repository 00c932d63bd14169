package stint

import (
	"slices"
	"time"
)

// An Attempt is everything that the decision to try again depends on.
type Attempt struct {
	// Number is the attempt that just ended, or is under way, 1-based. Copies
	// that hedge it are not counted.
	Number int
	// Copies is how many copies the call has sent so far.
	Copies int
	// Outcome is what became of it.
	Outcome Outcome
	// Remaining is the time left until the call's deadline; zero or less: none.
	Remaining time.Duration
	// Op is the operation: its Safety (or the Policy's, if that is more), Key and
	// OneShot count.
	Op Op
	// Owned says that a layer further up owns the retries of this path.
	Owned bool
	// BreakerClosed says that the dependency's breaker lets calls through.
	BreakerClosed bool
	// Balance is what the dependency's retry budget holds, in retries.
	Balance float64
}

// A Decision says whether another attempt follows.
type Decision struct {
	// Retry is true if it does, after Delay.
	Retry bool
	// Delay is the wait before the next attempt; zero: at once. It is also set
	// where only the time was lacking: the wait that did not fit.
	Delay time.Duration
	// Reason says why not; zero if Retry.
	Reason Reason
}

// wait is the delay of a retry that will be made.
func (d Decision) wait() time.Duration {
	if !d.Retry {
		return 0
	}
	return d.Delay
}

// Decide decides whether the attempt a is followed by another. It is pure: no
// clock, no lock, no I/O; rnd in [0, 1) is the jitter's draw. The checks run in
// this order, and the first that says no gives the Reason: the outcome's class,
// attempts left, time left for the delay and a useful attempt, safe to repeat
// (or proof that it never started), ownership, breaker closed, a token in the
// retry budget. The token itself is the driver's to withdraw.
//
// The delay is full jitter, on top of the server's hint where it gave one: so
// nobody comes back sooner than asked, nor everybody at once. A hint that does
// not fit into the time left refuses the retry; it is never shortened.
//
// It decides by the policy that it is called on, and does not look at Operations:
// Caller.PolicyFor returns the one for an operation.
func (p Policy) Decide(a Attempt, rnd float64) Decision {
	p = p.withDefaults()
	a.Op = p.raised(a.Op)
	o := a.Outcome
	if r := p.class(o); r != 0 {
		return Decision{Reason: r}
	}
	if a.Number >= p.Retry.Attempts {
		return Decision{Reason: AttemptsSpent}
	}
	delay := backoff(a.Number, p.Retry.Base, p.Retry.Cap, rnd)
	if o.Hinted {
		delay = addSat(delay, max(o.RetryAfter, 0))
	}
	switch {
	case addSat(delay, p.MinUseful) > a.Remaining:
		return Decision{Reason: NoTime, Delay: delay}
	case a.Op.OneShot:
		return Decision{Reason: OneShot}
	case !o.NotStarted && !a.Op.repeatable():
		return Decision{Reason: NotRepeatable}
	case !o.NotStarted && p.Retry.NotAfterTimeout && o.Kind == TimedOut:
		return Decision{Reason: NotRepeatable}
	case !o.NotStarted && (p.Retry.Owner == OwnerNever || a.Owned && p.Retry.Owner != OwnerAlways):
		return Decision{Reason: NotOwner}
	case !a.BreakerClosed:
		return Decision{Reason: BreakerOpen}
	case a.Balance < 1:
		return Decision{Reason: BudgetSpent}
	}
	return Decision{Retry: true, Delay: delay}
}

// DecideHedge decides whether a further copy of an attempt is sent beside it,
// once the hedge's delay has passed; Outcome is not looked at. It is pure, as
// Decide is. A copy has to be allowed by Hedge.Copies, to find MinUseful left,
// to be safe to repeat, to belong to the owner of the retries, and to be paid
// for by the same retry budget; else the first of these that says no is the
// Reason.
func (p Policy) DecideHedge(a Attempt) Decision {
	p = p.withDefaults()
	a.Op = p.raised(a.Op)
	switch {
	case a.Copies >= p.Hedge.Copies:
		return Decision{Reason: AttemptsSpent}
	case a.Remaining < p.MinUseful:
		return Decision{Reason: NoTime}
	case a.Op.OneShot:
		return Decision{Reason: OneShot}
	case !a.Op.repeatable():
		return Decision{Reason: NotRepeatable}
	case p.Retry.Owner == OwnerNever || a.Owned && p.Retry.Owner != OwnerAlways:
		return Decision{Reason: NotOwner}
	case !a.BreakerClosed:
		return Decision{Reason: BreakerOpen}
	case a.Balance < 1:
		return Decision{Reason: BudgetSpent}
	}
	return Decision{Retry: true}
}

// class says whether an outcome is of a class that is ever repeated; zero if so.
func (p Policy) class(o Outcome) Reason {
	switch o.Kind {
	case Expired:
		return NoTime
	case Canceled:
		return CallerGone
	}
	switch {
	case o.Never:
		return NeverRetry
	case o.Kind == Transient, o.Kind == TimedOut, o.Kind == Overloaded && o.Hinted:
		return 0
	case o.Kind == OK, o.Kind == Refused:
		return Final
	case o.Code != "" && slices.Contains(p.Retry.Codes, o.Code):
		return 0
	}
	return Final
}
