package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

const (
	forever      time.Duration = math.MaxInt64
	callDefault                = 10 * time.Second // of a call without timeout and without a caller's deadline
	entryDefault               = 10 * time.Second // of a request without a deadline
	entryMost                  = 30 * time.Second // of any request
)

// plus and times end at forever, where a sum would wrap.
func plus(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}

func times(d time.Duration, n int) time.Duration {
	if n > 0 && d > forever/time.Duration(n) {
		return forever
	}
	return d * time.Duration(n)
}

// dur is a duration as people write it: 1m, not 1m0s.
func dur(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// deadline is that of a request that brings none.
func (e *Entry) deadline() time.Duration {
	return cmp.Or(e.Deadline, min(entryDefault, e.maxDeadline()))
}

func (e *Entry) maxDeadline() time.Duration { return cmp.Or(e.MaxDeadline, entryMost) }

// A sum is durations that follow each other, and how it came about.
type sum struct {
	total time.Duration
	parts []string
}

func (s *sum) add(name string, d time.Duration) {
	if d > 0 {
		s.total = plus(s.total, d)
		s.parts = append(s.parts, name+" "+dur(d))
	}
}

func (s sum) String() string {
	if len(s.parts) < 2 {
		return strings.Join(s.parts, "")
	}
	return strings.Join(s.parts, " + ") + " = " + dur(s.total)
}

// stages are the dependencies in the order in which the file has them; those that
// are called at the same time are one stage.
func (f *File) stages() [][]string {
	names := sorted(f.Dependencies)
	slices.SortStableFunc(names, func(a, b string) int {
		p, q := f.At("dependencies", a), f.At("dependencies", b)
		return cmp.Or(p.Line-q.Line, p.Column-q.Column)
	})
	with := map[string][]string{}
	for _, a := range names {
		for _, b := range f.Dependencies[a].Calls.ParallelWith {
			if f.Dependencies[b] != nil && a != b {
				with[a], with[b] = append(with[a], b), append(with[b], a)
			}
		}
	}
	var stages [][]string
	done := map[string]bool{}
	for _, name := range names {
		if done[name] {
			continue
		}
		done[name] = true
		stage := []string{name}
		for i := 0; i < len(stage); i++ {
			for _, other := range with[stage[i]] {
				if !done[other] {
					done[other] = true
					stage = append(stage, other)
				}
			}
		}
		stages = append(stages, stage)
	}
	return stages
}

// spend adds the dependencies: those of one stage count as their longest.
func (s *sum) spend(f *File, of func(name string) time.Duration) {
	for _, stage := range f.stages() {
		longest := slices.MaxFunc(stage, func(a, b string) int { return cmp.Compare(of(a), of(b)) })
		name := longest
		if len(stage) > 1 {
			name = fmt.Sprintf("%s (the longest of %d at once)", longest, len(stage))
		}
		s.add(name, of(longest))
	}
}

// inTurn is how many calls of one request follow each other.
func (f *File) inTurn(dependency string) int {
	calls := f.Dependencies[dependency].Calls
	if slices.Contains(calls.ParallelWith, dependency) {
		return 1
	}
	return max(calls.PerRequest, 1)
}

// callTime is what the calls of one request to a dependency may take.
func (f *File) callTime(dependency string) time.Duration {
	return times(f.Timeout(dependency), f.inTurn(dependency))
}

// plan is what a request may take by the numbers of the file: its own work, its
// calls, the answer. What is not stated counts nothing.
func (f *File) plan() sum {
	var s sum
	s.add(Local, f.LatencyBudget[Local])
	s.spend(f, f.callTime)
	if f.Entry != nil {
		s.add("reserve", f.Entry.Reserve)
	}
	return s
}

// allocation is what latencyBudget and the reserve divide.
func (f *File) allocation() sum {
	var s sum
	s.add(Local, f.LatencyBudget[Local])
	s.spend(f, func(name string) time.Duration { return f.LatencyBudget[name] })
	for _, key := range sorted(f.LatencyBudget) {
		if f.Dependencies[key] == nil && key != Local && key != Contingency {
			s.add(key, f.LatencyBudget[key])
		}
	}
	s.add(Contingency, f.LatencyBudget[Contingency])
	if f.Entry != nil {
		s.add("reserve", f.Entry.Reserve)
	}
	return s
}

// A view is a dependency as one of its operations has it.
type view struct {
	Dependency
	f         *File
	name      string
	operation string // empty: the dependency itself
}

// views are the dependency itself, and then its operations.
func (f *File) views(name string) []view {
	var views []view
	for _, op := range append([]string{""}, sorted(f.Dependencies[name].Operations)...) {
		if d, err := f.Operation(name, op); err == nil {
			views = append(views, view{d, f, name, op})
		}
	}
	return views
}

// key is where the number stands that the view has: the operation's own, or else
// the dependency's.
func (v view) key(more ...string) []string {
	own := append([]string{"dependencies", v.name, "operations", v.operation}, more...)
	if v.operation != "" && v.f.Has(own...) {
		return own
	}
	return append([]string{"dependencies", v.name}, more...)
}

// title names the view in texts.
func (v view) title() string {
	if v.operation == "" {
		return v.name
	}
	return fmt.Sprintf("%s, %q,", v.name, v.operation)
}

// limit is what bounds a call at most: its timeout, or else the deadline of a
// request that brings none.
func (v view) limit() time.Duration {
	switch {
	case v.Timeout > 0:
		return v.Timeout
	case v.f.Entry != nil:
		return v.f.Entry.deadline()
	}
	return callDefault
}

// tries is the most attempts of one call, besides those that never started.
func (r *Retry) tries() int {
	if r == nil || r.Owner == OwnerNever {
		return 1
	}
	return max(r.MaxAttempts, 1)
}

// waits is the longest that the waits between n attempts take together: the upper
// bounds of full jitter, base doubled up to cap.
func (r *Retry) waits(n int) time.Duration {
	ceiling := cmp.Or(r.Backoff.Cap, defaults.Retry.Cap)
	wait := cmp.Or(r.Backoff.Base, min(defaults.Retry.Base, ceiling))
	var all time.Duration
	for ; n > 1; n-- {
		if wait >= ceiling {
			return plus(all, times(ceiling, n-1))
		}
		all = plus(all, wait)
		if wait > ceiling/2 {
			wait = ceiling
		} else {
			wait *= 2
		}
	}
	return all
}

// longest is the time that n attempts and the waits between them take at most.
func (r *Retry) longest(n int) time.Duration {
	return plus(times(r.PerAttemptTimeout, n), r.waits(n))
}

// fits is how many of the attempts are sure to fit into a limit.
func (r *Retry) fits(limit time.Duration) int {
	return sort.Search(r.tries(), func(n int) bool { return r.longest(n+1) > limit })
}
