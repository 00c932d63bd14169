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
	calls     int
	cpu, wall time.Duration
	allocs    uint64
	bytes     uint64
}

func (s *spent) add(o spent) {
	s.calls += o.calls
	s.cpu += o.cpu
	s.wall += o.wall
	s.allocs += o.allocs
	s.bytes += o.bytes
}

func (s spent) per(v float64) float64 { return v / float64(s.calls) }

// turn is how much CPU one side of a pair uses before it is the other's turn: much for the clocks, little for
// whatever else the machine does.
const turn = 5 * time.Millisecond

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

// fill finds how many calls fill a turn, and warms up what they use.
func fill(call func() error) (int, error) {
	for n := 1; ; n *= 2 {
		s, err := timed(call, n)
		if err != nil {
			return 0, err
		}
		if s.cpu >= turn/2 {
			return max(1, int(float64(n)*float64(turn)/float64(s.cpu))), nil
		}
	}
}

// pair lets two subjects do the work by turns for so long. Who begins changes each time.
func pair(a, b subject, each time.Duration) (as, bs spent, err error) {
	sides := [2]struct {
		subject
		n     int
		spent *spent
	}{{subject: a, spent: &as}, {subject: b, spent: &bs}}
	for i := range sides {
		if sides[i].n, err = fill(sides[i].call); err != nil {
			return as, bs, fmt.Errorf("%s: %w", sides[i].name, err)
		}
	}
	runtime.GC()
	for i, end := 0, time.Now().Add(each); i < 2 || time.Now().Before(end); i++ {
		for j := range sides {
			side := &sides[(i+j)%2]
			s, err := timed(side.call, side.n)
			if err != nil {
				return as, bs, fmt.Errorf("%s: %w", side.name, err)
			}
			side.spent.add(s)
		}
	}
	return as, bs, nil
}

// A row is what a subject costs beside the yardstick that ran by turns with it.
type row struct {
	Subject string `json:"subject"`
	CPU     figure `json:"cpu"`    // as a multiple of the yardstick's
	Wall    figure `json:"wall"`   // the same
	Added   figure `json:"added"`  // CPU a call beyond the yardstick's, in nanoseconds
	Nanos   figure `json:"nanos"`  // CPU a call, in nanoseconds
	Allocs  figure `json:"allocs"` // a call
	Bytes   figure `json:"bytes"`  // a call
}

// A figure is a number of each round, put together: a quarter of the rounds lie below Low, a quarter above High.
// Within a round the times are added up, so that collecting garbage counts; over the rounds it is the median, so that
// a round in which the machine was busy elsewhere does not.
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

// measure pairs every subject with the yardstick, the yardstick itself first: what that row differs from 1 is the
// error of the others. A round goes through all of them before the next one begins.
func (s *scenario) measure(o options, progress func(string, ...any)) ([]row, error) {
	subjects := append([]subject{s.yardstick}, s.others...)
	type samples struct{ cpu, wall, added, nanos, allocs, bytes []float64 }
	all := make([]samples, len(subjects))
	for round := range o.rounds {
		progress("%s: round %d of %d, %d pairs of %v", s.name, round+1, o.rounds, len(subjects), o.each)
		for i, sub := range subjects {
			a, b, err := pair(s.yardstick, sub, o.each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			x := &all[i]
			mine, theirs := b.per(float64(b.cpu)), a.per(float64(a.cpu))
			x.cpu = append(x.cpu, mine/theirs)
			x.wall = append(x.wall, b.per(float64(b.wall))/a.per(float64(a.wall)))
			x.added = append(x.added, mine-theirs)
			x.nanos = append(x.nanos, mine)
			x.allocs = append(x.allocs, b.per(float64(b.allocs)))
			x.bytes = append(x.bytes, b.per(float64(b.bytes)))
		}
	}
	var rows []row
	for i, x := range all {
		rows = append(rows, row{Subject: subjects[i].name, CPU: newFigure(x.cpu), Wall: newFigure(x.wall),
			Added: newFigure(x.added), Nanos: newFigure(x.nanos), Allocs: newFigure(x.allocs), Bytes: newFigure(x.bytes)})
	}
	return rows, nil
}
