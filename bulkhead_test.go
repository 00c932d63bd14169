package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// bulkTick is the unit of the times in this file.
const bulkTick = time.Millisecond

// bulkCaller is a Caller on whose way only the bulkhead stands.
func bulkCaller(t testing.TB, p stint.Policy) *stint.Caller {
	t.Helper()
	p.Breaker.Off = true
	c, err := stint.NewCaller("d", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func bulkReason(err error) stint.Reason {
	var e *stint.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return 0
}

// bulkHold starts n calls that keep their slots until release is called. It
// returns when all run, and fails the test if they don't.
func bulkHold(t testing.TB, c *stint.Caller, n int) (release func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	running := 0
	for range n {
		wg.Go(func() {
			c.Do(context.Background(), stint.Op{}, func(context.Context) error {
				mu.Lock()
				running++
				mu.Unlock()
				<-ctx.Done()
				return nil
			})
		})
	}
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	if running != n {
		t.Errorf("%d of %d calls have a slot", running, n)
	}
	return func() {
		end()
		wg.Wait()
	}
}

// bulkFits checks that just limit calls fit in at once: no slot was lost, and
// none was made.
func bulkFits(t testing.TB, c *stint.Caller, limit int) {
	t.Helper()
	release := bulkHold(t, c, limit)
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), c.Policy().MinUseful+bulkTick)
	defer cancel()
	err := c.Do(ctx, stint.Op{}, func(context.Context) error { return nil })
	if bulkReason(err) != stint.Full {
		t.Errorf("one more than %d ended with %v, want full", limit, err)
	}
}

// bulkSend is the least carrier: one that brings a result without work.
type bulkSend struct {
	outcomes []stint.Outcome // of the attempts; then OK
	sent     int
	dropped  int
	ctx      context.Context // of the last attempt
	flight   stint.Flight
}

func (s *bulkSend) Send(ctx context.Context, _ stint.Hop, _ int) (any, stint.Outcome, error) {
	s.sent++
	s.ctx = ctx
	if s.sent <= len(s.outcomes) {
		return s.sent, s.outcomes[s.sent-1], nil
	}
	return s.sent, stint.Outcome{Kind: stint.OK}, nil
}

func (s *bulkSend) Drop(any, time.Duration) { s.dropped++ }

// bulkRead makes a call whose result nobody has read yet.
func bulkRead(t testing.TB, c *stint.Caller, ctx context.Context, outcomes ...stint.Outcome) *bulkSend {
	t.Helper()
	s := &bulkSend{outcomes: outcomes}
	err := c.Send(ctx, stint.Op{Safety: stint.ReadOnly}, s, &s.flight)
	if err != nil && len(outcomes) == 0 {
		t.Fatal(err)
	}
	if s.flight.Result() == nil {
		t.Fatal("no result")
	}
	return s
}

func TestBulkheadDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { bulkFits(t, bulkCaller(t, stint.Policy{}), 64) })
	synctest.Test(t, func(t *testing.T) { bulkFits(t, bulkCaller(t, stint.Policy{Bulkhead: 3}), 3) })
	synctest.Test(t, func(t *testing.T) {
		bulkHold(t, bulkCaller(t, stint.Policy{Bulkhead: stint.NoLimit}), 2000)()
	})
}

// Slots go to whoever has asked first.
func TestBulkheadFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1})
		release := bulkHold(t, c, 1)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				c.Do(context.Background(), stint.Op{}, func(context.Context) error {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(bulkTick)
					return nil
				})
			})
			synctest.Wait()
		}
		release()
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("slots were given in the order %v", order)
		}
	})
}

// A call waits for a slot as long as an attempt would still be useful, and not
// until its deadline.
func TestBulkheadWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1, Timeout: 200 * bulkTick, MinUseful: 50 * bulkTick})
		release := bulkHold(t, c, 1)
		start := time.Now()
		err := c.Do(context.Background(), stint.Op{}, func(context.Context) error { t.Error("it ran"); return nil })
		if took := time.Since(start); took != 150*bulkTick {
			t.Errorf("it waited %v, want 150ms", took)
		}
		var e *stint.Error
		if !errors.As(err, &e) || e.Reason != stint.Full || e.Attempts != 0 {
			t.Fatalf("got %v, want full", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("it is reported as a lack of time")
		}
		if o := e.Outcome(); !o.NotStarted {
			t.Errorf("outcome %+v: want proof that nothing was sent", o)
		}

		// The caller's own deadline bounds the wait as well.
		ctx, cancel := context.WithTimeout(context.Background(), 80*bulkTick)
		defer cancel()
		start = time.Now()
		if err := c.Do(ctx, stint.Op{}, nil); bulkReason(err) != stint.Full || time.Since(start) != 30*bulkTick {
			t.Errorf("%v after %v, want full after 30ms", err, time.Since(start))
		}

		// What was waited is gone from the attempt's time.
		time.AfterFunc(100*bulkTick, release)
		err = c.Do(context.Background(), stint.Op{}, func(ctx context.Context) error {
			if left, _ := stint.Remaining(ctx); left != 100*bulkTick {
				t.Errorf("after a wait of 100ms, %v are left, want 100ms", left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		bulkFits(t, c, 1)
	})
}

func TestBulkheadCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 2})
		release := bulkHold(t, c, 2)
		cause := errors.New("closed the page")
		for i := range 10 {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(5*bulkTick, func() {
				if i%2 == 0 {
					cancel(cause)
				} else {
					cancel(nil)
				}
			})
			start := time.Now()
			err := c.Do(ctx, stint.Op{}, nil)
			if bulkReason(err) != stint.CallerGone || !errors.Is(err, context.Canceled) || time.Since(start) != 5*bulkTick {
				t.Errorf("%v after %v, want caller_gone after 5ms", err, time.Since(start))
			}
			if i%2 == 0 && !errors.Is(err, cause) {
				t.Errorf("%v does not say why the caller left", err)
			}
		}
		release()
		bulkFits(t, c, 2)
	})
}

// Who gets a slot at the very moment at which its caller leaves makes no
// attempt any more: it would only load the dependency.
func TestBulkheadNoAttemptForWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1})
		dead := 0
		for range 500 {
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				c.Do(ctx, stint.Op{}, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			})
			synctest.Wait()
			wg.Go(func() { // a part of the same request, waiting for the slot
				c.Do(ctx, stint.Op{}, func(ctx context.Context) error {
					if ctx.Err() != nil {
						dead++
					}
					return nil
				})
			})
			synctest.Wait()
			cancel()
			wg.Wait()
		}
		if dead > 0 {
			t.Errorf("%d of 500 attempts began under a context that was over", dead)
		}
		bulkFits(t, c, 1)
	})
}

func TestBulkheadGetsSlotsBack(t *testing.T) {
	ways := map[string]func(context.Context) error{
		"panic":  func(context.Context) error { panic("fn") },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
		"error":  func(context.Context) error { return errors.New("no") },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := bulkCaller(t, stint.Policy{Bulkhead: 2, Retry: stint.Retry{AttemptTimeout: time.Second}})
				for range 10 {
					breakerLeave(func() { c.Do(context.Background(), stint.Op{}, way) })
				}
				bulkFits(t, c, 2)
			})
		})
	}
}

// A call that backs off holds no slot.
func TestBulkheadBackoffHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := stint.Policy{Bulkhead: 1, Retry: stint.Retry{Attempts: 2, Base: time.Second, Cap: time.Second}}
		c, err := stint.NewCaller("d", p, &stint.CallerOptions{
			Rand:     func() float64 { return 0.5 },
			Classify: func(context.Context, error) stint.Outcome { return stint.Outcome{Kind: stint.Transient} },
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			n := 0
			err := c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error {
				if n++; n == 1 {
					return errors.New("once")
				}
				return nil
			})
			if err != nil || n != 2 {
				t.Errorf("%d attempts, %v", n, err)
			}
		})
		synctest.Wait()
		start := time.Now()
		if err := c.Do(context.Background(), stint.Op{}, func(context.Context) error { return nil }); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v, want the slot at once", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestBulkheadSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1})
		set := func(n int) {
			t.Helper()
			p := c.Policy()
			p.Bulkhead = n
			if err := c.SetPolicy(p); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var waits []time.Duration
		var wg sync.WaitGroup
		release := bulkHold(t, c, 1)
		for range 3 {
			wg.Go(func() {
				asked := time.Now()
				c.Do(context.Background(), stint.Op{}, func(context.Context) error {
					mu.Lock()
					waits = append(waits, time.Since(asked))
					mu.Unlock()
					time.Sleep(10 * bulkTick)
					return nil
				})
			})
			synctest.Wait()
		}
		time.Sleep(5 * bulkTick)
		set(3) // two of the three that wait run at once, the last when they are done
		wg.Wait()
		if want := []time.Duration{5 * bulkTick, 5 * bulkTick, 15 * bulkTick}; !slices.Equal(waits, want) {
			t.Errorf("they waited %v, want %v", waits, want)
		}
		more := bulkHold(t, c, 2)
		set(1) // three are held: they run out by themselves
		ctx, cancel := context.WithTimeout(context.Background(), 2*bulkTick)
		defer cancel()
		if err := c.Do(ctx, stint.Op{}, nil); bulkReason(err) != stint.Full {
			t.Errorf("above the new limit: %v, want full", err)
		}
		more()
		ctx, cancel = context.WithTimeout(context.Background(), 2*bulkTick)
		defer cancel()
		if err := c.Do(ctx, stint.Op{}, nil); bulkReason(err) != stint.Full {
			t.Errorf("at the new limit: %v, want full", err)
		}
		release()
		bulkFits(t, c, 1)
		set(stint.NoLimit)
		bulkHold(t, c, 500)()
		set(4)
		bulkFits(t, c, 4)
	})
}

// B28: any mix of ways out of a call, many at a time, leaves just limit slots.
func TestB28BulkheadLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed, limit, calls = 28, 10, 10_000
		c := bulkCaller(t, stint.Policy{Bulkhead: limit, Timeout: 60 * bulkTick, MinUseful: 40 * bulkTick})
		r := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		ended := make(map[string]int)
		inside, most := 0, 0
		count := func(n int, how string) {
			mu.Lock()
			defer mu.Unlock()
			inside += n
			most = max(most, inside)
			if how != "" {
				ended[how]++
			}
		}
		var wg sync.WaitGroup
		for range calls {
			way, takes, leaves := r.IntN(100), time.Duration(r.IntN(40))*bulkTick, time.Duration(r.IntN(60))*bulkTick
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						count(0, "panic")
					}
				}()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if way < 66 { // some of these leave in the queue, some at work
					time.AfterFunc(leaves, cancel)
				}
				work := func(ctx context.Context) {
					count(1, "")
					defer count(-1, "")
					timer := time.NewTimer(takes)
					defer timer.Stop()
					select {
					case <-timer.C:
					case <-ctx.Done():
					}
					if way >= 99 {
						panic("fn")
					}
				}
				var err error
				if way%3 == 0 { // a result that is read for a while, or never ended
					s := &bulkSend{}
					if err = c.Send(ctx, stint.Op{}, s, &s.flight); s.flight.Result() != nil {
						work(s.ctx)
						if way%2 == 0 {
							s.flight.End()
							s.flight.End()
						}
					}
				} else {
					err = c.Do(ctx, stint.Op{}, func(ctx context.Context) error { work(ctx); return ctx.Err() })
				}
				if err == nil {
					count(0, "ok")
				} else {
					count(0, bulkReason(err).String())
				}
			})
			time.Sleep(time.Duration(r.IntN(int(2 * bulkTick))))
		}
		wg.Wait()
		t.Logf("how they ended: %v", ended)
		for _, how := range []string{"ok", "panic", stint.CallerGone.String(), stint.Full.String()} {
			if ended[how] == 0 {
				t.Errorf("no call ended with %q: the mix is not one", how)
			}
		}
		if most > limit {
			t.Errorf("%d at work at once, want at most %d", most, limit)
		}
		time.Sleep(100 * bulkTick) // what nobody ended is over by now
		bulkFits(t, c, limit)
	})
}

func TestBulkheadResultHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Who waits for a slot gets it when the result has been read.
		c := bulkCaller(t, stint.Policy{Bulkhead: 1, Timeout: time.Second})
		s := bulkRead(t, c, context.Background())
		start := time.Now()
		time.AfterFunc(50*bulkTick, s.flight.End)
		err := c.Do(context.Background(), stint.Op{}, func(context.Context) error { return nil })
		if took := time.Since(start); err != nil || took != 50*bulkTick {
			t.Errorf("%v after %v, want the slot after 50ms", err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1, Timeout: time.Second})
		s := bulkRead(t, c, context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), 10*bulkTick)
		defer cancel()
		if err := c.Do(ctx, stint.Op{}, nil); bulkReason(err) != stint.Full {
			t.Errorf("while the result is being read: %v, want full", err)
		}
		if s.ctx.Err() != nil {
			t.Errorf("while it is being read, its context says %v", s.ctx.Err())
		}
		s.flight.End()
		if s.ctx.Err() != context.Canceled {
			t.Errorf("after End, its context says %v", s.ctx.Err())
		}
		bulkFits(t, c, 1)
		s.flight.End()
		bulkFits(t, c, 1)
		if s.dropped != 0 {
			t.Error("a result that is the caller's was thrown away")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// A result beside an error, of an attempt with a limit of its own.
		p := stint.Policy{Bulkhead: 1, Timeout: time.Second, Retry: stint.Retry{Attempts: 2, AttemptTimeout: 100 * bulkTick}}
		c := bulkCaller(t, p)
		bad := stint.Outcome{Kind: stint.Transient, Code: "503"}
		s := bulkRead(t, c, context.Background(), bad, bad)
		if s.sent != 2 || s.dropped != 1 {
			t.Errorf("%d sent, %d dropped; want 2, and the first of them", s.sent, s.dropped)
		}
		s.flight.End()
		if s.ctx.Err() != context.Canceled {
			t.Errorf("after End, the attempt's context says %v", s.ctx.Err())
		}
		bulkFits(t, c, 1)
	})
}

// A response that nobody closes must not take a slot for good: its context is
// over at the deadline, and then its slot is free.
func TestBulkheadReclaimsWhatNobodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 2, Timeout: 100 * bulkTick})
		start := time.Now()
		lost := []*bulkSend{bulkRead(t, c, context.Background()), bulkRead(t, c, context.Background())}
		try := func() stint.Reason {
			ctx, cancel := context.WithTimeout(context.Background(), bulkTick) // no time to wait
			defer cancel()
			return bulkReason(c.Do(ctx, stint.Op{}, func(context.Context) error { return nil }))
		}
		time.Sleep(100*bulkTick - 1)
		if r := try(); r != stint.Full {
			t.Errorf("before the deadline: %v, want full", r)
		}
		time.Sleep(time.Until(start.Add(100 * bulkTick)))
		if r := try(); r != 0 {
			t.Errorf("at the deadline: %v, want a slot", r)
		}
		bulkFits(t, c, 2)
		for _, s := range lost {
			s.flight.End() // late, and its slot is somebody else's: nothing to give back
		}
		bulkFits(t, c, 2)
	})
}

// An attempt's own limit bounds the reading of its result as well: from then on
// nobody can read it, and its slot is free though the call would have had time.
func TestBulkheadReclaimsAtTheAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1, Timeout: 10 * time.Second, Retry: stint.Retry{AttemptTimeout: 100 * bulkTick}})
		s := bulkRead(t, c, context.Background())
		start := time.Now()
		err := c.Do(context.Background(), stint.Op{}, func(context.Context) error { return nil })
		if took := time.Since(start); err != nil || took != 100*bulkTick {
			t.Errorf("%v after %v, want the slot after 100ms", err, took)
		}
		if s.ctx.Err() == nil {
			t.Error("the slot was taken away while the result could still be read")
		}
		s.flight.End()
		bulkFits(t, c, 1)
	})
}

// Who waits already gets the slot that comes free by time, when it comes free.
func TestBulkheadReclaimsForWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1})
		short, cancel := context.WithTimeout(context.Background(), 100*bulkTick)
		defer cancel()
		bulkRead(t, c, short)
		start := time.Now()
		long, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := c.Do(long, stint.Op{}, func(context.Context) error { return nil })
		if took := time.Since(start); err != nil || took != 100*bulkTick {
			t.Errorf("%v after %v, want the slot after 100ms", err, took)
		}
	})
}

// And nobody who comes later takes it from them.
func TestBulkheadReclaimKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bulkCaller(t, stint.Policy{Bulkhead: 1})
		short, cancel := context.WithTimeout(context.Background(), 100*bulkTick)
		defer cancel()
		bulkRead(t, c, short)
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		call := func(name string) {
			wg.Go(func() {
				c.Do(context.Background(), stint.Op{}, func(context.Context) error {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					time.Sleep(bulkTick)
					return nil
				})
			})
			synctest.Wait()
		}
		call("first")
		time.Sleep(150 * bulkTick)
		call("second")
		wg.Wait()
		if want := []string{"first", "second"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	})
}

// End is promised to be harmless at any time, so also for a call that was
// refused before it began.
func TestFlightEndAfterARefusal(t *testing.T) {
	c := bulkCaller(t, stint.Policy{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := new(bulkSend)
	if err := c.Send(ctx, stint.Op{}, s, &s.flight); bulkReason(err) != stint.CallerGone || s.flight.Result() != nil {
		t.Fatalf("got %v, want caller_gone and no result", err)
	}
	s.flight.End()
}
