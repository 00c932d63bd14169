package stint

import (
	"context"
	"time"
)

// An EventKind says what an Event reports.
type EventKind uint8

const (
	// AttemptDone: a Caller's attempt ended.
	AttemptDone EventKind = iota + 1
	// CallDone: a Caller's logical call ended, or was refused. Exactly one a call.
	CallDone
	// GateEntered: a Gate let a request in, or refused it.
	GateEntered
	// GateLeft: a request that a Gate let in was answered.
	GateLeft
	// WorkWasted: work went on after nobody waited for it, for Elapsed; or it
	// lost against another copy of the same attempt.
	WorkWasted
	// BreakerChanged: a breaker went From one state To another.
	BreakerChanged
	// Resent: the carrier's client sent an attempt again by itself, as net/http
	// does when a kept-alive connection turns out to be dead, or when an HTTP/2
	// server ends one in good order. It costs no token of the retry budget. Over
	// HTTP/2 it counts as an attempt; over HTTP/1 it can't be prevented and does not.
	Resent
)

var eventNames = [...]string{"", "attempt", "call", "gate_entered", "gate_left", "work_wasted", "breaker", "resent"}

// String returns the kind as it stands in logs.
func (k EventKind) String() string { return name(eventNames[:], int(k)) }

// An Event is one thing that happened: one log line, one metric point. Fields
// that do not apply are zero.
type Event struct {
	Kind EventKind
	// Time is when the event was made.
	Time time.Time
	// Service is the Gate's, or the one in which the Caller works.
	Service string
	// Dependency is the Caller's, Op the operation's name.
	Dependency, Op string
	// RequestID is the same in all services of one request; not a metric label.
	RequestID string
	// Owner is the layer that owns the retries of this path; empty if none.
	Owner string
	// Class is the request's criticality.
	Class Class
	// Attempt is the number of the attempt, 1-based; in CallDone, how many
	// were made. In a Gate's events it is what the caller said, zero if nothing.
	Attempt int
	// Copy is which copy of an attempt a hedge sent; 0: the attempt itself.
	Copy int
	// Budget is the time left: for an attempt when it started, for a call when
	// it ended, at a Gate's entry and exit then. Negative: overdrawn.
	Budget time.Duration
	// Elapsed is how long the attempt, the call or the handler took; in
	// WorkWasted, how much of that was for nobody.
	Elapsed time.Duration
	// Waited is how long a request waited for its place, at a Gate's entry.
	Waited time.Duration
	// Delay is the wait before the next attempt; zero if none follows.
	Delay time.Duration
	// Outcome is what became of the attempt, the call or the request.
	Outcome Outcome
	// Reason is why a call was refused or not repeated, or a Gate refused.
	Reason Reason
	// Observed says that a Gate would have refused for Reason, but for ObserveOnly or
	// MaxRefused, and let the request in.
	Observed bool
	// Ignored is how many values of the request's wire were not used, being
	// malformed or not trusted.
	Ignored int
	// Anomalies is how many oddities a Gate saw in the request's time limits; see
	// Hop.Anomalies.
	Anomalies int
	// Skew is how far the caller's clock seems to be ahead of the Gate's, negative
	// for behind, if that is more than GateOptions.ClockSkew. It is known only of
	// a request with an absolute deadline; else zero.
	Skew time.Duration
	// From and To are a breaker's states: closed, open, half-open.
	From, To string
	// Err is the error, where there is one.
	Err error
}

// An Observer is told of every Event. Its methods are called on the path of the
// request, from many goroutines at once, so they must be quick and must not
// panic.
type Observer interface {
	// StartAttempt is called before each attempt; the attempt runs under the
	// context it returns, which must derive from ctx (for a trace's span).
	StartAttempt(ctx context.Context, e Event) context.Context
	// Observe is called for every event.
	Observe(ctx context.Context, e Event)
}

// Observers is an Observer that tells several, in order.
type Observers []Observer

// StartAttempt passes ctx through every observer.
func (os Observers) StartAttempt(ctx context.Context, e Event) context.Context {
	for _, o := range os {
		ctx = o.StartAttempt(ctx, e)
	}
	return ctx
}

// Observe tells every observer.
func (os Observers) Observe(ctx context.Context, e Event) {
	for _, o := range os {
		o.Observe(ctx, e)
	}
}
