package stint_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// gateTick is the unit of the times in this file.
const gateTick = time.Millisecond

func gateNew(t testing.TB, o stint.GateOptions) *stint.Gate {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	g, err := stint.NewGate("shop", &o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func gateAdmit(t testing.TB, g *stint.Gate, ctx context.Context, h stint.Hop) *stint.Admission {
	t.Helper()
	a := new(stint.Admission)
	if err := g.Admit(ctx, h, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// gateRefused returns the refusal of a request that must not come in.
func gateRefused(t testing.TB, g *stint.Gate, ctx context.Context, h stint.Hop, want stint.Reason) *stint.Error {
	t.Helper()
	var e *stint.Error
	if err := g.Admit(ctx, h, new(stint.Admission)); !errors.As(err, &e) || e.Reason != want {
		t.Fatalf("got %v, want a refusal with %v", err, want)
	}
	if e.Service != "shop" || e.Dependency != "" || e.Attempts != 0 {
		t.Errorf("%+v: want the Gate's own name, and no attempts", e)
	}
	if o := e.Outcome(); !o.NotStarted {
		t.Errorf("%v: outcome %+v does not say that nothing was started", want, o)
	}
	return e
}

// gateBrief has no time to wait for a place.
var gateBrief = stint.Hop{Remaining: gateTick}

var gateOK = stint.Outcome{Kind: stint.OK, Code: "200"}

func TestGateDeadline(t *testing.T) {
	none := time.Duration(0)
	tests := []struct {
		name      string
		opts      stint.GateOptions
		remaining time.Duration
		ctx       time.Duration // its own timeout; zero: none
		want      time.Duration
	}{
		{"said", stint.GateOptions{}, 250 * gateTick, none, 250 * gateTick},
		{"absent", stint.GateOptions{}, 0, none, 10 * time.Second},
		{"absent, own default", stint.GateOptions{DefaultTimeout: 2 * time.Second}, 0, none, 2 * time.Second},
		{"absent, a cap below the default", stint.GateOptions{MaxTimeout: 5 * time.Second}, 0, none, 5 * time.Second},
		{"capped", stint.GateOptions{}, time.Hour, none, 30 * time.Second},
		{"own cap", stint.GateOptions{MaxTimeout: time.Minute}, time.Hour, none, time.Minute},
		{"endless", stint.GateOptions{}, 1<<63 - 1, none, 30 * time.Second},
		{"the context's is sooner", stint.GateOptions{}, 250 * gateTick, 100 * gateTick, 100 * gateTick},
		{"the context's is later", stint.GateOptions{}, 250 * gateTick, time.Second, 250 * gateTick},
		{"absent, the context's is sooner", stint.GateOptions{}, 0, time.Second, time.Second},
		{"absent, the context's is later", stint.GateOptions{}, 0, time.Minute, 10 * time.Second},
		{"the least that is useful", stint.GateOptions{MinUseful: 20 * gateTick}, 20 * gateTick, none, 20 * gateTick},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.opts.Reserve = stint.NoReserve
				g := gateNew(t, c.opts)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if c.ctx > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.ctx)
					defer cancel()
				}
				start := time.Now()
				a := gateAdmit(t, g, ctx, stint.Hop{Remaining: c.remaining})
				defer a.Finish(gateOK)
				if left := a.Deadline().Sub(start); left != c.want {
					t.Errorf("deadline in %v, want %v", left, c.want)
				}
				if left, ok := stint.Remaining(a.Context()); !ok || left != c.want {
					t.Errorf("%v left for the work, want %v", left, c.want)
				}
				<-a.Context().Done()
				if took := time.Since(start); took != c.want {
					t.Errorf("the work was told to stop after %v, want %v", took, c.want)
				}
				if err := a.Context().Err(); err != context.DeadlineExceeded {
					t.Errorf("it was told %v, want that its deadline is exceeded", err)
				}
			})
		})
	}
}

func TestGateGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{MinUseful: 20 * gateTick})
		ctx := context.Background()
		for _, left := range []time.Duration{-1, 1, gateTick, 20*gateTick - 1} {
			e := gateRefused(t, g, ctx, stint.Hop{Remaining: left}, stint.NoTime)
			if !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("%v left: %v is not a DeadlineExceeded", left, e)
			}
		}
		short, cancel := context.WithTimeout(ctx, 20*gateTick-1)
		defer cancel()
		gateRefused(t, g, short, stint.Hop{Remaining: time.Second}, stint.NoTime)
		time.Sleep(time.Second)
		gateRefused(t, g, short, stint.Hop{}, stint.NoTime)

		left, cancel := context.WithCancel(ctx)
		cancel()
		e := gateRefused(t, g, left, stint.Hop{Remaining: time.Second}, stint.CallerGone)
		if !errors.Is(e, context.Canceled) {
			t.Errorf("%v is not a Canceled", e)
		}
		// Nothing was taken for all these.
		if err := g.Admit(ctx, stint.Hop{Remaining: time.Second}, new(stint.Admission)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestGateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{Limit: 2})
		ctx := context.Background()
		a, b := gateAdmit(t, g, ctx, stint.Hop{}), gateAdmit(t, g, ctx, stint.Hop{})
		e := gateRefused(t, g, ctx, gateBrief, stint.Full)
		if after := e.RetryAfter(); after < time.Second || after > 3*time.Second {
			t.Errorf("come back after %v, want 1s to 3s", after)
		}
		if o := e.Outcome(); !o.Hinted || o.RetryAfter != e.RetryAfter() {
			t.Errorf("outcome %+v: want the hint", o)
		}
		if errors.Is(e, context.DeadlineExceeded) || errors.Is(e, context.Canceled) {
			t.Errorf("%v is about time", e)
		}
		// What has no time left hears that, also while the Gate is full: coming
		// back would be of no use to it.
		gateRefused(t, g, ctx, stint.Hop{Remaining: -1}, stint.NoTime)

		a.Finish(gateOK)
		a.Finish(gateOK) // must not free b's place
		c := gateAdmit(t, g, ctx, stint.Hop{})
		gateRefused(t, g, ctx, gateBrief, stint.Full)
		b.Finish(gateOK)
		c.Finish(gateOK)
		gateAdmit(t, g, ctx, stint.Hop{})
		gateAdmit(t, g, ctx, stint.Hop{})
		gateRefused(t, g, ctx, gateBrief, stint.Full)
	})
}

func TestGateDefaultLimit(t *testing.T) {
	g := gateNew(t, stint.GateOptions{})
	for range 16 {
		gateAdmit(t, g, context.Background(), stint.Hop{})
	}
	gateRefused(t, g, context.Background(), gateBrief, stint.Full)

	g = gateNew(t, stint.GateOptions{Limit: stint.NoLimit})
	for range 1000 {
		gateAdmit(t, g, context.Background(), stint.Hop{})
	}
}

// The limit holds whoever comes at the same time, and after any number of
// answers that were finished twice it is neither larger nor smaller.
func TestGateLimitUnderConcurrency(t *testing.T) {
	const limit, callers, rounds = 10, 40, 250
	g := gateNew(t, stint.GateOptions{Limit: limit})
	var (
		mu           sync.Mutex
		inside, most int
		wg           sync.WaitGroup
	)
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		inside += n
		most = max(most, inside)
	}
	for range callers {
		wg.Go(func() {
			for range rounds {
				a := new(stint.Admission)
				if g.Admit(context.Background(), stint.Hop{}, a) != nil {
					continue
				}
				count(1)
				count(-1)
				var twice sync.WaitGroup
				twice.Go(func() { a.Finish(gateOK) })
				a.Finish(gateOK)
				twice.Wait()
			}
		})
	}
	wg.Wait()
	if most > limit {
		t.Errorf("%d inside at once, want at most %d", most, limit)
	}
	for range limit {
		gateAdmit(t, g, context.Background(), stint.Hop{})
	}
	gateRefused(t, g, context.Background(), gateBrief, stint.Full)
}

func TestGateReserve(t *testing.T) {
	tests := []struct {
		name          string
		reserve, left time.Duration
		want          time.Duration
	}{
		{"default, plenty", 0, time.Second, 5 * gateTick},
		{"default, 50 ms", 0, 50 * gateTick, 5 * gateTick},
		{"default, a tenth", 0, 30 * gateTick, 3 * gateTick},
		{"default, the least", 0, gateTick, gateTick / 10},
		{"own", 20 * gateTick, time.Second, 20 * gateTick},
		{"own, a quarter", 20 * gateTick, 40 * gateTick, 10 * gateTick},
		{"own, just a quarter", 20 * gateTick, 80 * gateTick, 20 * gateTick},
		{"own, more than a tenth", 20 * gateTick, 100 * gateTick, 20 * gateTick},
		{"own, endless", 1<<63 - 1, time.Second, 250 * gateTick},
		{"none", stint.NoReserve, time.Second, 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gateNew(t, stint.GateOptions{Reserve: c.reserve})
				start := time.Now()
				a := gateAdmit(t, g, context.Background(), stint.Hop{Remaining: c.left})
				defer a.Finish(gateOK)
				if d := a.Deadline().Sub(start); d != c.left {
					t.Errorf("the request's deadline is in %v, want %v", d, c.left)
				}
				<-a.Context().Done()
				if kept := time.Until(a.Deadline()); kept != c.want {
					t.Errorf("%v kept back, want %v", kept, c.want)
				}
			})
		})
	}
}

// Rollback, flush and the answer have to be possible when the work was told to
// stop, and until the request's true deadline only.
func TestGateCleanup(t *testing.T) {
	type key struct{}
	setup := func(t *testing.T) (context.CancelFunc, *stint.Admission) {
		g := gateNew(t, stint.GateOptions{Reserve: 50 * gateTick})
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "v"))
		return cancel, gateAdmit(t, g, ctx, stint.Hop{Remaining: time.Second})
	}
	dies := func(t *testing.T, a *stint.Admission, ctx context.Context) {
		t.Helper()
		clean, cancel := stint.Cleanup(ctx)
		defer cancel()
		if clean.Err() != nil {
			t.Fatalf("dead from the start: %v", clean.Err())
		}
		if clean.Value(key{}) != "v" {
			t.Error("the request's values are lost")
		}
		<-clean.Done()
		if late := time.Since(a.Deadline()); late != 0 {
			t.Errorf("it ended %v after the true deadline", late)
		}
	}
	t.Run("after the deadline of the work", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cancel, a := setup(t)
			defer cancel()
			<-a.Context().Done()
			dies(t, a, a.Context())
		})
	})
	t.Run("after the caller left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cancel, a := setup(t)
			time.Sleep(100 * gateTick)
			cancel()
			<-a.Context().Done()
			dies(t, a, a.Context())
		})
	})
	t.Run("asked for before, in a Caller's call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cancel, a := setup(t)
			defer cancel()
			c, err := stint.NewCaller("d", stint.Policy{Timeout: 10 * gateTick}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Do(a.Context(), stint.Op{}, func(ctx context.Context) error {
				dies(t, a, ctx) // the call's limit is not the request's
				return nil
			})
		})
	})
	t.Run("too late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cancel, a := setup(t)
			defer cancel()
			time.Sleep(time.Second)
			clean, stop := stint.Cleanup(a.Context())
			defer stop()
			if clean.Err() != context.DeadlineExceeded {
				t.Errorf("after the true deadline: %v", clean.Err())
			}
		})
	})
	t.Run("outside of a Gate", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if clean, stop := stint.Cleanup(ctx); clean != ctx || stop == nil {
			t.Error("it is not the context itself")
		}
		detached, stop := stint.Detach(ctx, 0)
		defer stop()
		if clean, _ := stint.Cleanup(detached); clean != detached {
			t.Error("detached work has no request to answer")
		}
	})
}

func TestGateObserveOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{ObserveOnly: true, Limit: 1, Observer: &rec, DefaultTimeout: 2 * time.Second})
		ctx := context.Background()

		a := gateAdmit(t, g, ctx, stint.Hop{Remaining: 100 * gateTick})
		full := gateAdmit(t, g, ctx, gateBrief)
		late := gateAdmit(t, g, ctx, stint.Hop{Remaining: -1})
		want := []stint.Reason{0, stint.Full, stint.NoTime}
		for i, e := range rec.Events(stint.GateEntered) {
			if e.Observed != (want[i] != 0) || e.Reason != want[i] || e.Outcome != (stint.Outcome{}) {
				t.Errorf("entry %d: observed %v, reason %q, outcome %+v; want it with a reason only, %q and none", i, e.Observed, e.Reason, e.Outcome, want[i])
			}
		}
		if n := len(rec.Events(stint.GateEntered)); n != len(want) {
			t.Errorf("%d entries, want %d", n, len(want))
		}
		if left := time.Until(late.Deadline()); left != 2*time.Second {
			t.Errorf("a request that came too late runs under %v, want the default of 2s", left)
		}
		if late.Context().Err() != nil {
			t.Errorf("its context is dead: %v", late.Context().Err())
		}
		for _, a := range []*stint.Admission{a, full, late} {
			a.Finish(gateOK)
		}
		// All places are free again, and none was freed twice.
		b := gateAdmit(t, g, ctx, stint.Hop{})
		gateAdmit(t, g, ctx, gateBrief)
		es := rec.Events(stint.GateEntered)
		if es[3].Reason != 0 || es[4].Reason != stint.Full {
			t.Errorf("then %q and %q, want none and full", es[3].Reason, es[4].Reason)
		}
		b.Finish(gateOK)

		// A caller that has left gets nothing, whatever is observed.
		gone, cancel := context.WithCancel(ctx)
		cancel()
		gateRefused(t, g, gone, stint.Hop{}, stint.CallerGone)
	})
}

// Nothing enlarges, not even where the Gate only looks on: if it was the
// context's own deadline that left too little, that one still counts.
func TestGateObserveOnlyKeepsTheContextsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{ObserveOnly: true, MinUseful: 20 * gateTick})
		ctx, cancel := context.WithTimeout(context.Background(), 10*gateTick)
		defer cancel()
		a := gateAdmit(t, g, ctx, stint.Hop{Remaining: time.Second})
		defer a.Finish(gateOK)
		if left := time.Until(a.Deadline()); left > 10*gateTick {
			t.Errorf("the request may take %v, but its context ends in 10ms", left)
		}
		if left, _ := stint.Remaining(a.Context()); left > 10*gateTick {
			t.Errorf("the work is told that it has %v, but its context ends in 10ms", left)
		}
	})
}

func TestGateTrust(t *testing.T) {
	claim := stint.Hop{Remaining: time.Second, Attempt: 2, Owner: "o", Class: stint.CriticalPlus, Key: "k", RequestID: "r", Ignored: 1}
	t.Run("deadline only", func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec})
		a := gateAdmit(t, g, context.Background(), claim)
		if want := (stint.Hop{Remaining: time.Second, Key: "k", Ignored: 5}); a.Hop() != want {
			t.Errorf("believed %+v, want %+v", a.Hop(), want)
		}
		h := stint.HopFromContext(a.Context())
		if h.Owner != "" || h.Class != stint.ClassUnset || h.Attempt != 0 || h.Key != "k" || h.RequestID == "r" || h.RequestID == "" {
			t.Errorf("the work is told %+v: want the key, and an id of our own", h)
		}
		e := rec.Events(stint.GateEntered)[0]
		if e.Ignored != 5 || e.Owner != "" || e.Class != stint.ClassUnset || e.Attempt != 0 || e.RequestID != h.RequestID {
			t.Errorf("event %+v: want 5 ignored and nothing that was claimed", e)
		}
		a.Finish(gateOK)

		a = gateAdmit(t, g, context.Background(), stint.Hop{Remaining: time.Second, Key: "k"})
		if a.Hop().Ignored != 0 {
			t.Errorf("%d ignored where nothing was claimed", a.Hop().Ignored)
		}
	})
	t.Run("peers", func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec, Trust: stint.TrustPeers})
		a := gateAdmit(t, g, context.Background(), claim)
		if a.Hop() != claim {
			t.Errorf("believed %+v, want %+v", a.Hop(), claim)
		}
		a.Finish(gateOK)
		for _, e := range rec.Events() {
			if e.Owner != "o" || e.Class != stint.CriticalPlus || e.Attempt != 2 || e.RequestID != "r" {
				t.Errorf("event %+v: want what the peer said", e)
			}
		}
	})
	t.Run("a refused stranger", func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec})
		claim := claim
		claim.Remaining = -1
		gateRefused(t, g, context.Background(), claim, stint.NoTime)
		if e := rec.Events()[0]; e.Ignored != 5 || e.Owner != "" || e.RequestID == "r" {
			t.Errorf("event %+v: want 5 ignored and nothing that was claimed", e)
		}
	})
}

var gateRequestID = regexp.MustCompile(`^[0-9a-f]{16}$`)

func TestGateMakesRequestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec, DefaultTimeout: 10 * gateTick})
		c, err := stint.NewCaller("d", stint.Policy{}, &stint.CallerOptions{Observer: &rec})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for range 100 {
			rec.Reset()
			a := gateAdmit(t, g, context.Background(), stint.Hop{})
			c.Do(a.Context(), stint.Op{}, func(ctx context.Context) error { return nil })
			detached, cancel := stint.Detach(a.Context(), 0)
			c.Do(detached, stint.Op{}, func(ctx context.Context) error { return nil })
			cancel()
			time.Sleep(50 * gateTick)
			a.Finish(gateOK)
			id := stint.HopFromContext(a.Context()).RequestID
			if !gateRequestID.MatchString(id) || seen[id] {
				t.Fatalf("request id %q: want 16 hex digits that no other request has", id)
			}
			seen[id] = true
			es := rec.Events()
			if len(es) != 7 { // in, 2 of each call, out, wasted
				t.Fatalf("%d events, want 7: %v", len(es), es)
			}
			for _, e := range es {
				if e.RequestID != id {
					t.Errorf("event %v has the id %q, want %q", e.Kind, e.RequestID, id)
				}
			}
		}
	})
}

// An id that a request lacks is made for it, and stands in every event: also in
// the one line that says why the request was refused.
func TestGateMakesRequestIDsForRefusals(t *testing.T) {
	for _, trust := range []stint.Trust{stint.TrustDeadlineOnly, stint.TrustPeers} {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec, Trust: trust})
		gateRefused(t, g, context.Background(), stint.Hop{Remaining: -1}, stint.NoTime)
		if id := rec.Events()[0].RequestID; !gateRequestID.MatchString(id) {
			t.Errorf("trust %v: the refusal's event has the id %q, want 16 hex digits", trust, id)
		}
	}
}

func TestGateEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec, Limit: 1})
		ctx := context.Background()
		start := time.Now()
		a := gateAdmit(t, g, ctx, stint.Hop{Remaining: 500 * gateTick})
		gateRefused(t, g, ctx, gateBrief, stint.Full)
		gateRefused(t, g, ctx, stint.Hop{Remaining: -1}, stint.NoTime)
		time.Sleep(120 * gateTick)
		a.Finish(stint.Outcome{Kind: stint.Failed, Code: "500"})
		a.Finish(gateOK)

		es := rec.Events()
		if len(es) != 4 {
			t.Fatalf("%d events, want 4: %+v", len(es), es)
		}
		in, full, late, out := es[0], es[1], es[2], es[3]
		if in.Kind != stint.GateEntered || in.Service != "shop" || in.Budget != 500*gateTick || in.Reason != 0 || in.Observed || !in.Time.Equal(start) {
			t.Errorf("entry: %+v", in)
		}
		refusal := func(e stint.Event, r stint.Reason) bool {
			return e.Kind == stint.GateEntered && e.Service == "shop" && e.Reason == r && !e.Observed &&
				e.Outcome == stint.Outcome{Kind: stint.Refused, NotStarted: true, Code: r.String()}
		}
		if !refusal(full, stint.Full) || full.Budget != gateTick {
			t.Errorf("full: %+v", full)
		}
		if !refusal(late, stint.NoTime) || late.Budget >= 0 {
			t.Errorf("no time: %+v", late)
		}
		want := stint.Outcome{Kind: stint.Failed, Code: "500"}
		if out.Kind != stint.GateLeft || out.Budget != 380*gateTick || out.Elapsed != 120*gateTick || out.Outcome != want || out.Service != "shop" {
			t.Errorf("exit: %+v", out)
		}
	})
}

// What a handler goes on doing for nobody is reported, to the nanosecond.
func TestGateWastedWork(t *testing.T) {
	const budget = 200 * gateTick
	tests := []struct {
		name   string
		run    func(leave context.CancelFunc, a *stint.Admission)
		wasted time.Duration // zero: no such event
	}{
		{"done in time", func(_ context.CancelFunc, _ *stint.Admission) { time.Sleep(budget) }, 0},
		{"in the reserve", func(_ context.CancelFunc, a *stint.Admission) { <-a.Context().Done() }, 0},
		{"less than 1 ms too late", func(_ context.CancelFunc, _ *stint.Admission) { time.Sleep(budget + gateTick - 1) }, 0},
		{"1 ms too late", func(_ context.CancelFunc, _ *stint.Admission) { time.Sleep(budget + gateTick) }, gateTick},
		{"too late", func(_ context.CancelFunc, _ *stint.Admission) {
			time.Sleep(budget + 333*time.Microsecond + 70*gateTick)
		}, 70*gateTick + 333*time.Microsecond},
		{"answered in its place", func(_ context.CancelFunc, a *stint.Admission) {
			time.Sleep(195 * gateTick)
			a.Abandon()
			time.Sleep(100 * gateTick)
			a.Abandon() // only the first counts
		}, 100 * gateTick},
		{"answered in its place, after the deadline", func(_ context.CancelFunc, a *stint.Admission) {
			time.Sleep(budget + 10*gateTick)
			a.Abandon()
			time.Sleep(5 * gateTick)
		}, 15 * gateTick},
		{"answered in its place at once", func(_ context.CancelFunc, a *stint.Admission) {
			a.Abandon()
			time.Sleep(40 * gateTick)
		}, 40*gateTick - 1}, // 0 is the mark of "not abandoned"
		{"the caller left", func(leave context.CancelFunc, _ *stint.Admission) {
			time.Sleep(50 * gateTick)
			leave()
			time.Sleep(30 * gateTick)
		}, 30 * gateTick},
		{"the caller left, and the handler with it", func(leave context.CancelFunc, a *stint.Admission) {
			time.Sleep(50 * gateTick)
			leave()
			<-a.Context().Done()
		}, 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rec stinttest.Recorder
				g := gateNew(t, stint.GateOptions{Observer: &rec})
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				a := gateAdmit(t, g, ctx, stint.Hop{Remaining: budget})
				c.run(leave, a)
				a.Finish(gateOK)
				// The server ends the request's context when the handler has
				// returned: that is no caller that left.
				leave()
				synctest.Wait()
				a.Finish(gateOK)

				var got time.Duration
				for _, e := range rec.Events(stint.WorkWasted) {
					got += e.Elapsed
				}
				if got != c.wasted {
					t.Errorf("%v wasted, want %v", got, c.wasted)
				}
				want := 2
				if c.wasted > 0 {
					want = 3
				}
				if n := len(rec.Events()); n != want {
					t.Errorf("%d events, want %d", n, want)
				}
			})
		})
	}
}

func TestGateFinishEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{})
		asked := gateAdmit(t, g, context.Background(), stint.Hop{Remaining: time.Second})
		done := asked.Context().Done()
		notAsked := gateAdmit(t, g, context.Background(), stint.Hop{Remaining: time.Second})
		asked.Finish(gateOK)
		notAsked.Finish(gateOK)
		select {
		case <-done:
		default:
			t.Error("who waits for it still waits")
		}
		for _, a := range []*stint.Admission{asked, notAsked} {
			if err := a.Context().Err(); err != context.Canceled {
				t.Errorf("after Finish the context says %v, want canceled", err)
			}
		}
	})
}

// gateWatched is a context that counts who wants to hear of its end.
type gateWatched struct {
	context.Context
	done    chan struct{}
	mu      sync.Mutex
	waiting int
}

func (w *gateWatched) Done() <-chan struct{} { return w.done }

// AfterFunc is what the standard library uses where a context has it.
func (w *gateWatched) AfterFunc(func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting++
	return sync.OnceValue(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waiting--
		return true
	})
}

func (w *gateWatched) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

// A request whose context lives on (a connection's, a worker's) leaves nothing
// behind on it.
func TestGateFinishLeavesNothingBehind(t *testing.T) {
	var rec stinttest.Recorder
	g := gateNew(t, stint.GateOptions{Observer: &rec})
	ctx := &gateWatched{Context: context.Background(), done: make(chan struct{})}
	a := gateAdmit(t, g, ctx, stint.Hop{})
	a.Context().Done()
	if n := ctx.count(); n != 2 {
		t.Errorf("while it runs, %d wait for the context's end; want the Gate and the work", n)
	}
	a.Finish(gateOK)
	if n := ctx.count(); n != 0 {
		t.Errorf("after Finish, %d still wait for the context's end", n)
	}
}

func TestGateNever(t *testing.T) {
	g := gateNew(t, stint.GateOptions{Trust: stint.TrustPeers})
	fail := func(o stint.Outcome) *stint.CallerOptions {
		return &stint.CallerOptions{Classify: func(context.Context, error) stint.Outcome { return o }}
	}
	tests := []struct {
		name    string
		owner   string
		policy  stint.Policy
		outcome stint.Outcome
		want    bool
	}{
		{"an ordinary failure", "", stint.Policy{}, stint.Outcome{Kind: stint.Transient}, false},
		{"the dependency said so", "", stint.Policy{}, stint.Outcome{Kind: stint.Transient, Never: true}, true},
		{"gave up on its own account under an owner", "o", stint.Policy{Retry: stint.Retry{Attempts: 2, Owner: stint.OwnerAlways}}, stint.Outcome{Kind: stint.Failed}, true},
		{"claimed nothing", "o", stint.Policy{Retry: stint.Retry{Owner: stint.OwnerAlways}}, stint.Outcome{Kind: stint.Failed}, false},
		{"gave up as the owner", "", stint.Policy{Retry: stint.Retry{Owner: stint.OwnerAlways}}, stint.Outcome{Kind: stint.Failed}, false},
		{"gave up under an owner", "o", stint.Policy{}, stint.Outcome{Kind: stint.Failed}, false},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			a := gateAdmit(t, g, context.Background(), stint.Hop{Owner: c.owner})
			defer a.Finish(gateOK)
			caller, err := stint.NewCaller("d", c.policy, fail(c.outcome))
			if err != nil {
				t.Fatal(err)
			}
			caller.Do(a.Context(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error { return errors.New("no") })
			if a.Never() != c.want {
				t.Errorf("never: %v, want %v", a.Never(), c.want)
			}
		})
	}
}

func TestNewGateRefusesBadOptions(t *testing.T) {
	tests := []struct {
		opts stint.GateOptions
		want []string
	}{
		{stint.GateOptions{DefaultTimeout: -1}, []string{"DefaultTimeout", "-1ns", "10s"}},
		{stint.GateOptions{DefaultTimeout: 999 * time.Microsecond}, []string{"DefaultTimeout", "999µs", "1ms"}},
		{stint.GateOptions{MaxTimeout: -time.Second}, []string{"MaxTimeout", "-1s", "30s"}},
		{stint.GateOptions{MaxTimeout: 1}, []string{"MaxTimeout", "1ns", "1ms"}},
		{stint.GateOptions{ClockSkew: -gateTick}, []string{"ClockSkew", "-1ms", "not believed"}},
		{stint.GateOptions{MinUseful: -gateTick}, []string{"MinUseful", "-1ms"}},
		{stint.GateOptions{MinUseful: gateTick - 1}, []string{"MinUseful", "1ms"}},
		{stint.GateOptions{Reserve: -2}, []string{"Reserve", "-2ns", "NoReserve"}},
		{stint.GateOptions{Limit: -2}, []string{"Limit", "-2", "learned", "NoLimit"}},
		{stint.GateOptions{Trust: 2}, []string{"Trust", "2", "TrustDeadlineOnly", "TrustPeers"}},
		{stint.GateOptions{DefaultTimeout: time.Minute}, []string{"DefaultTimeout", "1m0s", "MaxTimeout", "30s"}},
		{stint.GateOptions{MinUseful: 20 * time.Second}, []string{"MinUseful", "20s", "DefaultTimeout", "10s"}},
		{stint.GateOptions{MinUseful: 2 * time.Second, MaxTimeout: time.Second}, []string{"MinUseful", "2s", "1s"}},
		{stint.GateOptions{DefaultTimeout: -1, MaxTimeout: -1, MinUseful: -1, Reserve: -2, Limit: -2, Trust: 9},
			[]string{"DefaultTimeout", "MaxTimeout", "MinUseful", "Reserve", "Limit", "Trust"}},
	}
	for _, c := range tests {
		c.opts.Logger = slog.New(slog.DiscardHandler)
		g, err := stint.NewGate("s", &c.opts)
		if err == nil || g != nil {
			t.Errorf("%+v was accepted", c.opts)
			continue
		}
		for _, w := range append(c.want, "stint") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
	}
	for _, name := range []string{"", "a b", "a/b", "ä", "a\n", strings.Repeat("a", 65)} {
		if _, err := stint.NewGate(name, nil); err == nil {
			t.Errorf("the service name %q was accepted: it could not stand on the wire", name)
		}
	}
}

func TestGateOptionsAreFilledIn(t *testing.T) {
	g := gateNew(t, stint.GateOptions{})
	o := g.Options()
	if o.DefaultTimeout != 10*time.Second || o.MaxTimeout != 30*time.Second || o.MinUseful != gateTick || o.Limit != 0 || o.MinLimit != 4 || o.MaxLimit != 1000 || o.LongLimit != 256 || o.LongTimeout != time.Hour || o.MaxRefused != 1 || o.Reserve != 0 || o.Trust != stint.TrustDeadlineOnly {
		t.Errorf("defaults: %+v", o)
	}
	if g.Service() != "shop" {
		t.Errorf("service %q", g.Service())
	}
	o = gateNew(t, stint.GateOptions{MaxTimeout: 4 * time.Second, Limit: stint.NoLimit}).Options()
	if o.DefaultTimeout != 4*time.Second || o.Limit != stint.NoLimit {
		t.Errorf("with a cap of 4s and no limit: %+v", o)
	}
}

// Which requests are believed is in the log of every start, so that nobody has
// to guess it from what happens.
func TestNewGateLogsTheTrust(t *testing.T) {
	for trust, want := range map[stint.Trust]string{stint.TrustDeadlineOnly: "trust=deadline_only", stint.TrustPeers: "trust=peers"} {
		var b bytes.Buffer
		_, err := stint.NewGate("shop", &stint.GateOptions{Trust: trust, Logger: slog.New(slog.NewTextHandler(&b, nil))})
		if err != nil {
			t.Fatal(err)
		}
		line := b.String()
		if strings.Count(line, "\n") != 1 {
			t.Errorf("want one line, got %q", line)
		}
		for _, w := range []string{"level=INFO", "service=shop", want, "max_timeout=30s"} {
			if !strings.Contains(line, w) {
				t.Errorf("%q does not say %q", line, w)
			}
		}
	}
}
