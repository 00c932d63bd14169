//go:build !race

package stint_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

func newCaller(t testing.TB, p stint.Policy, o *stint.CallerOptions) *stint.Caller {
	t.Helper()
	c, err := stint.NewCaller("c", p, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func atMost(t *testing.T, what string, limit float64, fn func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, fn); n > limit {
		t.Errorf("%s: %v allocations, want at most %v", what, n, limit)
	} else {
		t.Logf("%s: %v allocations", what, n)
	}
}

// fullPolicy has deadline, guard, retry budget, breaker and bulkhead on.
func fullPolicy() stint.Policy {
	return stint.Policy{Timeout: time.Second, MinUseful: 20 * time.Millisecond, Retry: stint.Retry{Attempts: 3}}
}

func TestAllocDo(t *testing.T) {
	c := newCaller(t, fullPolicy(), nil)
	ctx := context.Background()
	cancellable, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	op := stint.Op{Name: "get", Safety: stint.ReadOnly}
	noop := func(context.Context) error { return nil }
	atMost(t, "Do around a no-op", 5, func() { c.Do(ctx, op, noop) })
	atMost(t, "Do around a no-op, cancellable caller", 5, func() { c.Do(cancellable, op, noop) })
	waits := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		default:
		}
		return nil
	}
	atMost(t, "Do around a function that asks for Done", 7, func() { c.Do(ctx, op, waits) })
}

func TestAllocRefusals(t *testing.T) {
	op := stint.Op{Name: "get", Safety: stint.ReadOnly}
	noop := func(context.Context) error { return nil }
	want := func(err error, r stint.Reason) {
		if e, ok := err.(*stint.Error); !ok || e.Reason != r {
			t.Fatalf("got %v, want reason %v", err, r)
		}
	}
	ctx := context.Background()

	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := newCaller(t, stint.Policy{MinUseful: time.Minute}, nil)
	atMost(t, "too little time", 0, func() { want(c.Do(short, op, noop), stint.NoTime) })

	gone, cancel := context.WithCancel(ctx)
	cancel()
	atMost(t, "caller gone", 0, func() { want(c.Do(gone, op, noop), stint.CallerGone) })

	c = newCaller(t, stint.Policy{Breaker: stint.Breaker{MinCalls: 1}}, nil)
	c.Do(ctx, op, func(context.Context) error { return errors.New("down") })
	atMost(t, "breaker open", 0, func() { want(c.Do(ctx, op, noop), stint.BreakerOpen) })
}

func TestAllocDecide(t *testing.T) {
	p := fullPolicy()
	a := stint.Attempt{Number: 1, Outcome: stint.Outcome{Kind: stint.Transient, Code: "503"}, Remaining: time.Second,
		Op: stint.Op{Safety: stint.ReadOnly}, BreakerClosed: true, Balance: 10}
	atMost(t, "Decide yes", 0, func() {
		if !p.Decide(a, 0.5).Retry {
			t.Fatal("refused")
		}
	})
	a.Owned = true
	atMost(t, "Decide no", 0, func() { p.Decide(a, 0.5) })
}

func TestAllocGate(t *testing.T) {
	g, err := stint.NewGate("s", &stint.GateOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	hop := stint.Hop{Remaining: time.Second}
	atMost(t, "Admit and Finish", 1, func() {
		a := new(stint.Admission)
		if err := g.Admit(ctx, hop, a); err != nil {
			t.Fatal(err)
		}
		a.Finish(stint.Outcome{Kind: stint.OK})
	})
	if err := g.Admit(ctx, hop, new(stint.Admission)); err != nil {
		t.Fatal(err)
	}
	var none stint.Admission
	brief := stint.Hop{Remaining: time.Millisecond} // it can't wait
	atMost(t, "refusal: full", 0, func() { g.Admit(ctx, brief, &none) })
	atMost(t, "refusal: no time", 0, func() { g.Admit(ctx, stint.Hop{Remaining: -1}, &none) })
}

func TestAllocController(t *testing.T) {
	for name, o := range map[string]stint.GateOptions{"fixed": {Limit: 1}, "learned": {}} {
		c, err := o.Controller()
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		who, hop := new(int), stint.Hop{Remaining: time.Second}
		atMost(t, name+": Arrive and Done", 0, func() {
			now = now.Add(time.Millisecond)
			if in, _, _ := c.Arrive(now, hop, who); !in {
				t.Fatal("no place")
			}
			c.Done(now.Add(time.Millisecond), time.Millisecond)
			c.Next(now)
		})
		for c.Running() < c.Limit() {
			c.Arrive(now, hop, who)
		}
		atMost(t, name+": refused", 0, func() {
			if in, wait, _ := c.Arrive(now, stint.Hop{Remaining: time.Millisecond}, who); in || wait > 0 {
				t.Fatal("not refused")
			}
		})
		atMost(t, name+": queued and called", 0, func() {
			if _, wait, _ := c.Arrive(now, hop, who); wait <= 0 {
				t.Fatal("not queued")
			}
			c.Done(now, time.Millisecond)
			if _, start, _ := c.Next(now); !start {
				t.Fatal("not called")
			}
		})
	}
}
