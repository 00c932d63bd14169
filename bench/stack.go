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
type work func(context.Context) error

// byHand is what is written most often: a timeout, gobreaker around the whole call, backoff inside it. It has no
// retry budget and no bulkhead.
type byHand struct {
	breaker *gobreaker.CircuitBreaker[struct{}]
}

func newByHand() *byHand {
	return &byHand{gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval: window, BucketPeriod: window / 10, Timeout: openFor, ReadyToTrip: half,
	})}
}

// half trips gobreaker under the same rule as stint and failsafe-go here.
func half(c gobreaker.Counts) bool { return c.Requests >= minCalls && 2*c.TotalFailures >= c.Requests }

func (h *byHand) do(ctx context.Context, fn work) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := h.breaker.Execute(func() (struct{}, error) {
		return backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, fn(ctx) }, backoff.WithMaxTries(attempts))
	})
	return err
}

// fourPolicies is failsafe-go's timeout, retry with budget, breaker and bulkhead, outermost first.
type fourPolicies struct {
	breaker  circuitbreaker.CircuitBreaker[any]
	bulkhead bulkhead.Bulkhead[any]
	executor failsafe.Executor[any]
}

// newFourPolicies makes them with so many slots, and a breaker that looks at no fewer calls than calls.
func newFourPolicies(slots, calls uint) *fourPolicies {
	f := &fourPolicies{
		breaker:  circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(.5, calls, window).WithDelay(openFor).Build(),
		bulkhead: bulkhead.New[any](slots),
	}
	retry := retrypolicy.NewBuilder[any]().WithMaxAttempts(attempts).WithBudget(budget.New()).
		AbortOnErrors(circuitbreaker.ErrOpen, bulkhead.ErrFull).Build() // else it would try those again
	f.executor = failsafe.With[any](timeout.New[any](limit), retry, f.breaker, f.bulkhead)
	return f
}

func (f *fourPolicies) do(ctx context.Context, fn work) error {
	return f.executor.WithContext(ctx).RunWithExecution(func(e failsafe.Execution[any]) error { return fn(e.Context()) })
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
	done := 0
	succeed := func(context.Context) error { done++; return nil }
	did := func(do func(context.Context, work) error) func() error {
		return func() error {
			before := done
			err := do(ctx, succeed)
			if err == nil && done != before+1 {
				err = fmt.Errorf("the work was done %d times", done-before)
			}
			return err
		}
	}
	return &scenario{
		name:      "stack",
		title:     "a call that succeeds at once: deadline, retry with budget, breaker, bulkhead",
		yardstick: subject{"by hand: timeout, gobreaker, backoff", did(hand.do)},
		others: []subject{
			{"context.WithTimeout alone", did(func(ctx context.Context, fn work) error {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				return fn(ctx)
			})},
			{"stint: Caller.Do", did(func(ctx context.Context, fn work) error { return caller.Do(ctx, read, fn) })},
			{"failsafe-go: four policies", did(four.do)},
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
		fail  = func(context.Context) error { return backoff.Permanent(errDown) }
		never = func(context.Context) error { return errNotRefused }
		hand  = newByHand()
		four  = newFourPolicies(slots, minCalls)
		full  = newFourPolicies(1, math.MaxInt32) // a full bulkhead is a failure to its breaker, which must stay closed
		alone = newByHand().breaker
	)
	for range minCalls {
		hand.do(bg, fail)
		alone.Execute(func() (struct{}, error) { return struct{}{}, errDown })
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
	return &scenario{
		name:      "refusal",
		title:     "a call that is refused",
		yardstick: subject{"by hand: breaker open", func() error { return refused(hand.do(bg, never), gobreaker.ErrOpenState) }},
		others: []subject{
			{"gobreaker alone: breaker open", func() error {
				_, err := alone.Execute(func() (struct{}, error) { return struct{}{}, errNotRefused })
				return refused(err, gobreaker.ErrOpenState)
			}},
			{"stint: breaker open", func() error { return refusedFor(open.Do(bg, read, never), stint.BreakerOpen) }},
			{"stint: no time left", func() error { return refusedFor(hurried.Do(tight, read, never), stint.NoTime) }},
			{"stint: Gate full", func() error {
				var a stint.Admission // it has enough time to start, and none to wait
				return refusedFor(gate.Admit(bg, stint.Hop{Remaining: time.Millisecond}, &a), stint.Full)
			}},
			{"stint: bulkhead full, after 50 µs", func() error {
				// If the machine was busy elsewhere, the time ran out before the slot was asked for.
				return refusedFor(crowded.Do(bg, read, never), stint.Full, stint.NoTime)
			}},
			{"failsafe-go: breaker open", func() error { return refused(four.do(bg, never), circuitbreaker.ErrOpen) }},
			{"failsafe-go: bulkhead full", func() error { return refused(full.do(bg, never), bulkhead.ErrFull) }},
		},
		close: func() { close(release); cancel() },
	}, nil
}
