package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// tooBusy is a failure that is repeated where that is safe.
var tooBusy = judged{stint.Outcome{Kind: stint.Transient}, errors.New("busy")}

// attemptsOf returns how many attempts a call of op makes that always fails.
func attemptsOf(ctx context.Context, c *stint.Caller, op stint.Op) (n int) {
	c.Do(ctx, op, func(context.Context) error { n++; return tooBusy })
	return n
}

// The least safety of a policy, whatever the operation says of itself: in what is
// decided, and in what happens.
func TestPolicySafety(t *testing.T) {
	for _, c := range []struct {
		policy, op stint.Safety
		key        string
		oneShot    bool
		repeats    bool
	}{
		{stint.Unrepeatable, stint.Unrepeatable, "", false, false},
		{stint.Unrepeatable, stint.Idempotent, "", false, true},
		{stint.Unrepeatable, stint.Unrepeatable, "k", false, true},
		{stint.Idempotent, stint.Unrepeatable, "", false, true},
		{stint.ReadOnly, stint.Unrepeatable, "", false, true},
		{stint.Idempotent, stint.ReadOnly, "", false, true},
		{stint.ReadOnly, stint.Unrepeatable, "", true, false},
		{stint.ReadOnly, 7, "", false, false}, // what nobody knows is not safe
	} {
		synctest.Test(t, func(t *testing.T) {
			p := stint.Policy{Safety: c.policy, Retry: stint.Retry{Attempts: 2}, Hedge: stint.Hedge{Copies: 1, Delay: time.Second}}
			op := stint.Op{Safety: c.op, Key: c.key, OneShot: c.oneShot}
			a := stint.Attempt{Number: 1, Outcome: tooBusy.outcome, Remaining: time.Minute, Op: op, BreakerClosed: true, Balance: 10}
			if d := p.Decide(a, 0); d.Retry != c.repeats {
				t.Errorf("%+v: Decide says %+v", c, d)
			}
			if d := p.DecideHedge(a); d.Retry != c.repeats {
				t.Errorf("%+v: DecideHedge says %+v", c, d)
			}
			caller, _ := callerFor(t, p)
			if n := attemptsOf(t.Context(), caller, op); (n == 2) != c.repeats {
				t.Errorf("%+v: %d attempts", c, n)
			}
			f := &field{runners: []runner{{takes: 3 * time.Second, outcome: good}}}
			caller.Send(t.Context(), op, f, &f.flight)
			f.flight.End()
			synctest.Wait()
			if n := len(f.copies); (n == 2) != c.repeats {
				t.Errorf("%+v: %d copies", c, n)
			}
			// A call that may be repeated claims the path.
			if owned := f.hops[0].Owner != ""; owned != c.repeats {
				t.Errorf("%+v: owner %q on the wire", c, f.hops[0].Owner)
			}
		})
	}
}

// An operation with a policy of its own takes nothing from the one around it.
func TestOperationsStandAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := callerFor(t, stint.Policy{
			Timeout: time.Second, MinUseful: 20 * time.Millisecond, Reserve: 100 * time.Millisecond, Safety: stint.Idempotent,
			Retry: stint.Retry{Attempts: 3, Codes: []string{"500"}},
			Operations: map[string]stint.Policy{
				"plain":  {},
				"report": {Timeout: time.Minute, MinUseful: time.Second, Retry: stint.Retry{Attempts: 2}, Safety: stint.ReadOnly},
			},
		})
		left := func(ctx context.Context, name string) (d time.Duration) {
			c.Do(ctx, stint.Op{Name: name}, func(ctx context.Context) error { d, _ = stint.Remaining(ctx); return nil })
			return d
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for _, w := range []struct {
			name         string
			attempts     int
			alone, under time.Duration // without a deadline, and under one of 500 ms
		}{
			{"other", 3, time.Second, 400 * time.Millisecond},
			{"", 3, time.Second, 400 * time.Millisecond},
			{"plain", 1, 10 * time.Second, 500 * time.Millisecond},
			{"report", 2, time.Minute, 0}, // it would not start
		} {
			if d := left(t.Context(), w.name); d != w.alone {
				t.Errorf("%q has %v, want %v", w.name, d, w.alone)
			}
			if d := left(ctx, w.name); d != w.under {
				t.Errorf("%q under a deadline has %v, want %v", w.name, d, w.under)
			}
		}
		for name, want := range map[string]int{"other": 3, "plain": 1, "report": 2} {
			if n := attemptsOf(t.Context(), c, stint.Op{Name: name}); n != want {
				t.Errorf("%q: %d attempts, want %d", name, n, want)
			}
		}
		if got := c.PolicyFor(stint.Op{Name: "report"}); got.Timeout != time.Minute || got.Retry.Attempts != 2 {
			t.Errorf("PolicyFor(report): %+v", got)
		}
		if got := c.PolicyFor(stint.Op{Name: "other"}); got.Timeout != time.Second || got.Operations != nil {
			t.Errorf("PolicyFor(other): %+v", got)
		}
	})
}

// The breaker, the slots and the retry budget are the dependency's.
func TestOperationsShareTheDependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := stint.Policy{Bulkhead: 1, Breaker: stint.Breaker{MinCalls: 4},
			Retry: stint.Retry{Attempts: 5, BudgetCeiling: 3},
			Operations: map[string]stint.Policy{
				"a": {Retry: stint.Retry{Attempts: 5}, Safety: stint.ReadOnly},
				"b": {Retry: stint.Retry{Attempts: 5}, Safety: stint.ReadOnly, MinUseful: 2 * time.Second},
			}}
		c, _ := callerFor(t, p)
		a, b := stint.Op{Name: "a"}, stint.Op{Name: "b"}
		c.Do(t.Context(), a, func(context.Context) error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var e *stint.Error
			if err := c.Do(ctx, b, nil); !errors.As(err, &e) || e.Reason != stint.Full {
				t.Errorf("beside the one slot: %v, want full", err)
			}
			return nil
		})
		if n := attemptsOf(t.Context(), c, a) + attemptsOf(t.Context(), c, b); n != 2+3 {
			t.Errorf("two calls made %d attempts, want one each and the three tokens", n)
		}
		attemptsOf(t.Context(), c, a)
		attemptsOf(t.Context(), c, b)
		var e *stint.Error
		for _, op := range []stint.Op{a, b, {Name: "other"}} {
			if err := c.Do(t.Context(), op, nil); !errors.As(err, &e) || e.Reason != stint.BreakerOpen {
				t.Errorf("%s: %v, want an open breaker", op.Name, err)
			}
		}
	})
}

// Each operation learns its own delay, and keeps it over a SetPolicy.
func TestOperationsLearnTheirOwnDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hedging := stint.Policy{Hedge: stint.Hedge{Copies: 1}, Safety: stint.ReadOnly}
		p := hedging
		p.Operations = map[string]stint.Policy{"report": hedging, "plain": {}}
		c, _ := callerFor(t, p)
		call := func(name string, takes time.Duration) (copies int) {
			f := &field{runners: []runner{{takes: takes, outcome: good}}}
			c.Send(t.Context(), stint.Op{Name: name}, f, &f.flight)
			f.flight.End()
			synctest.Wait()
			return len(f.copies) - 1
		}
		for range 120 {
			call("get", 10*time.Millisecond)
			call("report", 2*time.Second)
			call("plain", 9*time.Second)
		}
		if err := c.SetPolicy(c.Policy()); err != nil {
			t.Fatal(err)
		}
		for _, w := range []struct {
			name   string
			takes  time.Duration
			copies int
		}{{"get", 5 * time.Millisecond, 0}, {"get", 100 * time.Millisecond, 1}, {"report", 1900 * time.Millisecond, 0}, {"report", 3 * time.Second, 1}, {"plain", 9 * time.Second, 0}} {
			if n := call(w.name, w.takes); n != w.copies {
				t.Errorf("%s of %v: %d copies, want %d", w.name, w.takes, n, w.copies)
			}
		}
	})
}

func TestHedgesIfAnyOperationDoes(t *testing.T) {
	h := stint.Hedge{Copies: 1}
	for _, w := range []struct {
		policy stint.Policy
		want   bool
	}{
		{stint.Policy{}, false},
		{stint.Policy{Hedge: h}, true},
		{stint.Policy{Operations: map[string]stint.Policy{"a": {}}}, false},
		{stint.Policy{Operations: map[string]stint.Policy{"a": {}, "b": {Hedge: h}}}, true},
	} {
		if c, _ := callerFor(t, w.policy); c.Hedges() != w.want {
			t.Errorf("%+v: %v", w.policy, c.Hedges())
		}
	}
}

func TestOperationsValidate(t *testing.T) {
	for want, p := range map[string]stint.Policy{
		`Safety is 3: must be Unrepeatable, Idempotent or ReadOnly`: {Safety: 3},
		`Operations["GET /report"]: Retry.Attempts is -1: must be`:  {Operations: map[string]stint.Policy{"GET /report": {Retry: stint.Retry{Attempts: -1}}}},
		`Operations["a"]: Safety is 9`:                              {Operations: map[string]stint.Policy{"a": {Safety: 9}}},
		`Operations["a"]: MinUseful 1s is above Timeout 10ms`:       {Operations: map[string]stint.Policy{"a": {Timeout: 10 * time.Millisecond, MinUseful: time.Second}}},
		`Operations["a"]: Bulkhead is 5: must be zero, all`:         {Operations: map[string]stint.Policy{"a": {Bulkhead: 5}}},
		`Operations["a"]: Bulkhead is -9: must be zero, all`:        {Operations: map[string]stint.Policy{"a": {Bulkhead: -9}}},
		`Operations["a"]: Breaker is {Off:true`:                     {Operations: map[string]stint.Policy{"a": {Breaker: stint.Breaker{Off: true}}}},
		`Operations["a"]: Retry.BudgetRatio is NaN: must be zero`:   {Operations: map[string]stint.Policy{"a": {Retry: stint.Retry{BudgetRatio: math.NaN()}}}},
		`Operations["a"]: Retry.BudgetCeiling is 1: must be zero`:   {Operations: map[string]stint.Policy{"a": {Retry: stint.Retry{BudgetCeiling: 1}}}},
		`Operations["a"]: Operations has 1 of its own`:              {Operations: map[string]stint.Policy{"a": {Operations: map[string]stint.Policy{"b": {}}}}},
		`Operations[""] has no name: must be an Op.Name`:            {Operations: map[string]stint.Policy{"": {}}},
	} {
		err := p.Validate()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
		c, _ := callerFor(t, stint.Policy{Operations: map[string]stint.Policy{"a": {}}})
		before := c.Policy()
		if err := c.SetPolicy(p); err == nil || !reflect.DeepEqual(before, c.Policy()) {
			t.Errorf("%v, and then %+v", err, c.Policy())
		}
	}
	// All of them, in the order of their names.
	err := stint.Policy{Timeout: -1, Operations: map[string]stint.Policy{"b": {Timeout: -1}, "a": {Timeout: -1, Bulkhead: 1}}}.Validate()
	lines := strings.Split(fmt.Sprint(err), "\n")
	for i, want := range []string{"invalid policy: Timeout", `Operations["a"]: Bulkhead`, `Operations["a"]: Timeout`, `Operations["b"]: Timeout`} {
		if len(lines) != 4 || !strings.Contains(lines[i], want) {
			t.Fatalf("%v, want line %d to name %s", err, i+1, want)
		}
	}
}

// What Policy returns is nobody else's, has its defaults, and can be set again.
func TestOperationsAreCopied(t *testing.T) {
	codes := []string{"500"}
	operations := map[string]stint.Policy{"a": {Retry: stint.Retry{Codes: codes}}}
	c, _ := callerFor(t, stint.Policy{Operations: operations})
	codes[0] = "x"
	operations["a"] = stint.Policy{Timeout: time.Hour}
	got := c.Policy()
	want := map[string]stint.Policy{"a": {MinUseful: time.Millisecond,
		Retry: stint.Retry{Attempts: 1, Base: 50 * time.Millisecond, Cap: 2 * time.Second, Codes: []string{"500"}}}}
	if !reflect.DeepEqual(got.Operations, want) {
		t.Fatalf("operations %+v, want %+v", got.Operations, want)
	}
	got.Operations["a"].Retry.Codes[0] = "y"
	delete(got.Operations, "a")
	if again := c.Policy(); !reflect.DeepEqual(again.Operations, want) {
		t.Errorf("after the copy was changed: %+v", again.Operations)
	}
	before := c.Policy()
	if err := c.SetPolicy(before); err != nil || !reflect.DeepEqual(c.Policy(), before) {
		t.Errorf("set again: %v, %+v", err, c.Policy())
	}
	if err := c.SetPolicy(stint.Policy{}); err != nil || c.Policy().Operations != nil {
		t.Errorf("SetPolicy left operations behind: %v, %+v", err, c.Policy())
	}
}

// A call has one policy from its start to its end, however often they change.
func TestSetPolicyRaces(t *testing.T) {
	a := stint.Policy{Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}, Safety: stint.ReadOnly, Breaker: stint.Breaker{Off: true}}
	b := a
	a.Operations = map[string]stint.Policy{"x": {Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}, Safety: stint.ReadOnly, Hedge: stint.Hedge{Copies: 1}}}
	a.Retry.BudgetRatio, b.Retry.BudgetRatio = 1, 1
	a.Retry.BudgetCeiling, b.Retry.BudgetCeiling = 1e6, 1e6
	c, err := stint.NewCaller("c", a, nil)
	if err != nil {
		t.Fatal(err)
	}
	for c.Budget().Balance() < 1e6 {
		c.Budget().Return()
	}
	var calls, setting sync.WaitGroup
	done := make(chan struct{})
	setting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := c.SetPolicy([]stint.Policy{a, b}[i%2]); err != nil {
				t.Error(err)
			}
			c.Policy()
		}
	})
	for range 4 {
		calls.Go(func() {
			for range 300 {
				if n := attemptsOf(context.Background(), c, stint.Op{Name: "x"}); n != 2 && n != 3 {
					t.Errorf("%d attempts", n)
				}
				if n := attemptsOf(context.Background(), c, stint.Op{Name: "y"}); n != 2 {
					t.Errorf("%d attempts under the policy around", n)
				}
				stint.Call(context.Background(), c, stint.Op{Name: "x"}, func(context.Context) (int, error) { return 1, nil })
			}
		})
	}
	calls.Wait()
	close(done)
	setting.Wait()
}
