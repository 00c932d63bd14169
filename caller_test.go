package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

var quietLog = slog.New(slog.DiscardHandler)

var read = stint.Op{Name: "get", Safety: stint.ReadOnly}

// blocks is an attempt that waits for its context, and says what ended it.
func blocks(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("interrupted: %w", context.Cause(ctx))
}

// deaf is a driver whose error for an ended context wraps nothing.
func deaf(ctx context.Context) error {
	<-ctx.Done()
	return errors.New("canceling statement due to user request")
}

func callerFor(t *testing.T, p stint.Policy) (*stint.Caller, *stinttest.Recorder) {
	t.Helper()
	rec := new(stinttest.Recorder)
	c, err := stint.NewCaller("c", p, &stint.CallerOptions{Observer: rec, Rand: func() float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	return c, rec
}

// Per-attempt limit, call limit, caller's deadline and caller's cancel are four
// different answers: in the cause that the attempt sees, in the error, in the
// event and in the breaker.
func TestFourLimits(t *testing.T) {
	errQuota := errors.New("the caller's own reason")
	attempt := stint.Policy{Timeout: 200 * time.Millisecond, Retry: stint.Retry{AttemptTimeout: 100 * time.Millisecond}}
	call := stint.Policy{Timeout: 100 * time.Millisecond}
	wide := stint.Policy{Timeout: 10 * time.Second}
	for _, c := range []struct {
		name    string
		policy  stint.Policy
		parent  func(context.Context) (context.Context, context.CancelFunc)
		is      []error
		isNot   []error
		reason  stint.Reason
		kind    stint.Kind
		code    string
		failure bool // counts in the breaker
	}{
		{name: "attempt limit", policy: attempt,
			is: []error{stint.ErrAttemptTimeout, context.DeadlineExceeded}, isNot: []error{stint.ErrCallTimeout, context.Canceled},
			reason: stint.AttemptsSpent, kind: stint.TimedOut, code: "attempt_timeout", failure: true},
		{name: "call limit", policy: call,
			is: []error{stint.ErrCallTimeout, context.DeadlineExceeded}, isNot: []error{stint.ErrAttemptTimeout, context.Canceled},
			reason: stint.NoTime, kind: stint.Expired, code: "call_timeout", failure: true},
		{name: "caller's deadline", policy: wide,
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 100*time.Millisecond)
			},
			is: []error{context.DeadlineExceeded}, isNot: []error{stint.ErrCallTimeout, stint.ErrAttemptTimeout, context.Canceled},
			reason: stint.NoTime, kind: stint.Expired, code: "deadline", failure: true},
		{name: "caller's deadline with a cause", policy: wide,
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, 100*time.Millisecond, errQuota)
			},
			is: []error{context.DeadlineExceeded, errQuota}, isNot: []error{stint.ErrCallTimeout, context.Canceled},
			reason: stint.NoTime, kind: stint.Expired, code: "deadline", failure: true},
		{name: "caller's deadline less the reserve", policy: stint.Policy{Timeout: 10 * time.Second, Reserve: 50 * time.Millisecond},
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 150*time.Millisecond)
			},
			is: []error{context.DeadlineExceeded}, isNot: []error{stint.ErrCallTimeout, context.Canceled},
			reason: stint.NoTime, kind: stint.Expired, code: "deadline", failure: true},
		{name: "caller's cancel", policy: wide,
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(100*time.Millisecond, cancel)
				return ctx, cancel
			},
			is: []error{context.Canceled}, isNot: []error{context.DeadlineExceeded, stint.ErrCallTimeout},
			reason: stint.CallerGone, kind: stint.Canceled, code: "canceled"},
		{name: "caller's cancel with a cause", policy: wide,
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(100*time.Millisecond, func() { cancel(errQuota) })
				return ctx, func() { cancel(nil) }
			},
			is: []error{context.Canceled, errQuota}, isNot: []error{context.DeadlineExceeded},
			reason: stint.CallerGone, kind: stint.Canceled, code: "canceled"},
	} {
		for name, fn := range map[string]func(context.Context) error{"": blocks, ", text-only error": deaf} {
			t.Run(c.name+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := c.policy
					p.Breaker = stint.Breaker{MinCalls: 1}
					caller, rec := callerFor(t, p)
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if c.parent != nil {
						ctx, cancel = c.parent(ctx)
					}
					defer cancel()
					start := time.Now()
					var seen error
					err := caller.Do(ctx, read, func(ctx context.Context) error {
						err := fn(ctx)
						seen = context.Cause(ctx)
						return err
					})
					if took := time.Since(start); took != 100*time.Millisecond {
						t.Errorf("back after %v, want 100ms", took)
					}
					for _, is := range c.is {
						if !errors.Is(err, is) {
							t.Errorf("error %q is not %v", err, is)
						}
					}
					for _, not := range c.isNot {
						if errors.Is(err, not) || errors.Is(seen, not) && not != context.DeadlineExceeded {
							t.Errorf("error %q, cause %v: must not be %v", err, seen, not)
						}
					}
					if !errors.Is(seen, c.is[0]) && !errors.Is(seen, errQuota) {
						t.Errorf("the attempt saw the cause %v, want %v", seen, c.is[0])
					}
					e := rec.Events(stint.CallDone)[0]
					if e.Reason != c.reason || e.Outcome.Kind != c.kind || e.Outcome.String() != c.code || e.Attempt != 1 {
						t.Errorf("event %v %v (%v), want %v %v %v", e.Reason, e.Outcome, e.Outcome.Kind, c.reason, c.kind, c.code)
					}
					opened := caller.Do(t.Context(), read, func(context.Context) error { return nil }) != nil
					if opened != c.failure {
						t.Errorf("the breaker counted it as a failure: %v, want %v", opened, c.failure)
					}
				})
			})
		}
	}
}

// Refused retries are counted apart from failed attempts, by reason, and the
// error names both the reason and the real cause.
func TestRefusedRetriesAreCounted(t *testing.T) {
	boom := errors.New("boom")
	transient := stint.Outcome{Kind: stint.Transient, Code: "503"}
	policy := stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond}}
	owned := policy
	owned.Retry.Owner = stint.OwnerNever
	long := policy
	long.Retry.Base, long.Retry.Cap = time.Minute, time.Minute
	for _, c := range []struct {
		name     string
		policy   stint.Policy
		op       stint.Op
		outcome  stint.Outcome
		attempts int
		reason   stint.Reason
	}{
		{"spent", policy, read, transient, 3, stint.AttemptsSpent},
		{"final", policy, read, stint.Outcome{Kind: stint.Failed, Code: "500"}, 1, stint.Final},
		{"never", policy, read, stint.Outcome{Kind: stint.Transient, Never: true, Code: "503"}, 1, stint.NeverRetry},
		{"no time", long, read, transient, 1, stint.NoTime},
		{"unsafe", policy, stint.Op{Name: "post"}, transient, 1, stint.NotRepeatable},
		{"one shot", policy, stint.Op{Name: "put", Safety: stint.Idempotent, OneShot: true}, transient, 1, stint.OneShot},
		{"not the owner", owned, read, transient, 1, stint.NotOwner},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, rec := callerFor(t, c.policy)
				err := caller.Do(t.Context(), c.op, func(context.Context) error { return judged{c.outcome, boom} })
				var e *stint.Error
				if !errors.As(err, &e) || e.Reason != c.reason || e.Attempts != c.attempts || !errors.Is(err, boom) ||
					!strings.Contains(err.Error(), c.reason.String()) || !strings.Contains(err.Error(), "boom") {
					t.Errorf("error %v, want %v after %d with the cause", err, c.reason, c.attempts)
				}
				attempts, refused := rec.Events(stint.AttemptDone), rec.Refused()
				if len(attempts) != c.attempts || len(refused) != 1 || refused[c.reason] != 1 {
					t.Errorf("%d attempts, refused %v; want %d and one %v", len(attempts), refused, c.attempts, c.reason)
				}
			})
		})
	}
}

// judged is an error that answers for itself.
type judged struct {
	outcome stint.Outcome
	err     error
}

func (j judged) Error() string          { return j.err.Error() }
func (j judged) Unwrap() error          { return j.err }
func (j judged) Outcome() stint.Outcome { return j.outcome }

// An attempt that ignores its context is waited for, and reported.
func TestOverrunIsWastedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, rec := callerFor(t, stint.Policy{Timeout: 100 * time.Millisecond})
		err := caller.Do(t.Context(), read, func(context.Context) error {
			time.Sleep(350 * time.Millisecond) // virtual
			return errors.New("too late")
		})
		wasted := rec.Events(stint.WorkWasted)
		if !errors.Is(err, stint.ErrCallTimeout) || len(wasted) != 1 || wasted[0].Elapsed != 250*time.Millisecond {
			t.Errorf("%v, wasted %+v; want a call timeout and 250ms", err, wasted)
		}
	})
}

// Nothing but the budget of time decides how long the attempts may take in all.
func TestBound(t *testing.T) {
	for _, c := range []struct {
		name             string
		timeout, reserve time.Duration
		parent, want     time.Duration // parent 0: no deadline
	}{
		{"nothing said", 0, 0, 0, 10 * time.Second},
		{"timeout", time.Second, 0, 0, time.Second},
		{"caller sooner", time.Second, 0, 300 * time.Millisecond, 300 * time.Millisecond},
		{"caller later", time.Second, 0, time.Minute, time.Second},
		{"no timeout, caller later than the default", 0, 0, time.Minute, time.Minute},
		{"reserve", time.Second, 100 * time.Millisecond, 300 * time.Millisecond, 200 * time.Millisecond},
		{"reserve without a deadline", time.Second, 100 * time.Millisecond, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, _ := callerFor(t, stint.Policy{Timeout: c.timeout, Reserve: c.reserve})
				ctx := t.Context()
				if c.parent > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.parent)
					defer cancel()
				}
				caller.Do(ctx, read, func(ctx context.Context) error {
					if left, ok := stint.Remaining(ctx); !ok || left != c.want {
						t.Errorf("%v left, want %v", left, c.want)
					}
					return nil
				})
			})
		})
	}
}

// A heavy read that ran out of its time is not repeated; one that failed is.
func TestNotAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 3, AttemptTimeout: 100 * time.Millisecond,
			Base: time.Millisecond, Cap: time.Millisecond, NotAfterTimeout: true}}
		caller, rec := callerFor(t, p)
		n := 0
		caller.Do(t.Context(), read, func(ctx context.Context) error {
			if n++; n == 1 {
				return judged{stint.Outcome{Kind: stint.Transient, Code: "503"}, errors.New("busy")}
			}
			return blocks(ctx)
		})
		if n != 2 || rec.Refused()[stint.NotRepeatable] != 1 {
			t.Errorf("%d attempts, refused %v; want the failure repeated and the timeout not", n, rec.Refused())
		}
	})
}

// The retry that finds another call's deadline gone in its sleep ends then.
func TestCancelDuringBackoffGivesTheTokenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Attempts: 3, Base: time.Second, Cap: time.Second}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		boom := errors.New("busy")
		err := caller.Do(ctx, read, func(context.Context) error {
			return judged{stint.Outcome{Kind: stint.Transient}, boom}
		})
		if took := time.Since(start); took != 100*time.Millisecond || !errors.Is(err, context.Canceled) || !errors.Is(err, boom) {
			t.Errorf("%v after %v, want the cancel at 100ms, and the cause", err, took)
		}
		if b := caller.Budget().Balance(); b != 10 {
			t.Errorf("balance %v, want 10: the retry never left", b)
		}
	})
}

// Call hands on the value, the last attempt's.
func TestCall(t *testing.T) {
	caller, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Attempts: 2, Base: time.Nanosecond, Cap: time.Nanosecond}})
	n := 0
	got, err := stint.Call(t.Context(), caller, read, func(context.Context) (string, error) {
		if n++; n == 1 {
			return "first", judged{stint.Outcome{Kind: stint.Transient}, errors.New("busy")}
		}
		return "second", nil
	})
	if got != "second" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Classify has the word while the context lives, and not afterwards.
func TestClassify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		c, err := stint.NewCaller("c", stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond}},
			&stint.CallerOptions{Classify: func(_ context.Context, err error) stint.Outcome {
				return stint.Outcome{Kind: stint.Transient, Code: "busy"}
			}})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		c.Do(t.Context(), read, func(context.Context) error { n++; return busy })
		if n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
		n = 0
		err = c.Do(t.Context(), read, func(ctx context.Context) error { n++; return blocks(ctx) })
		if n != 1 || !errors.Is(err, stint.ErrCallTimeout) {
			t.Errorf("%d attempts, %v; want 1: the call is over, whatever Classify says", n, err)
		}
	})
}

// An error that Classify calls OK is no failure, and not lost.
func TestClassifyOK(t *testing.T) {
	noRows := errors.New("no rows")
	c, err := stint.NewCaller("db", stint.Policy{Breaker: stint.Breaker{MinCalls: 1}, Retry: stint.Retry{Attempts: 3}},
		&stint.CallerOptions{Classify: func(context.Context, error) stint.Outcome { return stint.Outcome{Kind: stint.OK} }})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range 3 {
		if err := c.Do(t.Context(), read, func(context.Context) error { n++; return noRows }); err != noRows {
			t.Errorf("error %v, want the query's own", err)
		}
	}
	if n != 3 {
		t.Errorf("%d attempts for 3 calls", n)
	}
}

// Only a key that a peer can read makes a call repeatable.
func TestKeys(t *testing.T) {
	for key, want := range map[string]int{"order-1": 2, "": 1, "two words": 1, "a\r\nX-Evil: 1": 1, `"quoted"`: 1, strings.Repeat("k", 256): 1} {
		c, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}})
		n := 0
		c.Do(t.Context(), stint.Op{Key: key}, func(ctx context.Context) error {
			if k := stint.HopFromContext(ctx).Key; k != "" && want == 1 {
				t.Errorf("key %q is passed on", k)
			}
			n++
			return judged{stint.Outcome{Kind: stint.Transient}, errors.New("busy")}
		})
		if n != want {
			t.Errorf("key %q: %d attempts, want %d", key, n, want)
		}
	}
}

// A call inside that never started is no proof that what ran before it did not.
func TestNestedRefusalIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checkout, _ := callerFor(t, stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 3}})
		pricing, _ := callerFor(t, stint.Policy{Timeout: 100 * time.Millisecond, Bulkhead: 1})
		release := make(chan struct{})
		go pricing.Do(t.Context(), read, func(context.Context) error { <-release; return nil })
		synctest.Wait()
		for _, c := range []struct {
			op   stint.Op
			want int
		}{{stint.Op{Name: "place order"}, 1}, {read, 3}} {
			n := 0
			err := checkout.Do(t.Context(), c.op, func(ctx context.Context) error {
				n++
				return pricing.Do(ctx, read, func(context.Context) error { return nil })
			})
			if n != c.want || err == nil {
				t.Errorf("%s ran %d times, want %d (%v)", c.op.Name, n, c.want, err)
			}
		}
		close(release)
	})
}

// An attempt's context ends with it, also where no limit of its own is set.
func TestAttemptsContextEndsWithIt(t *testing.T) {
	caller, _ := callerFor(t, stint.Policy{Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}})
	var before context.Context
	n := 0
	caller.Do(t.Context(), read, func(ctx context.Context) error {
		if before != nil && before.Err() != context.Canceled {
			t.Errorf("attempt %d runs beside what the one before left: %v", n+1, before.Err())
		}
		before = ctx
		n++
		return judged{stint.Outcome{Kind: stint.Transient}, errors.New("busy")}
	})
	if n != 3 || before.Err() != context.Canceled {
		t.Errorf("%d attempts; after the call: %v", n, before.Err())
	}
}

// What New did not make says so.
func TestUnmade(t *testing.T) {
	var c stint.Caller
	if err := c.Do(t.Context(), read, func(context.Context) error { t.Error("called"); return nil }); err == nil || !strings.Contains(err.Error(), "NewCaller") {
		t.Errorf("zero Caller: %v", err)
	}
	if p := c.Policy(); p.Retry.Attempts != 1 {
		t.Errorf("zero Caller's policy: %+v, want the defaults", p)
	}
	var g stint.Gate
	if err := g.Admit(t.Context(), stint.Hop{}, new(stint.Admission)); err == nil || !strings.Contains(err.Error(), "NewGate") {
		t.Errorf("zero Gate: %v", err)
	}
}

// An observer that takes all the time there was leaves nothing to send.
type slowObserver struct{ stinttest.Recorder }

func (*slowObserver) StartAttempt(ctx context.Context, e stint.Event) context.Context {
	time.Sleep(time.Second) // virtual
	return ctx
}

func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var obs slowObserver
		c, err := stint.NewCaller("c", stint.Policy{Timeout: time.Second}, &stint.CallerOptions{Observer: &obs})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Do(t.Context(), read, func(context.Context) error { t.Error("sent after the deadline"); return nil })
		var e *stint.Error
		if !errors.As(err, &e) || e.Reason != stint.NoTime || e.Attempts != 0 {
			t.Errorf("%v, want no_time before the start", err)
		}
	})
}

// Observers may put something into the attempt's context.
type spanKey struct{}
type spanner struct{ stinttest.Recorder }

func (*spanner) StartAttempt(ctx context.Context, e stint.Event) context.Context {
	return context.WithValue(ctx, spanKey{}, e.Attempt)
}

// Observe gets an attempt's event under the context that StartAttempt made, as
// one that ends a span needs.
func (s *spanner) Observe(ctx context.Context, e stint.Event) {
	if n, _ := ctx.Value(spanKey{}).(int); e.Kind == stint.AttemptDone && n != e.Attempt {
		panic("an attempt's event without its span")
	}
	s.Recorder.Observe(ctx, e)
}

func TestObserversWrapTheAttempt(t *testing.T) {
	var rec stinttest.Recorder
	c, err := stint.NewCaller("c", stint.Policy{}, &stint.CallerOptions{Observer: stint.Observers{&rec, &spanner{}}})
	if err != nil {
		t.Fatal(err)
	}
	c.Do(t.Context(), read, func(ctx context.Context) error {
		if n, _ := ctx.Value(spanKey{}).(int); n != 1 {
			t.Errorf("the attempt's context has span %v", ctx.Value(spanKey{}))
		}
		return nil
	})
	if len(rec.Events(stint.AttemptDone)) != 1 || len(rec.Events(stint.CallDone)) != 1 {
		t.Errorf("events: %+v", rec.Events())
	}
}

func TestNewCallerRefusesNonsense(t *testing.T) {
	for _, c := range []struct {
		dependency, service, want string
		policy                    stint.Policy
	}{
		{want: "name of its dependency"},
		{dependency: "c", service: "two words", want: "service"},
		{dependency: "c", service: strings.Repeat("x", 65), want: "service"},
		{dependency: "c", policy: stint.Policy{Timeout: -1}, want: "Timeout"},
	} {
		_, err := stint.NewCaller(c.dependency, c.policy, &stint.CallerOptions{Service: c.service})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want it to name %q", c, err, c.want)
		}
	}
}
