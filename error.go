package stint

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A Reason says why a call was refused, or why no further attempt was made.
// The set is closed, so it is fit for a metric label.
type Reason uint8

const (
	// NoTime: too little time is left for a useful attempt, or for the wait
	// before one.
	NoTime Reason = iota + 1
	// BreakerOpen: the dependency's breaker lets no call through.
	BreakerOpen
	// Full: the bulkhead, or the Gate's limit, has no slot, nor will have one in time.
	Full
	// Final: the outcome is of a class that is not repeated.
	Final
	// NeverRetry: the peer said that this must not be tried again.
	NeverRetry
	// AttemptsSpent: all attempts that the policy allows were made.
	AttemptsSpent
	// NotRepeatable: the operation must not be executed twice, and may have been.
	NotRepeatable
	// OneShot: the request can't be produced a second time.
	OneShot
	// NotOwner: another layer of the path owns the retries.
	NotOwner
	// BudgetSpent: the dependency's retry budget is empty.
	BudgetSpent
	// CallerGone: the caller cancelled.
	CallerGone
	// Draining: the service is being stopped and lets nobody in any more.
	Draining
)

var reasonNames = [...]string{"", "no_time", "breaker_open", "full", "final", "never_retry", "attempts_spent",
	"not_repeatable", "one_shot", "not_owner", "budget_spent", "caller_gone", "draining"}

// String returns the reason as it stands in events and on the wire; the zero
// Reason is empty.
func (r Reason) String() string { return name(reasonNames[:], int(r)) }

// An Error is a call that failed: why stint went no further, and the real
// cause. Every error of a Caller or a Gate is one. It is shared and must not be
// changed.
//
// errors.Is(err, context.DeadlineExceeded) holds for NoTime by decision, though
// the context may still live: nobody can use the time that is left. Unwrap
// gives the last attempt's error, or what ended the caller's context.
type Error struct {
	// Reason says why there was no (further) attempt.
	Reason Reason

	// Dependency is the name of the Caller that gave up; empty for a Gate's
	// refusal, which sets Service.
	Dependency string
	// Service is the name of the Gate that refused.
	Service string

	// Attempts is how many attempts were made: zero means that nothing was
	// sent. Outcomes are their codes, in order.
	Attempts int
	Outcomes []string

	// Remaining is the time that was left when a further attempt, or what
	// Require stands before, was refused. It is zero for a call refused before
	// its first attempt: the Event has it.
	Remaining time.Duration

	// Last is the last attempt's outcome; the zero Outcome if none was made.
	Last Outcome

	// Err is the last attempt's error; nil for a refusal.
	Err error

	started bool          // an attempt may have been
	retryAt time.Time     // when to try again: a breaker's
	after   time.Duration // or how long to wait: a hint, a Gate's advice
	never   bool          // nobody above is to try again: a Gate's word
}

// Never reports whether nobody above is to try again: a Gate that is full says so
// when a good share of what arrives are retries already, and a peer's word is in Last.
func (e *Error) Never() bool { return e.never || e.Last.Never }

// RetryAfter is how long to wait before trying again is of any use, as far as
// that is known; else zero. For an open breaker it is the time until it lets
// probes through.
func (e *Error) RetryAfter() time.Duration {
	if !e.retryAt.IsZero() {
		return max(time.Until(e.retryAt), 0)
	}
	return e.after
}

// Error names the reason, the attempts and the real cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("stint: ")
	if e.Service != "" {
		fmt.Fprintf(&b, "gate %s", e.Service)
	} else {
		b.WriteString(e.Dependency)
	}
	if e.Attempts == 0 {
		fmt.Fprintf(&b, ": refused before start: %s", e.Reason)
	} else {
		fmt.Fprintf(&b, ": no further attempt after %d (%s): %s", e.Attempts, strings.Join(e.Outcomes, ", "), e.Reason)
		switch e.Reason {
		case NoTime:
			fmt.Fprintf(&b, " (%v left)", e.Remaining.Round(time.Microsecond))
		case NotRepeatable:
			b.WriteString(" (and may have been executed)")
		}
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports NoTime as context.DeadlineExceeded and CallerGone as
// context.Canceled, whatever Err holds.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Reason == NoTime ||
		target == context.Canceled && e.Reason == CallerGone
}

// Outcome lets a Caller around this one read the verdict: the last
// attempt's outcome, or proof that nothing was sent.
func (e *Error) Outcome() Outcome {
	if e.Attempts > 0 {
		o := e.Last
		o.NotStarted = o.NotStarted && !e.started
		return o
	}
	switch e.Reason {
	case Full, Draining: // a slot may be free after a wait, and another instance takes calls
		return Outcome{Kind: Transient, NotStarted: true, Hinted: e.after > 0, RetryAfter: e.after, Never: e.never, Code: e.Reason.String()}
	case CallerGone:
		return Outcome{Kind: Canceled, NotStarted: true}
	}
	return Outcome{Kind: Refused, NotStarted: true, Code: e.Reason.String()}
}

// errLimit is the cause of a context whose own limit fired. It is a
// context.DeadlineExceeded to everybody who does not ask more closely.
type errLimit string

func (e errLimit) Error() string { return string(e) }
func (e errLimit) Unwrap() error { return context.DeadlineExceeded }
func (e errLimit) Timeout() bool { return true }

var (
	// ErrAttemptTimeout is the context.Cause of an attempt that ran into
	// Retry.AttemptTimeout; the call may still have time.
	ErrAttemptTimeout error = errLimit("stint: attempt timeout")
	// ErrCallTimeout is the context.Cause of a call that ran into
	// Policy.Timeout, while its own caller would still have waited.
	ErrCallTimeout error = errLimit("stint: call timeout")
)
