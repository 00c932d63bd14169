package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// Refusals tell everybody to come back at another moment, between 1 and 3 s.
func TestGateSpreadsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{Limit: 1})
		gateAdmit(t, g, t.Context(), stint.Hop{})
		const n = 10000
		seen := map[time.Duration]int{}
		var sum time.Duration
		for range n {
			var e *stint.Error
			if err := g.Admit(t.Context(), gateBrief, new(stint.Admission)); !errors.As(err, &e) {
				t.Fatal(err)
			}
			after := e.RetryAfter()
			if after < time.Second || after > 3*time.Second {
				t.Fatalf("come back after %v", after)
			}
			seen[after]++
			sum += after
		}
		for after, k := range seen {
			if k > n*4/100 {
				t.Errorf("%d of %d are to come back after %v", k, n, after)
			}
		}
		if mean := sum / n; mean < 1900*time.Millisecond || mean > 2100*time.Millisecond {
			t.Errorf("%v on average", mean)
		}
	})
}

// Who anybody can be does not get ahead by naming a class.
func TestGateStrangersHaveNoClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{Limit: 1})
		inside := gateAdmit(t, g, t.Context(), stint.Hop{})
		var order []string
		enter := func(name string, g *stint.Gate, h stint.Hop) {
			go func() {
				a := new(stint.Admission)
				if err := g.Admit(t.Context(), h, a); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				order = append(order, name)
				a.Finish(gateOK)
			}()
			synctest.Wait()
		}
		peers := g.WithTrust(stint.TrustPeers)
		enter("stranger", g, stint.Hop{Remaining: 9 * time.Second, Class: stint.CriticalPlus})
		enter("peer", peers, stint.Hop{Remaining: 8 * time.Second, Class: stint.Critical})
		enter("shed", peers, stint.Hop{Remaining: 7 * time.Second, Class: stint.Sheddable})
		enter("hurried stranger", g, stint.Hop{Remaining: 6 * time.Second, Class: stint.Sheddable, Attempt: 3})
		inside.Finish(gateOK)
		synctest.Wait()
		want := []string{"hurried stranger", "peer", "stranger", "shed"}
		if len(order) != len(want) {
			t.Fatalf("%v", order)
		}
		for i := range want {
			if order[i] != want[i] {
				t.Fatalf("order %v, want %v", order, want)
			}
		}
	})
}

// The deadline and the caller's end are noticed at each moment of the wait: before
// it, in it, when the place becomes free, and with the last one.
func TestGateWaitEndsAtEveryPoint(t *testing.T) {
	for _, at := range []time.Duration{-1, 0, gateTick, 10 * gateTick, 10*gateTick + 1, 20 * gateTick} {
		for _, end := range []string{"cancel", "deadline"} {
			synctest.Test(t, func(t *testing.T) {
				g := gateNew(t, stint.GateOptions{Limit: 1, FIFO: true})
				inside := gateAdmit(t, g, context.Background(), stint.Hop{})
				time.AfterFunc(10*gateTick, func() { inside.Finish(gateOK) }) // the same moment as one of the ends
				ctx, cancel := context.WithCancel(context.Background())
				h := stint.Hop{Remaining: time.Second}
				if end == "cancel" {
					if at < 0 {
						cancel()
					}
					time.AfterFunc(at, cancel)
				} else {
					var c context.CancelFunc
					ctx, c = context.WithTimeout(ctx, at)
					defer c()
				}
				defer cancel()
				a := new(stint.Admission)
				if err := g.Admit(ctx, h, a); err == nil {
					if g.Running() != 1 {
						t.Errorf("%v: %d run", at, g.Running())
					}
					a.Finish(gateOK)
				}
				time.Sleep(time.Second)
				if g.Running() != 0 || g.Queued() != 0 {
					t.Fatalf("%s at %v: %d run, %d wait", end, at, g.Running(), g.Queued())
				}
				if !gateEmpty(g.Drain()) {
					t.Errorf("%s at %v: not empty", end, at)
				}
			})
		}
	}
}

// An observer that panics leaves no permit behind, at whichever event.
func TestGateObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []stint.EventKind{stint.GateEntered, stint.GateLeft, stint.WorkWasted} {
			g := gateNew(t, stint.GateOptions{Limit: 1, LongLimit: 1, Observer: &panicky{at: kind}})
			for _, view := range []*stint.Gate{g, g.LongRunning(), g.Exempt()} {
				for range 3 {
					func() {
						defer func() { recover() }()
						a := new(stint.Admission)
						if err := view.Admit(t.Context(), stint.Hop{Remaining: gateTick}, a); err != nil {
							t.Errorf("after a panic at %v: %v", kind, err)
							return
						}
						time.Sleep(3 * gateTick)
						a.Finish(gateOK)
					}()
				}
				if view.Running() != 0 {
					t.Errorf("a panic at %v left %d", kind, view.Running())
				}
			}
			// One that is refused, with somebody inside.
			func() {
				defer func() { recover() }()
				gateAdmit(t, gateNew(t, stint.GateOptions{Limit: 1}), t.Context(), stint.Hop{})
				g.Admit(t.Context(), stint.Hop{Remaining: -1}, new(stint.Admission))
			}()
			if !gateEmpty(g.Drain()) {
				t.Errorf("a panic at %v: not empty", kind)
			}
		}
	})
}

type panicky struct {
	stinttest.Recorder
	at stint.EventKind
}

func (p *panicky) Observe(_ context.Context, e stint.Event) {
	if e.Kind == p.at {
		panic("observer")
	}
}

// Whatever happens to requests, none leaves its permit behind or gives it back
// twice, and Drain ends.
func TestGatePermits(t *testing.T) {
	before := runtime.NumGoroutine()
	r := rand.New(rand.NewPCG(11, 1))
	for _, o := range []stint.GateOptions{{Limit: 4}, {Limit: 4, FIFO: true}, {MinLimit: 2, MaxLimit: 6}, {Limit: 4, MaxRefused: .05}, {Limit: 3, ObserveOnly: true}} {
		o.LongLimit = 3
		most := max(o.Limit, o.MaxLimit)
		if o.MaxRefused != 0 || o.ObserveOnly {
			most = 1 << 30
		}
		g := gateNew(t, o)
		views := []*stint.Gate{g, g, g, g.WithTrust(stint.TrustPeers), g.LongRunning(), g.Exempt(), g.LongRunning().WithTrust(stint.TrustPeers)}
		var (
			wg           sync.WaitGroup
			mu           sync.Mutex
			inside, long int
		)
		count := func(p *int, limit, by int) {
			mu.Lock()
			defer mu.Unlock()
			if *p += by; *p > limit {
				t.Errorf("%d inside, want at most %d", *p, limit)
			}
		}
		for range 400 {
			i := r.IntN(len(views))
			how, cancelAfter, work := r.IntN(6), time.Duration(r.IntN(400))*time.Microsecond, time.Duration(r.IntN(100))*time.Microsecond
			h := stint.Hop{Remaining: time.Duration(1+r.IntN(20)) * time.Millisecond, Class: stint.Class(r.IntN(5)), Attempt: r.IntN(3)}
			wg.Go(func() {
				defer func() { recover() }()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if how < 2 {
					time.AfterFunc(cancelAfter, cancel)
				}
				a := new(stint.Admission)
				if views[i].Admit(ctx, h, a) != nil {
					return
				}
				p, limit := &inside, most
				switch {
				case i == 5:
					p, limit = new(int), 1
				case i == 4 || i == 6:
					p, limit = &long, 3
					if o.ObserveOnly {
						limit = 1 << 30
					}
				}
				count(p, limit, 1)
				defer func() {
					count(p, limit, -1)
					if how == 4 {
						var twice sync.WaitGroup
						defer twice.Wait()
						twice.Go(func() { a.Finish(gateOK) })
					}
					a.Finish(gateOK)
				}()
				time.Sleep(work)
				switch how {
				case 3:
					panic("handler")
				case 5:
					a.Abandon()
				}
			})
		}
		drain := r.IntN(2) == 0
		if drain {
			g.Drain()
		}
		wg.Wait()
		if g.Running() != 0 || g.Queued() != 0 || g.LongRunning().Running() != 0 {
			t.Errorf("%+v: %d run, %d wait, %d last", o, g.Running(), g.Queued(), g.LongRunning().Running())
		}
		select {
		case <-g.Drain():
		default:
			t.Errorf("%+v: drained, but not empty", o)
		}
	}
	for range 1000 { // timers and AfterFuncs that are under way end
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines, after %d", runtime.NumGoroutine(), before)
}
