package policy

import (
	"fmt"
	"time"
)

// A Slice is a part of one request's time.
type Slice struct {
	// Name is a dependency, or what Kind says.
	Name string
	// Start and End count from the request's arrival at the service asked for.
	Start, End time.Duration
	// Level is 0 for the service asked for, 1 for what it calls, and so on.
	Level int
	// Kind is local (its own work), call, contingency (nobody's) or reserve (kept
	// back for the answer).
	Kind string
}

// The kinds of Slice besides Local and Contingency.
const (
	Call    = "call"
	Reserve = "reserve"
)

// deepest is how many levels of calls Spend follows: more do not fit a screen.
const deepest = 4

// Spend returns how a request that brings no deadline spends its time at most, by
// the numbers of the files: own work first, then the calls in the order of the
// file, those at the same time at once, then what belongs to nobody, then the
// reserve. A call to a service of the graph is followed by that one's own slices,
// cut at what one attempt is granted; four levels deep, and not around circles.
// A call that has no number lasts until the reserve begins. Nil for a service
// that the graph does not have.
func (g *Graph) Spend(service string) []Slice {
	f := g.files[service]
	if f == nil {
		return nil
	}
	limit := callDefault
	if f.Entry != nil {
		limit = f.Entry.deadline()
	}
	s := &spending{g: g, open: map[*File]bool{}}
	s.service(f, 0, limit, 0)
	return s.slices
}

type spending struct {
	g      *Graph
	slices []Slice
	open   map[*File]bool // being followed
}

func (s *spending) add(name, kind string, start, end time.Duration, level int) {
	if end > start {
		s.slices = append(s.slices, Slice{name, start, end, level, kind})
	}
}

// service spends the time from start to limit.
func (s *spending) service(f *File, start, limit time.Duration, level int) {
	s.open[f] = true
	defer delete(s.open, f)
	end := limit
	if f.Entry != nil {
		end -= min(f.Entry.Reserve, (limit-start)/4)
	}
	at := min(plus(start, f.LatencyBudget[Local]), end)
	s.add(Local, Local, start, at, level)
	for _, stage := range f.stages() {
		next := at
		for _, name := range stage {
			next = max(next, s.call(f, name, at, end, level))
		}
		at = next
	}
	if f.LatencyBudget != nil {
		s.add(Contingency, Contingency, at, end, level)
	}
	s.add(Reserve, Reserve, end, limit, level)
}

// call spends the time of the calls to one dependency, and returns their end.
func (s *spending) call(f *File, name string, start, limit time.Duration, level int) time.Duration {
	end, title := limit, name
	if all := f.callTime(name); all > 0 {
		end = min(plus(start, all), limit)
	}
	if n := f.inTurn(name); n > 1 {
		title = fmt.Sprintf("%s, %d times", name, n)
	}
	s.add(title, Call, start, end, level)
	e := &call{Edge: s.g.edge(f, name), d: f.Dependencies[name], timeout: f.Timeout(name)}
	if to := e.To; to != nil && !s.open[to] && level+1 < deepest {
		granted := end
		if e.grant() > 0 {
			granted = min(plus(start, e.grant()), end)
		}
		if granted > start {
			s.service(to, start, granted, level+1)
		}
	}
	return end
}
