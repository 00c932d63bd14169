package stint

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// hedgeLost is the code of a copy that another was faster than.
const hedgeLost = "hedge_lost"

// hedged reports whether the attempt about to be made may get company, and
// after which time: what can be known beforehand, so that an attempt that can't
// pays for no goroutine.
func (f *Flight) hedged() (after time.Duration, ok bool) {
	h := &f.policy.Hedge
	if _, alone := f.work.(doing); alone || h.Copies == 0 {
		return 0, false
	}
	if after = h.Delay; after == 0 {
		if after, ok = f.policy.latency.p95(); !ok {
			return 0, false // too little is known yet
		}
	}
	s := f.state(Outcome{})
	s.Remaining -= min(after, max(s.Remaining, 0))
	return after, f.policy.DecideHedge(s).Retry
}

// A race is the copies of one attempt. Who arrives after it is over has lost.
type race struct {
	arrived chan *entrant // holds all who can be under way, so that arriving never blocks

	mu   sync.Mutex
	over bool
}

// An entrant is one copy, in a goroutine of its own, so that one that ignores
// its context does not keep the winner waiting.
type entrant struct {
	*attempt
	panicked any
	exited   bool // neither returned nor panicked: runtime.Goexit
}

// race makes the attempt f.current and the copies of it that its slowness calls
// for. It leaves the one that counts in f.current: the first with an answer, or
// the last that failed.
func (f *Flight) race(after time.Duration) {
	r := &race{arrived: make(chan *entrant, 1+f.policy.Hedge.Copies)}
	flying := []*attempt{f.current}
	var failed *attempt // the latest, kept as the answer
	defer func() {      // also on a panic
		for _, a := range flying {
			a.end() // first of all: what they do is for nobody
		}
		for _, e := range r.finish() {
			f.lost(e)
		}
		f.begun = f.begun || len(flying) > 0
	}()
	go f.enter(r, f.current)
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case e := <-r.arrived:
			a := e.attempt
			f.current = a
			flying = slices.DeleteFunc(flying, func(b *attempt) bool { return a == b })
			if failed != nil {
				within := time.Until(f.call.deadline) - f.policy.MinUseful
				if e.panicked == nil && !e.exited && a.outcome.answers() {
					within = 0 // nobody waits for a loser
				}
				f.drop(failed, within)
				failed = nil
			}
			switch {
			case e.panicked != nil:
				panic(e.panicked)
			case e.exited:
				runtime.Goexit()
			}
			f.learn(a)
			if len(flying) == 0 || a.outcome.answers() {
				return
			}
			f.failed(a)
			f.report(a, 0)
			f.freeSlot(a)
			failed = a
			timer.Stop()
		case <-timer.C:
			if a := f.hedge(); a != nil {
				flying = append(flying, a)
				go f.enter(r, a)
				timer.Reset(after)
			}
		}
	}
}

// answers reports whether an outcome ends the race.
func (o Outcome) answers() bool { return o.Kind == OK || o.Kind == Rejected || o.Never }

// hedge begins a copy, if it is allowed and paid for.
func (f *Flight) hedge() *attempt {
	c := f.caller
	if !f.policy.DecideHedge(f.state(Outcome{})).Retry || f.call.Err() != nil || !c.bulkhead.try() {
		return nil
	}
	f.slot = true // until the copy has it
	if !c.budget.Withdraw() {
		f.slot = false
		c.bulkhead.release()
		return nil
	}
	counts, begun := f.current, false
	defer func() {
		if !begun { // also where the observer panicked
			c.budget.Return()
		}
	}()
	a, reason := f.begin(f.copies+1, time.Now())
	f.current = counts
	if reason != 0 {
		f.freeSlot(a)
		a.end()
		return nil
	}
	begun = true
	f.copies++
	return a
}

// enter makes one copy's attempt and brings it in.
func (f *Flight) enter(r *race, a *attempt) {
	e := &entrant{attempt: a, exited: true}
	defer func() {
		if e.exited {
			if e.panicked = recover(); e.panicked != nil {
				e.exited = false
			}
			a.outcome, a.err = panicked, fmt.Errorf("panic: %v\n%s", e.panicked, debug.Stack())
		}
		if !r.arrive(e) {
			f.lost(e)
		}
	}()
	f.try(a)
	e.exited = false
}

// arrive brings an entrant in, and reports false if it comes too late.
func (r *race) arrive(e *entrant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.arrived <- e
	}
	return !r.over
}

// finish ends the race and returns those who arrived and did not count.
func (r *race) finish() (late []*entrant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for len(r.arrived) > 0 {
		late = append(late, <-r.arrived)
	}
	return late
}

// lost gives back everything of a copy that another was faster than.
func (f *Flight) lost(e *entrant) {
	a := e.attempt
	f.drop(a, 0)
	f.freeSlot(a)
	err := errLost
	if a.outcome == panicked {
		err = a.err // there is nobody left to pass it on to
	}
	a.outcome, a.err = Outcome{Kind: Canceled, Code: hedgeLost}, err
	f.learn(a)
	f.report(a, 0)
}

var errLost = errors.New("stint: another copy of the attempt was faster")

// learn records how long an attempt took, for the delay of later copies. One
// that lost or ran out of time would have taken longer still; copies are left
// out, since their wait began late, and so is what failed at once.
func (f *Flight) learn(a *attempt) {
	if !f.policy.Hedge.learns() || a.copy != 0 {
		return
	}
	if o := a.outcome; o.Kind == OK || o.Kind == TimedOut || o.Kind == Expired || o.Code == hedgeLost {
		f.policy.latency.record(time.Since(a.since))
	}
}
