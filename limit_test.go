package stint_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// slow is a server whose work takes 400 ms, so that long times cost few requests.
const (
	slowSlots    = 20
	slowMean     = 400 * time.Millisecond
	slowCapacity = float64(slowSlots) / .4
	slowDue      = 4 * time.Second
)

func slowWorld(t testing.TB, o stint.GateOptions, law func(time.Duration) func(*rand.Rand) time.Duration) *world {
	return newWorld(t, o, slowSlots, law(slowMean))
}

// holds checks that the world answers at least so much of c under a load of rate.
func (w *world) holds(t *testing.T, what string, rate, c, least float64, d, deadline time.Duration) {
	t.Helper()
	got := w.phase(rate, d, due(deadline)) / c
	t.Logf("%s: %.3f, limit %d", what, got, w.ctrl.Limit())
	if got < least {
		t.Errorf("%s: %.3f are answered, want %.2f at least", what, got, least)
	}
}

// The learned limit finds servers of all sizes, whatever the law of their work.
func TestLimitSizes(t *testing.T) {
	tests := []struct {
		slots          int
		mean, deadline time.Duration
		times          float64
		learn, judge   time.Duration
		least          float64
	}{
		{1, 10 * time.Millisecond, 200 * time.Millisecond, 1.5, 10 * time.Second, 60 * time.Second, .60},
		{1, 10 * time.Millisecond, 200 * time.Millisecond, 3, 10 * time.Second, 60 * time.Second, .75},
		{2, 10 * time.Millisecond, 200 * time.Millisecond, 3, 10 * time.Second, 60 * time.Second, .75},
		{20, 500 * time.Microsecond, 20 * time.Millisecond, 1.5, time.Second / 4, time.Second / 2, .92},
		{100, 50 * time.Millisecond, time.Second, 1.5, 3 * time.Second, 8 * time.Second, .75},
		{500, 50 * time.Millisecond, time.Second, 1.5, 2 * time.Second, time.Second, .75},
		{20, 2 * time.Second, 20 * time.Second, 1.5, 200 * time.Second, 600 * time.Second, .55},
		{20, 2 * time.Second, 20 * time.Second, 3, 200 * time.Second, 600 * time.Second, .55},
	}
	for _, s := range tests {
		for _, law := range laws {
			if s.slots == 500 && law.name != "exponential" {
				continue // it takes long
			}
			t.Run(fmt.Sprintf("%d slots, %v, %s, %gx", s.slots, s.mean, law.name, s.times), func(t *testing.T) {
				c := float64(s.slots) / s.mean.Seconds()
				w := newWorld(t, stint.GateOptions{}, s.slots, law.of(s.mean))
				w.phase(c/2, s.learn, due(s.deadline))
				w.phase(s.times*c, s.learn, due(s.deadline))
				w.holds(t, "goodput", s.times*c, c, s.least, s.judge, s.deadline)
			})
		}
	}
}

// Without a quiet time to learn in, the limit is found all the same.
func TestLimitColdStart(t *testing.T) {
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			w := newWorld(t, stint.GateOptions{}, 20, law.of(10*time.Millisecond))
			w.phase(6000, 5*time.Second, due(200*time.Millisecond))
			w.holds(t, "20 slots", 6000, 2000, .93, 5*time.Second, 200*time.Millisecond)

			w = newWorld(t, stint.GateOptions{}, 1, law.of(10*time.Millisecond))
			w.holds(t, "one slot at once", 300, 100, .75, 10*time.Second, 200*time.Millisecond)
			w.holds(t, "one slot", 300, 100, .80, 30*time.Second, 200*time.Millisecond)
		})
	}
}

// Hours of quiet and minutes of overload move the limit nowhere.
func TestLimitDoesNotDrift(t *testing.T) {
	for _, law := range laws[:3] {
		t.Run(law.name, func(t *testing.T) {
			for _, load := range []float64{.01, .3, .5} {
				w := slowWorld(t, stint.GateOptions{}, law.of)
				for range 6 {
					w.phase(load*slowCapacity, 10*time.Minute, due(slowDue))
				}
				if n := w.ctrl.Limit(); n > 4*slowSlots {
					t.Errorf("an hour at %v: limit %d", load, n)
				}
				w.phase(3*slowCapacity, 20*time.Second, due(slowDue))
				w.holds(t, fmt.Sprintf("3x after an hour at %v", load), 3*slowCapacity, slowCapacity, .75, 60*time.Second, slowDue)
			}
			w := slowWorld(t, stint.GateOptions{}, law.of)
			w.phase(slowCapacity/2, 20*time.Second, due(slowDue))
			w.phase(1.5*slowCapacity, 9*time.Minute, due(slowDue))
			w.holds(t, "the tenth minute of 1.5x", 1.5*slowCapacity, slowCapacity, .80, time.Minute, slowDue)
			if n := w.ctrl.Limit(); n > 2*slowSlots {
				t.Errorf("ten minutes of overload: limit %d", n)
			}
		})
	}
}

// A load that grows slowly does not take the baseline along, however much room the
// limit leaves: this server once had ten times as many slots.
func TestLimitSlowRamp(t *testing.T) {
	for _, law := range laws[:3] {
		t.Run(law.name, func(t *testing.T) {
			w := newWorld(t, stint.GateOptions{}, 10*slowSlots, law.of(slowMean))
			w.phase(12*slowCapacity, 20*time.Second, due(slowDue))
			limit := w.ctrl.Limit()
			w.phase(slowCapacity/2, 20*time.Second, due(slowDue))
			w.slots = slowSlots
			for load := .5; load < 1.2; load += .01 {
				w.phase(slowCapacity*load, 4*time.Second, due(slowDue))
			}
			w.holds(t, fmt.Sprintf("after %d, at the end of the ramp", limit), 1.2*slowCapacity, slowCapacity, .75, 40*time.Second, slowDue)
		})
	}
}

// One probe can't tell slow work from a capacity that is far below the limit.
func TestLimitSmallAtOnce(t *testing.T) {
	for _, law := range laws[:3] {
		t.Run(law.name, func(t *testing.T) {
			w := newWorld(t, stint.GateOptions{}, 20, law.of(10*time.Millisecond))
			w.phase(1400, 15*time.Second, due(200*time.Millisecond))
			w.slots = 4
			w.phase(1400, 5*time.Second, due(200*time.Millisecond))
			w.holds(t, "five seconds later", 1400, 400, .85, 5*time.Second, 200*time.Millisecond)
		})
	}
}

// Slow work shows late what a limit does, and the limit waits for it.
func TestLimitWaitsForItsEffect(t *testing.T) {
	const slots = 400
	w := newWorld(t, stint.GateOptions{MaxLimit: 4000}, slots, constant(2*time.Second))
	w.phase(5, 100*time.Second, due(20*time.Second))
	most := 0
	for range 60 {
		w.phase(1.5*slots/2, time.Second, due(20*time.Second))
		most = max(most, w.ctrl.Running())
	}
	t.Logf("%d at most, limit %d", most, w.ctrl.Limit())
	if most > 3*slots {
		t.Errorf("%d ran at once in %d slots", most, slots)
	}
}

// Irregular work makes no probe believe too much, whatever the dice say.
func TestLimitIrregularWork(t *testing.T) {
	for seed := range uint64(8) {
		w := slowWorld(t, stint.GateOptions{}, exponential)
		w.rand = rand.New(rand.NewPCG(seed+1, 2))
		w.phase(slowCapacity/2, 20*time.Second, due(slowDue))
		worst := math.Inf(1)
		for range 12 {
			worst = min(worst, w.phase(1.5*slowCapacity, 50*time.Second, due(slowDue))/slowCapacity)
		}
		t.Logf("at worst %.3f in 50 s", worst)
		if worst < .65 {
			t.Errorf("seed %d: %.3f for 50 s", seed, worst)
		}
	}
}

// After each kind of trouble the limit finds back by itself.
func TestLimitRecovers(t *testing.T) {
	const c, deadline = 500.0, 800 * time.Millisecond
	for _, law := range laws[:3] {
		made := func(t *testing.T) *world {
			w := newWorld(t, stint.GateOptions{}, 20, law.of(40*time.Millisecond))
			w.phase(.5*c, 3*time.Second, due(deadline))
			return w
		}
		after := func(t *testing.T, w *world) {
			t.Helper()
			w.phase(.7*c, 5*time.Second, due(deadline))
			w.holds(t, "five seconds later", .7*c, .7*c, .60, 5*time.Second, deadline)
			w.phase(3*c, 2*time.Second, due(deadline))
			w.holds(t, "in the next overload", 3*c, c, .80, 5*time.Second, deadline)
		}
		t.Run(law.name+" overload", func(t *testing.T) {
			for _, times := range []float64{1.5, 3} {
				w := made(t)
				w.phase(times*c, 5*time.Second, due(deadline))
				after(t, w)
			}
		})
		for _, load := range []float64{.15, .7} { // possible in both states, and not
			t.Run(fmt.Sprintf("%s slow work at %v", law.name, load), func(t *testing.T) {
				w := made(t)
				fast := w.work
				w.work = func() time.Duration { return 5 * fast() }
				w.phase(load*c, 10*time.Second, due(2*deadline))
				expect := min(load*c, c/5)
				w.holds(t, "while it is slow", load*c, expect, .85, 50*time.Second, 2*deadline)
				w.work = fast
				after(t, w)
			})
		}
		t.Run(law.name+" a fifth of the capacity", func(t *testing.T) {
			w := made(t)
			w.slots = 4
			w.phase(.7*c, 10*time.Second, due(deadline))
			w.holds(t, "while it is small", .7*c, c/5, .85, 20*time.Second, deadline)
			w.slots = 20
			w.fill()
			after(t, w)
		})
		t.Run(law.name+" quick failures", func(t *testing.T) {
			w := made(t)
			w.phase(3*c, 10*time.Second, func() visitor {
				v := visitor{hop: stint.Hop{Remaining: deadline}}
				if w.rand.Float64() < .9 {
					v.service, v.silent = 100*time.Microsecond, true
				}
				return v
			})
			after(t, w)
		})
	}
}

// Streams that nobody has told about hold places, and neither take the limit down
// nor lock the others out.
func TestLimitWithStreams(t *testing.T) {
	const c, deadline = 500.0, 800 * time.Millisecond
	for _, law := range laws[:3] {
		for _, load := range []float64{.6, .8, 1.5} {
			t.Run(fmt.Sprintf("%s at %v", law.name, load), func(t *testing.T) {
				w := newWorld(t, stint.GateOptions{}, 20, law.of(40*time.Millisecond))
				w.phase(.5*c, 3*time.Second, due(deadline))
				make := func() visitor {
					v := visitor{hop: stint.Hop{Remaining: deadline}}
					if w.rand.Float64() < 50/30./(load*c) { // 50 at once, of 30 s each
						v.stream, v.hop.Remaining = 30*time.Second, time.Minute
					}
					return v
				}
				got := w.phase(load*c, 80*time.Second, make) / c
				t.Logf("goodput %.3f, limit %d", got, w.ctrl.Limit())
				if want := .85 * min(load, 1); got < want {
					t.Errorf("%.3f of C are answered, want %.2f", got, want)
				}
			})
		}
	}
}

// When streams hold every place and nothing ends, a few more are let in, and those
// who wait already are called.
func TestLimitBelowTheStreams(t *testing.T) {
	c, err := stint.GateOptions{MinLimit: 4, MaxLimit: 100}.Controller()
	if err != nil {
		t.Fatal(err)
	}
	now := worldBegan
	for range 200 { // it learns that requests take 1 ms
		c.Arrive(now, stint.Hop{Remaining: time.Second}, nil)
		now = now.Add(time.Millisecond)
		c.Done(now, time.Millisecond)
	}
	limit := c.Limit()
	for range limit {
		if in, _, _ := c.Arrive(now, stint.Hop{Remaining: time.Hour}, nil); !in {
			t.Fatal("a stream found no place")
		}
	}
	waits := new(int)
	if _, wait, _ := c.Arrive(now, stint.Hop{Remaining: time.Minute}, waits); wait <= 0 {
		t.Fatal("it does not wait")
	}
	if _, _, ok := c.Next(now); ok {
		t.Fatal("it was called without a place")
	}
	now = now.Add(1500 * time.Millisecond)
	c.Arrive(now, stint.Hop{Remaining: time.Minute}, new(int))
	if who, start, ok := c.Next(now); !ok || !start || who != any(waits) {
		t.Errorf("got %v, %v, %v: who waited is not called when the limit grows", who, start, ok)
	}
	if n := c.Limit(); n <= limit || n > limit+8 {
		t.Errorf("limit %d after %d", n, limit)
	}
}

func TestLimitBounds(t *testing.T) {
	for name, o := range map[string]stint.GateOptions{"floor": {MinLimit: 40, MaxLimit: 60}, "ceiling": {MinLimit: 2, MaxLimit: 8}, "fixed": {Limit: 20}} {
		t.Run(name, func(t *testing.T) {
			low, high := o.MinLimit, o.MaxLimit
			if o.Limit != 0 {
				low, high = o.Limit, o.Limit
			}
			w := newWorld(t, o, 20, exponential(40*time.Millisecond))
			for _, rate := range []float64{200, 1000, 3000, 6000, 1000} {
				for range 20 {
					w.phase(rate, 100*time.Millisecond, due(200*time.Millisecond))
					if n := w.ctrl.Limit(); n < low || n > high {
						t.Fatalf("limit %d at %v/s, want %d to %d", n, rate, low, high)
					}
					if n := w.ctrl.Running(); n > high {
						t.Fatalf("%d run, with a limit of at most %d", n, high)
					}
				}
			}
		})
	}
}
