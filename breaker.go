package stint

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// What gobreaker is told about a call. Its own errors never leave this file.
var (
	errFailure = errors.New("failure")
	errNeutral = errors.New("neutral")
)

// buckets is the number of steps in which the window slides.
const buckets = 10

// breaker is sony/gobreaker's two-step breaker with the window, the counting
// rule and the neutral outcomes of a Policy.
type breaker struct {
	dependency string
	policy     Breaker
	rule       atomic.Pointer[Breaker] // FailureRatio and MinCalls, changeable while it runs
	trip       bool                    // only while a breaker that starts open is made

	gb     *gobreaker.TwoStepCircuitBreaker[struct{}]
	opened atomic.Pointer[Error] // the refusal of the present open period

	// gobreaker reports state changes under its own lock, where an observer
	// must not run: they are kept here until the call that caused them is out.
	changed atomic.Bool
	mu      sync.Mutex
	changes []stateChange
}

type stateChange struct{ from, to string }

// newBreaker returns a closed breaker, or one that has just opened.
func newBreaker(dependency string, p Breaker, open bool) *breaker {
	b := &breaker{dependency: dependency, policy: p}
	b.rule.Store(&p)
	b.opened.Store(&Error{Reason: BreakerOpen, Dependency: dependency})
	window := min(p.Window, forever/2) // gobreaker rounds it up to whole buckets, which must not wrap
	b.gb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         dependency,
		MaxRequests:  uint32(p.Probes),
		Interval:     window,
		BucketPeriod: max(window/buckets, 1),
		// gobreaker lets probes through when more than this has passed; who comes
		// back just when told has to be let in.
		Timeout:    max(p.OpenFor-1, 1),
		IsExcluded: func(err error) bool { return err == errNeutral },
		ReadyToTrip: func(c gobreaker.Counts) bool {
			r := b.rule.Load()
			counted := c.TotalSuccesses + c.TotalFailures // exclusions say nothing
			return b.trip || int(counted) >= r.MinCalls && float64(c.TotalFailures) >= r.FailureRatio*float64(counted)
		},
		OnStateChange: b.onStateChange,
	})
	if open {
		b.trip = true
		if settle, err := b.gb.Allow(); err == nil {
			settle(errFailure)
		}
		b.trip = false
		b.takeChanges() // it did not open, it stayed open
	}
	return b
}

func (b *breaker) onStateChange(_ string, from, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		b.opened.Store(&Error{Reason: BreakerOpen, Dependency: b.dependency, retryAt: time.Now().Add(b.policy.OpenFor)})
	}
	b.mu.Lock()
	b.changes = append(b.changes, stateChange{from.String(), to.String()})
	b.mu.Unlock()
	b.changed.Store(true)
}

// takeChanges returns the state changes since it was last asked.
func (b *breaker) takeChanges() []stateChange {
	if !b.changed.Load() || !b.changed.Swap(false) { // nearly always; a look is cheaper than a swap
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	cs := b.changes
	b.changes = nil
	return cs
}

// allow lets a call through, or refuses it. settle must be called exactly once
// with nil, errFailure or errNeutral.
func (b *breaker) allow() (settle func(error), refused *Error) {
	settle, err := b.gb.Allow()
	if err != nil {
		return nil, b.opened.Load()
	}
	return settle, nil
}

// closed reports whether calls go through as usual. Half open is not closed: a
// probe is one look at the dependency, not the start of a series.
func (b *breaker) closed() bool { return b.gb.State() == gobreaker.StateClosed }

// verdict is what an outcome means to the breaker.
func verdict(o Outcome) error {
	switch {
	case o.Kind == OK:
		return nil
	case o.failure():
		return errFailure
	}
	return errNeutral
}

// withPolicy returns a breaker under p. Ratio and MinCalls change in place. The
// other numbers are fixed in gobreaker, so they take a new one: it is open if
// this one is, and else closed with its counts at zero.
func (b *breaker) withPolicy(p Breaker) *breaker {
	same := b.policy
	same.FailureRatio, same.MinCalls = p.FailureRatio, p.MinCalls
	if same == p {
		b.rule.Store(&p)
		return b
	}
	return newBreaker(b.dependency, p, b.gb.State() == gobreaker.StateOpen)
}
