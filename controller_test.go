package stint_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

func newController(t testing.TB, o stint.GateOptions) *stint.AdmissionController {
	t.Helper()
	c, err := o.Controller()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// steady teaches a controller of the limit n that requests take so long.
func steady(c *stint.AdmissionController, n int, took time.Duration) time.Time {
	now := worldBegan
	for range 400/n + 1 {
		for range n {
			c.Arrive(now, stint.Hop{Remaining: time.Hour}, nil)
		}
		now = now.Add(took)
		for range n {
			c.Done(now, took)
		}
	}
	return now
}

// The queue is never longer than what is served in the time that can be waited.
func TestQueueBoundedByTime(t *testing.T) {
	const slots, mean = 20, 10 * time.Millisecond
	c := float64(slots) / mean.Seconds()
	for _, fifo := range []bool{false, true} {
		for _, d := range []time.Duration{30 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(d, " fifo ", fifo), func(t *testing.T) {
				w := newWorld(t, stint.GateOptions{Limit: slots, FIFO: fifo}, slots, constant(mean))
				w.phase(3*c, time.Second, due(d))
				most := 0
				for range 200 {
					w.phase(3*c, 10*time.Millisecond, due(d))
					most = max(most, w.ctrl.Queued())
				}
				share := 1.0
				if !fifo {
					share = .75 // of the class
				}
				if bound := c * (d - mean).Seconds() * share; float64(most) > bound+1 {
					t.Errorf("%d wait, want at most %.0f", most, bound)
				} else if float64(most) < bound/3 {
					t.Errorf("%d wait at most, of %.0f that have the time", most, bound)
				}
			})
		}
	}
}

// A handler never starts with less than MinUseful left, reserve aside, nor too late.
func TestQueueStartsNobodyTooLate(t *testing.T) {
	const useful, reserve = 15 * time.Millisecond, 10 * time.Millisecond
	for name, o := range map[string]stint.GateOptions{"order of need": {}, "fifo": {FIFO: true}} {
		for _, law := range laws {
			t.Run(name+" "+law.name, func(t *testing.T) {
				o := o
				o.Limit, o.MinUseful, o.Reserve = 20, useful, reserve
				w := newWorld(t, o, 20, law.of(10*time.Millisecond))
				w.load(5000, 2*time.Second, func() visitor {
					return visitor{hop: stint.Hop{Remaining: time.Duration(w.rand.IntN(300)) * time.Millisecond, Class: stint.Class(w.rand.IntN(5))}}
				})
				w.run(4 * time.Second)
				waited := 0
				for _, v := range w.visitors {
					if !v.in || v.began == v.came {
						continue
					}
					waited++
					if left := v.hop.Remaining - v.began.Sub(v.came); left < useful+min(reserve, v.hop.Remaining/4) {
						t.Fatalf("of %v it began with %v left", v.hop.Remaining, left)
					}
				}
				if waited == 0 {
					t.Error("nobody waited")
				}
			})
		}
	}
}

// A prediction that does not fit is said at once.
func TestQueueRefusesAtArrival(t *testing.T) {
	c := newController(t, stint.GateOptions{Limit: 10, FIFO: true})
	now := steady(c, 10, 10*time.Millisecond) // 1 ms between two that end
	for range 10 {
		c.Arrive(now, stint.Hop{Remaining: time.Second}, nil)
	}
	// With 50 ms, of which 10 are for the work and 5 for the answer, 35 can be waited.
	queued := 0
	for i := range 100 {
		in, wait, r := c.Arrive(now, stint.Hop{Remaining: 50 * time.Millisecond}, &i)
		switch {
		case in:
			t.Fatal("there is no place")
		case wait > 0:
			if queued++; r != 0 || queued != i+1 {
				t.Fatalf("number %d waits, with reason %v", i, r)
			}
		case r != stint.Full:
			t.Fatalf("refused for %v", r)
		}
	}
	if queued < 33 || queued > 36 {
		t.Errorf("%d wait, want 35", queued)
	}
	// One with more time still may.
	if _, wait, _ := c.Arrive(now, stint.Hop{Remaining: time.Second}, new(int)); wait <= 0 {
		t.Error("who has a second must wait")
	}
}

// When the handlers hang, refusals come at once.
func TestQueueInAHang(t *testing.T) {
	for name, o := range map[string]stint.GateOptions{"fixed": {Limit: 20}, "learned": {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o, 20, constant(10*time.Millisecond))
			w.phase(1000, 2*time.Second, due(200*time.Millisecond))
			w.work = func() time.Duration { return 24 * time.Hour }
			w.phase(1000, time.Second, due(200*time.Millisecond))
			clear(w.visitors)
			w.visitors = w.visitors[:0]
			w.load(1000, 2*time.Second, due(200*time.Millisecond))
			w.run(2 * time.Second)
			slow, let := 0, 0
			for _, v := range w.visitors {
				if v.in {
					let++
				} else if v.ended != v.came {
					slow++
				}
			}
			if slow > len(w.visitors)/30 { // a learned limit lets a few more in each second: it could be streams
				t.Errorf("%d of %d were not refused at once", slow, len(w.visitors))
			}
			if let > 40 {
				t.Errorf("%d went into a handler that hangs", let)
			}
		})
	}
}

// The order is class, first tries, deadline; in a FIFO that of the arrivals.
func TestQueueOrder(t *testing.T) {
	hops := []stint.Hop{
		{Class: stint.CriticalPlus, Remaining: 9 * time.Second},
		{Class: stint.CriticalPlus, Remaining: 5 * time.Second, Attempt: 2},
		{Class: stint.Critical, Remaining: 6 * time.Second, Attempt: 1},
		{Remaining: 7 * time.Second}, // unset is critical, and not a retry
		{Class: stint.Critical, Remaining: 8 * time.Second},
		{Class: stint.Critical, Remaining: 5 * time.Second, Attempt: 3},
		{Attempt: 2, Remaining: 6 * time.Second},
		{Class: stint.SheddablePlus, Remaining: 5 * time.Second},
		{Class: stint.SheddablePlus, Remaining: 6 * time.Second},
		{Class: stint.Sheddable, Remaining: 5 * time.Second},
		{Class: stint.Sheddable, Remaining: 4 * time.Second, Attempt: 2},
		{Class: stint.Sheddable, Remaining: 5 * time.Second, Attempt: 2},
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		for _, fifo := range []bool{false, true} {
			c := newController(t, stint.GateOptions{Limit: 1, FIFO: fifo})
			now := steady(c, 1, time.Millisecond)
			c.Arrive(now, stint.Hop{Remaining: time.Hour}, nil)
			came := r.Perm(len(hops))
			for _, i := range came {
				if _, wait, reason := c.Arrive(now, hops[i], i); wait <= 0 {
					t.Fatalf("%+v does not wait: %v", hops[i], reason)
				}
			}
			var called []int
			for range hops {
				if who, _, ok := c.Next(now); ok {
					t.Fatalf("%v was called without a place", who)
				}
				now = now.Add(time.Millisecond)
				c.Done(now, time.Millisecond)
				who, start, ok := c.Next(now)
				if !start || !ok {
					t.Fatal("nobody was called")
				}
				called = append(called, who.(int))
			}
			want := came
			if !fifo {
				want = slices.Sorted(slices.Values(came))
			}
			if !slices.Equal(called, want) {
				t.Fatalf("fifo %v: called %v, want %v", fifo, called, want)
			}
		}
	}
}

func served(w *world, which func(*visitor) bool) (share float64, of int) {
	good := 0
	for _, v := range w.visitors {
		if which(v) {
			of++
			if v.good() {
				good++
			}
		}
	}
	return float64(good) / float64(max(of, 1)), of
}

// At twice the capacity, half of it to be shed first, the rest does not notice.
func TestCriticality(t *testing.T) {
	const c, deadline = 2000.0, 200 * time.Millisecond
	for name, o := range map[string]stint.GateOptions{"fixed": {Limit: 20}, "learned": {}} {
		for _, law := range laws[:2] {
			for seed := range uint64(4) {
				t.Run(fmt.Sprint(name, " ", law.name, " ", seed), func(t *testing.T) {
					w := newWorld(t, o, 20, law.of(10*time.Millisecond))
					w.rand = rand.New(rand.NewPCG(seed, 3))
					mixed := func(classes ...stint.Class) func() visitor {
						return func() visitor {
							return visitor{hop: stint.Hop{Remaining: deadline, Class: classes[w.rand.IntN(len(classes))]}}
						}
					}
					of := func(cl stint.Class) float64 {
						s, _ := served(w, func(v *visitor) bool { return v.hop.Class == cl })
						return s
					}
					w.phase(c/2, 2*time.Second, mixed(stint.Critical, stint.Sheddable))
					w.phase(2*c, time.Second, mixed(stint.Sheddable, stint.Critical, stint.Sheddable, stint.ClassUnset))
					w.phase(1.9*c, 3*time.Second, mixed(stint.Sheddable, stint.Critical, stint.Sheddable, stint.ClassUnset))
					w.run(time.Second)
					if a, b := of(stint.Critical), of(stint.ClassUnset); a < .99 || b < .99 {
						t.Errorf("%.4f of the critical ones and %.4f of those without a class succeed, want .99", a, b)
					}
					w.phase(4*c, 2*time.Second, mixed(stint.Sheddable, stint.SheddablePlus, stint.Critical, stint.CriticalPlus))
					w.run(time.Second)
					s, sp, cr, cp := of(stint.Sheddable), of(stint.SheddablePlus), of(stint.Critical), of(stint.CriticalPlus)
					const chance = .01
					if cp < cr || cr < sp-chance || sp < s-chance || s > .05 {
						t.Errorf("by class: %.3f %.3f %.3f %.3f: a lower one was served before a higher one", s, sp, cr, cp)
					}
				})
			}
		}
	}
}

// In one class first tries come before retries.
func TestCriticalityRetries(t *testing.T) {
	w := newWorld(t, stint.GateOptions{Limit: 20}, 20, constant(10*time.Millisecond))
	w.phase(4000, 3*time.Second, func() visitor {
		return visitor{hop: stint.Hop{Remaining: 200 * time.Millisecond, Attempt: 1 + w.rand.IntN(2)*(1+w.rand.IntN(2))}}
	})
	w.run(time.Second)
	first, _ := served(w, func(v *visitor) bool { return v.hop.Attempt == 1 })
	retry, _ := served(w, func(v *visitor) bool { return v.hop.Attempt > 1 })
	if first < .95 || retry > .1 {
		t.Errorf("%.3f of the first tries and %.3f of the retries succeed", first, retry)
	}
}

func TestNever(t *testing.T) {
	now := worldBegan
	arrive := func(c *stint.AdmissionController, n, retries int) {
		for i := range n {
			h := stint.Hop{Remaining: time.Second, Attempt: 1}
			if i < retries {
				h.Attempt = 2
			}
			c.Arrive(now, h, nil)
		}
	}
	for _, s := range []struct {
		n, retries int
		want       bool
	}{{0, 0, false}, {19, 19, false}, {20, 2, false}, {20, 3, true}, {100, 10, false}, {100, 11, true}} {
		c := newController(t, stint.GateOptions{})
		arrive(c, s.n, s.retries)
		if got := c.Never(now); got != s.want {
			t.Errorf("%d retries of %d: %v", s.retries, s.n, got)
		}
	}
	// What came is forgotten after ten seconds, whatever comes between and however
	// many spans nobody asks in.
	for _, gap := range []time.Duration{9500 * time.Millisecond, 10500 * time.Millisecond, time.Hour} {
		c := newController(t, stint.GateOptions{})
		at := now
		arrive(c, 100, 50)
		now = at.Add(3 * time.Second) // two spans are skipped
		arrive(c, 100, 0)
		if !c.Never(now) {
			t.Error("50 of 200 are not enough")
		}
		now = at.Add(gap)
		if got, want := c.Never(now), gap < 10*time.Second; got != want {
			t.Errorf("after %v: %v, want %v", gap, got, want)
		}
		now = at
	}
}

// Of the arrivals of any ten seconds no larger share is refused for load, also of
// those that waited in vain.
func TestMaxRefused(t *testing.T) {
	for _, most := range []float64{.05, .2, .5} {
		for _, rate := range []float64{2100, 3000, 6000} {
			t.Run(fmt.Sprint(most, " ", rate), func(t *testing.T) {
				w := newWorld(t, stint.GateOptions{Limit: 20, MaxRefused: most}, 20, exponential(10*time.Millisecond))
				w.load(1000, 3*time.Second, due(200*time.Millisecond))
				w.run(3 * time.Second)
				w.load(rate, 14*time.Second, due(200*time.Millisecond))
				w.run(14 * time.Second)
				type count struct{ all, refused int }
				var tenths [170]count
				waited := 0
				for _, v := range w.visitors {
					tenths[min(int(v.came.Sub(worldBegan)/(100*time.Millisecond)), 169)].all++
					if v.refused == stint.Full {
						tenths[min(int(v.ended.Sub(worldBegan)/(100*time.Millisecond)), 169)].refused++
						if v.ended != v.came {
							waited++
						}
					}
				}
				whole := 0
				for from := 0; from+100 <= len(tenths); from++ {
					var sum count
					for _, s := range tenths[from : from+100] {
						sum.all += s.all
						sum.refused += s.refused
					}
					whole += sum.refused
					// Refusals that earlier arrivals made room for may lie in a window without them.
					if got := float64(sum.refused) / float64(sum.all); got > most*1.12 {
						t.Fatalf("from %d: %.3f were refused, want at most %v", from, got, most)
					}
				}
				if whole == 0 {
					t.Error("nobody was refused")
				}
			})
		}
	}
}

// ObserveOnly refuses nobody, and tells how many it would have been.
func TestObserveOnlyCounts(t *testing.T) {
	for _, law := range laws[:3] {
		for _, times := range []float64{.5, 1.5, 3} {
			t.Run(fmt.Sprint(law.name, " ", times), func(t *testing.T) {
				share := func(observe bool) (told float64) {
					w := newWorld(t, stint.GateOptions{Limit: 20, ObserveOnly: observe}, 20, law.of(10*time.Millisecond))
					n, full := 0, 0
					for range int(times * 2000 * 5) {
						w.run(time.Duration(w.rand.ExpFloat64() / times / 2000 * float64(time.Second)))
						v := &visitor{came: w.now, hop: stint.Hop{Remaining: 200 * time.Millisecond}}
						in, wait, r := w.ctrl.Arrive(w.now, v.hop, v)
						n++
						if r == stint.Full {
							full++
						}
						switch {
						case in:
							w.begin(v)
						case observe:
							t.Fatal("it refuses or queues")
						case wait > 0:
							w.at(wait, func() {
								if _, queued := w.ctrl.Expire(w.now, v); queued {
									full++
								}
							})
						}
					}
					return float64(full) / float64(n)
				}
				refuses, observes := share(false), share(true)
				t.Logf("refused %.3f, told %.3f", refuses, observes)
				if observes < refuses*.9 || refuses == 0 && observes > 0 || refuses > 0 && observes > 4*refuses {
					t.Errorf("told %.3f, where %.3f would be refused", observes, refuses)
				}
			})
		}
	}
}

// Whatever a controller is given, it does not panic, and its counts stay sane.
func TestControllerHostileArguments(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	remaining := []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, time.Second, time.Hour, math.MaxInt64 - 1, math.MaxInt64}
	for _, o := range []*stint.GateOptions{nil, {}, {Limit: 1}, {Limit: 3, FIFO: true}, {Limit: stint.NoLimit}, {ObserveOnly: true}, {Limit: 2, MaxRefused: .1}, {MinLimit: 1, MaxLimit: 1}, {Reserve: time.Hour}} {
		c := new(stint.AdmissionController)
		if o != nil {
			c = newController(t, *o)
		}
		now := worldBegan
		for range 20000 {
			switch r.IntN(8) {
			case 0:
				now = now.Add(-time.Duration(r.IntN(int(3 * time.Second)))) // backwards
			case 1:
				now = now.Add(time.Duration(r.IntN(int(3 * time.Second))))
			}
			who := any(r.IntN(50))
			switch r.IntN(8) {
			case 0, 1, 2, 3:
				h := stint.Hop{Remaining: remaining[r.IntN(len(remaining))], Class: stint.Class(r.IntN(256)), Attempt: r.IntN(5) - 2}
				if in, wait, reason := c.Arrive(now, h, who); in && wait != 0 || !in && wait == 0 && reason == 0 || wait < 0 {
					t.Fatalf("%+v: in %v, wait %v, reason %v", h, in, wait, reason)
				}
			case 4:
				c.Done(now, []time.Duration{math.MinInt64, 0, time.Millisecond, math.MaxInt64}[r.IntN(4)])
			case 5:
				c.Expire(now, who)
			case 6:
				c.Leave(who)
			case 7:
				c.Next(now)
			}
			c.Never(now)
			if c.Running() < 0 || c.Queued() < 0 || c.Limit() < stint.NoLimit {
				t.Fatalf("running %d, queued %d, limit %d", c.Running(), c.Queued(), c.Limit())
			}
			if o != nil && o.MaxLimit != 0 && (c.Limit() < o.MinLimit || c.Limit() > o.MaxLimit) {
				t.Fatalf("limit %d", c.Limit())
			}
		}
	}
	c := newController(t, stint.GateOptions{Limit: 1})
	for range 5 {
		c.Done(worldBegan, time.Second)
	}
	c.Arrive(worldBegan, stint.Hop{Remaining: time.Second}, nil)
	if in, _, _ := c.Arrive(worldBegan, stint.Hop{Remaining: time.Second}, nil); in {
		t.Error("Done without a request made a place")
	}
	// Endless time is time enough to wait.
	if _, wait, r := c.Arrive(worldBegan, stint.Hop{Remaining: math.MaxInt64}, new(int)); wait <= 0 {
		t.Errorf("who has all the time in the world may not wait: %v", r)
	}
}
