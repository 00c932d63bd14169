package stint

import (
	"context"
	"errors"
	"testing"
	"time"
)

type oneResult struct{}

func (oneResult) Send(context.Context, Hop, int) (any, Outcome, error) {
	return 1, Outcome{Kind: OK}, nil
}
func (oneResult) Drop(any, time.Duration) {}

// Nothing of a call that is over stays behind: neither its context, where a wait
// has armed it, nor a place in the list of a bulkhead that has no limit.
func TestNothingStaysBehind(t *testing.T) {
	c, err := NewCaller("c", Policy{Bulkhead: NoLimit, Retry: Retry{Attempts: 2, Base: 1, Cap: 1}}, &CallerOptions{
		Rand: func() float64 { return 1 }, Classify: func(context.Context, error) Outcome { return Outcome{Kind: Transient} }})
	if err != nil {
		t.Fatal(err)
	}
	f := &Flight{work: doing(func(context.Context) error { return errors.New("busy") })}
	b, err := c.start(t.Context(), Op{Safety: ReadOnly}, &f.ticket)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.run(t.Context(), b); err == nil || f.call.armed == nil || f.call.Err() != context.Canceled || f.current.Err() != context.Canceled {
		t.Errorf("%v; the call's context: %v, the last attempt's: %v; want both ended", err, f.call.Err(), f.current.Err())
	}

	for range 3 {
		if err := c.Send(t.Context(), Op{}, oneResult{}, new(Flight)); err != nil { // and nobody ends it
			t.Fatal(err)
		}
	}
	if c.bulkhead.loose != nil || c.bulkhead.held != 0 {
		t.Errorf("a bulkhead without a limit keeps %d slots, list %p", c.bulkhead.held, c.bulkhead.loose)
	}
}
