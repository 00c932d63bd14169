package lab

import (
	"net/http"
	"time"
)

// A Mode says who makes the calls of a row.
type Mode string

const (
	// Naive rows have clients and services as they are often written by hand.
	Naive Mode = "naive"
	// Stint rows have a stint.Caller and a stint.Gate in every layer.
	Stint Mode = "stint"
)

// A spec is a chain as data.
type spec struct {
	mode      Mode
	transport Transport
	// callers are who calls, outermost first. The first one is in the lab
	// itself, each further one is a service of its own.
	callers     []caller
	leaf        string        // the last service's name
	calls       int           // that the first caller makes
	together    bool          // the calls are made at once, not one after the other
	phases      []phase       // overload: when the calls are made
	deadline    time.Duration // of each
	work        time.Duration // at the leaf
	guard       time.Duration // stint: Policy.MinUseful of who retries, and GateOptions.MinUseful of a gated leaf
	hopTimeout  time.Duration // naive: of each request that a service or the client sends
	passContext bool          // naive: the request's context goes to the next call
	breakerOff  bool          // stint

	// serve makes the leaf's handler over HTTP. Nil is unavailable, which there is over gRPC too.
	serve func(spec, *record) http.HandlerFunc
	gated bool   // stint: the leaf is behind a Gate too
	marks string // what the leaf marks, as a lane of the waterfall; empty: it is not drawn

	method, key string        // of the requests; empty: GET, and no Idempotency-Key
	timeout     time.Duration // the first caller's: Policy.Timeout or, naive, ResponseHeaderTimeout
	steps       int           // zombie: in which the leaf works
	retryAfter  time.Duration // retryafter: what the leaf says; the naive loop waits so long
	absolute    bool          // skew, naive: an absolute deadline is written
	skew        time.Duration // skew: of the caller's clock
	hops        int           // redirect: answers until the last one
	replica     string        // hedge: the name of another leaf, which always answers at once
	copies      int           // hedge, stint: Policy.Hedge.Copies of the first caller
	hedgeDelay  time.Duration // and its Delay
	store       Store         // store: what the leaf asks, and work is how long its query takes
	dsn         string        // and where it is
	silent      bool          // and the network to it falls silent when all queries run
	slots       int           // overload: requests that the leaf works on at once, and its Gate's Limit
}

// A caller is one layer of a spec.
type caller struct {
	name     string
	attempts int
}

// limit is the time in which a call of the client has to be over.
func (s spec) limit() time.Duration {
	if s.timeout > 0 {
		return s.timeout
	}
	return s.deadline
}

func (s spec) params() Params {
	p := Params{Transport: s.transport, Calls: s.calls, DeadlineMs: s.deadline.Milliseconds(), WorkMs: s.work.Milliseconds(), Attempts: []int{},
		TimeoutMs: s.timeout.Milliseconds(), Steps: s.steps, RetryAfterMs: s.retryAfter.Milliseconds(),
		Keyed: s.key != "", SkewMs: s.skew.Milliseconds(), Hops: s.hops, Copies: s.copies, HedgeDelayMs: s.hedgeDelay.Milliseconds(), Slots: s.slots,
		Store: s.store, Silent: s.silent}
	for _, ph := range s.phases {
		p.Load = append(p.Load, Load{ph.rate, ph.lasts.Milliseconds()})
	}
	for _, c := range s.callers {
		if c.name != "client" {
			p.Attempts = append(p.Attempts, c.attempts)
		}
	}
	p.Depth = len(p.Attempts)
	if s.mode == Naive {
		p.HopTimeoutMs = s.hopTimeout.Milliseconds()
		p.PassContext = &s.passContext
		return p
	}
	breaker := !s.breakerOff
	p.MinUsefulMs, p.RetryBudget, p.Breaker = s.guard.Milliseconds(), savedRetries(), &breaker
	return p
}
