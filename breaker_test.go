package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// breakerOutcome is an error that says itself what became of the call.
type breakerOutcome stint.Outcome

func (o breakerOutcome) Error() string          { return stint.Outcome(o).String() }
func (o breakerOutcome) Outcome() stint.Outcome { return stint.Outcome(o) }

var (
	breakerFail    = breakerOutcome{Kind: stint.Failed, Code: "500"}
	breakerNeutral = breakerOutcome{Kind: stint.Rejected, Code: "404"}
)

// breakerRig is a Caller with what its breaker did.
type breakerRig struct {
	*stint.Caller
	rec  stinttest.Recorder
	seen int // calls that reached the dependency
}

func breakerNew(t testing.TB, p stint.Policy) *breakerRig {
	t.Helper()
	r := new(breakerRig)
	c, err := stint.NewCaller("db", p, &stint.CallerOptions{Observer: &r.rec})
	if err != nil {
		t.Fatal(err)
	}
	r.Caller = c
	return r
}

// call makes one call that ends with err, and returns the reason, if any, why
// it got no further.
func (r *breakerRig) call(err error) stint.Reason {
	got := r.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error {
		r.seen++
		return err
	})
	var e *stint.Error
	if errors.As(got, &e) {
		return e.Reason
	}
	return 0
}

func (r *breakerRig) calls(n int, err error) {
	for range n {
		r.call(err)
	}
}

// state is what the events say that the breaker is in.
func (r *breakerRig) state() string {
	es := r.rec.Events(stint.BreakerChanged)
	if len(es) == 0 {
		return "closed"
	}
	return es[len(es)-1].To
}

func (r *breakerRig) want(t testing.TB, when, state string) {
	t.Helper()
	if got := r.state(); got != state {
		t.Errorf("%s: the breaker is %s, want %s", when, got, state)
	}
}

// changes are the breaker's steps, in order.
func (r *breakerRig) changes() []string {
	var all []string
	for _, e := range r.rec.Events(stint.BreakerChanged) {
		all = append(all, e.From+">"+e.To)
	}
	return all
}

// open fails until the breaker opens.
func (r *breakerRig) open(t testing.TB) {
	t.Helper()
	r.calls(20, breakerFail)
	r.want(t, "after 20 failures", "open")
}

// halfOpen opens the breaker and waits until it lets probes through.
func (r *breakerRig) halfOpen(t testing.TB) {
	t.Helper()
	r.open(t)
	time.Sleep(r.Policy().Breaker.OpenFor + time.Millisecond)
}

func TestBreakerOpens(t *testing.T) {
	type step struct {
		n   int
		err error
	}
	tests := []struct {
		name    string
		breaker stint.Breaker
		steps   []step // the breaker is closed until after the last call of the last
		opens   bool
	}{
		{"19 failures", stint.Breaker{}, []step{{19, breakerFail}}, false},
		{"20 failures", stint.Breaker{}, []step{{20, breakerFail}}, true},
		{"half of 20", stint.Breaker{}, []step{{10, nil}, {10, breakerFail}}, true},
		{"9 of 19", stint.Breaker{}, []step{{10, nil}, {9, breakerFail}}, false},
		{"49 of 100", stint.Breaker{}, []step{{51, nil}, {49, breakerFail}}, false},
		{"50 of 101", stint.Breaker{}, []step{{51, nil}, {50, breakerFail}}, false},
		{"51 of 102", stint.Breaker{}, []step{{51, nil}, {51, breakerFail}}, true},
		{"neutral calls are no calls", stint.Breaker{}, []step{{9, breakerFail}, {500, breakerNeutral}, {10, breakerFail}}, false},
		{"neutral calls dilute nothing", stint.Breaker{}, []step{{10, nil}, {500, breakerNeutral}, {10, breakerFail}}, true},
		{"own ratio, below", stint.Breaker{FailureRatio: 0.9}, []step{{3, nil}, {26, breakerFail}}, false},
		{"own ratio, reached", stint.Breaker{FailureRatio: 0.9}, []step{{3, nil}, {27, breakerFail}}, true},
		{"all have to fail", stint.Breaker{FailureRatio: 1}, []step{{1, nil}, {100, breakerFail}}, false},
		{"own number of calls", stint.Breaker{MinCalls: 3}, []step{{3, breakerFail}}, true},
		{"the first failure", stint.Breaker{MinCalls: 1}, []step{{1, breakerFail}}, true},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := breakerNew(t, stint.Policy{Breaker: c.breaker})
				last := c.steps[len(c.steps)-1]
				for _, s := range c.steps[:len(c.steps)-1] {
					r.calls(s.n, s.err)
				}
				r.calls(last.n-1, last.err)
				r.want(t, "before the last call", "closed")
				r.call(last.err)
				want := "closed"
				if c.opens {
					want = "open"
				}
				r.want(t, "after the last call", want)
				if refused := r.call(nil) == stint.BreakerOpen; refused != c.opens {
					t.Errorf("the next call was refused: %v, want %v", refused, c.opens)
				}
			})
		})
	}
}

// Which outcomes are to the dependency's discredit.
func TestBreakerCountsOutcomes(t *testing.T) {
	failures := []stint.Kind{stint.Failed, stint.Transient, stint.TimedOut, stint.Expired}
	for k := stint.Failed; k <= stint.Refused; k++ {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.calls(30, breakerOutcome{Kind: k})
			want := "closed"
			if slices.Contains(failures, k) {
				want = "open"
			}
			r.want(t, "30 times "+k.String(), want)
		})
	}
}

func TestBreakerWindowSlides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := breakerNew(t, stint.Policy{})
		r.calls(19, breakerFail)
		time.Sleep(time.Minute)
		r.calls(19, breakerFail)
		r.want(t, "19 failures, a minute, 19 failures", "closed")
		// The window moves in tenths, so nine of them are always in it.
		time.Sleep(53 * time.Second)
		r.call(breakerFail)
		r.want(t, "the 20th failure within 53 s", "open")
	})
	synctest.Test(t, func(t *testing.T) {
		// A steady rate below the minimum never opens it, at any time.
		r := breakerNew(t, stint.Policy{})
		for range 500 {
			r.call(breakerFail)
			time.Sleep(3200 * time.Millisecond) // not more than 19 in a minute
		}
		r.want(t, "500 failures, 19 a minute", "closed")
	})
	synctest.Test(t, func(t *testing.T) {
		r := breakerNew(t, stint.Policy{Breaker: stint.Breaker{Window: 10 * time.Second}})
		r.calls(19, breakerFail)
		time.Sleep(10 * time.Second)
		r.call(breakerFail)
		r.want(t, "19 failures, the window, 1 failure", "closed")
	})
}

// An open breaker says when to come back, and who comes back then is let in.
func TestBreakerOpenSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := breakerNew(t, stint.Policy{})
		r.open(t)
		refused := func() *stint.Error {
			t.Helper()
			var e *stint.Error
			err := r.Do(context.Background(), stint.Op{}, func(context.Context) error {
				t.Error("the call went out")
				return nil
			})
			if !errors.As(err, &e) || e.Reason != stint.BreakerOpen || e.Attempts != 0 || e.Dependency != "db" {
				t.Fatalf("got %v, want a refusal with breaker_open", err)
			}
			if o := e.Outcome(); o.Kind != stint.Refused || !o.NotStarted {
				t.Errorf("outcome %+v: want refused, not started", o)
			}
			return e
		}
		first := refused()
		if d := first.RetryAfter(); d != 30*time.Second {
			t.Errorf("come back after %v, want 30s", d)
		}
		time.Sleep(12*time.Second + 345*time.Millisecond)
		if d := refused().RetryAfter(); d != 17655*time.Millisecond {
			t.Errorf("later, come back after %v, want 17.655s", d)
		}
		if d := first.RetryAfter(); d != 17655*time.Millisecond {
			t.Errorf("the first refusal now says %v, want 17.655s", d)
		}
		time.Sleep(first.RetryAfter() - 1)
		if d := refused().RetryAfter(); d != 1 {
			t.Errorf("1 ns before, come back after %v", d)
		}
		time.Sleep(first.RetryAfter())
		if d := first.RetryAfter(); d != 0 {
			t.Errorf("then, come back after %v", d)
		}
		if reason := r.call(nil); reason != 0 {
			t.Errorf("who came back when told was refused with %v", reason)
		}
	})
}

func TestBreakerProbes(t *testing.T) {
	t.Run("successes close it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.halfOpen(t)
			r.calls(2, nil)
			r.want(t, "2 probes", "half-open")
			r.call(nil)
			r.want(t, "3 probes", "closed")
			// It has forgotten the time before.
			r.calls(19, breakerFail)
			r.want(t, "19 failures after that", "closed")
			if want := []string{"closed>open", "open>half-open", "half-open>closed"}; !slices.Equal(r.changes(), want) {
				t.Errorf("steps %v, want %v", r.changes(), want)
			}
			for _, e := range r.rec.Events(stint.BreakerChanged) {
				if e.Dependency != "db" || e.Time.IsZero() {
					t.Errorf("event %+v: want the dependency and the time", e)
				}
			}
		})
	})
	t.Run("one failure opens it again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.halfOpen(t)
			r.calls(2, nil)
			r.call(breakerFail)
			if want := []string{"closed>open", "open>half-open", "half-open>open"}; !slices.Equal(r.changes(), want) {
				t.Errorf("steps %v, want %v", r.changes(), want)
			}
			var e *stint.Error
			if err := r.Do(context.Background(), stint.Op{}, nil); !errors.As(err, &e) || e.RetryAfter() != 30*time.Second {
				t.Errorf("%v: want a new open period of 30s", err)
			}
		})
	})
	t.Run("no more at a time than it says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{Breaker: stint.Breaker{Probes: 2}})
			r.halfOpen(t)
			var out, refused int
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					err := r.Do(context.Background(), stint.Op{}, func(context.Context) error {
						mu.Lock()
						out++
						mu.Unlock()
						time.Sleep(time.Second)
						return nil
					})
					var e *stint.Error
					if errors.As(err, &e) && e.Reason == stint.BreakerOpen {
						mu.Lock()
						refused++
						mu.Unlock()
						if e.RetryAfter() < 0 {
							t.Errorf("come back after %v", e.RetryAfter())
						}
					}
				})
			}
			wg.Wait()
			if out != 2 || refused != 18 {
				t.Errorf("%d let through and %d refused, want 2 and 18", out, refused)
			}
			r.want(t, "after both", "closed")
		})
	})
	t.Run("no retries", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{Retry: stint.Retry{Attempts: 3}})
			r.halfOpen(t)
			r.seen = 0
			// A probe is one look at the dependency, not the start of a series.
			if reason := r.call(breakerOutcome{Kind: stint.Transient}); reason != stint.BreakerOpen || r.seen != 1 {
				t.Errorf("%d attempts, then %v; want 1, breaker_open", r.seen, reason)
			}
		})
	})
}

// However many attempts a call takes, it is one observation.
func TestBreakerCountsCallsNotAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := breakerNew(t, stint.Policy{Retry: stint.Retry{Attempts: 3, BudgetCeiling: 1000}})
		r.calls(19, breakerOutcome{Kind: stint.Transient})
		if r.seen != 57 {
			t.Fatalf("%d attempts, want 57", r.seen)
		}
		r.want(t, "19 calls of 3 attempts", "closed")
		r.call(breakerOutcome{Kind: stint.Transient})
		r.want(t, "20 calls", "open")
	})
	synctest.Test(t, func(t *testing.T) {
		// A call that a retry saved is a success.
		r := breakerNew(t, stint.Policy{Retry: stint.Retry{Attempts: 3, BudgetCeiling: 1000}})
		for range 100 {
			n := 0
			err := r.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error {
				if n++; n < 3 {
					return breakerOutcome{Kind: stint.Transient}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		r.want(t, "100 calls, 200 of 300 attempts failed", "closed")
	})
}

// breakerLeave runs fn, which does not return, and waits until it has left.
func breakerLeave(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		fn()
	}()
	<-done
}

// A call that ends in a panic or in runtime.Goexit gives its probe back, and
// once only.
func TestBreakerSettlesOnce(t *testing.T) {
	ways := map[string]func(context.Context) error{
		"panic":  func(context.Context) error { panic("fn") },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
		"error":  func(context.Context) error { return breakerNeutral },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := breakerNew(t, stint.Policy{})
				r.halfOpen(t)
				ctx, release := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				hang := func() {
					wg.Go(func() {
						r.Do(context.Background(), stint.Op{}, func(context.Context) error {
							<-ctx.Done()
							return nil
						})
					})
					synctest.Wait()
				}
				hang()
				hang()
				r.rec.Reset()
				breakerLeave(func() { r.Do(context.Background(), stint.Op{}, way) })
				es := r.rec.Events(stint.CallDone)
				if len(es) != 1 {
					t.Errorf("%d events of the call, want 1", len(es))
				} else if k := es[0].Outcome.Kind; k == stint.OK || k == stint.Failed {
					t.Errorf("the call is reported as %v", k)
				}
				hang() // takes the place that came back
				if reason := r.call(nil); reason != stint.BreakerOpen {
					t.Errorf("a fourth probe ended with %q: the place came back more than once", reason)
				}
				release()
				wg.Wait()
				r.want(t, "after three probes that went well", "closed")
			})
		})
	}
}

// B23: a probe that says nothing gives its place back; in the end two that went
// well and one more close the breaker.
func TestB23NeutralProbes(t *testing.T) {
	t.Run("ok, ok, neutral", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.halfOpen(t)
			r.calls(2, nil)
			r.call(breakerNeutral)
			r.want(t, "ok, ok, neutral", "half-open")
			if reason := r.call(nil); reason != 0 {
				t.Errorf("the next call was refused with %v", reason)
			}
			r.want(t, "ok, ok, neutral, ok", "closed")
		})
	})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	ways := map[string]func(r *breakerRig){
		"rejected": func(r *breakerRig) { r.call(breakerNeutral) },
		"overloaded": func(r *breakerRig) {
			r.call(breakerOutcome{Kind: stint.Overloaded, Hinted: true, RetryAfter: time.Hour})
		},
		"panic": func(r *breakerRig) {
			breakerLeave(func() { r.Do(context.Background(), stint.Op{}, func(context.Context) error { panic("fn") }) })
		},
		"goexit": func(r *breakerRig) {
			breakerLeave(func() {
				r.Do(context.Background(), stint.Op{}, func(context.Context) error { runtime.Goexit(); return nil })
			})
		},
		"the caller cancels": func(r *breakerRig) {
			ctx, cancel := context.WithCancel(context.Background())
			r.Do(ctx, stint.Op{}, func(ctx context.Context) error {
				cancel()
				<-ctx.Done()
				return errors.New("canceled, in a driver's words")
			})
		},
		"the caller has gone": func(r *breakerRig) { r.Do(gone, stint.Op{}, nil) },
		"too little time": func(r *breakerRig) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
			defer cancel()
			r.Do(ctx, stint.Op{}, nil)
		},
		"the bulkhead is full": func(r *breakerRig) {
			p := r.Policy()
			one := p
			one.Bulkhead = 1
			r.SetPolicy(one)
			defer r.SetPolicy(p)
			breakerHold(r, func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
				defer cancel()
				if err := r.Do(ctx, stint.Op{}, nil); err == nil || err.(*stint.Error).Reason != stint.Full {
					panic(fmt.Sprintf("got %v, want full", err))
				}
			})
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := breakerNew(t, stint.Policy{})
				r.halfOpen(t)
				for range 100 {
					way(r)
				}
				if state := r.state(); state == "closed" {
					t.Error("what says nothing closed it")
				}
				r.calls(3, nil)
				r.want(t, "100 times that, then 3 that went well", "closed")
			})
		})
	}
}

// breakerHold runs fn while another call holds the only slot of the bulkhead.
// That call is a probe as well, and says nothing in the end.
func breakerHold(r *breakerRig, fn func()) {
	ctx, release := context.WithCancel(context.Background())
	held := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Do(context.Background(), stint.Op{}, func(context.Context) error {
			close(held)
			<-ctx.Done()
			return breakerNeutral
		})
	}()
	<-held
	fn()
	release()
	<-done
}

// B23: whatever happened before, a dependency that has recovered is called
// again: one open period and Probes+1 calls later the breaker is closed.
func TestB23BreakerIsAlwaysLive(t *testing.T) {
	const runs = 40
	base := rand.Uint64()
	t.Logf("seeds from %d", base)
	broken := 0
	for i := range uint64(runs) {
		seed := base + i
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 23))
			p := stint.Policy{
				Timeout:  200 * time.Millisecond,
				Bulkhead: 1 + rnd.IntN(4), // so that some are refused by it
				Retry:    stint.Retry{Attempts: 1 + rnd.IntN(3)},
				Breaker:  stint.Breaker{MinCalls: 1 + rnd.IntN(8), Window: 10 * time.Second, OpenFor: time.Second, Probes: 3},
			}
			r := breakerNew(t, p)
			var wg sync.WaitGroup
			for range 300 {
				way, takes := rnd.IntN(9), time.Duration(rnd.IntN(300))*time.Millisecond
				wg.Go(func() {
					defer func() { recover() }()
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if way == 7 {
						time.AfterFunc(takes/2, cancel)
					}
					r.Do(ctx, stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) error {
						timer := time.NewTimer(takes)
						defer timer.Stop()
						select {
						case <-timer.C:
						case <-ctx.Done():
							return errors.New("gave up")
						}
						switch way {
						case 0, 1:
							return nil
						case 2:
							return breakerFail
						case 3:
							return breakerOutcome{Kind: stint.Transient}
						case 4:
							return breakerNeutral
						case 5:
							panic("fn")
						case 6:
							runtime.Goexit()
						}
						return breakerFail
					})
				})
				time.Sleep(time.Duration(rnd.IntN(120)) * time.Millisecond)
			}
			wg.Wait()

			time.Sleep(p.Breaker.OpenFor + time.Millisecond)
			before := r.state()
			if before != "closed" {
				broken++
			}
			for n := 0; n < p.Breaker.Probes+1 && (n == 0 || r.state() != "closed"); n++ {
				r.call(nil)
			}
			if r.state() != "closed" {
				t.Errorf("seed %d: it was %s, and is %s after an open period and %d calls that went well", seed, before, r.state(), p.Breaker.Probes+1)
			}
			if reason := r.call(nil); reason != 0 {
				t.Errorf("seed %d: a call to a healthy dependency was refused with %v", seed, reason)
			}
		})
	}
	if t.Logf("the breaker had something to recover from in %d of %d runs", broken, runs); broken == 0 {
		t.Error("it never had: nothing was shown")
	}
}

// B24: users who leave say nothing about the dependency.
func TestB24CallersThatCancel(t *testing.T) {
	const latency = 50 * time.Millisecond
	work := func(cancelled func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			timer := time.NewTimer(latency)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-ctx.Done():
				return cancelled(ctx)
			}
		}
	}
	texts := map[string]func(context.Context) error{
		"wrapped":         func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) },
		"in words only":   func(context.Context) error { return errors.New("canceling statement due to user request") },
		"as its own 503":  func(context.Context) error { return breakerOutcome{Kind: stint.Transient, Code: "503"} },
		"as a timeout":    func(context.Context) error { return context.DeadlineExceeded },
		"as a broken one": func(context.Context) error { return breakerFail },
	}
	for name, cancelled := range texts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := breakerNew(t, stint.Policy{})
				start := time.Now()
				for range 100 {
					ctx, cancel := context.WithCancel(context.Background())
					time.AfterFunc(5*time.Millisecond, cancel)
					err := r.Do(ctx, stint.Op{Safety: stint.ReadOnly}, work(cancelled))
					var e *stint.Error
					if !errors.As(err, &e) || e.Reason != stint.CallerGone || !errors.Is(err, context.Canceled) {
						t.Fatalf("got %v, want caller_gone", err)
					}
				}
				if took := time.Since(start); took != 500*time.Millisecond {
					t.Errorf("100 cancelled calls took %v, want 500ms", took)
				}
				if c := r.changes(); len(c) != 0 {
					t.Errorf("the breaker did %v", c)
				}
				if err := r.Do(context.Background(), stint.Op{}, work(cancelled)); err != nil {
					t.Errorf("the next call: %v", err)
				}
				// None of them counted as a call either.
				r.calls(18, breakerFail)
				r.want(t, "1 success and 18 failures later", "closed")
				r.call(breakerFail)
				r.want(t, "1 success and 19 failures later", "open")
			})
		})
	}
	limits := map[string]struct {
		policy stint.Policy
		ctx    time.Duration
	}{
		"the attempt's own limit": {stint.Policy{Retry: stint.Retry{AttemptTimeout: 5 * time.Millisecond}}, 0},
		"the call's own limit":    {stint.Policy{Timeout: 5 * time.Millisecond}, 0},
		"the caller's deadline":   {stint.Policy{}, 5 * time.Millisecond},
	}
	for name, c := range limits {
		t.Run(name+" is a failure", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := breakerNew(t, c.policy)
				for i := range 20 {
					r.want(t, fmt.Sprintf("after %d calls that ran out of time", i), "closed")
					ctx, cancel := context.WithCancel(context.Background())
					if c.ctx > 0 {
						ctx, cancel = context.WithTimeout(ctx, c.ctx)
					}
					// The error's own words do not count here either.
					if err := r.Do(ctx, stint.Op{}, work(func(context.Context) error { return context.Canceled })); err == nil {
						t.Error("a call that was cut off went well")
					}
					cancel()
				}
				r.want(t, "after 20 calls that ran out of time", "open")
			})
		})
	}
	t.Run("a cancelled probe frees its place", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{Breaker: stint.Breaker{Probes: 1}})
			r.halfOpen(t)
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(5*time.Millisecond, cancel)
			r.Do(ctx, stint.Op{}, work(texts["in words only"]))
			r.want(t, "after the cancelled probe", "half-open")
			if reason := r.call(nil); reason != 0 {
				t.Errorf("the next probe was refused with %v", reason)
			}
			r.want(t, "after the next probe", "closed")
		})
	})
}

func TestBreakerSetPolicy(t *testing.T) {
	set := func(t *testing.T, r *breakerRig, b stint.Breaker) {
		t.Helper()
		if err := r.SetPolicy(stint.Policy{Breaker: b}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("ratio and minimum keep the counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.calls(10, nil)
			r.calls(9, breakerFail)
			set(t, r, stint.Breaker{FailureRatio: 0.6})
			r.calls(5, breakerFail)
			r.want(t, "14 of 24 failed, 60 % are allowed", "closed")
			set(t, r, stint.Breaker{FailureRatio: 0.5})
			r.call(breakerFail)
			r.want(t, "15 of 25 failed, 50 % are allowed", "open")
			if reason := r.call(nil); reason != stint.BreakerOpen {
				t.Errorf("then a call ended with %q", reason)
			}
			set(t, r, stint.Breaker{FailureRatio: 1, MinCalls: 1000})
			if reason := r.call(nil); reason != stint.BreakerOpen {
				t.Errorf("new numbers let a call through an open breaker: %q", reason)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.calls(9, breakerFail)
			set(t, r, stint.Breaker{MinCalls: 10})
			r.call(breakerFail)
			r.want(t, "10 failures, where 10 calls are enough now", "open")
		})
	})
	t.Run("open stays open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.open(t)
			time.Sleep(10 * time.Second)
			set(t, r, stint.Breaker{OpenFor: 5 * time.Second})
			var e *stint.Error
			err := r.Do(context.Background(), stint.Op{}, nil)
			if !errors.As(err, &e) || e.Reason != stint.BreakerOpen || e.RetryAfter() != 5*time.Second {
				t.Fatalf("got %v, want an open breaker for 5s more", err)
			}
			if want := []string{"closed>open"}; !slices.Equal(r.changes(), want) {
				t.Errorf("steps %v, want %v", r.changes(), want)
			}
			time.Sleep(5*time.Second + time.Millisecond)
			r.calls(3, nil)
			r.want(t, "then 3 probes", "closed")
		})
	})
	t.Run("closed counts anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.calls(19, breakerFail)
			set(t, r, stint.Breaker{Window: 2 * time.Minute})
			r.calls(19, breakerFail)
			r.want(t, "19 failures, another window, 19 failures", "closed")
			r.call(breakerFail)
			r.want(t, "20 failures", "open")
		})
	})
	t.Run("off and on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := breakerNew(t, stint.Policy{})
			r.open(t)
			set(t, r, stint.Breaker{Off: true})
			r.seen = 0
			r.calls(100, breakerFail)
			if r.seen != 100 {
				t.Errorf("%d of 100 calls went out", r.seen)
			}
			set(t, r, stint.Breaker{})
			if reason := r.call(nil); reason != 0 {
				t.Errorf("a new breaker refused with %v", reason)
			}
		})
	})
	t.Run("while calls are under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// What ends under another breaker than it began must not count for
			// the new one, nor disturb it.
			r := breakerNew(t, stint.Policy{})
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() {
					r.Do(context.Background(), stint.Op{}, func(context.Context) error {
						time.Sleep(time.Second)
						return breakerFail
					})
				})
			}
			synctest.Wait()
			set(t, r, stint.Breaker{Probes: 2})
			wg.Wait()
			if reason := r.call(nil); reason != 0 {
				t.Errorf("the new breaker refused with %v", reason)
			}
		})
	})
}
