package stint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// sends is a carrier made of functions, one an attempt; the last one repeats.
type sends struct {
	attempts []func(context.Context) (stint.Outcome, error)
	count    int
	dropped  int
}

func (s *sends) Send(ctx context.Context, _ stint.Hop) (stint.Outcome, error) {
	s.count++
	return s.attempts[min(s.count, len(s.attempts))-1](ctx)
}

func (s *sends) Drop() { s.dropped++ }

func answers(o stint.Outcome) func(context.Context) (stint.Outcome, error) {
	return func(context.Context) (stint.Outcome, error) { return o, nil }
}

func fails(o stint.Outcome) func(context.Context) (stint.Outcome, error) {
	return func(context.Context) (stint.Outcome, error) { return o, errors.New(o.String()) }
}

// stalls waits for the attempt's end, and then says what it knows.
func stalls(o stint.Outcome) func(context.Context) (stint.Outcome, error) {
	return func(ctx context.Context) (stint.Outcome, error) {
		<-ctx.Done()
		return o, ctx.Err()
	}
}

var transient = stint.Outcome{Kind: stint.Transient, Code: "503"}

// What a carrier knows of an attempt that ran out of time is kept: proof that it
// never started, and the peer's "never".
func TestTimedOutAttemptKeepsWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		known stint.Outcome
		op    stint.Op
		count int
	}{
		{stint.Outcome{NotStarted: true}, stint.Op{Name: "post"}, 2},
		{stint.Outcome{}, stint.Op{Name: "post"}, 1},
		{stint.Outcome{Never: true}, read, 1},
		{stint.Outcome{}, read, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			caller, _ := callerFor(t, stint.Policy{Timeout: time.Second,
				Retry: stint.Retry{Attempts: 2, AttemptTimeout: 100 * time.Millisecond, Base: time.Millisecond, Cap: time.Millisecond}})
			s := &sends{attempts: []func(context.Context) (stint.Outcome, error){stalls(c.known), answers(stint.Outcome{Kind: stint.OK})}}
			var f stint.Flight
			err := caller.Send(t.Context(), c.op, s, &f)
			f.End()
			if s.count != c.count || (err == nil) != (c.count == 2) {
				t.Errorf("%+v, %s: %d attempts (%v), want %d", c.known, c.op.Name, s.count, err, c.count)
			}
		})
	}
}

// A call that its own limit ended passes a "never" on as well.
func TestExpiredCallPassesNeverOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := stint.NewGate("s", &stint.GateOptions{Logger: quietLog})
		if err != nil {
			t.Fatal(err)
		}
		var a stint.Admission
		if err := gate.Admit(t.Context(), stint.Hop{}, &a); err != nil {
			t.Fatal(err)
		}
		defer a.Finish(stint.Outcome{})
		caller, _ := callerFor(t, stint.Policy{Timeout: 100 * time.Millisecond})
		s := &sends{attempts: []func(context.Context) (stint.Outcome, error){stalls(stint.Outcome{Never: true})}}
		var f stint.Flight
		if err := caller.Send(a.Context(), read, s, &f); !errors.Is(err, stint.ErrCallTimeout) || !a.Never() {
			t.Errorf("%v, never: %v", err, a.Never())
		}
	})
}

// "Never started" is said of a call only if it is true of all its attempts.
func TestErrorsProofOfNotStarted(t *testing.T) {
	notStarted := stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "connect"}
	for _, c := range []struct {
		first, second stint.Outcome
		want          bool
	}{{notStarted, notStarted, true}, {transient, notStarted, false}, {notStarted, transient, false}} {
		caller, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}})
		s := &sends{attempts: []func(context.Context) (stint.Outcome, error){fails(c.first), fails(c.second)}}
		var f stint.Flight
		err := caller.Send(t.Context(), read, s, &f)
		var e *stint.Error
		if !errors.As(err, &e) || e.Attempts != 2 || e.Outcome().NotStarted != c.want {
			t.Errorf("%v then %v: %v says not started: %v, want %v", c.first, c.second, err, e.Outcome().NotStarted, c.want)
		}
	}
}

// thief is an observer that takes its time when an attempt has ended.
type thief struct {
	stinttest.Recorder
	takes time.Duration
}

func (o *thief) Observe(ctx context.Context, e stint.Event) {
	if o.Recorder.Observe(ctx, e); e.Kind == stint.AttemptDone {
		time.Sleep(o.takes) // virtual
	}
}

// The guard stands before every attempt, whatever the decision to make it saw.
func TestGuardBeforeEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := &thief{takes: 100 * time.Millisecond}
		caller, err := stint.NewCaller("c", stint.Policy{Timeout: 120 * time.Millisecond, MinUseful: 30 * time.Millisecond,
			Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}}, &stint.CallerOptions{Observer: obs})
		if err != nil {
			t.Fatal(err)
		}
		s := &sends{attempts: []func(context.Context) (stint.Outcome, error){answers(transient)}}
		var f stint.Flight
		err = caller.Send(t.Context(), read, s, &f)
		var e *stint.Error
		if s.count != 1 || s.dropped != 1 || f.Result() || !errors.As(err, &e) || e.Reason != stint.NoTime || caller.Budget().Balance() != 10 {
			t.Errorf("%d attempts, %d dropped, %v, balance %v; want one, dropped, no_time and the token back", s.count, s.dropped, err, caller.Budget().Balance())
		}
	})
}

// An attempt's time starts when it has its slot; an overrun below the wire's
// unit is no waste.
func TestAttemptEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, rec := callerFor(t, stint.Policy{Timeout: 100 * time.Millisecond, Bulkhead: 1})
		go caller.Do(t.Context(), read, func(context.Context) error { time.Sleep(30 * time.Millisecond); return nil })
		synctest.Wait()
		caller.Do(t.Context(), read, func(context.Context) error { time.Sleep(70*time.Millisecond + 999*time.Microsecond); return nil })
		second := rec.Events(stint.AttemptDone)[1]
		if second.Elapsed != 70999*time.Microsecond || second.Budget != 70*time.Millisecond {
			t.Errorf("the second attempt took %v with %v left, want 70.999ms and 70ms: it waited 30ms for its slot", second.Elapsed, second.Budget)
		}
		if w := rec.Events(stint.WorkWasted); len(w) != 0 {
			t.Errorf("wasted: %+v", w)
		}
	})
}

// A result that is handed over while somebody waits gives its slot back in time.
func TestResultHandedOverToAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, _ := callerFor(t, stint.Policy{Timeout: time.Second, Bulkhead: 1, Retry: stint.Retry{AttemptTimeout: 100 * time.Millisecond}})
		s := &sends{attempts: []func(context.Context) (stint.Outcome, error){func(context.Context) (stint.Outcome, error) {
			time.Sleep(50 * time.Millisecond) // virtual
			return stint.Outcome{Kind: stint.OK}, nil
		}}}
		var f stint.Flight
		go caller.Send(t.Context(), read, s, &f) // and nobody ends it
		synctest.Wait()
		start := time.Now()
		err := caller.Do(t.Context(), read, func(context.Context) error { return nil })
		if took := time.Since(start); err != nil || took != 100*time.Millisecond {
			t.Errorf("%v after %v, want the slot when the result's time is up", err, took)
		}
	})
}
