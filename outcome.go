package stint

import (
	"context"
	"errors"
	"time"
)

// A Kind is the class of an Outcome. Breaker, budget, retry decision and events
// all read this one verdict.
type Kind uint8

const (
	// Failed is a failure that another try would not cure: the zero value, so
	// that what nobody classified is not repeated.
	Failed Kind = iota
	// OK is a success.
	OK
	// Transient is a failure that may be over at the next try: 503, a reset.
	Transient
	// Overloaded is a refusal for want of quota (429, RESOURCE_EXHAUSTED), or by a
	// peer's Gate that is full: repeated only after the time that the server gave.
	// It says that the server is well, so the breaker does not count it.
	Overloaded
	// Rejected means that the request was at fault (404, 422): it says nothing
	// about the dependency's health.
	Rejected
	// TimedOut means that the attempt ran out of time: its own limit fired
	// (ErrAttemptTimeout), or the peer said that it had none left (504).
	TimedOut
	// Expired means that the call's limit (ErrCallTimeout) or its caller's
	// deadline ran out.
	Expired
	// Canceled means that the caller gave up. It says nothing about the
	// dependency.
	Canceled
	// Refused means that this process refused the attempt before it started.
	Refused
)

var kindNames = [...]string{"failed", "ok", "transient", "overloaded", "rejected", "timed_out", "expired", "canceled", "refused"}

// String returns the kind as it stands in events: a fixed, small set.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// An Outcome is what became of one attempt, judged once.
type Outcome struct {
	// Kind is the class. Zero is Failed.
	Kind Kind

	// NotStarted is proof that the work was never begun (the connection could
	// not be made, or a trusted peer said so): then even a call that must not
	// be repeated may be sent again.
	NotStarted bool

	// Never is the peer's word that this must not be tried again by anybody.
	// It beats every other rule.
	Never bool

	// Hinted says that the peer named a time to wait.
	Hinted bool
	// RetryAfter is that time, measured from now: a floor for the delay. Zero
	// with Hinted means "at once"; without Hinted it says nothing.
	RetryAfter time.Duration

	// Code is the outcome in the carrier's own words: "503", "UNAVAILABLE",
	// "connection_refused". It comes from a bounded set, fit for a metric
	// label. Empty means Kind's own name.
	Code string
}

// String returns Code, or Kind where there is none.
func (o Outcome) String() string {
	if o.Code != "" {
		return o.Code
	}
	return o.Kind.String()
}

// failure reports whether the outcome counts against the dependency in its
// breaker. What the caller, this process or the request was to blame for does not.
func (o Outcome) failure() bool {
	switch o.Kind {
	case Failed, Transient, TimedOut, Expired:
		return true
	}
	return false
}

// classify is the rule for functions and carriers that bring no classifier of
// their own: an error that can tell answers for itself, a cancellation is
// neutral, everything else failed and is not repeated.
func classify(err error) Outcome {
	var self interface{ Outcome() Outcome }
	switch {
	case err == nil:
		return Outcome{Kind: OK}
	case errors.As(err, &self):
		o := self.Outcome()
		if _, call := self.(*Error); call {
			o.NotStarted = false // that call did not, but what ran before it did
		}
		return o
	case errors.Is(err, context.Canceled):
		return Outcome{Kind: Canceled}
	}
	return Outcome{Kind: Failed, Code: "error"}
}
