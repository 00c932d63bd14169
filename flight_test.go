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

func (s *sends) Send(ctx context.Context, _ stint.Hop, _ int) (any, stint.Outcome, error) {
	s.count++
	o, err := s.attempts[min(s.count, len(s.attempts))-1](ctx)
	return s.count, o, err
}

func (s *sends) Drop(any, time.Duration) { s.dropped++ }

// panicker is an observer that panics once.
type panicker struct {
	stinttest.Recorder
	on        stint.EventKind
	start     bool
	nth, seen int
}

func (p *panicker) now(is bool) {
	if is {
		if p.seen++; p.seen == p.nth {
			panic("observer")
		}
	}
}

func (p *panicker) StartAttempt(ctx context.Context, _ stint.Event) context.Context {
	p.now(p.start)
	return ctx
}

func (p *panicker) Observe(ctx context.Context, e stint.Event) {
	p.now(p.on != 0 && e.Kind == p.on)
	p.Recorder.Observe(ctx, e)
}

func calmly(fn func()) {
	defer func() { recover() }()
	fn()
}

// An observer must not panic; one that does costs no slot, probe, token or place.
func TestPanickingObserver(t *testing.T) {
	ok := func(context.Context) error { return nil }
	busyOnce := func(context.Context) error { return judged{transient, errors.New("busy")} }
	make := func(t *testing.T, p stint.Policy, o *panicker) *stint.Caller {
		p.Retry.Base, p.Retry.Cap = 1, 1
		c, err := stint.NewCaller("c", p, &stint.CallerOptions{Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []stint.EventKind{stint.AttemptDone, stint.CallDone} {
			c := make(t, stint.Policy{Timeout: 100 * time.Millisecond, Bulkhead: 1}, &panicker{on: kind, nth: 1})
			calmly(func() { c.Do(t.Context(), read, ok) })
			if err := c.Do(t.Context(), read, ok); err != nil {
				t.Errorf("%v: the slot is lost: %v", kind, err)
			}
		}
		c := make(t, stint.Policy{Breaker: stint.Breaker{MinCalls: 1, OpenFor: time.Second, Probes: 1}}, &panicker{on: stint.BreakerChanged, nth: 2})
		c.Do(t.Context(), read, func(context.Context) error { return errors.New("down") })
		time.Sleep(2 * time.Second) // virtual
		calmly(func() { c.Do(t.Context(), read, ok) })
		if err := c.Do(t.Context(), read, ok); err != nil {
			t.Errorf("the probe is lost: %v", err)
		}
		c = make(t, stint.Policy{Retry: stint.Retry{Attempts: 3}}, &panicker{start: true, nth: 2})
		calmly(func() { c.Do(t.Context(), read, busyOnce) })
		if b := c.Budget().Balance(); b != 10 {
			t.Errorf("the token is lost: %v left", b)
		}
	})
	for _, kind := range []stint.EventKind{stint.GateEntered, stint.GateLeft} {
		g, err := stint.NewGate("g", &stint.GateOptions{Limit: 1, Observer: &panicker{on: kind, nth: 1}, Logger: quietLog})
		if err != nil {
			t.Fatal(err)
		}
		calmly(func() {
			a := new(stint.Admission)
			if g.Admit(t.Context(), stint.Hop{}, a) == nil {
				a.Finish(stint.Outcome{Kind: stint.OK})
			}
		})
		if err := g.Admit(t.Context(), stint.Hop{}, new(stint.Admission)); err != nil {
			t.Errorf("%v: the place is lost: %v", kind, err)
		}
	}
}

// spans counts the attempts that were started.
type spans struct {
	stinttest.Recorder
	started int
	takes   time.Duration
}

func (s *spans) StartAttempt(ctx context.Context, _ stint.Event) context.Context {
	s.started++
	time.Sleep(s.takes) // virtual
	return ctx
}

// Every attempt that an observer saw start, it sees end.
func TestEveryAttemptEnds(t *testing.T) {
	for _, takes := range []time.Duration{0, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			obs := &spans{takes: takes}
			c, err := stint.NewCaller("c", stint.Policy{Timeout: 50 * time.Millisecond}, &stint.CallerOptions{Observer: obs})
			if err != nil {
				t.Fatal(err)
			}
			calmly(func() { c.Do(t.Context(), read, func(context.Context) error { panic("fn") }) })
			want := map[time.Duration]string{0: "panic", 100 * time.Millisecond: "no_time"}[takes]
			done := obs.Events(stint.AttemptDone)
			if obs.started != 1 || len(done) != 1 || done[0].Attempt != 1 || done[0].Outcome.Code != want {
				t.Errorf("observer takes %v: %d started, ended: %+v; want one, %s", takes, obs.started, done, want)
			}
			if call := obs.Events(stint.CallDone); len(call) != 1 || (call[0].Attempt == 0) != (takes > 0) {
				t.Errorf("observer takes %v: the call: %+v", takes, call)
			}
		})
	}
}

// A breaker that opened during the wait stops the retry that it was for.
func TestBreakerOpensDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := callerFor(t, stint.Policy{Timeout: 10 * time.Second, Breaker: stint.Breaker{MinCalls: 1},
			Retry: stint.Retry{Attempts: 2, Base: time.Second, Cap: time.Second}})
		time.AfterFunc(100*time.Millisecond, func() {
			c.Do(t.Context(), stint.Op{}, func(context.Context) error { return errors.New("down") })
		})
		n := 0
		c.Do(t.Context(), read, func(context.Context) error { n++; return judged{transient, errors.New("busy")} })
		if n != 1 || rec.Refused()[stint.BreakerOpen] != 1 || c.Budget().Balance() != 10 {
			t.Errorf("%d attempts, refused %v, balance %v; want no retry, and its token back", n, rec.Refused(), c.Budget().Balance())
		}
	})
}

// Who claims nothing under an owner does not end the owner's retries.
func TestOwnerAlwaysThatClaimsNothing(t *testing.T) {
	for _, c := range []struct {
		attempts int
		op       stint.Op
		want     int
	}{{0, read, 3}, {3, stint.Op{Name: "post"}, 3}, {3, read, 1}} {
		outer, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}})
		inner, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Owner: stint.OwnerAlways, Attempts: c.attempts, Base: 1, Cap: 1}})
		n := 0
		outer.Do(t.Context(), read, func(ctx context.Context) error {
			n++
			return inner.Do(ctx, c.op, func(context.Context) error { return judged{transient, errors.New("busy")} })
		})
		if n != c.want {
			t.Errorf("%d attempts, %s: the owner made %d, want %d", c.attempts, c.op.Name, n, c.want)
		}
	}
}

// End is harmless whatever became of the call.
func TestEndAfterAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := callerFor(t, stint.Policy{Timeout: 100 * time.Millisecond, Bulkhead: 1})
		hold := make(chan struct{})
		defer close(hold)
		go c.Do(t.Context(), read, func(context.Context) error { <-hold; return nil })
		synctest.Wait()
		s := &sends{attempts: []func(context.Context) (stint.Outcome, error){answers(transient)}}
		var f stint.Flight
		if err := c.Send(t.Context(), read, s, &f); err == nil || f.Result() != nil {
			t.Errorf("%v", err)
		}
		f.End()
		new(stint.Admission).Finish(stint.Outcome{})
	})
}

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
		if s.count != 1 || s.dropped != 0 || f.Result() == nil || !errors.As(err, &e) || e.Reason != stint.NoTime || caller.Budget().Balance() != 10 {
			t.Errorf("%d attempts, %d dropped, %v, balance %v; want one, its result kept, no_time and the token back", s.count, s.dropped, err, caller.Budget().Balance())
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
