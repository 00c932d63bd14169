package main

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// A subject is one way to do the work of a scenario. call does it once and fails unless all of it was done.
type subject struct {
	name string
	call func() error
}

// A scenario is one piece of work: the yardstick's way to do it, and the others'.
type scenario struct {
	name, title string
	yardstick   subject
	others      []subject
	close       func()
}

// spent is what some calls took, in all threads of the process.
type spent struct {
	calls         int
	cpu, wall     time.Duration
	allocs, bytes uint64
}

func (s *spent) add(o spent) {
	s.calls += o.calls
	s.cpu += o.cpu
	s.wall += o.wall
	s.allocs += o.allocs
	s.bytes += o.bytes
}

func (s spent) per(v float64) float64 { return v / float64(s.calls) }

// turn is how much CPU a subject uses before it is the next one's turn: enough for a few collections of its garbage, so
// that each pays for its own, and little for whatever else the machine does.
const turn = 40 * time.Millisecond

// timed makes n calls.
func timed(call func() error, n int) (spent, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	for range n {
		if err := call(); err != nil {
			return spent{}, err
		}
	}
	wall := time.Since(start)
	s := spent{calls: n, cpu: cpuTime() - cpu, wall: wall}
	runtime.ReadMemStats(&after) // stops the world, so it stays outside of the times
	s.allocs, s.bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return s, nil
}

// cpuTime is what the process has used so far, by user and system together.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails only for bad arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fill finds how many calls fill a turn, at the least that they took of some tries, and warms up what they use.
func fill(call func() error) (int, error) {
	for n, tries := 1, 0; ; {
		s, err := timed(call, n)
		if err != nil {
			return 0, err
		}
		if tries++; s.cpu < turn/2 {
			n, tries = 2*n, 0
		} else if tries == 5 {
			return n, nil
		}
	}
}

// turns lets the subjects work by turns, for so long for each of them: calls[i] times the one, then the next. Who begins
// changes each time. It returns what the turns of each took together, so that the collection of their garbage, which
// falls into some of them, is in it.
func turns(subjects []subject, calls []int, each time.Duration) ([]spent, error) {
	all := make([]spent, len(subjects))
	end := time.Now().Add(each * time.Duration(len(subjects)))
	for first := 0; first == 0 || time.Now().Before(end); first++ {
		for i := range subjects {
			i = (first + i) % len(subjects)
			s, err := timed(subjects[i].call, calls[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			all[i].add(s)
		}
	}
	return all, nil
}

// A row is what a subject costs beside the yardstick.
type row struct {
	Subject string `json:"subject"`
	CPU     figure `json:"cpu"`    // as a multiple of the yardstick's
	Wall    figure `json:"wall"`   // the same
	Nanos   figure `json:"nanos"`  // CPU a call, in nanoseconds
	Allocs  figure `json:"allocs"` // a call
	Bytes   figure `json:"bytes"`  // a call
}

// A figure is a number of each round, put together: a quarter of the rounds lie below Low, a quarter above High.
type figure struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func newFigure(of []float64) figure {
	s := slices.Sorted(slices.Values(of))
	last := len(s) - 1
	return figure{Median: (s[last/2] + s[len(s)/2]) / 2, Low: s[last/4], High: s[last-last/4]}
}

// measure compares every subject with the yardstick, one pair after the other, since what others leave in the caches and
// on the heap is not theirs; and first the yardstick with itself: what that row differs from 1 is the error of the others.
// Over the rounds the median counts, so that one in which the machine was busy elsewhere does not. It all runs on one
// thread: on more, a thread that looks for work uses CPU as well, and how much depends on the machine.
func (s *scenario) measure(o options, progress func(string, ...any)) ([]row, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	subjects := append([]subject{s.yardstick}, s.others...)
	base, err := fill(s.yardstick.call)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", s.name, s.yardstick.name, err)
	}
	calls := make([]int, len(subjects))
	for i, sub := range subjects {
		if calls[i], err = fill(sub.call); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.name, sub.name, err)
		}
		if calls[i] > base/8 { // the same for both, but for one that takes many times as long
			calls[i] = base
		}
	}
	type samples struct{ cpu, wall, nanos, allocs, bytes []float64 }
	all := make([]samples, len(subjects))
	for round := range o.rounds {
		progress("%s: round %d of %d, %d pairs, %v for each of both", s.name, round+1, o.rounds, len(subjects), o.each)
		for i, sub := range subjects {
			took, err := turns([]subject{s.yardstick, sub}, []int{base, calls[i]}, o.each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			one, it, x := took[0], took[1], &all[i]
			x.nanos = append(x.nanos, it.per(float64(it.cpu)))
			x.cpu = append(x.cpu, it.per(float64(it.cpu))/one.per(float64(one.cpu)))
			x.wall = append(x.wall, it.per(float64(it.wall))/one.per(float64(one.wall)))
			x.allocs = append(x.allocs, it.per(float64(it.allocs)))
			x.bytes = append(x.bytes, it.per(float64(it.bytes)))
		}
	}
	var rows []row
	for i, x := range all {
		rows = append(rows, row{Subject: subjects[i].name, CPU: newFigure(x.cpu), Wall: newFigure(x.wall),
			Nanos: newFigure(x.nanos), Allocs: newFigure(x.allocs), Bytes: newFigure(x.bytes)})
	}
	return rows, nil
}
