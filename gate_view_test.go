package stint_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// gateWith returns a view with something changed.
func gateWith(t testing.TB, g *stint.Gate, change func(*stint.GateOptions)) *stint.Gate {
	t.Helper()
	o := g.Options()
	change(&o)
	view, err := g.With(o)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// gateSet changes something of the options in force.
func gateSet(t testing.TB, g *stint.Gate, change func(*stint.GateOptions)) {
	t.Helper()
	o := g.Options()
	change(&o)
	if err := g.SetOptions(o); err != nil {
		t.Fatal(err)
	}
}

// The class of a route is the highest that a request has there, and what it has
// that names none, or is not believed.
func TestGateClass(t *testing.T) {
	const peers, strangers = stint.TrustPeers, stint.TrustDeadlineOnly
	for _, c := range []struct {
		trust              stint.Trust
		route, named, want stint.Class
	}{
		{peers, stint.ClassUnset, stint.ClassUnset, stint.ClassUnset},
		{peers, stint.ClassUnset, stint.CriticalPlus, stint.CriticalPlus},
		{peers, stint.Sheddable, stint.ClassUnset, stint.Sheddable},
		{peers, stint.Sheddable, stint.Critical, stint.Sheddable},
		{peers, stint.CriticalPlus, stint.Critical, stint.Critical},
		{peers, stint.CriticalPlus, stint.ClassUnset, stint.CriticalPlus},
		{strangers, stint.ClassUnset, stint.CriticalPlus, stint.ClassUnset},
		{strangers, stint.Sheddable, stint.CriticalPlus, stint.Sheddable},
		{strangers, stint.CriticalPlus, stint.Sheddable, stint.CriticalPlus},
	} {
		var rec stinttest.Recorder
		a := gateAdmit(t, gateNew(t, stint.GateOptions{Trust: c.trust, Class: c.route, Observer: &rec}), t.Context(), stint.Hop{Class: c.named})
		if got, event := a.Hop().Class, rec.Events(stint.GateEntered)[0].Class; got != c.want || event != c.want || a.Trust() != c.trust {
			t.Errorf("%+v: class %v, in the event %v", c, got, event)
		}
		a.Finish(gateOK)
	}
	if _, err := stint.NewGate("shop", &stint.GateOptions{Class: 5}); err == nil || !strings.Contains(err.Error(), "Class is 5: must be Sheddable") {
		t.Errorf("%v", err)
	}
}

// Each view decides by its own numbers, and all have the same places.
func TestGateWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec, other stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Limit: 2, Reserve: stint.NoReserve, Observer: &rec})
		view := gateWith(t, g, func(o *stint.GateOptions) {
			o.DefaultTimeout, o.MaxTimeout, o.MinUseful, o.Reserve = time.Second, 2*time.Second, 100*gateTick, 10*gateTick
			o.Observer = &other
		})
		for _, c := range []struct {
			gate       *stint.Gate
			said, want time.Duration
		}{{g, 0, 10 * time.Second}, {view, 0, time.Second}, {g, time.Minute, 30 * time.Second}, {view, time.Minute, 2 * time.Second},
			{view.Exempt(), time.Minute, 2 * time.Second}, {view.WithTrust(stint.TrustPeers), time.Minute, 2 * time.Second}} {
			a := gateAdmit(t, c.gate, t.Context(), stint.Hop{Remaining: c.said})
			if left := time.Until(a.Deadline()); left != c.want {
				t.Errorf("%v said: %v left, want %v", c.said, left, c.want)
			}
			if ends, _ := a.Context().Deadline(); c.gate == view && a.Deadline().Sub(ends) != 10*gateTick {
				t.Errorf("the reserve is %v", a.Deadline().Sub(ends))
			}
			a.Finish(gateOK)
		}
		gateRefused(t, view, t.Context(), stint.Hop{Remaining: 99 * gateTick}, stint.NoTime)
		if n, m := len(rec.Events(stint.GateEntered)), len(other.Events(stint.GateEntered)); n != 2 || m != 5 {
			t.Errorf("%d and %d events, want 2 and 5", n, m)
		}
		a, b := gateAdmit(t, g, t.Context(), stint.Hop{Remaining: 99 * gateTick}), gateAdmit(t, view, t.Context(), stint.Hop{})
		gateRefused(t, g, t.Context(), gateBrief, stint.Full)
		start := time.Now()
		gateRefused(t, view, t.Context(), stint.Hop{Remaining: 100 * gateTick}, stint.Full)
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v, though what is useful leaves nothing to wait", took)
		}
		observed := gateWith(t, g, func(o *stint.GateOptions) { o.ObserveOnly = true })
		c := gateAdmit(t, observed, t.Context(), gateBrief)
		late := gateAdmit(t, observed, t.Context(), stint.Hop{Remaining: -1})
		if n := view.Running(); n != 4 {
			t.Errorf("%d run, want 4", n)
		}
		empty := view.Drain()
		gateRefused(t, g, t.Context(), stint.Hop{}, stint.Draining)
		for _, a := range []*stint.Admission{a, b, c, late} {
			a.Finish(gateOK)
		}
		if !gateEmpty(empty) {
			t.Error("not empty")
		}
	})
}

// How long a request may wait depends on what its view keeps back: three quarters of
// what is left beyond that and 1 ms.
func TestGateWithReserve(t *testing.T) {
	for reserve, want := range map[time.Duration]time.Duration{
		stint.NoReserve: 74250 * time.Microsecond,
		time.Second:     55500 * time.Microsecond, // a quarter of the time at most
	} {
		synctest.Test(t, func(t *testing.T) {
			g := gateNew(t, stint.GateOptions{Limit: 1})
			view := gateWith(t, g, func(o *stint.GateOptions) { o.Reserve = reserve })
			inside := gateAdmit(t, g, t.Context(), stint.Hop{})
			start := time.Now()
			gateRefused(t, view, t.Context(), stint.Hop{Remaining: 100 * gateTick}, stint.Full)
			if took := time.Since(start); took != want {
				t.Errorf("refused after %v, want %v", took, want)
			}
			inside.Finish(gateOK)
		})
	}
}

// The door's part of the options is the Gate's alone.
func TestGateWithRefuses(t *testing.T) {
	g := gateNew(t, stint.GateOptions{MaxLimit: 50})
	before := g.Options()
	view := gateWith(t, g, func(*stint.GateOptions) {})
	for want, change := range map[string]func(*stint.GateOptions){
		"Limit is 5: must be 0":                      func(o *stint.GateOptions) { o.Limit, o.MinLimit, o.MaxLimit = 5, 0, 0 },
		"MinLimit is 9: must be 4":                   func(o *stint.GateOptions) { o.MinLimit = 9 },
		"MaxLimit is 1000: must be 50":               func(o *stint.GateOptions) { o.MaxLimit = 0 },
		"FIFO is true: must be false":                func(o *stint.GateOptions) { o.FIFO = true },
		"MaxRefused is 0.5: must be 1":               func(o *stint.GateOptions) { o.MaxRefused = .5 },
		"LongLimit is 7: must be 256":                func(o *stint.GateOptions) { o.LongLimit = 7 },
		"LongTimeout is 2h0m0s: must be 1h0m0s":      func(o *stint.GateOptions) { o.LongTimeout = 2 * time.Hour },
		"MinUseful is -1ns: must not be negative":    func(o *stint.GateOptions) { o.MinUseful = -1 },
		"DefaultTimeout 1m0s is above MaxTimeout 1s": func(o *stint.GateOptions) { o.MaxTimeout, o.DefaultTimeout = time.Second, time.Minute },
	} {
		o := g.Options()
		change(&o)
		if _, err := g.With(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("With: %v, want %q", err, want)
		}
		if err := view.SetOptions(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SetOptions of a view: %v, want %q", err, want)
		}
		if g.Options() != before || view.Options() != before {
			t.Fatalf("after a refusal: %+v and %+v", g.Options(), view.Options())
		}
	}
	if err := g.SetOptions(stint.GateOptions{Limit: -2, MaxRefused: 2}); err == nil || g.Options() != before ||
		!strings.Contains(err.Error(), "Limit is -2") || !strings.Contains(err.Error(), "MaxRefused is 2") {
		t.Errorf("SetOptions: %v, and then %+v", err, g.Options())
	}
	var unmade stint.Gate
	if _, err := unmade.With(stint.GateOptions{}); err == nil || unmade.SetOptions(stint.GateOptions{}) == nil {
		t.Error("a Gate that NewGate did not make has options")
	}
	if unmade.Options() != (stint.GateOptions{}) || unmade.LongRunning().IsLongRunning() != true {
		t.Errorf("%+v", unmade.Options())
	}
}

// Views keep what is theirs, and get what is the door's.
func TestGateSetOptionsAndViews(t *testing.T) {
	g := gateNew(t, stint.GateOptions{Limit: 1})
	quick := gateWith(t, g, func(o *stint.GateOptions) { o.MaxTimeout, o.DefaultTimeout = time.Second, time.Second })
	long := g.LongRunning()
	shorter := gateWith(t, long, func(o *stint.GateOptions) { o.MaxTimeout, o.DefaultTimeout = 10*time.Minute, time.Minute })
	same := gateWith(t, long, func(o *stint.GateOptions) { o.MaxTimeout, o.DefaultTimeout = 0, 0 })
	probes := long.Exempt()
	gateSet(t, g, func(o *stint.GateOptions) {
		o.MaxTimeout, o.DefaultTimeout, o.Limit, o.LongLimit, o.LongTimeout, o.Trust = time.Minute, time.Minute, 3, 7, 5*time.Minute, stint.TrustPeers
	})
	for name, c := range map[string]struct {
		gate       *stint.Gate
		none, most time.Duration
		limit      int
		long       bool
	}{
		"the Gate":  {g, time.Minute, time.Minute, 3, false},
		"quick":     {quick, time.Second, time.Second, 3, false},
		"long":      {long, 5 * time.Minute, 5 * time.Minute, 7, true},
		"shorter":   {shorter, time.Minute, 5 * time.Minute, 7, true},
		"same":      {same, 5 * time.Minute, 5 * time.Minute, 7, true},
		"of a view": {long.WithTrust(stint.TrustPeers), 5 * time.Minute, 5 * time.Minute, 7, true},
		"probes":    {probes, time.Hour, time.Hour, stint.NoLimit, false},
	} {
		o := c.gate.Options()
		if o.DefaultTimeout != c.none || o.MaxTimeout != c.most || o.Limit != 3 || o.LongLimit != 7 || o.LongTimeout != 5*time.Minute ||
			c.gate.Limit() != c.limit || c.gate.IsLongRunning() != c.long {
			t.Errorf("%s: limit %d, %+v", name, c.gate.Limit(), o)
		}
		a := gateAdmit(t, c.gate, t.Context(), stint.Hop{})
		if left := time.Until(a.Deadline()); left > c.none || left < c.none-time.Second {
			t.Errorf("%s: %v left, want %v", name, left, c.none)
		}
		a.Finish(gateOK)
	}
	if quick.Options().Trust != stint.TrustDeadlineOnly || g.Options().Trust != stint.TrustPeers {
		t.Error("a view's trust is its own")
	}
	gateSet(t, quick, func(o *stint.GateOptions) { o.MinUseful = 50 * gateTick })
	if g.Options().MinUseful != gateTick || quick.Options().MinUseful != 50*gateTick {
		t.Errorf("%v and %v", g.Options().MinUseful, quick.Options().MinUseful)
	}
	gateRefused(t, quick, t.Context(), stint.Hop{Remaining: 49 * gateTick}, stint.NoTime)
	gateSet(t, long, func(o *stint.GateOptions) { o.MinUseful = 2 * gateTick }) // it goes on following
	gateSet(t, g, func(o *stint.GateOptions) { o.LongTimeout = 2 * time.Hour })
	if d, e := long.Options().MaxTimeout, shorter.Options().MaxTimeout; d != 2*time.Hour || e != 10*time.Minute {
		t.Errorf("long %v, shorter %v", d, e)
	}
}

// Who runs or waits is not touched; where the limit grows, they come in at once.
func TestGateSetOptionsUnderLoad(t *testing.T) {
	for _, limit := range []int{3, stint.NoLimit, 1} {
		synctest.Test(t, func(t *testing.T) {
			var first, second stinttest.Recorder
			g := gateNew(t, stint.GateOptions{Limit: 1, Observer: &first})
			inside := gateAdmit(t, g, t.Context(), stint.Hop{})
			var in atomic.Int64
			release := make(chan struct{})
			for range 4 {
				go func() {
					a := new(stint.Admission)
					if g.Admit(t.Context(), stint.Hop{Remaining: 5 * time.Second}, a) == nil {
						in.Add(1)
						<-release
						a.Finish(gateOK)
					}
				}()
			}
			synctest.Wait()
			gateSet(t, g, func(o *stint.GateOptions) { o.Limit, o.Observer = limit, &second })
			synctest.Wait()
			want := map[int]int64{3: 2, stint.NoLimit: 4, 1: 0}[limit]
			if in.Load() != want || g.Queued() != 4-int(want) || g.Running() != 1+int(want) || g.Limit() != limit {
				t.Errorf("limit %d: %d came in, %d wait, %d run, want %d in", limit, in.Load(), g.Queued(), g.Running(), want)
			}
			gateSet(t, g, func(o *stint.GateOptions) { o.Limit, o.Observer = 1, nil }) // fewer: none is thrown out
			if g.Running() != 1+int(want) {
				t.Errorf("%d run", g.Running())
			}
			inside.Finish(gateOK)
			close(release)
			synctest.Wait()
			if g.Running() != 0 || g.Queued() != 0 || in.Load() != 4 {
				t.Errorf("%d run, %d wait, %d came in", g.Running(), g.Queued(), in.Load())
			}
			// Each reports to whom it was admitted under.
			if n, m := len(first.Events(stint.GateLeft)), len(second.Events(stint.GateLeft)); n != 5 || m != 0 {
				t.Errorf("%d and %d left", n, m)
			}
		})
	}
}

// A limit that is learned goes on from where it is.
func TestGateSetOptionsKeepsWhatIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{})
		// crowd has twice as many as the limit ask, at a service that is never slow.
		crowd := func(d time.Duration) {
			end := time.Now().Add(d)
			var all sync.WaitGroup
			for range 2 * g.Limit() {
				all.Go(func() {
					for time.Now().Before(end) {
						a := new(stint.Admission)
						if g.Admit(t.Context(), stint.Hop{}, a) == nil {
							time.Sleep(10 * gateTick)
							a.Finish(gateOK)
						}
					}
				})
			}
			all.Wait()
		}
		crowd(time.Second)
		learned := g.Limit()
		if learned <= 16 {
			t.Fatalf("it has learned %d", learned)
		}
		for _, s := range []struct {
			name            string
			limit, min, max int
			want            int
		}{
			{"nothing changes", 0, 4, 1000, learned},
			{"a wider range", 0, 2, 2000, learned},
			{"a lower one", 0, 2, 20, 20},
			{"wider again", 0, 2, 1000, 20},
			{"a higher one", 0, 30, 1000, 30},
			{"fixed", 7, 0, 0, 7},
			{"learned, from there", 0, 2, 1000, 7},
			{"fixed again", 7, 0, 0, 7},
			{"learned, from above it", 0, 40, 1000, 40},
			{"none", stint.NoLimit, 0, 0, stint.NoLimit},
			{"learned, from none", 0, 4, 1000, 16},
		} {
			gateSet(t, g, func(o *stint.GateOptions) { o.Limit, o.MinLimit, o.MaxLimit = s.limit, s.min, s.max })
			if g.Limit() != s.want {
				t.Errorf("%s: the limit is %d, want %d", s.name, g.Limit(), s.want)
			}
		}
		crowd(2 * time.Second)
		if g.Limit() <= 16 {
			t.Errorf("the limit is still %d: it does not learn any more", g.Limit())
		}
	})
	// A Gate that was made with a fixed limit learns as any other.
	synctest.Test(t, func(t *testing.T) {
		g := gateNew(t, stint.GateOptions{Limit: 5})
		gateSet(t, g, func(o *stint.GateOptions) { o.Limit = 0 })
		if g.Limit() != 5 || g.Options().MinLimit != 4 {
			t.Errorf("limit %d", g.Limit())
		}
	})
}

// Those who wait keep their turn when the order changes.
func TestGateSetOptionsFIFO(t *testing.T) {
	for _, fifo := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := gateNew(t, stint.GateOptions{Limit: 1, FIFO: fifo, Trust: stint.TrustPeers})
			inside := gateAdmit(t, g, t.Context(), stint.Hop{})
			var order []string
			wait := func(name string, c stint.Class, left time.Duration) {
				go func() {
					a := gateAdmit(t, g, t.Context(), stint.Hop{Class: c, Remaining: left})
					order = append(order, name)
					a.Finish(gateOK)
				}()
				synctest.Wait()
			}
			wait("1", stint.Sheddable, 20*time.Second)
			wait("2", stint.Sheddable, 25*time.Second)
			gateSet(t, g, func(o *stint.GateOptions) { o.FIFO = !fifo })
			wait("3", stint.Critical, 10*time.Second)
			wait("4", stint.CriticalPlus, 10*time.Second)
			inside.Finish(gateOK)
			synctest.Wait()
			want := []string{"1", "2", "4", "3"}
			if !fifo {
				want = []string{"1", "2", "3", "4"}
			}
			if !slices.Equal(order, want) {
				t.Errorf("from FIFO %v: %v, want %v", fifo, order, want)
			}
		})
	}
}

// Admit and Finish, on the Gate and its views, while the options change.
func TestGateSetOptionsRaces(t *testing.T) {
	var rec counting
	g := gateNew(t, stint.GateOptions{Limit: 2, Observer: &rec})
	views := []*stint.Gate{g, g, g.LongRunning(), g.Exempt(), g.WithTrust(stint.TrustPeers), gateWith(t, g, func(o *stint.GateOptions) { o.MinUseful = 2 * gateTick })}
	var load, setting sync.WaitGroup
	done := make(chan struct{})
	setting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			o := stint.GateOptions{Limit: []int{0, 1, 3, stint.NoLimit}[i%4], FIFO: i%3 == 0, MaxRefused: []float64{0, .5}[i%2],
				LongTimeout: time.Duration(1+i%2) * time.Hour, Class: stint.Class(i % 5), ObserveOnly: i%7 == 0, Logger: slog.New(slog.DiscardHandler)}
			if i%2 == 0 {
				o.Observer = &rec
			}
			if err := g.SetOptions(o); err != nil {
				t.Error(err)
			}
			o = views[i%len(views)].Options()
			views[5].SetOptions(o) // may fail where it is the LongRunning's, with a MaxTimeout above LongTimeout
			g.With(o)
			g.Limit()
		}
	})
	for i := range 8 {
		load.Go(func() {
			for n := range 400 {
				a := new(stint.Admission)
				ctx, cancel := context.WithCancel(context.Background())
				if n%5 == 0 {
					cancel()
				}
				if views[(i+n)%len(views)].Admit(ctx, stint.Hop{Remaining: time.Duration(1+n%40) * gateTick}, a) == nil {
					a.Finish(gateOK)
				}
				cancel()
			}
		})
	}
	load.Wait()
	close(done)
	setting.Wait()
	if g.Running() != 0 || g.Queued() != 0 || g.LongRunning().Running() != 0 {
		t.Errorf("%d run, %d wait, %d last", g.Running(), g.Queued(), g.LongRunning().Running())
	}
	if rec.entered.Load() != rec.left.Load() || rec.left.Load() == 0 {
		t.Errorf("%d were told to have come in, and %d to have left", rec.entered.Load(), rec.left.Load())
	}
	gateSet(t, g, func(o *stint.GateOptions) { *o = stint.GateOptions{Limit: 2, Logger: o.Logger} })
	gatePlaces(t, g, 2)
	if !gateEmpty(g.Drain()) {
		t.Error("not empty")
	}
}

// counting counts those who came in and left.
type counting struct {
	stinttest.Recorder
	entered, left atomic.Int64
}

func (c *counting) Observe(_ context.Context, e stint.Event) {
	switch {
	case e.Kind == stint.GateLeft:
		c.left.Add(1)
	case e.Kind == stint.GateEntered && (e.Reason == 0 || e.Observed):
		c.entered.Add(1)
	}
}
