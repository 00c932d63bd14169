package stint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// CallerOptions are what a Caller needs besides its Policy.
type CallerOptions struct {
	// Service is the name of the service in which the Caller works: what it
	// writes where it claims retries. Empty means the Gate's in the call's
	// context, or "client" outside of one. 1 to 64 token characters.
	Service string

	// Observer is told of every event. Nil: nobody is.
	Observer Observer

	// Classify judges an error that fn returned, while the attempt's context
	// still lived (a context that ended is judged by the Caller). It must be
	// quick and must not panic. Nil means: an error with an
	// Outcome() method answers for itself, context.Canceled is neutral, and
	// everything else failed and is not repeated. An error that it calls OK
	// (sql.ErrNoRows, say) ends the call as a success, and is what Do returns.
	Classify func(ctx context.Context, err error) Outcome

	// Rand draws the jitter: a number in [0, 1), from any goroutine. Nil means
	// math/rand/v2.
	Rand func() float64
}

// A Caller makes calls to one dependency, under one Policy: bounded, guarded,
// repeated only where that helps. Make one for each dependency and share it:
// breaker, retry budget and bulkhead are its own, and nothing is global. Its
// methods may be called at the same time.
type Caller struct {
	dependency string
	opts       CallerOptions

	reload   sync.Mutex // one SetPolicy at a time
	rules    atomic.Pointer[rules]
	breaker  atomic.Pointer[breaker]
	budget   *RetryBudget
	bulkhead bulkhead

	// Refusals are made once, so that refusing costs nothing.
	noTime, full, gone *Error
}

// NewCaller returns a Caller for the named dependency; opts may be nil. The
// error names every value of the policy that can't be meant.
func NewCaller(dependency string, p Policy, opts *CallerOptions) (*Caller, error) {
	if opts == nil {
		opts = &CallerOptions{}
	}
	if dependency == "" {
		return nil, fmt.Errorf("stint: a Caller needs the name of its dependency")
	}
	if opts.Service != "" {
		if err := validName("service", opts.Service); err != nil {
			return nil, err
		}
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("dependency %s: %w", dependency, err)
	}
	c := &Caller{
		dependency: dependency,
		opts:       *opts,
		budget:     NewRetryBudget(p.Retry.BudgetRatio, p.Retry.BudgetCeiling),
		noTime:     &Error{Reason: NoTime, Dependency: dependency},
		full:       &Error{Reason: Full, Dependency: dependency},
		gone:       &Error{Reason: CallerGone, Dependency: dependency, Err: context.Canceled},
	}
	if c.opts.Rand == nil {
		c.opts.Rand = rand.Float64
	}
	c.install(p)
	return c, nil
}

// SetPolicy changes the policy, those of single operations included, from the next
// call on and keeps the state: the budget's tokens (as far as they fit under a new
// ceiling), the slots held, the breaker, and the learned delays. A breaker whose Window, OpenFor or Probes change stays open if
// it is open, and otherwise counts anew. A bad policy is an error, and the old
// one stays.
func (c *Caller) SetPolicy(p Policy) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("dependency %s: %w", c.dependency, err)
	}
	c.install(p)
	return nil
}

func (c *Caller) install(p Policy) {
	c.reload.Lock()
	defer c.reload.Unlock()
	r := newRules(p, c.rules.Load())
	p = r.Policy // with its defaults
	c.budget.set(p.Retry.BudgetRatio, p.Retry.BudgetCeiling)
	c.bulkhead.setLimit(p.Bulkhead)
	old := c.breaker.Load()
	switch {
	case p.Breaker.Off:
		c.breaker.Store(nil)
	case old == nil:
		c.breaker.Store(newBreaker(c.dependency, p.Breaker, false))
	default:
		c.breaker.Store(old.withPolicy(p.Breaker))
	}
	c.rules.Store(r)
}

// Dependency returns the dependency's name.
func (c *Caller) Dependency() string { return c.dependency }

// Policy returns a copy of the policy in force, with defaults filled in but
// Timeout's, whose zero depends on the caller's deadline. In its Operations what all
// of them share stays zero, so that SetPolicy takes it as it is.
func (c *Caller) Policy() Policy {
	r := c.rules.Load()
	if r == nil { // a Caller that NewCaller did not make
		return Policy{}.withDefaults()
	}
	return r.whole()
}

// PolicyFor returns a copy of the policy in force for op, as Policy does: that of
// Operations for op's name, or else the one around them, without its Operations.
func (c *Caller) PolicyFor(op Op) Policy {
	r := c.rules.Load()
	if r == nil {
		return Policy{}.withDefaults()
	}
	return r.of(op.Name).own()
}

// Hedges reports whether the policy in force, or that of any operation, allows
// copies: then a carrier's request must outlive the call that it is made for.
func (c *Caller) Hedges() bool {
	r := c.rules.Load()
	return r != nil && r.hedges
}

// Budget returns the Caller's retry budget.
func (c *Caller) Budget() *RetryBudget { return c.budget }

// Do makes one logical call: it runs fn until it succeeds, or the policy says
// no. fn gets a context that ends with its attempt, and must obey it: Do waits
// for fn, and what it overruns is reported as wasted work. A panic in fn passes
// through, with everything given back.
//
// The error is nil, an *Error, or one that Classify called OK.
func (c *Caller) Do(ctx context.Context, op Op, fn func(context.Context) error) error {
	var t ticket
	b, err := c.start(ctx, op, &t)
	if err != nil {
		return err
	}
	f := &Flight{ticket: t, work: doing(fn)}
	return f.run(ctx, b)
}

// Call is Do for a function with a result. On an error the result is the last
// attempt's, which is usually the zero value. Under a Policy with a Hedge fn may
// run in several goroutines at once, and one that lost may still be running when
// Call returns: its result is thrown away.
func Call[T any](ctx context.Context, c *Caller, op Op, fn func(context.Context) (T, error)) (T, error) {
	var result T
	if c.Hedges() {
		var t ticket
		b, err := c.start(ctx, op, &t)
		if err != nil {
			return result, err
		}
		f := &Flight{ticket: t, work: calling(func(ctx context.Context) (any, error) { return fn(ctx) })}
		err = f.run(ctx, b)
		if f.current != nil {
			result, _ = f.current.result.(T)
		}
		return result, err
	}
	err := c.Do(ctx, op, func(ctx context.Context) (err error) {
		result, err = fn(ctx)
		return err
	})
	return result, err
}

// A Sender is a carrier's side of one logical call: HTTP, gRPC, a driver. Under
// a Policy with a Hedge its methods may be called at the same time, and for
// copies that lost also after Caller.Send has returned.
type Sender interface {
	// Send makes one attempt and judges it. hop is what to write on the wire
	// now; hop.Remaining was taken just before. copy is 0 for an attempt and
	// counts its hedges from 1: they should go to another replica, or at least
	// over another connection. A nil error says that there is a result (a
	// response, whatever its status), which is not nil and lives until ctx ends.
	Send(ctx context.Context, hop Hop, copy int) (result any, o Outcome, err error)
	// Drop throws away a result of Send, in at most so much time (zero: at
	// once): another attempt follows, another copy won, or the caller has gone.
	Drop(result any, within time.Duration)
}

// Send makes one logical call over a carrier. f must be zero and not be used
// again: it holds the call's state, and lies best inside the Sender's own
// struct, so that they are one allocation. If the attempt that counts brought a
// result (f.Result, also beside an error), it is the carrier's caller's to use,
// and f.End must be called when it has been read. The error is nil or an *Error.
func (c *Caller) Send(ctx context.Context, op Op, s Sender, f *Flight) error {
	b, err := c.start(ctx, op, &f.ticket)
	if err != nil {
		return err
	}
	f.work = s
	return f.run(ctx, b)
}

// A ticket is a call that may start: what steps 1 to 3 found.
type ticket struct {
	caller  *Caller
	policy  *rule
	op      Op
	started time.Time
	breaker *breaker
	settle  func(error)
}

// start does steps 1 to 3 of a call: bound, guard, breaker. It fills in t and
// returns the call's bound. Nothing has been taken when it refuses.
func (c *Caller) start(ctx context.Context, op Op, t *ticket) (bound, error) {
	r := c.rules.Load()
	if r == nil {
		return bound{}, errUnmadeCaller
	}
	p := r.of(op.Name)
	t.caller, t.policy, t.op, t.started, t.breaker = c, p, p.raised(op), time.Now(), c.breaker.Load()
	b := c.bound(ctx, &p.Policy, t.started)
	if ctx.Err() != nil {
		return b, c.refuse(ctx, t, b, c.over(ctx))
	}
	if b.deadline.Sub(t.started) < p.MinUseful {
		return b, c.refuse(ctx, t, b, c.noTime)
	}
	if t.breaker != nil {
		var refused *Error
		if t.settle, refused = t.breaker.allow(); refused != nil && !op.Within {
			c.tellChanges(ctx, t.breaker)
			return b, c.refuse(ctx, t, b, refused)
		}
	}
	return b, nil
}

var errUnmadeCaller = errors.New("stint: a Caller that NewCaller did not make calls nobody")

// bound returns the end of the call's time.
func (c *Caller) bound(ctx context.Context, p *Policy, now time.Time) bound {
	timeout := p.Timeout
	if d, ok := ctx.Deadline(); ok {
		own := d.Add(-p.Reserve)
		if timeout == 0 || !own.After(now.Add(timeout)) {
			if p.Reserve > 0 {
				return bound{own, plainLimit}
			}
			return bound{own, parentLimit}
		}
	}
	if timeout == 0 {
		timeout = defaultTimeout
	}
	return bound{now.Add(timeout), callLimit}
}

// over is the refusal of a call whose context has ended.
func (c *Caller) over(ctx context.Context) *Error {
	switch context.Cause(ctx) {
	case context.DeadlineExceeded:
		return c.noTime
	case context.Canceled:
		return c.gone
	}
	return ended(ctx, c.dependency)
}

// refuse reports a call that was refused before it started.
func (c *Caller) refuse(ctx context.Context, t *ticket, b bound, e *Error) error {
	if c.opts.Observer != nil {
		ev := Event{Kind: CallDone, Time: t.started, Service: c.opts.Service, Dependency: c.dependency, Op: t.op.Name, Class: t.op.Class,
			Budget: b.deadline.Sub(t.started), Reason: e.Reason, Err: e.Err,
			Outcome: Outcome{Kind: Refused, NotStarted: true, Code: e.Reason.String()}}
		if p := pathOf(ctx); p != nil {
			ev.RequestID, ev.Owner, ev.Class = p.requestID(), p.owner, p.class.lower(t.op.Class)
			def(&ev.Service, p.service)
		}
		c.opts.Observer.Observe(ctx, ev)
	}
	return e
}

// tellChanges reports what the breaker did.
func (c *Caller) tellChanges(ctx context.Context, b *breaker) {
	for _, s := range b.takeChanges() {
		if c.opts.Observer != nil {
			c.opts.Observer.Observe(ctx, Event{Kind: BreakerChanged, Time: time.Now(), Service: c.opts.Service,
				Dependency: c.dependency, From: s.from, To: s.to})
		}
	}
}
