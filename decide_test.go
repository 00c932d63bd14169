package stint_test

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// decideYes is an attempt that is followed by another under decidePolicy: each
// test spoils some of it.
func decideYes() stint.Attempt {
	return stint.Attempt{
		Number:        1,
		Outcome:       stint.Outcome{Kind: stint.Transient, Code: "503"},
		Remaining:     time.Second,
		Op:            stint.Op{Safety: stint.ReadOnly},
		BreakerClosed: true,
		Balance:       1,
	}
}

func decidePolicy() stint.Policy {
	return stint.Policy{
		MinUseful: 20 * time.Millisecond,
		Retry:     stint.Retry{Attempts: 3, Base: 100 * time.Millisecond, Cap: time.Second},
	}
}

func TestDecideSaysYes(t *testing.T) {
	d := decidePolicy().Decide(decideYes(), 0.5)
	if want := (stint.Decision{Retry: true, Delay: 50 * time.Millisecond}); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
}

// decideChecks are the checks in their order, each with something that it says
// no to. A step spoils an attempt in a way that no other step undoes.
var decideChecks = []struct {
	name   string
	spoil  func(p *stint.Policy, a *stint.Attempt)
	reason stint.Reason
}{
	{"class", func(_ *stint.Policy, a *stint.Attempt) { a.Outcome.Kind = stint.Rejected }, stint.Final},
	{"attempts", func(p *stint.Policy, a *stint.Attempt) { a.Number = p.Retry.Attempts }, stint.AttemptsSpent},
	{"time", func(_ *stint.Policy, a *stint.Attempt) { a.Remaining = 10 * time.Millisecond }, stint.NoTime},
	{"repeatable", func(_ *stint.Policy, a *stint.Attempt) { a.Op.Safety = stint.Unrepeatable }, stint.NotRepeatable},
	{"owner", func(_ *stint.Policy, a *stint.Attempt) { a.Owned = true }, stint.NotOwner},
	{"breaker", func(_ *stint.Policy, a *stint.Attempt) { a.BreakerClosed = false }, stint.BreakerOpen},
	{"budget", func(_ *stint.Policy, a *stint.Attempt) { a.Balance = 0.999 }, stint.BudgetSpent},
}

// Of everything that is wrong, the first check in the order gives the reason:
// every subset of what can be wrong is tried.
func TestDecideOrder(t *testing.T) {
	for set := 1; set < 1<<len(decideChecks); set++ {
		p, a := decidePolicy(), decideYes()
		first, names := stint.Reason(0), ""
		for i, c := range decideChecks {
			if set>>i&1 == 0 {
				continue
			}
			c.spoil(&p, &a)
			names += " " + c.name
			if first == 0 {
				first = c.reason
			}
		}
		if d := p.Decide(a, 0.5); d.Retry || d.Reason != first {
			t.Errorf("wrong:%s: %+v, want %v", names, d, first)
		}
	}
}

// Who gets a copy: the checks in their order, each alone and on the line.
func TestDecideHedge(t *testing.T) {
	p := decidePolicy()
	p.Hedge = stint.Hedge{Copies: 2}
	yes := decideYes()
	yes.Number, yes.Outcome, yes.Remaining = 9, stint.Outcome{}, p.MinUseful
	for _, c := range []struct {
		name  string
		spoil func(*stint.Policy, *stint.Attempt)
		want  stint.Reason // zero: a copy
	}{
		{"nothing", func(*stint.Policy, *stint.Attempt) {}, 0},
		{"one left", func(_ *stint.Policy, a *stint.Attempt) { a.Copies = 1 }, 0},
		{"none left", func(_ *stint.Policy, a *stint.Attempt) { a.Copies = 2 }, stint.AttemptsSpent},
		{"no hedging", func(p *stint.Policy, _ *stint.Attempt) { p.Hedge = stint.Hedge{} }, stint.AttemptsSpent},
		{"time", func(_ *stint.Policy, a *stint.Attempt) { a.Remaining-- }, stint.NoTime},
		{"one shot", func(_ *stint.Policy, a *stint.Attempt) { a.Op.OneShot = true }, stint.OneShot},
		{"unsafe", func(_ *stint.Policy, a *stint.Attempt) { a.Op.Safety = stint.Unrepeatable }, stint.NotRepeatable},
		{"keyed", func(_ *stint.Policy, a *stint.Attempt) { a.Op = stint.Op{Key: "k"} }, 0},
		{"owned", func(_ *stint.Policy, a *stint.Attempt) { a.Owned = true }, stint.NotOwner},
		{"owned, but always", func(p *stint.Policy, a *stint.Attempt) { a.Owned, p.Retry.Owner = true, stint.OwnerAlways }, 0},
		{"never", func(p *stint.Policy, _ *stint.Attempt) { p.Retry.Owner = stint.OwnerNever }, stint.NotOwner},
		{"breaker", func(_ *stint.Policy, a *stint.Attempt) { a.BreakerClosed = false }, stint.BreakerOpen},
		{"budget", func(_ *stint.Policy, a *stint.Attempt) { a.Balance = 0.999 }, stint.BudgetSpent},
	} {
		p, a := p, yes
		c.spoil(&p, &a)
		if d := p.DecideHedge(a); d.Retry != (c.want == 0) || d.Reason != c.want || d.Delay != 0 {
			t.Errorf("%s: %+v, want %v", c.name, d, c.want)
		}
	}
}

func TestDecideReasons(t *testing.T) {
	type (
		policy  = stint.Policy
		attempt = stint.Attempt
	)
	yes := stint.Reason(0)
	kind := func(k stint.Kind) func(*policy, *attempt) {
		return func(_ *policy, a *attempt) { a.Outcome = stint.Outcome{Kind: k} }
	}
	tests := []struct {
		name string
		set  func(p *policy, a *attempt)
		want stint.Reason
	}{
		{"failed", kind(stint.Failed), stint.Final},
		{"ok", kind(stint.OK), stint.Final},
		{"transient", kind(stint.Transient), yes},
		{"overloaded, without a hint", kind(stint.Overloaded), stint.Final},
		{"rejected", kind(stint.Rejected), stint.Final},
		{"attempt timeout", kind(stint.TimedOut), yes},
		{"our deadline", kind(stint.Expired), stint.NoTime},
		{"canceled", kind(stint.Canceled), stint.CallerGone},
		{"refused here", kind(stint.Refused), stint.Final},
		{"a kind nobody knows", kind(stint.Refused + 1), stint.Final},
		{"overloaded, with a hint", func(_ *policy, a *attempt) {
			a.Outcome = stint.Outcome{Kind: stint.Overloaded, Hinted: true, RetryAfter: 10 * time.Millisecond}
		}, yes},
		{"overloaded, to come back at once", func(_ *policy, a *attempt) {
			a.Outcome = stint.Outcome{Kind: stint.Overloaded, Hinted: true}
		}, yes},
		{"rejected, with a hint", func(_ *policy, a *attempt) {
			a.Outcome = stint.Outcome{Kind: stint.Rejected, Hinted: true}
		}, stint.Final},

		{"listed 429 without a hint", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"429"}
			a.Outcome = stint.Outcome{Kind: stint.Overloaded, Code: "429"}
		}, yes},
		{"429 where only 500 is listed", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"500"}
			a.Outcome = stint.Outcome{Kind: stint.Overloaded, Code: "429"}
		}, stint.Final},
		{"listed 500", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"429", "500"}
			a.Outcome = stint.Outcome{Kind: stint.Failed, Code: "500"}
		}, yes},
		{"500", func(_ *policy, a *attempt) { a.Outcome = stint.Outcome{Kind: stint.Failed, Code: "500"} }, stint.Final},
		{"listed, but unsafe", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"500"}
			a.Outcome = stint.Outcome{Kind: stint.Failed, Code: "500"}
			a.Op.Safety = stint.Unrepeatable
		}, stint.NotRepeatable},
		{"listed, but it went well", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"200"}
			a.Outcome = stint.Outcome{Kind: stint.OK, Code: "200"}
		}, stint.Final},
		{"listed, but out of time", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"deadline"}
			a.Outcome = stint.Outcome{Kind: stint.Expired, Code: "deadline"}
		}, stint.NoTime},
		{"listed, but refused here", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"breaker_open"}
			a.Outcome = stint.Outcome{Kind: stint.Refused, NotStarted: true, Code: "breaker_open"}
		}, stint.Final},
		{"an empty code listed", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{""}
			a.Outcome = stint.Outcome{Kind: stint.Failed}
		}, stint.Final},

		{"never", func(_ *policy, a *attempt) { a.Outcome.Never = true }, stint.NeverRetry},
		{"never, listed", func(p *policy, a *attempt) {
			p.Retry.Codes = []string{"503"}
			a.Outcome.Never = true
		}, stint.NeverRetry},
		{"never, not started", func(_ *policy, a *attempt) { a.Outcome.Never, a.Outcome.NotStarted = true, true }, stint.NeverRetry},
		{"never, with a hint", func(_ *policy, a *attempt) { a.Outcome.Never, a.Outcome.Hinted = true, true }, stint.NeverRetry},
		{"never beside a caller that left", func(_ *policy, a *attempt) {
			a.Outcome = stint.Outcome{Kind: stint.Canceled, Never: true}
		}, stint.CallerGone},

		{"the last attempt but one", func(_ *policy, a *attempt) { a.Number = 2 }, yes},
		{"the last attempt", func(_ *policy, a *attempt) { a.Number = 3 }, stint.AttemptsSpent},
		{"the policy's zero value", func(p *policy, _ *attempt) { *p = policy{} }, stint.AttemptsSpent},
		{"not even for what never started", func(_ *policy, a *attempt) { a.Number, a.Outcome.NotStarted = 3, true }, stint.AttemptsSpent},

		{"unrepeatable", func(_ *policy, a *attempt) { a.Op = stint.Op{} }, stint.NotRepeatable},
		{"unrepeatable with a key", func(_ *policy, a *attempt) { a.Op = stint.Op{Key: "k"} }, yes},
		{"idempotent", func(_ *policy, a *attempt) { a.Op = stint.Op{Safety: stint.Idempotent} }, yes},
		{"unrepeatable, timed out", func(_ *policy, a *attempt) {
			a.Op, a.Outcome = stint.Op{}, stint.Outcome{Kind: stint.TimedOut}
		}, stint.NotRepeatable},
		{"unrepeatable, never started", func(_ *policy, a *attempt) { a.Op, a.Outcome.NotStarted = stint.Op{}, true }, yes},
		{"one shot", func(_ *policy, a *attempt) { a.Op.OneShot = true }, stint.OneShot},
		{"one shot with a key", func(_ *policy, a *attempt) { a.Op = stint.Op{Key: "k", OneShot: true} }, stint.OneShot},
		{"one shot, never started", func(_ *policy, a *attempt) { a.Op.OneShot, a.Outcome.NotStarted = true, true }, stint.OneShot},
		{"one shot, owned", func(_ *policy, a *attempt) { a.Op.OneShot, a.Owned = true, true }, stint.OneShot},
		{"one shot, too late", func(_ *policy, a *attempt) { a.Op.OneShot, a.Remaining = true, 0 }, stint.NoTime},

		{"a timeout that must not be repeated", func(p *policy, a *attempt) {
			p.Retry.NotAfterTimeout = true
			a.Outcome = stint.Outcome{Kind: stint.TimedOut}
		}, stint.NotRepeatable},
		{"a 503 beside that rule", func(p *policy, _ *attempt) { p.Retry.NotAfterTimeout = true }, yes},
		{"a timeout before it started", func(p *policy, a *attempt) {
			p.Retry.NotAfterTimeout = true
			a.Outcome = stint.Outcome{Kind: stint.TimedOut, NotStarted: true}
		}, yes},
		{"a timeout that must not be repeated, owned", func(p *policy, a *attempt) {
			p.Retry.NotAfterTimeout, a.Owned = true, true
			a.Outcome = stint.Outcome{Kind: stint.TimedOut}
		}, stint.NotRepeatable},

		{"owned", func(_ *policy, a *attempt) { a.Owned = true }, stint.NotOwner},
		{"owned, never started", func(_ *policy, a *attempt) { a.Owned, a.Outcome.NotStarted = true, true }, yes},
		{"owned, always", func(p *policy, a *attempt) { p.Retry.Owner, a.Owned = stint.OwnerAlways, true }, yes},
		{"never the owner", func(p *policy, _ *attempt) { p.Retry.Owner = stint.OwnerNever }, stint.NotOwner},
		{"never the owner, never started", func(p *policy, a *attempt) {
			p.Retry.Owner, a.Outcome.NotStarted = stint.OwnerNever, true
		}, yes},

		{"breaker not closed, never started", func(_ *policy, a *attempt) {
			a.BreakerClosed, a.Outcome.NotStarted = false, true
		}, stint.BreakerOpen},
		{"a whole token", func(_ *policy, a *attempt) { a.Balance = 1 }, yes},
		{"less than one", func(_ *policy, a *attempt) { a.Balance = math.Nextafter(1, 0) }, stint.BudgetSpent},
		{"no token, never started", func(_ *policy, a *attempt) { a.Balance, a.Outcome.NotStarted = 0, true }, stint.BudgetSpent},
	}
	seen := make(map[stint.Reason]bool)
	for _, c := range tests {
		p, a := decidePolicy(), decideYes()
		c.set(&p, &a)
		d := p.Decide(a, 0.5)
		if d.Reason != c.want || d.Retry != (c.want == yes) {
			t.Errorf("%s: %+v, want %q", c.name, d, c.want)
		}
		if d.Delay != 0 && !d.Retry && d.Reason != stint.NoTime {
			t.Errorf("%s: a delay of %v beside %v: there is none", c.name, d.Delay, d.Reason)
		}
		seen[c.want] = true
	}
	for r := stint.NoTime; r <= stint.CallerGone; r++ {
		// Full is the driver's: it is found out only when the slot is asked for.
		if !seen[r] && r != stint.Full {
			t.Errorf("no case ends with %v", r)
		}
	}
}

// The figures of the articles: what an attempt needs is 130 ms, and 170 ms are
// enough for one more where 58 ms are not; 2 s asked for do not fit into 90 ms.
func TestDecideArticleFigures(t *testing.T) {
	p := stint.Policy{MinUseful: 130 * time.Millisecond, Retry: stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond}}
	a := decideYes()
	a.Remaining = 170 * time.Millisecond
	if d := p.Decide(a, 0.999); !d.Retry || d.Delay > time.Millisecond {
		t.Errorf("170 ms left: %+v, want another attempt", d)
	}
	a.Number, a.Remaining = 2, 58*time.Millisecond
	if d := p.Decide(a, 0); d.Retry || d.Reason != stint.NoTime {
		t.Errorf("58 ms left: %+v, want no_time", d)
	}

	p = stint.Policy{MinUseful: time.Millisecond, Retry: stint.Retry{Attempts: 3}}
	a = decideYes()
	a.Remaining = 90 * time.Millisecond
	a.Outcome = stint.Outcome{Kind: stint.Overloaded, Hinted: true, RetryAfter: 2 * time.Second, Code: "429"}
	want := stint.Decision{Reason: stint.NoTime, Delay: 2 * time.Second}
	if d := p.Decide(a, 0); d != want {
		t.Errorf("2 s asked for with 90 ms left: %+v, want %+v", d, want)
	}
}

// B11: a retry that can't fit is refused when that is known, and not slept for
// until the deadline. A retry that just fits is made.
func TestB11DelayAndUsefulTimeHaveToFit(t *testing.T) {
	tests := []struct {
		name    string
		outcome stint.Outcome
		rnd     float64
		delay   time.Duration
	}{
		{"jitter", stint.Outcome{Kind: stint.Transient}, 0.5, 50 * time.Millisecond},
		{"no wait at all", stint.Outcome{Kind: stint.Transient}, 0, 0},
		{"a hint and jitter", stint.Outcome{Kind: stint.Transient, Hinted: true, RetryAfter: 3 * time.Second}, 0.25, 3025 * time.Millisecond},
		{"an endless hint", stint.Outcome{Kind: stint.Transient, Hinted: true, RetryAfter: math.MaxInt64}, 0.5, math.MaxInt64},
	}
	for _, c := range tests {
		p, a := decidePolicy(), decideYes()
		a.Outcome = c.outcome
		if c.delay < math.MaxInt64 {
			a.Remaining = c.delay + p.MinUseful
			if d, want := p.Decide(a, c.rnd), (stint.Decision{Retry: true, Delay: c.delay}); d != want {
				t.Errorf("%s, just fitting: %+v, want %+v", c.name, d, want)
			}
			a.Remaining--
		}
		if d, want := p.Decide(a, c.rnd), (stint.Decision{Reason: stint.NoTime, Delay: c.delay}); d != want {
			t.Errorf("%s, 1 ns too little: %+v, want %+v", c.name, d, want)
		}
	}

	p, a := decidePolicy(), decideYes()
	for _, left := range []time.Duration{0, -1, math.MinInt64} {
		a.Remaining = left
		if d := p.Decide(a, 0); d.Reason != stint.NoTime {
			t.Errorf("%v left: %+v, want no_time", left, d)
		}
	}
}

// The wait that did not fit is not waited, so no event says that it was: its
// Delay is "the wait before the next attempt; zero if none follows".
func TestB11RefusedWaitIsNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		p := stint.Policy{Timeout: 300 * time.Millisecond, Retry: stint.Retry{Attempts: 3}}
		c, err := stint.NewCaller("d", p, &stint.CallerOptions{Observer: &rec, Classify: func(context.Context, error) stint.Outcome {
			return stint.Outcome{Kind: stint.Transient, Hinted: true, RetryAfter: 10 * time.Second}
		}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err = c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return context.DeadlineExceeded
		})
		if e, ok := err.(*stint.Error); !ok || e.Reason != stint.NoTime || e.Attempts != 1 {
			t.Errorf("got %v, want no_time after 1 attempt", err)
		}
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("it took %v, want 10ms", took)
		}
		for _, e := range rec.Events() {
			if e.Delay != 0 {
				t.Errorf("event %v has a delay of %v, but no attempt followed", e.Kind, e.Delay)
			}
		}
	})
}

// Nobody comes back before the server asked, nor do all come back at once.
func TestDecideHintIsAFloor(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 0))
	p, a := decidePolicy(), decideYes()
	p.Retry.Attempts = 10
	a.Remaining = time.Hour
	for range 10_000 {
		a.Number = 1 + r.IntN(9)
		hint := time.Duration(r.Int64N(int64(time.Minute)))
		a.Outcome = stint.Outcome{Kind: stint.Transient, Hinted: true, RetryAfter: hint}
		rnd := r.Float64()
		d := p.Decide(a, rnd)
		most := min(p.Retry.Cap, p.Retry.Base<<(a.Number-1))
		want := hint + time.Duration(rnd*float64(most))
		if !d.Retry || d.Delay != want || d.Delay < hint {
			t.Fatalf("seed %d: attempt %d, hint %v, draw %v: %+v, want a delay of %v", seed, a.Number, hint, rnd, d, want)
		}
	}
	// A carrier that got it wrong must not turn the floor into a head start.
	a.Number, a.Outcome = 1, stint.Outcome{Kind: stint.Transient, Hinted: true, RetryAfter: -time.Hour}
	if d := p.Decide(a, 0.5); d.Delay != 50*time.Millisecond {
		t.Errorf("a negative hint: %+v, want the jitter alone", d)
	}
	a.Outcome = stint.Outcome{Kind: stint.Transient, RetryAfter: time.Hour}
	if d := p.Decide(a, 0.5); d.Delay != 50*time.Millisecond {
		t.Errorf("a time without Hinted: %+v, want the jitter alone", d)
	}
}

func TestDecideIsPure(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 0))
	codes := []string{"429", "500"}
	for i := range 5_000 {
		p := decidePolicy()
		p.Retry.Codes = slices.Clone(codes)
		p.Retry.NotAfterTimeout = r.IntN(2) == 0
		p.Retry.Owner = stint.Ownership(r.IntN(3))
		a := stint.Attempt{
			Number: 1 + r.IntN(3),
			Outcome: stint.Outcome{Kind: stint.Kind(r.IntN(9)), NotStarted: r.IntN(2) == 0, Never: r.IntN(8) == 0,
				Hinted: r.IntN(2) == 0, RetryAfter: time.Duration(r.IntN(int(time.Second))), Code: []string{"", "429", "500", "503"}[r.IntN(4)]},
			Remaining:     time.Duration(r.IntN(int(2 * time.Second))),
			Op:            stint.Op{Safety: stint.Safety(r.IntN(3)), OneShot: r.IntN(8) == 0},
			Owned:         r.IntN(2) == 0,
			BreakerClosed: r.IntN(4) > 0,
			Balance:       2 * r.Float64(),
		}
		rnd := r.Float64()
		before, same := a, p
		same.Retry.Codes = slices.Clone(codes)
		d := p.Decide(a, rnd)
		if again := p.Decide(a, rnd); again != d {
			t.Fatalf("seed %d, %d: %+v gave %+v and then %+v", seed, i, a, d, again)
		}
		if !reflect.DeepEqual(p, same) || a != before {
			t.Fatalf("seed %d, %d: Decide changed what it was given", seed, i)
		}
		if d.Retry != (d.Reason == 0) || d.Retry && d.Delay+p.MinUseful > a.Remaining {
			t.Fatalf("seed %d, %d: %+v gave %+v", seed, i, a, d)
		}
	}
}
