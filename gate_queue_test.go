package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// gatePlaces fails unless nobody is inside or waits, and just so many get in.
func gatePlaces(t *testing.T, g *stint.Gate, limit int) {
	t.Helper()
	if g.Running() != 0 || g.Queued() != 0 {
		t.Errorf("%d inside and %d waiting, with nobody there", g.Running(), g.Queued())
	}
	inside := make([]*stint.Admission, limit)
	for i := range inside {
		inside[i] = gateAdmit(t, g, context.Background(), stint.Hop{})
	}
	gateRefused(t, g, context.Background(), gateBrief, stint.Full)
	for _, a := range inside {
		a.Finish(gateOK)
	}
}

// Callers that leave at any point, and handlers that end in any way, leave the
// Gate with just its places. Times are whole milliseconds, so that a cancel often
// meets the call of its turn at the same moment.
func TestB28PlacesAreNeitherLostNorMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, requests = 10, 10_000
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Limit: limit, Observer: &rec})
		r := rand.New(rand.NewPCG(28, 0))
		ms := func(n int) time.Duration { return time.Duration(r.IntN(n)) * gateTick }
		var (
			mu                                sync.Mutex
			inside, most                      int
			queuedGone, runningGone, panicked int
			wg                                sync.WaitGroup
		)
		count := func(n *int, by int) {
			mu.Lock()
			defer mu.Unlock()
			*n += by
			most = max(most, inside)
		}
		for i := range requests {
			way, work, left := r.IntN(8), ms(40), 50*gateTick+ms(300)
			soon, later := ms(60), ms(30)
			wg.Go(func() {
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				if i%3 == 1 { // most of these are in the queue by then
					time.AfterFunc(soon, leave)
				}
				a := new(stint.Admission)
				if err := g.Admit(ctx, stint.Hop{Remaining: left}, a); err != nil {
					if errors.Is(err, context.Canceled) {
						count(&queuedGone, 1)
					}
					return
				}
				count(&inside, 1)
				if i%3 == 2 {
					time.AfterFunc(later, leave)
				}
				defer func() {
					if recover() != nil {
						count(&panicked, 1)
					}
				}()
				defer func() {
					count(&inside, -1)
					if way == 2 { // twice at once
						wg.Go(func() { a.Finish(gateOK) })
					}
					a.Finish(gateOK)
				}()
				switch way {
				case 0: // early
				case 1:
					panic("handler")
				case 2: // answered for
					a.Abandon()
					time.Sleep(work)
				default:
					select {
					case <-time.After(work):
					case <-a.Context().Done():
					}
				}
				if ctx.Err() != nil {
					count(&runningGone, 1)
				}
			})
			time.Sleep(ms(2))
		}
		wg.Wait()
		synctest.Wait()
		t.Logf("%d left in the queue, %d while running, %d panics", queuedGone, runningGone, panicked)
		if queuedGone < 1000 || runningGone < 1000 || panicked < 100 {
			t.Errorf("%d left in the queue, %d while running, %d panics: too few to tell", queuedGone, runningGone, panicked)
		}
		if most != limit {
			t.Errorf("%d were inside at once, want %d", most, limit)
		}
		entered := 0
		for _, e := range rec.Events(stint.GateEntered) {
			if e.Reason == 0 {
				entered++
			}
		}
		if left := len(rec.Events(stint.GateLeft)); left != entered {
			t.Errorf("%d came in and %d left", entered, left)
		}
		gatePlaces(t, g, limit)
		if !gateEmpty(g.Drain()) {
			t.Error("somebody is inside for Drain")
		}
	})
}

// A caller that leaves at the moment of its turn hands its place to the next.
func TestB28LeavesAtItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{Limit: 1})
		gone := 0
		for range 100 {
			first := gateAdmit(t, g, t.Context(), stint.Hop{})
			ctx, leave := context.WithCancel(t.Context())
			errs := make(chan error, 2)
			for _, ctx := range []context.Context{ctx, t.Context()} {
				go func() {
					a := new(stint.Admission)
					errs <- g.Admit(ctx, stint.Hop{}, a)
					a.Finish(gateOK)
				}()
				synctest.Wait()
			}
			first.Finish(gateOK)
			leave() // before it has woken up, as a rule
			for range 2 {
				if err := <-errs; errors.Is(err, context.Canceled) {
					gone++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		if gatePlaces(t, g, 1); gone == 0 {
			t.Error("nobody left at the moment of its turn")
		}
	})
}

// To finish twice makes no second place, and waits for nobody, also while others
// wait for the first.
func TestB28FinishTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10
		g := gateNew(t, stint.GateOptions{Limit: limit})
		var inside []*stint.Admission
		for range limit {
			inside = append(inside, gateAdmit(t, g, t.Context(), stint.Hop{}))
		}
		entered := make(chan *stint.Admission, 3)
		for range 3 {
			go func() {
				a := new(stint.Admission)
				if g.Admit(t.Context(), stint.Hop{}, a) == nil {
					entered <- a
				}
			}()
		}
		synctest.Wait()
		for range 3 {
			inside[0].Finish(gateOK)
		}
		synctest.Wait()
		if len(entered) != 1 || g.Queued() != 2 || g.Running() != limit {
			t.Errorf("%d came in for one that left, %d wait, %d run", len(entered), g.Queued(), g.Running())
		}
		inside[1].Finish(gateOK)
		inside[2].Finish(gateOK)
		for range 3 {
			inside = append(inside, <-entered)
		}
		for range 2 {
			for _, a := range inside {
				a.Finish(gateOK)
			}
		}
		gatePlaces(t, g, limit)
	})
}

// What a stranger claims moves nobody ahead in the queue, and nobody out of it:
// thousands of every class and attempt are called in the order in which they came.
// (The race detector takes no more than 8128 goroutines, and is slow with many.)
func TestGateStrangersAreAlike(t *testing.T) {
	for trust, requests := range map[stint.Trust]int{stint.TrustDeadlineOnly: 4000, stint.TrustPeers: 1000} {
		synctest.Test(t, func(t *testing.T) {
			g := gateNew(t, stint.GateOptions{Trust: trust, Limit: 1})
			first := gateAdmit(t, g, t.Context(), stint.Hop{})
			var wg sync.WaitGroup
			in := make([]bool, requests)
			var order []int
			for i := range requests {
				wg.Go(func() {
					a := new(stint.Admission)
					if g.Admit(t.Context(), stint.Hop{Remaining: time.Second, Class: stint.Class(i % 5), Attempt: i % 3}, a) != nil {
						return
					}
					in[i] = true
					order = append(order, i) // there is one place
					time.Sleep(gateTick)
					a.Finish(gateOK)
				})
				synctest.Wait()
			}
			if g.Queued() != requests {
				t.Fatalf("%d wait, want all %d", g.Queued(), requests)
			}
			first.Finish(gateOK)
			wg.Wait()
			sorted := true
			for i, n := range order {
				sorted = sorted && i == n // so the last come are those refused, too
			}
			if len(order) < 500 || sorted != (trust == stint.TrustDeadlineOnly) {
				t.Errorf("trust %v: %d came in, in the order of arrival: %v", trust, len(order), sorted)
			}
		})
	}
}

// While a good share of what arrives are retries, a refusal for load is final for
// whoever sees it, a Caller around the Gate among them.
func TestGateRefusalIsNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{Trust: stint.TrustPeers, Limit: 1})
		defer gateAdmit(t, g, t.Context(), stint.Hop{}).Finish(gateOK)
		c, err := stint.NewCaller("shop", stint.Policy{Retry: stint.Retry{Attempts: 2}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tries := func() (n int) {
			c.Do(t.Context(), stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) error {
				n++
				return g.Admit(ctx, gateBrief, new(stint.Admission))
			})
			return n
		}
		if n := tries(); n != 2 {
			t.Errorf("%d tries, want 2", n)
		}
		for range 20 {
			gateRefused(t, g, t.Context(), stint.Hop{Remaining: gateTick, Attempt: 2}, stint.Full)
		}
		e := gateRefused(t, g, t.Context(), gateBrief, stint.Full)
		if o := e.Outcome(); !e.Never() || !o.Never || !o.NotStarted || !o.Hinted {
			t.Errorf("never %v, outcome %+v; want never, not started, and a hint", e.Never(), o)
		}
		if n := tries(); n != 1 {
			t.Errorf("%d tries while it is full of retries, want 1", n)
		}
	})
}
