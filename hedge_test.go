package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// runner is what one copy of a call does.
type runner struct {
	takes   time.Duration
	deaf    bool // it does not look at its context
	outcome stint.Outcome
	fails   bool // with an error instead of a result
	does    func()
}

var good = stint.Outcome{Kind: stint.OK}

// field is a carrier whose copies run as its runners say; the last one repeats.
type field struct {
	runners []runner

	mu      sync.Mutex
	copies  []int
	hops    []stint.Hop
	ended   []error // how the contexts of the copies were when they came in
	dropped []any
	flight  stint.Flight
}

func (f *field) Send(ctx context.Context, hop stint.Hop, copy int) (any, stint.Outcome, error) {
	f.mu.Lock()
	r := f.runners[min(len(f.copies), len(f.runners)-1)]
	f.copies, f.hops = append(f.copies, copy), append(f.hops, hop)
	f.mu.Unlock()
	timer := time.NewTimer(r.takes)
	defer timer.Stop()
	if r.deaf {
		<-timer.C
	} else {
		select {
		case <-timer.C:
		case <-ctx.Done():
			f.note(ctx.Err())
			return nil, stint.Outcome{Kind: stint.Transient}, ctx.Err()
		}
	}
	f.note(ctx.Err())
	if r.does != nil {
		r.does()
	}
	if r.fails {
		return nil, r.outcome, errors.New(r.outcome.Code)
	}
	return hop.Attempt, r.outcome, nil
}

func (f *field) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, err)
}

func (f *field) Drop(result any, _ time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = append(f.dropped, result)
}

func hedgePolicy(copies int, delay time.Duration) stint.Policy {
	return stint.Policy{Timeout: time.Second, Hedge: stint.Hedge{Copies: copies, Delay: delay}}
}

const ms = time.Millisecond

func TestHedgeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		p := hedgePolicy(1, 50*ms)
		p.Bulkhead = 2
		c := newHedger(t, p, &rec)
		s := &field{runners: []runner{{takes: 500 * ms, outcome: good}, {takes: 10 * ms, outcome: good}}}
		start := time.Now()
		if err := c.Send(t.Context(), stint.Op{Safety: stint.ReadOnly, Key: "k1"}, s, &s.flight); err != nil || s.flight.Result() != 2 {
			t.Fatalf("got %v, result %v; want the copy's", err, s.flight.Result())
		}
		if d := time.Since(start); d != 60*ms {
			t.Errorf("took %v, want 60ms", d)
		}
		synctest.Wait() // the loser is on its way out
		if len(s.ended) != 2 || s.ended[1] != context.Canceled || len(s.dropped) != 0 {
			t.Errorf("contexts %v, dropped %v; want the loser cancelled at once", s.ended, s.dropped)
		}
		if !slices.Equal(s.copies, []int{0, 1}) || s.hops[0].Key != "k1" || s.hops[1].Key != "k1" || s.hops[1].Attempt != 2 {
			t.Errorf("copies %v, hops %+v; want one key on both", s.copies, s.hops)
		}
		if b := c.Budget().Balance(); b != 9.1 {
			t.Errorf("budget holds %v, want 10 - 1 for the copy + 0.1 for the success", b)
		}
		// The winner's and the loser's each have an order; between the two there is none.
		var won, lost []string
		for _, e := range rec.Events(stint.AttemptDone, stint.WorkWasted, stint.CallDone) {
			text := fmt.Sprint(e.Kind, " ", e.Attempt, ".", e.Copy, " ", e.Outcome, " ", e.Elapsed)
			if e.Outcome.Kind == stint.OK {
				won = append(won, text)
			} else {
				lost = append(lost, text)
			}
		}
		if want := []string{"attempt 2.1 ok 10ms", "call 2.0 ok 60ms"}; !slices.Equal(won, want) {
			t.Errorf("the winner's events %q, want %q", won, want)
		}
		if want := []string{"attempt 1.0 hedge_lost 60ms", "work_wasted 1.0 hedge_lost 60ms"}; !slices.Equal(lost, want) {
			t.Errorf("the loser's events %q, want %q", lost, want)
		}
		// One slot is the winner's, the loser's is free: a further call fits, a third does not.
		one := &field{runners: []runner{{outcome: good}}}
		if err := c.Send(t.Context(), read, one, &one.flight); err != nil {
			t.Errorf("beside the winner: %v", err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		if err := c.Do(soon, read, func(context.Context) error { return nil }); err == nil {
			t.Error("a third call found a slot, want the winner's still taken")
		}
		one.flight.End()
		s.flight.End()
		bulkFits(t, c, 2)
	})
}

func newHedger(t testing.TB, p stint.Policy, o stint.Observer) *stint.Caller {
	t.Helper()
	c, err := stint.NewCaller("c", p, &stint.CallerOptions{Observer: o, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Which calls get a copy. Each is slow, and would.
func TestHedgeOnlyWhere(t *testing.T) {
	hedge := hedgePolicy(1, 50*ms)
	with := func(change func(*stint.Policy)) stint.Policy {
		p := hedge
		change(&p)
		return p
	}
	for _, c := range []struct {
		name   string
		policy stint.Policy
		op     stint.Op
		ctx    func(context.Context) context.Context
		empty  bool // the budget
		sent   int
	}{
		{name: "read only", policy: hedge, op: read, sent: 2},
		{name: "idempotent", policy: hedge, op: stint.Op{Safety: stint.Idempotent}, sent: 2},
		{name: "keyed", policy: hedge, op: stint.Op{Key: "k"}, sent: 2},
		{name: "unrepeatable", policy: hedge, op: stint.Op{}, sent: 1},
		{name: "one shot", policy: hedge, op: stint.Op{Safety: stint.ReadOnly, OneShot: true}, sent: 1},
		{name: "no copies", policy: stint.Policy{Timeout: time.Second}, op: read, sent: 1},
		{name: "not warm", policy: hedgePolicy(1, 0), op: read, sent: 1},
		{name: "budget empty", policy: hedge, op: read, empty: true, sent: 1},
		{name: "bulkhead full", policy: with(func(p *stint.Policy) { p.Bulkhead = 1 }), op: read, sent: 1},
		{name: "too late", policy: with(func(p *stint.Policy) { p.Timeout, p.MinUseful = 210*ms, 161*ms }), op: read, sent: 1},
		{name: "just in time", policy: with(func(p *stint.Policy) { p.Timeout, p.MinUseful = 210*ms, 160*ms }), op: read, sent: 2},
		{name: "two copies", policy: hedgePolicy(2, 50*ms), op: read, sent: 3},
		{name: "never the owner", policy: with(func(p *stint.Policy) { p.Retry.Owner = stint.OwnerNever }), op: read, sent: 1},
		{name: "under an owner", policy: hedge, op: read, ctx: owned, sent: 1},
		{name: "always the owner", policy: with(func(p *stint.Policy) { p.Retry.Owner = stint.OwnerAlways }), op: read, ctx: owned, sent: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller := newHedger(t, c.policy, nil)
				for c.empty && caller.Budget().Withdraw() {
				}
				before := caller.Budget().Balance()
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				s := &field{runners: []runner{{takes: 200 * ms, outcome: good}}}
				if err := caller.Send(ctx, c.op, s, &s.flight); err != nil {
					t.Fatal(err)
				}
				s.flight.End()
				synctest.Wait()
				if len(s.copies) != c.sent {
					t.Errorf("sent %d, want %d", len(s.copies), c.sent)
				}
				if want := min(before-float64(c.sent-1)+0.1, 10); caller.Budget().Balance() != want {
					t.Errorf("budget holds %v, want %v", caller.Budget().Balance(), want)
				}
			})
		})
	}
}

// owned is a context under a request whose retries somebody owns.
func owned(ctx context.Context) context.Context {
	g, err := stint.NewGate("s", &stint.GateOptions{Trust: stint.TrustPeers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	a := new(stint.Admission)
	if err := g.Admit(ctx, stint.Hop{Owner: "edge"}, a); err != nil {
		panic(err)
	}
	return a.Context()
}

// A layer that hedges is the owner: what it calls must not multiply.
func TestHedgeClaims(t *testing.T) {
	c := newHedger(t, hedgePolicy(1, 50*ms), nil)
	s := &field{runners: []runner{{outcome: good}}}
	if err := c.Send(t.Context(), read, s, &s.flight); err != nil || s.hops[0].Owner != "client" {
		t.Errorf("%v, owner %q; want it claimed", err, s.hops[0].Owner)
	}
	s.flight.End()
}

func TestHedgeFailures(t *testing.T) {
	busy := stint.Outcome{Kind: stint.Transient, Code: "busy"}
	p := hedgePolicy(2, 50*ms)
	p.Retry = stint.Retry{Attempts: 2, Base: 1, Cap: 1}
	for _, c := range []struct {
		name    string
		runners []runner
		took    time.Duration
		sent    int
		result  any
		reason  stint.Reason
		codes   string
		dropped []any
	}{
		{"one fails before the delay: a retry, no copy",
			[]runner{{takes: 10 * ms, outcome: busy}, {takes: 10 * ms, outcome: good}}, 20 * ms, 2, 2, 0, "", []any{1}},
		{"the first fails: the copy under way is waited for, and is the last",
			[]runner{{takes: 60 * ms, outcome: busy}, {takes: 200 * ms, outcome: good}}, 250 * ms, 2, 2, 0, "", []any{1}},
		{"the copy fails: the first is waited for",
			[]runner{{takes: 200 * ms, outcome: good}, {takes: 10 * ms, outcome: busy}}, 200 * ms, 2, 1, 0, "", []any{2}},
		{"both fail: then a retry, which is hedged too",
			[]runner{{takes: 60 * ms, outcome: busy}, {takes: 60 * ms, outcome: busy}, {takes: 200 * ms, outcome: good}, {takes: 10 * ms, outcome: good}},
			170 * ms, 4, 4, 0, "", []any{1, 2}},
		{"all fail", []runner{{takes: 60 * ms, outcome: busy}, {takes: 60 * ms, outcome: busy}, {takes: 1 * ms, outcome: busy}},
			111 * ms, 3, 3, stint.AttemptsSpent, "busy,busy,busy", []any{1, 2}},
		{"a rejection is an answer", []runner{{takes: 200 * ms, outcome: good}, {takes: 1 * ms, outcome: stint.Outcome{Kind: stint.Rejected, Code: "404"}}},
			51 * ms, 2, 2, stint.Final, "404", nil},
		{"so is never", []runner{{takes: 200 * ms, outcome: good}, {takes: 1 * ms, outcome: stint.Outcome{Kind: stint.Transient, Never: true, Code: "never"}}},
			51 * ms, 2, 2, stint.NeverRetry, "never", nil},
		{"a failure is not", []runner{{takes: 200 * ms, outcome: good}, {takes: 1 * ms, outcome: stint.Outcome{Kind: stint.Failed, Code: "500"}}},
			200 * ms, 2, 1, 0, "", []any{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller := newHedger(t, p, nil)
				s := &field{runners: c.runners}
				start := time.Now()
				err := caller.Send(t.Context(), read, s, &s.flight)
				took := time.Since(start)
				var e *stint.Error
				if errors.As(err, &e) != (c.reason != 0) || e != nil && (e.Reason != c.reason || strings.Join(e.Outcomes, ",") != c.codes || e.Attempts != c.sent) {
					t.Errorf("got %v, want reason %q after %q", err, c.reason, c.codes)
				}
				if took != c.took || len(s.copies) != c.sent || s.flight.Result() != c.result {
					t.Errorf("took %v, sent %d, result %v; want %v, %d, %v", took, len(s.copies), s.flight.Result(), c.took, c.sent, c.result)
				}
				synctest.Wait()
				if !slices.Equal(s.dropped, c.dropped) {
					t.Errorf("dropped %v, want %v", s.dropped, c.dropped)
				}
				s.flight.End()
				bulkFits(t, caller, 64)
			})
		})
	}
}

// The caller leaves, or time runs out, with two copies under way.
func TestHedgeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHedger(t, hedgePolicy(1, 50*ms), nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(70*ms, cancel)
		s := &field{runners: []runner{{takes: time.Hour}}}
		err := c.Send(ctx, read, s, &s.flight)
		if !errors.Is(err, context.Canceled) || len(s.ended) != 2 {
			t.Errorf("cancelled: %v, contexts %v", err, s.ended)
		}
		s = &field{runners: []runner{{takes: time.Hour}}}
		err = c.Send(t.Context(), read, s, &s.flight)
		if !errors.Is(err, stint.ErrCallTimeout) || len(s.ended) != 2 {
			t.Errorf("timed out: %v, contexts %v", err, s.ended)
		}
		p := hedgePolicy(1, 50*ms)
		p.Retry.AttemptTimeout = 100 * ms
		c = newHedger(t, p, nil)
		s = &field{runners: []runner{{takes: time.Hour}}}
		start := time.Now()
		err = c.Send(t.Context(), read, s, &s.flight)
		if !errors.Is(err, stint.ErrAttemptTimeout) || time.Since(start) != 150*ms {
			t.Errorf("both copies ran into the attempt's limit: %v after %v, want it after 150ms", err, time.Since(start))
		}
		bulkFits(t, c, 64)
	})
}

// 1,000 losers that ignore their cancellation: they end by themselves, and what
// they bring is dropped, once each.
func TestB26LosersThatIgnoreCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		p := hedgePolicy(1, 10*ms)
		p.Bulkhead, p.Retry.BudgetRatio = stint.NoLimit, 1
		c := newHedger(t, p, &rec)
		before := bubbleGoroutines()
		fields := make([]*field, 1000)
		for i := range fields {
			s := &field{runners: []runner{{takes: 220 * ms, deaf: true, outcome: good}, {takes: 10 * ms, outcome: good}}}
			fields[i] = s
			if err := c.Send(t.Context(), read, s, &s.flight); err != nil || s.flight.Result() != 2 {
				t.Fatalf("call %d: %v, result %v", i, err, s.flight.Result())
			}
			s.flight.End()
		}
		rest := rec.Events(stint.WorkWasted)
		time.Sleep(time.Second) // virtual: the last of them is through
		if after := bubbleGoroutines(); after > before {
			t.Errorf("goroutines: %d before, %d after", before, after)
		}
		for i, s := range fields {
			if !slices.Equal(s.dropped, []any{1}) {
				t.Fatalf("call %d dropped %v, want the loser's result once", i, s.dropped)
			}
		}
		if done, wasted := rec.Events(stint.CallDone), rec.Events(stint.WorkWasted); len(done) != 1000 || len(wasted) != 1000 || len(rest) == 1000 {
			t.Errorf("%d calls done, %d times wasted work (%d before the end)", len(done), len(wasted), len(rest))
		}
		if n := len(rec.Events(stint.AttemptDone)); n != 2000 {
			t.Errorf("%d attempts reported, want 2000", n)
		}
	})
}

// bubbleGoroutines counts the goroutines of the synctest bubble once all of them
// wait: the runtime names the bubble in its dump.
func bubbleGoroutines() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "synctest bubble")
}

func TestHedgedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHedger(t, hedgePolicy(1, 50*ms), nil)
		var mu sync.Mutex
		n := 0
		get := func(ctx context.Context) (string, error) {
			mu.Lock()
			n++
			mine := n
			mu.Unlock()
			if mine == 1 {
				<-ctx.Done()
				return "first", ctx.Err()
			}
			return "second", nil
		}
		if v, err := stint.Call(t.Context(), c, read, get); v != "second" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		synctest.Wait()

		n = 0
		err := c.Do(t.Context(), read, func(ctx context.Context) error { _, err := get(ctx); return err })
		if n != 1 || !errors.Is(err, stint.ErrCallTimeout) {
			t.Errorf("Do: %d runs, %v; want one", n, err)
		}

		v, err := stint.Call(t.Context(), c, read, func(context.Context) (string, error) { return "partial", errors.New("no") })
		if v != "partial" || err == nil {
			t.Errorf("a failure: got %q, %v; want what fn returned beside it", v, err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		if v, err := stint.Call(short, c, read, get); v != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("too little time: got %q, %v", v, err)
		}
		p := hedgePolicy(1, 50*ms)
		p.Bulkhead = 1
		c = newHedger(t, p, nil)
		go c.Do(t.Context(), read, func(ctx context.Context) error { <-ctx.Done(); return nil })
		synctest.Wait()
		if v, err := stint.Call(t.Context(), c, read, get); v != "" || err == nil {
			t.Errorf("no slot: got %q, %v", v, err)
		}
	})
}

// A panic in a copy's goroutine comes out of the call, with everything given
// back; one that comes too late is reported.
func TestHedgePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name    string
			runners []runner
			panics  bool
		}{
			{"the first", []runner{{takes: 60 * ms, deaf: true, does: func() { panic("copy") }}, {takes: time.Hour}}, true},
			{"the copy", []runner{{takes: time.Hour}, {takes: 10 * ms, does: func() { panic("copy") }}}, true},
			{"the first, after a failure", []runner{{takes: 80 * ms, does: func() { panic("copy") }}, {takes: 10 * ms, outcome: stint.Outcome{Kind: stint.Transient}}}, true},
			{"the loser", []runner{{takes: 500 * ms, deaf: true, does: func() { panic("copy") }}, {takes: 10 * ms, outcome: good}}, false},
		} {
			var rec stinttest.Recorder
			p := hedgePolicy(1, 50*ms)
			p.Bulkhead = 2
			caller := newHedger(t, p, &rec)
			s := &field{runners: c.runners}
			var got any
			func() {
				defer func() { got = recover() }()
				caller.Send(t.Context(), read, s, &s.flight)
			}()
			if (got == "copy") != c.panics || c.panics != (got != nil) {
				t.Errorf("%s: panicked with %v", c.name, got)
			}
			s.flight.End()
			time.Sleep(time.Second) // virtual
			if n := len(rec.Events(stint.AttemptDone)); n != 2 {
				t.Errorf("%s: %d attempts reported, want 2", c.name, n)
			}
			if !c.panics && !strings.Contains(rec.Events(stint.WorkWasted)[0].Err.Error(), "panic: copy") {
				t.Errorf("%s: the panic is lost: %v", c.name, rec.Events(stint.WorkWasted))
			}
			if len(s.dropped) > 1 {
				t.Errorf("%s: dropped %v", c.name, s.dropped)
			}
			bulkFits(t, caller, 2)
		}
	})
}

// runtime.Goexit in a copy (a test's FailNow) ends the caller's goroutine.
func TestHedgeGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHedger(t, hedgePolicy(1, 50*ms), nil)
		returned := false
		go func() {
			stint.Call(t.Context(), c, read, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
			returned = true
		}()
		synctest.Wait()
		if returned {
			t.Error("the call returned")
		}
		bulkFits(t, c, 64)
	})
}

// The learned delay: no copy until 100 attempts have been seen, then one for
// those slower than 95 % of them.
func TestHedgeLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHedger(t, hedgePolicy(1, 0), nil)
		call := func(takes time.Duration) (sent int, took time.Duration) {
			s := &field{runners: []runner{{takes: takes, outcome: good}, {takes: 10 * ms, outcome: good}}}
			start := time.Now()
			if err := c.Send(t.Context(), read, s, &s.flight); err != nil {
				t.Fatal(err)
			}
			s.flight.End()
			synctest.Wait()
			return len(s.copies), time.Since(start)
		}
		for i := range 100 {
			takes := 10 * ms
			if i%20 == 0 {
				takes = 500 * ms // one in twenty
			}
			if sent, _ := call(takes); sent != 1 {
				t.Fatalf("call %d: %d sent while warming up", i+1, sent)
			}
		}
		sent, took := call(500 * ms)
		if sent != 2 || took < 20*ms || took > 21500*time.Microsecond {
			t.Errorf("after the warm-up: %d sent, %v; want a copy after 10ms (and at most an eighth more), which takes 10ms", sent, took)
		}
		// The dependency gets slower for everybody: that is no reason to send everything twice.
		copies := 0
		for range 2000 {
			sent, _ := call(100 * ms)
			copies += sent - 1
		}
		if sent, _ := call(100 * ms); sent != 1 {
			t.Errorf("%d copies on the way, and still one; want the delay to follow what is normal now", copies)
		}
	})
}
