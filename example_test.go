package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/stint-go/stint"
)

// busy is what a dependency under load returns in these examples. A carrier
// such as stinthttp.Transport judges its own errors; an error of yours can
// answer for itself, or CallerOptions.Classify does.
type busy struct{}

func (busy) Error() string          { return "busy" }
func (busy) Outcome() stint.Outcome { return stint.Outcome{Kind: stint.Transient, Code: "busy"} }

// withoutTime makes a logger's output the same at every run.
func withoutTime(w *os.File, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "elapsed_ms" || a.Key == "budget_ms" || a.Key == "delay_ms" {
			return slog.Attr{}
		}
		return a
	}}))
}

// A call that may be repeated is, while that makes sense.
func ExampleCaller_Do() {
	pricing, err := stint.NewCaller("pricing", stint.Policy{
		Timeout:   2 * time.Second,       // the whole call, retries included
		MinUseful: 40 * time.Millisecond, // never start an attempt with less
		Retry:     stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond},
	}, nil)
	if err != nil {
		panic(err)
	}
	n := 0
	err = pricing.Do(context.Background(), stint.Op{Name: "Quote", Safety: stint.ReadOnly}, func(ctx context.Context) error {
		if n++; n < 3 {
			return busy{}
		}
		return nil
	})
	fmt.Println(n, "attempts, error:", err)
	// Output: 3 attempts, error: <nil>
}

// A fallback: the last good value, and when to ask again.
func ExampleCall_fallback() {
	rates, err := stint.NewCaller("rates", stint.Policy{
		Retry:   stint.Retry{Attempts: 2, Base: time.Nanosecond, Cap: time.Nanosecond, BudgetCeiling: 1},
		Breaker: stint.Breaker{MinCalls: 3, OpenFor: 30 * time.Second},
	}, nil)
	if err != nil {
		panic(err)
	}
	lastGood := 1.09 // kept from an earlier answer
	rate := func(fetch func(context.Context) (float64, error)) (value float64, askAgain time.Duration) {
		v, err := stint.Call(context.Background(), rates, stint.Op{Name: "EUR", Safety: stint.ReadOnly}, fetch)
		var e *stint.Error
		switch {
		case err == nil:
			return v, 0
		case errors.As(err, &e) && (e.Reason == stint.BreakerOpen || e.Reason == stint.BudgetSpent):
			fmt.Print(e.Reason, ": ")
			return lastGood, e.RetryAfter()
		}
		return lastGood, 0
	}
	down := func(context.Context) (float64, error) { return 0, busy{} }
	for range 4 {
		value, askAgain := rate(down)
		fmt.Printf("%.2f, ask again in %v\n", value, askAgain.Round(time.Second))
	}
	// Output:
	// 1.09, ask again in 0s
	// budget_spent: 1.09, ask again in 0s
	// budget_spent: 1.09, ask again in 0s
	// breaker_open: 1.09, ask again in 30s
}

// A preset is a starting point.
func ExampleInDatacentre() {
	p := stint.InDatacentre()
	p.Timeout = 260 * time.Millisecond
	p.Retry.Attempts = 2
	fmt.Println(p.MinUseful, stint.CrossRegion().MinUseful, stint.Interactive().Timeout, p.Validate())
	// Output: 20ms 100ms 800ms <nil>
}

// A bulkhead keeps a slow dependency from taking everything: who finds no slot
// in time is refused, and nothing was sent.
func ExamplePolicy_bulkhead() {
	c, err := stint.NewCaller("reports", stint.Policy{Timeout: 20 * time.Millisecond, Bulkhead: 1}, nil)
	if err != nil {
		panic(err)
	}
	inside, done := make(chan struct{}), make(chan struct{})
	go c.Do(context.Background(), stint.Op{}, func(context.Context) error { close(inside); <-done; return nil })
	<-inside
	err = c.Do(context.Background(), stint.Op{}, func(context.Context) error { return nil })
	close(done)
	fmt.Println(err)
	// Output: stint: reports: refused before start: full
}

// A layer that must not own the retries, whatever its callers do, says so.
func ExampleRetry_owner() {
	c, err := stint.NewCaller("search", stint.Policy{Retry: stint.Retry{Attempts: 3, Owner: stint.OwnerNever}}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error { return busy{} }))
	// Output: stint: search: no further attempt after 1 (busy): not_owner: busy
}

// A heavy read is repeated when it failed, but not when it ran out of time.
func ExampleRetry_notAfterTimeout() {
	c, err := stint.NewCaller("warehouse", stint.Policy{Timeout: time.Second,
		Retry: stint.Retry{Attempts: 3, AttemptTimeout: 10 * time.Millisecond, NotAfterTimeout: true}}, nil)
	if err != nil {
		panic(err)
	}
	err = c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("query cancelled")
	})
	var e *stint.Error
	fmt.Println(errors.As(err, &e), e.Attempts, e.Reason, errors.Is(err, stint.ErrAttemptTimeout))
	// Output: true 1 not_repeatable true
}

// How much time is left for a step of the work.
func ExampleRemaining() {
	_, bounded := stint.Remaining(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	left, ok := stint.Remaining(ctx)
	fmt.Println(bounded, ok, left > 59*time.Minute)
	// Output: false true true
}

// datagram is a carrier of one's own: it sends an attempt, and says what came of it.
type datagram struct {
	flight stint.Flight // the call's state lies in the carrier's
}

func (d *datagram) Send(ctx context.Context, hop stint.Hop, copy int) (any, stint.Outcome, error) {
	answer := fmt.Sprintf("attempt %d", hop.Attempt)
	if hop.Attempt == 1 {
		return answer, stint.Outcome{Kind: stint.Transient, Code: "NAK"}, nil // an answer, if not a good one
	}
	return answer, stint.Outcome{Kind: stint.OK}, nil
}

func (d *datagram) Drop(answer any, within time.Duration) {} // here nothing has to be closed

// A carrier brings its own way of sending and judging.
func ExampleCaller_Send() {
	c, err := stint.NewCaller("clock", stint.Policy{Retry: stint.Retry{Attempts: 2, Base: time.Nanosecond, Cap: time.Nanosecond}}, nil)
	if err != nil {
		panic(err)
	}
	var d datagram
	err = c.Send(context.Background(), stint.Op{Safety: stint.ReadOnly}, &d, &d.flight)
	if answer := d.flight.Result(); answer != nil {
		fmt.Println(answer, err)
		d.flight.End()
	}
	// Output: attempt 2 <nil>
}

// Who is let in, and what a stranger's claims are worth.
func ExampleGateOptions() {
	count := &counter{refused: make(map[stint.Reason]int)}
	gate, err := stint.NewGate("edge", &stint.GateOptions{
		Trust:       stint.TrustDeadlineOnly, // the zero value: for callers that anybody can be
		MinUseful:   30 * time.Millisecond,
		ObserveOnly: true, // at first, only look at what would be refused
		Observer:    stint.Observers{count, stint.NewLogObserver(slog.New(slog.DiscardHandler))},
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	var a stint.Admission
	err = gate.Admit(context.Background(), stint.ParseHop(map[string][]string{"X-Deadline-Ms": {"20"}, "X-Retry-Owner": {"me"}}), &a)
	defer a.Finish(stint.Outcome{Kind: stint.OK})
	fmt.Printf("%v, owner %q, would be refused for %v\n", err, a.Hop().Owner, count.observed)
	// Output: <nil>, owner "", would be refused for no_time
}

// What is not declared safe is not repeated.
func ExampleOp() {
	orders, err := stint.NewCaller("orders", stint.Policy{Retry: stint.Retry{Attempts: 3}}, nil)
	if err != nil {
		panic(err)
	}
	err = orders.Do(context.Background(), stint.Op{Name: "Create"}, func(context.Context) error { return busy{} })
	fmt.Println(err)
	// Output: stint: orders: no further attempt after 1 (busy): not_repeatable (and may have been executed): busy
}

// The error says why it went no further, and keeps the real cause.
func ExampleError() {
	c, err := stint.NewCaller("search", stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 5, Base: time.Hour, Cap: time.Hour}},
		&stint.CallerOptions{Rand: func() float64 { return 0.5 }})
	if err != nil {
		panic(err)
	}
	err = c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error { return busy{} })
	var e *stint.Error
	fmt.Println(errors.As(err, &e), e.Reason, e.Attempts, e.Last, errors.Is(err, busy{}), errors.Is(err, context.DeadlineExceeded))
	// Output: true no_time 1 busy true true
}

// The decision alone: no clock, no lock, no I/O.
func ExamplePolicy_Decide() {
	p := stint.Policy{MinUseful: 50 * time.Millisecond, Retry: stint.Retry{Attempts: 3}}
	d := p.Decide(stint.Attempt{
		Number:        1,
		Outcome:       stint.Outcome{Kind: stint.Transient, Code: "503", Hinted: true, RetryAfter: 2 * time.Second},
		Remaining:     90 * time.Millisecond,
		Op:            stint.Op{Safety: stint.ReadOnly},
		BreakerClosed: true,
		Balance:       10,
	}, 0)
	fmt.Println(d.Retry, d.Reason, d.Delay)
	// Output: false no_time 2s
}

// A policy's mistakes are named, all of them.
func ExamplePolicy_Validate() {
	fmt.Println(stint.Policy{Timeout: -time.Second, Retry: stint.Retry{BudgetRatio: 10}}.Validate())
	// Output:
	// stint: invalid policy: Timeout is -1s: must not be negative; zero means the caller's deadline or 10s
	// Retry.BudgetRatio is 10: must be between 0 and 1; zero means 0.1
}

// A new policy takes over; breaker, budget and bulkhead keep their state.
func ExampleCaller_SetPolicy() {
	c, err := stint.NewCaller("inventory", stint.Policy{Timeout: 260 * time.Millisecond}, nil)
	if err != nil {
		panic(err)
	}
	p := c.Policy()
	p.Timeout = 200 * time.Millisecond
	if err := c.SetPolicy(p); err != nil {
		panic(err) // and the old one stays
	}
	fmt.Println(c.Policy().Timeout)
	// Output: 200ms
}

// Ten successes earn a retry; while nothing succeeds, the ceiling is all there is.
func ExampleRetryBudget() {
	b := stint.NewRetryBudget(0.1, 2)
	fmt.Println(b.Withdraw(), b.Withdraw(), b.Withdraw())
	for range 10 {
		b.Deposit()
	}
	fmt.Println(b.Balance(), b.Withdraw())
	// Output:
	// true true false
	// 1 true
}

// A Gate without HTTP: what a carrier for a queue or an RPC does.
func ExampleGate_Admit() {
	gate, err := stint.NewGate("orders", &stint.GateOptions{
		Trust:      stint.TrustPeers,
		MaxTimeout: 800 * time.Millisecond,
		MinUseful:  30 * time.Millisecond,
		Logger:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	serve := func(message map[string][]string) error {
		var a stint.Admission
		if err := gate.Admit(context.Background(), stint.ParseHop(message), &a); err != nil {
			return err // nothing was started
		}
		left, _ := stint.Remaining(a.Context())
		fmt.Println("has less than it came with:", left < 250*time.Millisecond)
		a.Finish(stint.Outcome{Kind: stint.OK})
		return nil
	}
	fmt.Println(serve(map[string][]string{"x-deadline-ms": {"250"}}))
	fmt.Println(serve(map[string][]string{"x-deadline-ms": {"20"}}))
	// Output:
	// has less than it came with: true
	// <nil>
	// stint: gate orders: refused before start: no_time
}

// What crosses a hop, as it is written.
func ExampleHop() {
	h := stint.Hop{Remaining: 171 * time.Millisecond, Attempt: 2, Owner: "orders", Class: stint.Critical}
	for _, f := range h.Append(nil) {
		fmt.Printf("%s: %s\n", f.Name, f.Value)
	}
	// Output:
	// X-Deadline-Ms: 171
	// X-Attempt: 2
	// X-Retry-Owner: orders
	// X-Criticality: critical
}

// The call path, as seen from inside an attempt.
func ExampleHopFromContext() {
	c, err := stint.NewCaller("pricing", stint.Policy{Retry: stint.Retry{Attempts: 2}}, &stint.CallerOptions{Service: "orders"})
	if err != nil {
		panic(err)
	}
	c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) error {
		fmt.Println("retries are owned by", stint.HopFromContext(ctx).Owner)
		return nil
	})
	// Output: retries are owned by orders
}

// Ask for time before a step that is of no use half done.
func ExampleRequire() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	err := stint.Require(ctx, 50*time.Millisecond)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), ctx.Err())
	// Output: true <nil>
}

// Work that goes on after the answer: its own time, its own retries.
func ExampleDetach() {
	request, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	job, stop := stint.Detach(request, time.Minute)
	defer stop()
	cancel() // the request is answered
	left, _ := stint.Remaining(job)
	fmt.Println(job.Err(), left > 50*time.Second)
	// Output: <nil> true
}

// The reserve is there when the work's own time is up.
func ExampleCleanup() {
	gate, err := stint.NewGate("orders", &stint.GateOptions{Reserve: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	var a stint.Admission
	if err := gate.Admit(context.Background(), stint.Hop{Remaining: 2 * time.Second}, &a); err != nil {
		panic(err)
	}
	defer a.Finish(stint.Outcome{Kind: stint.OK})
	rollback, cancel := stint.Cleanup(a.Context())
	defer cancel()
	work, _ := stint.Remaining(a.Context())
	all, _ := stint.Remaining(rollback)
	fmt.Println((all - work).Round(time.Millisecond))
	// Output: 500ms
}

// One event is one line.
func ExampleNewLogObserver() {
	c, err := stint.NewCaller("c", stint.Policy{Retry: stint.Retry{Attempts: 2, Base: time.Nanosecond, Cap: time.Nanosecond}},
		&stint.CallerOptions{Service: "b", Observer: stint.NewLogObserver(withoutTime(os.Stdout, slog.LevelDebug))})
	if err != nil {
		panic(err)
	}
	n := 0
	c.Do(context.Background(), stint.Op{Name: "get", Safety: stint.ReadOnly}, func(context.Context) error {
		if n++; n == 1 {
			return busy{}
		}
		return nil
	})
	// Output:
	// level=DEBUG msg=attempt attempt=1 dependency=c outcome=busy service=b op=get owner=b error=busy
	// level=DEBUG msg=attempt attempt=2 dependency=c outcome=ok service=b op=get owner=b
	// level=DEBUG msg=call attempt=2 dependency=c outcome=ok service=b op=get owner=b
}

// counter is an Observer: refused retries by reason, apart from failed calls.
type counter struct {
	failed   int
	refused  map[stint.Reason]int
	observed stint.Reason
}

func (c *counter) StartAttempt(ctx context.Context, _ stint.Event) context.Context { return ctx }

func (c *counter) Observe(_ context.Context, e stint.Event) {
	switch {
	case e.Kind == stint.AttemptDone && e.Outcome.Kind != stint.OK:
		c.failed++
	case e.Kind == stint.CallDone && e.Reason != 0:
		c.refused[e.Reason]++
	case e.Observed:
		c.observed = e.Reason
	}
}

// Counting is an Observer of one's own.
func ExampleObserver() {
	count := &counter{refused: make(map[stint.Reason]int)}
	c, err := stint.NewCaller("c", stint.Policy{Breaker: stint.Breaker{Off: true},
		Retry: stint.Retry{Attempts: 3, Base: time.Nanosecond, Cap: time.Nanosecond, BudgetCeiling: 3}}, &stint.CallerOptions{Observer: count})
	if err != nil {
		panic(err)
	}
	for range 4 {
		c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error { return busy{} })
	}
	fmt.Println(count.failed, "failed attempts, refused:", count.refused[stint.AttemptsSpent], stint.AttemptsSpent, count.refused[stint.BudgetSpent], stint.BudgetSpent)
	// Output: 7 failed attempts, refused: 1 attempts_spent 3 budget_spent
}
