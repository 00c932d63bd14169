package stinttest

import (
	"context"
	"sync"

	"github.com/stint-go/stint"
)

// A Recorder is a stint.Observer that keeps every event. The zero value is
// ready. Its methods may be called at the same time.
type Recorder struct {
	mu     sync.Mutex
	events []stint.Event
}

// StartAttempt returns ctx.
func (r *Recorder) StartAttempt(ctx context.Context, _ stint.Event) context.Context { return ctx }

// Observe keeps e.
func (r *Recorder) Observe(_ context.Context, e stint.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns the events of these kinds so far, in order; without a kind, all.
func (r *Recorder) Events(kinds ...stint.EventKind) []stint.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []stint.Event
	for _, e := range r.events {
		if len(kinds) == 0 {
			found = append(found, e)
		}
		for _, k := range kinds {
			if e.Kind == k {
				found = append(found, e)
			}
		}
	}
	return found
}

// Refused returns how many calls ended for each Reason why there was no
// (further) attempt. Calls that went well are not in it.
func (r *Recorder) Refused() map[stint.Reason]int {
	count := make(map[stint.Reason]int)
	for _, e := range r.Events(stint.CallDone) {
		if e.Reason != 0 {
			count[e.Reason]++
		}
	}
	return count
}

// Reset forgets all events.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}
