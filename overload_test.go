package stint_test

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// A world is a server of fixed capacity behind an AdmissionController, on virtual
// time: the handler takes one of so many slots, in the order of asking, for as
// long as its work takes, and does not notice when its caller has gone.
type world struct {
	t      testing.TB
	rand   *rand.Rand
	ctrl   *stint.AdmissionController
	now    time.Time
	events events

	slots  int
	work   func() time.Duration
	busy   int
	inside []*visitor // in the handler, waiting for a slot

	visitors []*visitor
	answered int // good answers so far
}

// A visitor is one request.
type visitor struct {
	came, began, ended time.Time
	hop                stint.Hop
	in                 bool
	refused            stint.Reason
	service            time.Duration // if not drawn
	silent             bool          // its latency is not told
	stream             time.Duration // it lasts so long, and takes no slot
}

func (v *visitor) good() bool {
	return v.in && !v.ended.IsZero() && v.ended.Sub(v.came) <= v.hop.Remaining
}

type event struct {
	at time.Time
	n  int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

var worldBegan = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(t testing.TB, o stint.GateOptions, slots int, work func(*rand.Rand) time.Duration) *world {
	t.Helper()
	c, err := o.Controller()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rand: rand.New(rand.NewPCG(1, 2)), ctrl: c, now: worldBegan, slots: slots}
	w.work = func() time.Duration { return work(w.rand) }
	return w
}

func (w *world) at(d time.Duration, do func()) {
	heap.Push(&w.events, event{w.now.Add(d), len(w.visitors) + len(w.events), do})
}

// run lets the world go on for so long.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for len(w.events) > 0 && !w.events[0].at.After(end) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

// load has requests made by make arrive at random, so many a second, for so long.
func (w *world) load(rate float64, d time.Duration, make func() visitor) {
	var at time.Duration
	for {
		at += time.Duration(w.rand.ExpFloat64() / rate * float64(time.Second))
		if at > d {
			return
		}
		v := make()
		w.at(at, func() { w.arrive(&v) })
	}
}

func (w *world) arrive(v *visitor) {
	v.came = w.now
	w.visitors = append(w.visitors, v)
	in, wait, r := w.ctrl.Arrive(w.now, v.hop, v)
	switch {
	case in:
		w.begin(v)
	case wait > 0:
		w.at(wait, func() {
			if in, queued := w.ctrl.Expire(w.now, v); in {
				w.begin(v)
			} else if queued {
				w.refuse(v, stint.Full)
			}
		})
	default:
		w.refuse(v, r)
	}
	if !in {
		w.call()
	}
}

// phase lets requests arrive for so long, and returns how many good answers a
// second were given meanwhile. It forgets the visitors before.
func (w *world) phase(rate float64, d time.Duration, make func() visitor) float64 {
	clear(w.visitors)
	w.visitors = w.visitors[:0]
	before := w.answered
	w.load(rate, d, make)
	w.run(d)
	return float64(w.answered-before) / d.Seconds()
}

func (w *world) refuse(v *visitor, r stint.Reason) { v.refused, v.ended = r, w.now }

func (w *world) begin(v *visitor) {
	v.in, v.began = true, w.now
	if v.stream > 0 {
		w.at(v.stream, func() { w.leave(v) })
		return
	}
	if w.busy < w.slots {
		w.serve(v)
		return
	}
	w.inside = append(w.inside, v)
}

func (w *world) serve(v *visitor) {
	w.busy++
	d := v.service
	if d == 0 {
		d = w.work()
	}
	w.at(d, func() {
		w.busy--
		w.fill()
		w.leave(v)
	})
}

// fill gives free slots to those who wait for one in the handler.
func (w *world) fill() {
	for len(w.inside) > 0 && w.busy < w.slots {
		next := w.inside[0]
		w.inside = w.inside[1:]
		w.serve(next)
	}
}

// leave ends a request that was in, and calls those whose turn it is.
func (w *world) leave(v *visitor) {
	v.ended = w.now
	if v.good() {
		w.answered++
	}
	took := w.now.Sub(v.began)
	if v.silent {
		took = 0
	}
	w.ctrl.Done(w.now, took)
	w.call()
}

func (w *world) call() {
	for {
		who, start, ok := w.ctrl.Next(w.now)
		if !ok {
			return
		}
		if start {
			w.begin(who.(*visitor))
		} else {
			w.refuse(who.(*visitor), stint.Full)
		}
	}
}

// good returns how many good answers a second were given to those who came between.
func (w *world) goodput(from, to time.Duration) float64 {
	n := 0
	for _, v := range w.visitors {
		if at := v.came.Sub(worldBegan); at >= from && at < to && v.good() {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}

// refusals returns how long they took, sorted.
func (w *world) refusals(from, to time.Duration) (took []time.Duration) {
	for _, v := range w.visitors {
		if at := v.came.Sub(worldBegan); at >= from && at < to && v.refused != 0 {
			took = append(took, v.ended.Sub(v.came))
		}
	}
	slices.Sort(took)
	return took
}

func constant(d time.Duration) func(*rand.Rand) time.Duration {
	return func(*rand.Rand) time.Duration { return d }
}

func exponential(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

// lognormal has this mean, and a 99.9th percentile five times as large.
func lognormal(mean time.Duration) func(*rand.Rand) time.Duration {
	const sigma = .6
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(mean) * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2))
	}
}

// bimodal has 95 % that take about half of the mean, and 5 % that take ten times as long.
func bimodal(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		if r.Float64() < .05 {
			return mean * 400 / 39
		}
		return mean * 20 / 39
	}
}

var laws = []struct {
	name string
	of   func(mean time.Duration) func(*rand.Rand) time.Duration
}{{"constant", constant}, {"exponential", exponential}, {"lognormal", lognormal}, {"bimodal", bimodal}}

func due(d time.Duration) func() visitor {
	return func() visitor { return visitor{hop: stint.Hop{Remaining: d}} }
}

// An overloaded server keeps answering at its capacity, whatever the law of its
// work: goodput stays at C, refusals come at once, and afterwards all is as before.
func TestOverloadGoodput(t *testing.T) {
	const (
		warm, over, after = 10 * time.Second, 10 * time.Second, 10 * time.Second
		slots             = 20
		mean              = 10 * time.Millisecond
		capacity          = float64(slots) / .01
	)
	for law, work := range map[string]func(*rand.Rand) time.Duration{
		"constant": constant(mean), "lognormal": lognormal(mean), "exponential": exponential(mean),
	} {
		for name, o := range map[string]stint.GateOptions{"learned": {}, "fixed": {Limit: slots}, "fifo": {Limit: slots, FIFO: true}} {
			for _, times := range []float64{1.5, 3} {
				t.Run(fmt.Sprintf("%s %s %gx", law, name, times), func(t *testing.T) {
					w := newWorld(t, o, slots, work)
					w.load(capacity/2, warm, due(200*time.Millisecond))
					w.run(warm)
					w.load(times*capacity, over, due(200*time.Millisecond))
					w.run(over)
					w.load(.8*capacity, after, due(200*time.Millisecond))
					w.run(after + time.Second)

					during, settled := w.goodput(warm, warm+over), w.goodput(warm+time.Second, warm+over)
					back := w.goodput(warm+over+time.Second, warm+over+after)
					refused := w.refusals(warm, warm+over)
					t.Logf("goodput %.3f of C, after the first second %.3f, afterwards %.3f of the load; %d refusals, median %v, 90%% %v; limit %d",
						during/capacity, settled/capacity, back/capacity/.8, len(refused), refused[len(refused)/2], refused[len(refused)*9/10], w.ctrl.Limit())
					if settled < .95*capacity || during < .95*capacity {
						t.Errorf("goodput %.3f of C, then %.3f; want at least .95", during/capacity, settled/capacity)
					}
					if back < .97*.8*capacity {
						t.Errorf("a second after the overload %.3f of what comes is answered", back/capacity/.8)
					}
					if m := refused[len(refused)/2]; m > 0 {
						t.Errorf("half of the refusals took more than %v", m)
					}
					if w.ctrl.Queued() != 0 || w.ctrl.Running() != 0 {
						t.Errorf("%d run and %d wait, with nobody there", w.ctrl.Running(), w.ctrl.Queued())
					}
				})
			}
		}
	}
}

// What is refused for load is refused, however long ago it came: at the default no
// share is too large.
func TestRefusalsThatOutliveTheirArrivals(t *testing.T) {
	c, err := stint.GateOptions{Limit: 1}.Controller()
	if err != nil {
		t.Fatal(err)
	}
	hop := stint.Hop{Remaining: 30 * time.Second}
	now := worldBegan
	c.Arrive(now, hop, "inside")
	if in, wait, _ := c.Arrive(now, hop, "queued"); in || wait == 0 {
		t.Fatal("the second does not wait")
	}
	if in, queued := c.Expire(now.Add(20*time.Second), "queued"); in || !queued {
		t.Errorf("in %v, queued %v: want it refused, though nobody arrived in the last 10 s", in, queued)
	}
}
