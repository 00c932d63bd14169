package stint

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// NoLimit as Policy.Bulkhead or GateOptions.Limit switches that limit off.
	// It has to be said: zero means the default, never "no limit".
	NoLimit = -1

	// NoReserve as GateOptions.Reserve keeps nothing back for the answer.
	// It has to be said: zero means the default reserve.
	NoReserve time.Duration = -1
)

const (
	maxCopies            = 8 // more is a load test
	defaultTimeout       = 10 * time.Second
	defaultMinUseful     = time.Millisecond // the wire's unit: less can't be said to a peer
	defaultBase          = 50 * time.Millisecond
	defaultCap           = 2 * time.Second
	defaultBulkhead      = 64
	defaultBudgetRatio   = 0.1
	defaultBudgetCeiling = 10
	defaultFailureRatio  = 0.5
	defaultMinCalls      = 20
	defaultWindow        = time.Minute
	defaultOpenFor       = 30 * time.Second
	defaultProbes        = 3
)

// A Policy says how calls to one dependency are bounded, repeated and limited.
// It is plain data: the zero value is usable and means one attempt, bounded by
// the caller's deadline or, where there is none, by 10 seconds.
// No field's zero means "unlimited". Negative values are errors unless a
// constant of this package names them.
type Policy struct {
	// Timeout bounds the whole call: every attempt, every wait between them,
	// and the wait for a bulkhead slot. A caller's deadline that is sooner
	// wins. Zero means the caller's deadline, or 10 seconds where there is none.
	Timeout time.Duration

	// MinUseful is the least time for which an attempt is worth starting.
	// With less left, nothing is sent. Zero means 1 ms, the smallest time that
	// the wire can carry. Article figures: 20 to 50 ms within a data centre,
	// 100 to 200 ms across regions.
	MinUseful time.Duration

	// Reserve is kept back from the caller's deadline for the work that the
	// caller itself still has to do after this call. Zero keeps nothing back.
	Reserve time.Duration

	// Retry says when a failed attempt is followed by another.
	Retry Retry

	// Hedge says when a slow attempt gets company.
	Hedge Hedge

	// Breaker stops calls to a dependency that mostly fails.
	Breaker Breaker

	// Bulkhead is the number of attempts to this dependency that may be under
	// way at once in this process. Zero means 64; NoLimit switches it off.
	Bulkhead int

	// Safety is the least safety of every operation under this policy: an Op whose
	// own is lower counts as this. It is for a dependency, or an operation, that may
	// be repeated although its method does not say so. Zero changes nothing.
	Safety Safety

	// Operations are the policies of single operations, by Op.Name. Each stands
	// alone: it takes nothing from the policy around it, and its zero fields mean
	// what they mean in any Policy. Only what belongs to the dependency is shared by
	// all: the Breaker, the Bulkhead and the retry budget, so Breaker, Bulkhead,
	// Retry.BudgetRatio and Retry.BudgetCeiling must be zero in them, and Operations
	// as well. A learned Hedge.Delay is each one's own. Nil: all operations are alike.
	Operations map[string]Policy
}

// Retry is the part of a Policy about repeating.
type Retry struct {
	// Attempts is the most attempts that one call may make, the first one
	// included. Zero means 1: retries are asked for, never on by default.
	Attempts int

	// AttemptTimeout bounds one attempt, the reading of its result included.
	// Zero means that only the call's deadline bounds it; an attempt that hangs
	// then leaves nothing for another.
	AttemptTimeout time.Duration

	// NotAfterTimeout says that an attempt which ran out of time (AttemptTimeout
	// here, or a 504 from there) is not repeated, though a failed or a refused
	// one is:
	// safety includes the dependency's capacity, and a heavy read that was
	// given up may still be running.
	NotAfterTimeout bool

	// Base and Cap bound the wait before attempt n+1: a random time between
	// zero and min(Cap, Base * 2^(n-1)), "full jitter" (M. Brooker,
	// "Exponential Backoff And Jitter", AWS, 2015). Zero means 50 ms and 2 s.
	Base, Cap time.Duration

	// Codes lists outcomes, in the carrier's own words ("429", "500",
	// "RESOURCE_EXHAUSTED"), that may be repeated although they are not by
	// default. It never makes an unsafe call safe.
	Codes []string

	// BudgetRatio is the part of a retry that each successful call earns, and
	// BudgetCeiling the most retries that can be saved up; see RetryBudget.
	// Zero means 0.1 and 10.
	BudgetRatio   float64
	BudgetCeiling int

	// Owner says whether this layer may claim the retries of a call path.
	// Zero is OwnerAuto.
	Owner Ownership
}

// Hedge is the part of a Policy about copies: an attempt that has no answer yet
// after Delay is sent a second time, and the first good answer counts (J. Dean,
// L. A. Barroso, "The Tail at Scale", CACM 2013). The loser is cancelled at once
// and its time reported as wasted work.
//
// A copy is sent only of a call that may be repeated, by the layer that owns the
// retries, with MinUseful left, into a free bulkhead slot, and for a token of the
// same retry budget. One that fails is the end of further copies; the call waits
// for those under way, and only when all have failed may a retry follow.
// Caller.Do is never hedged: a function that runs twice at once would share its
// variables. Call is, and so are carriers.
type Hedge struct {
	// Copies is the most copies of one call, besides its attempts: at most
	// Retry.Attempts + Copies requests leave. Zero means none; at most 8.
	Copies int

	// Delay is the wait before a copy. Zero means the 95th percentile of the
	// recent latencies under this policy (the last 500 to 1,000 attempts, within 13 %,
	// and at least 1 ms), so that about one call in twenty is copied; until 100
	// attempts have been seen there are no copies.
	Delay time.Duration
}

// Ownership says who may claim the retries of a call path.
type Ownership uint8

const (
	// OwnerAuto claims the retries of a call that may be repeated, unless a
	// layer further up has claimed them already.
	OwnerAuto Ownership = iota
	// OwnerAlways claims them whoever has claimed them before. A call that was
	// given up so marks the answer to its own caller "never retry", so that the
	// layers still do not multiply.
	OwnerAlways
	// OwnerNever leaves them to others: one attempt, except after one that
	// provably never started.
	OwnerNever
)

// Breaker is the part of a Policy about the circuit breaker. One logical call
// is one observation, however many attempts it took.
type Breaker struct {
	// Off switches the breaker off.
	Off bool

	// FailureRatio is the part of calls, above 0 and at most 1, that have to
	// fail in the Window for the breaker to open, looked at whenever one fails.
	// Zero means 0.5.
	FailureRatio float64

	// MinCalls is the least number of calls in the Window that says anything.
	// Zero means 20.
	MinCalls int

	// Window is how far back calls are counted. It should be well above the
	// longest call. Zero means 1 minute.
	Window time.Duration

	// OpenFor is how long an open breaker refuses before it lets probes
	// through. Zero means 30 s.
	OpenFor time.Duration

	// Probes is the number of calls let through while half open; so many
	// successes in a row close the breaker, one failure opens it again.
	// Zero means 3.
	Probes int
}

// InDatacentre is a policy for a dependency in the same data centre: MinUseful
// 20 ms, one attempt until Retry.Attempts is set, backoff from 10 ms to 250 ms.
func InDatacentre() Policy {
	return Policy{
		MinUseful: 20 * time.Millisecond,
		Retry:     Retry{Base: 10 * time.Millisecond, Cap: 250 * time.Millisecond},
	}
}

// CrossRegion is a policy for a dependency in another region: MinUseful 100 ms,
// one attempt until Retry.Attempts is set, backoff from 50 ms to 2 s.
func CrossRegion() Policy {
	return Policy{MinUseful: 100 * time.Millisecond}
}

// Interactive is a policy for a dependency that a waiting person needs:
// Timeout 800 ms, MinUseful 30 ms, two attempts of at most 300 ms, backoff from
// 20 ms to 100 ms.
func Interactive() Policy {
	return Policy{
		Timeout:   800 * time.Millisecond,
		MinUseful: 30 * time.Millisecond,
		Retry: Retry{
			Attempts: 2, AttemptTimeout: 300 * time.Millisecond,
			Base: 20 * time.Millisecond, Cap: 100 * time.Millisecond,
		},
	}
}

// Validate reports every value that can't be meant: what, where, and what would
// be right. NewCaller and SetPolicy call it.
func (p Policy) Validate() error { return p.problems().err("policy") }

func (p Policy) problems() problems {
	var bad problems
	r, b := p.Retry, p.Breaker
	bad.wire("Timeout", p.Timeout, "the caller's deadline or 10s")
	bad.wire("MinUseful", p.MinUseful, "1ms")
	bad.duration("Reserve", p.Reserve, "nothing kept back")
	bad.wire("Retry.AttemptTimeout", r.AttemptTimeout, "only the call's deadline")
	bad.duration("Retry.Base", r.Base, "50ms")
	bad.duration("Retry.Cap", r.Cap, "2s")
	bad.duration("Breaker.Window", b.Window, "1m")
	bad.duration("Breaker.OpenFor", b.OpenFor, "30s")
	bad.duration("Hedge.Delay", p.Hedge.Delay, "the 95th percentile of recent latencies")
	if p.Hedge.Copies < 0 || p.Hedge.Copies > maxCopies {
		bad.add("Hedge.Copies is %d: must be between 0 and %d; zero means no hedging", p.Hedge.Copies, maxCopies)
	}
	if p.Hedge.Copies == 0 && p.Hedge.Delay > 0 {
		bad.add("Hedge.Delay is %v without Hedge.Copies: set Copies, or no copy is ever sent", p.Hedge.Delay)
	}
	bad.count("Retry.Attempts", r.Attempts, 1)
	bad.count("Retry.BudgetCeiling", r.BudgetCeiling, defaultBudgetCeiling)
	bad.count("Breaker.MinCalls", b.MinCalls, defaultMinCalls)
	bad.count("Breaker.Probes", b.Probes, defaultProbes)
	bad.ratio("Retry.BudgetRatio", r.BudgetRatio, defaultBudgetRatio)
	bad.ratio("Breaker.FailureRatio", b.FailureRatio, defaultFailureRatio)
	if r.BudgetRatio > 0 && r.BudgetRatio < 1./milli {
		bad.add("Retry.BudgetRatio is %v: must be at least %v, the step in which it counts; zero means %v", r.BudgetRatio, 1./milli, defaultBudgetRatio)
	}
	if p.Bulkhead < NoLimit {
		bad.add("Bulkhead is %d: must be positive, zero for %d, or NoLimit", p.Bulkhead, defaultBulkhead)
	}
	if p.Safety > ReadOnly {
		bad.add("Safety is %d: must be Unrepeatable, Idempotent or ReadOnly", p.Safety)
	}
	if r.Owner > OwnerNever {
		bad.add("Retry.Owner is %d: must be OwnerAuto, OwnerAlways or OwnerNever", r.Owner)
	}
	if len(bad) == 0 { // relations only make sense between sound values
		d := p.withDefaults()
		if p.Timeout > 0 && d.MinUseful > p.Timeout {
			bad.add("MinUseful %v is above Timeout %v: no call could ever start", d.MinUseful, p.Timeout)
		}
		if r.AttemptTimeout > 0 && d.MinUseful > r.AttemptTimeout {
			bad.add("MinUseful %v is above Retry.AttemptTimeout %v: no attempt could ever be useful", d.MinUseful, r.AttemptTimeout)
		}
		if d.Retry.Base > d.Retry.Cap {
			bad.add("Retry.Base %v is above Retry.Cap %v: Base is the first wait, Cap the longest", d.Retry.Base, d.Retry.Cap)
		}
	}
	bad.operations(p.Operations)
	return bad
}

// withDefaults returns p with every zero replaced by what it means. Timeout
// stays: its zero depends on the caller's deadline.
func (p Policy) withDefaults() Policy {
	p = p.withOwnDefaults()
	def(&p.Bulkhead, defaultBulkhead)
	def(&p.Retry.BudgetRatio, defaultBudgetRatio)
	def(&p.Retry.BudgetCeiling, defaultBudgetCeiling)
	def(&p.Breaker.FailureRatio, defaultFailureRatio)
	def(&p.Breaker.MinCalls, defaultMinCalls)
	def(&p.Breaker.Window, defaultWindow)
	def(&p.Breaker.OpenFor, defaultOpenFor)
	def(&p.Breaker.Probes, defaultProbes)
	return p
}

// withOwnDefaults is withDefaults but for what all operations share.
func (p Policy) withOwnDefaults() Policy {
	def(&p.MinUseful, defaultMinUseful)
	def(&p.Retry.Attempts, 1)
	def(&p.Retry.Cap, defaultCap)
	def(&p.Retry.Base, min(defaultBase, p.Retry.Cap))
	return p
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// problems collects what is wrong with a configuration.
type problems []error

func (ps *problems) add(format string, args ...any) { *ps = append(*ps, fmt.Errorf(format, args...)) }

func (ps *problems) duration(field string, d time.Duration, zero string) {
	if d < 0 {
		ps.add("%s is %v: must not be negative; zero means %s", field, d, zero)
	}
}

// wire is duration for a limit that has to fit on the wire.
func (ps *problems) wire(field string, d time.Duration, zero string) {
	if ps.duration(field, d, zero); d > 0 && d < time.Millisecond {
		ps.add("%s is %v: must be at least 1ms, the unit in which a peer is told; zero means %s", field, d, zero)
	}
}

func (ps *problems) count(field string, n, zero int) {
	if n < 0 || n > math.MaxInt32 {
		ps.add("%s is %d: must be between 0 and %d; zero means %d", field, n, math.MaxInt32, zero)
	}
}

func (ps *problems) ratio(field string, r, zero float64) {
	if !(r >= 0 && r <= 1) { // written so that NaN is caught
		ps.add("%s is %v: must be between 0 and 1; zero means %v", field, r, zero)
	}
}

func (ps problems) err(what string) error {
	if len(ps) == 0 {
		return nil
	}
	return fmt.Errorf("stint: invalid %s: %w", what, errors.Join(ps...))
}
