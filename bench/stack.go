package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/sony/gobreaker/v2"

	"github.com/stint-go/stint"
)

// What every stack is set to, as far as it can be: stint's defaults, but a breaker that stays open for all of a run.
const (
	limit    = time.Second
	attempts = 3
	slots    = 64
	minCalls = 20
	window   = time.Minute
	openFor  = time.Hour
)

var errDown = errors.New("down")

// A work is the function that a stack stands around.
type work func(context.Context) (int, error)

func succeed(context.Context) (int, error) { return 1, nil }

// byHand is what is written most often: a timeout, gobreaker around the whole call, backoff inside it. It has no
// retry budget and no bulkhead.
type byHand struct {
	breaker *gobreaker.CircuitBreaker[int]
}

func newByHand() *byHand {
	return &byHand{gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
		Interval: window, BucketPeriod: window / 10, Timeout: openFor, ReadyToTrip: half,
	})}
}

// half trips gobreaker under the same rule as stint and failsafe-go here.
func half(c gobreaker.Counts) bool { return c.Requests >= minCalls && 2*c.TotalFailures >= c.Requests }

func (h *byHand) do(ctx context.Context, fn work) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h.breaker.Execute(func() (int, error) {
		return backoff.Retry(ctx, func() (int, error) { return fn(ctx) }, backoff.WithMaxTries(attempts))
	})
}

// fourPolicies is failsafe-go's timeout, retry with budget, breaker and bulkhead, outermost first.
type fourPolicies struct {
	breaker  circuitbreaker.CircuitBreaker[int]
	bulkhead bulkhead.Bulkhead[int]
	executor failsafe.Executor[int]
}

// newFourPolicies makes them with so many slots, and a breaker that looks at no fewer calls than calls.
func newFourPolicies(slots, calls uint) *fourPolicies {
	f := &fourPolicies{
		breaker:  circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(.5, calls, window).WithDelay(openFor).Build(),
		bulkhead: bulkhead.New[int](slots),
	}
	retry := retrypolicy.NewBuilder[int]().WithMaxAttempts(attempts).WithBudget(budget.New()).
		AbortOnErrors(circuitbreaker.ErrOpen, bulkhead.ErrFull).Build() // else it would try those again
	f.executor = failsafe.With[int](timeout.New[int](limit), retry, f.breaker, f.bulkhead)
	return f
}

func (f *fourPolicies) do(ctx context.Context, fn work) (int, error) {
	return f.executor.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[int]) (int, error) { return fn(e.Context()) })
}

// policy is stint's, with everything on.
func policy() stint.Policy {
	return stint.Policy{Timeout: limit, MinUseful: 20 * time.Millisecond, Retry: stint.Retry{Attempts: attempts},
		Breaker: stint.Breaker{OpenFor: openFor}}
}

var read = stint.Op{Name: "get", Safety: stint.ReadOnly}

func newStack() (*scenario, error) {
	caller, err := stint.NewCaller("c", policy(), nil)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	hand, four := newByHand(), newFourPolicies(slots, minCalls)
	want := func(n int, err error) error {
		if err == nil && n != 1 {
			err = fmt.Errorf("the work was not done")
		}
		return err
	}
	return &scenario{
		name:      "stack",
		title:     "a call that succeeds at once: deadline, retry with budget, breaker, bulkhead",
		yardstick: subject{"by hand: timeout, gobreaker, backoff", func() error { return want(hand.do(ctx, succeed)) }},
		others: []subject{
			{"context.WithTimeout alone", func() error {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				return want(succeed(ctx))
			}},
			{"stint: Caller.Do", func() error {
				var n int
				err := caller.Do(ctx, read, func(ctx context.Context) (err error) { n, err = succeed(ctx); return err })
				return want(n, err)
			}},
			{"failsafe-go: four policies", func() error { return want(four.do(ctx, succeed)) }},
		},
		close: func() {},
	}, nil
}

// errNotRefused says that a call went through that should not have.
var errNotRefused = errors.New("the call was not refused")

// refused turns a refusal into success, and everything else into an error.
func refused(err, want error) error {
	switch {
	case err == nil:
		return errNotRefused
	case !errors.Is(err, want):
		return err
	}
	return nil
}

// refusedFor is refused for stint's reasons.
func refusedFor(err error, reasons ...stint.Reason) error {
	e, ok := err.(*stint.Error)
	if !ok {
		return refused(err, errNotRefused)
	}
	for _, r := range reasons {
		if e.Reason == r {
			return nil
		}
	}
	return err
}

func newRefusal() (*scenario, error) {
	var (
		bg    = context.Background()
		fail  = func(context.Context) (int, error) { return 0, backoff.Permanent(errDown) }
		must  = func(context.Context) error { return errNotRefused }
		hand  = newByHand()
		four  = newFourPolicies(slots, minCalls)
		full  = newFourPolicies(1, math.MaxInt32) // a full bulkhead is a failure to its breaker, which must stay closed
		alone = newByHand().breaker
	)
	for range minCalls {
		hand.do(bg, fail)
		alone.Execute(func() (int, error) { return 0, errDown })
	}
	four.breaker.Open()
	full.bulkhead.TryAcquirePermit()

	open, err := stint.NewCaller("open", policy(), nil)
	if err != nil {
		return nil, err
	}
	for range minCalls {
		open.Do(bg, stint.Op{}, func(context.Context) error { return errDown })
	}
	hurried, err := stint.NewCaller("hurried", stint.Policy{MinUseful: 24 * time.Hour, Timeout: 48 * time.Hour}, nil)
	if err != nil {
		return nil, err
	}
	crowded, err := stint.NewCaller("crowded", stint.Policy{Bulkhead: 1}, nil)
	if err != nil {
		return nil, err
	}
	inside, release := make(chan struct{}), make(chan struct{})
	go crowded.Do(bg, read, func(context.Context) error { close(inside); <-release; return nil })
	<-inside
	// A Caller waits for a slot as long as an attempt would still be useful: from now on some 50 µs.
	err = crowded.SetPolicy(stint.Policy{Timeout: 10 * time.Millisecond, MinUseful: 9950 * time.Microsecond, Bulkhead: 1})
	if err != nil {
		return nil, err
	}
	gate, err := stint.NewGate("s", &stint.GateOptions{Limit: 1, Logger: silent})
	if err != nil {
		return nil, err
	}
	if err := gate.Admit(bg, stint.Hop{}, new(stint.Admission)); err != nil {
		return nil, err
	}
	// Longer than any run, and less than what hurried wants.
	tight, cancel := context.WithTimeout(bg, 12*time.Hour)
	never := func(context.Context) (int, error) { return 0, errNotRefused }
	return &scenario{
		name:      "refusal",
		title:     "a call that is refused",
		yardstick: subject{"by hand: breaker open", func() error { _, err := hand.do(bg, never); return refused(err, gobreaker.ErrOpenState) }},
		others: []subject{
			{"gobreaker alone: breaker open", func() error {
				_, err := alone.Execute(func() (int, error) { return 0, errNotRefused })
				return refused(err, gobreaker.ErrOpenState)
			}},
			{"stint: breaker open", func() error { return refusedFor(open.Do(bg, read, must), stint.BreakerOpen) }},
			{"stint: no time left", func() error { return refusedFor(hurried.Do(tight, read, must), stint.NoTime) }},
			{"stint: Gate full", func() error {
				var a stint.Admission
				return refusedFor(gate.Admit(bg, stint.Hop{}, &a), stint.Full)
			}},
			{"stint: bulkhead full, after 50 µs", func() error {
				// If the machine was busy elsewhere, the time ran out before the slot was asked for.
				return refusedFor(crowded.Do(bg, read, must), stint.Full, stint.NoTime)
			}},
			{"failsafe-go: breaker open", func() error { _, err := four.do(bg, never); return refused(err, circuitbreaker.ErrOpen) }},
			{"failsafe-go: bulkhead full", func() error { _, err := full.do(bg, never); return refused(err, bulkhead.ErrFull) }},
		},
		close: func() { close(release); cancel() },
	}, nil
}
