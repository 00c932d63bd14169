package stint_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// ctxTick is the unit of the times in this file.
const ctxTick = time.Millisecond

var errCtxLeft = errors.New("closed the page")

func TestRemaining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if left, ok := stint.Remaining(context.Background()); left != 0 || ok {
			t.Errorf("without a deadline: %v, %v", left, ok)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*ctxTick)
		defer cancel()
		time.Sleep(30 * ctxTick)
		if left, ok := stint.Remaining(ctx); left != 70*ctxTick || !ok {
			t.Errorf("%v, %v; want 70ms", left, ok)
		}
		time.Sleep(80 * ctxTick)
		if left, ok := stint.Remaining(ctx); left != -10*ctxTick || !ok {
			t.Errorf("%v, %v; want -10ms", left, ok)
		}
	})
}

func TestRequire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, need := range []time.Duration{-1, 0, time.Hour, 1<<63 - 1} {
			if err := stint.Require(context.Background(), need); err != nil {
				t.Errorf("without a deadline, %v needed: %v", need, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*ctxTick)
		defer cancel()
		if err := stint.Require(ctx, 50*ctxTick); err != nil {
			t.Errorf("just enough: %v", err)
		}
		err := stint.Require(ctx, 50*ctxTick+1)
		var e *stint.Error
		if !errors.As(err, &e) || e.Reason != stint.NoTime || e.Remaining != 50*ctxTick || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("1 ns too little: %v", err)
		}
		if ctx.Err() != nil {
			t.Errorf("the context lives, but says %v", ctx.Err())
		}
		time.Sleep(50 * ctxTick)
		synctest.Wait() // the context learns of it in a goroutine of its own
		if err := stint.Require(ctx, 0); !errors.As(err, &e) || e.Reason != stint.NoTime || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the deadline: %v, want no_time", err)
		}
		left, leave := context.WithCancelCause(context.Background())
		leave(errCtxLeft)
		if err := stint.Require(left, 0); !errors.As(err, &e) || e.Reason != stint.CallerGone || !errors.Is(err, context.Canceled) || !errors.Is(err, errCtxLeft) {
			t.Errorf("after the caller left: %v, want caller_gone, and why", err)
		}
	})
}

// Each of Require's errors says in words what was refused.
func TestRequireErrorText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, cancel := context.WithTimeout(context.Background(), 5*ctxTick)
		defer cancel()
		gone, leave := context.WithCancel(context.Background())
		leave()
		for _, c := range []struct {
			ctx  context.Context
			want string
		}{
			{short, "stint: local work: refused before start: no_time: 5ms left, 10ms needed"},
			{gone, "stint: local work: refused before start: caller_gone: context canceled"},
		} {
			if err := stint.Require(c.ctx, 10*ctxTick); err == nil || err.Error() != c.want {
				t.Errorf("%q, want %q", err, c.want)
			}
		}
	})
}

// ctxGate lets a peer's request in.
func ctxGate(t testing.TB, ctx context.Context, h stint.Hop, o stint.GateOptions) *stint.Admission {
	t.Helper()
	o.Trust = stint.TrustPeers
	return gateAdmit(t, gateNew(t, o), ctx, h)
}

func TestDetach(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(context.WithValue(context.Background(), key{}, "trace"))
		a := ctxGate(t, parent, stint.Hop{Remaining: 100 * ctxTick, Owner: "edge", Key: "k", RequestID: "r"}, stint.GateOptions{})
		for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second, -time.Hour: 30 * time.Second, 2 * time.Second: 2 * time.Second, time.Hour: time.Hour} {
			ctx, cancel := stint.Detach(a.Context(), timeout)
			if left, ok := stint.Remaining(ctx); left != want || !ok {
				t.Errorf("a timeout of %v: %v left, want %v", timeout, left, want)
			}
			cancel()
			if ctx.Err() != context.Canceled {
				t.Errorf("its own cancel: %v", ctx.Err())
			}
		}

		ctx, cancel := stint.Detach(a.Context(), time.Second)
		defer cancel()
		leave()
		a.Finish(stint.Outcome{Kind: stint.OK})
		time.Sleep(900 * ctxTick)
		if ctx.Err() != nil {
			t.Errorf("it ended with its request: %v", ctx.Err())
		}
		if ctx.Value(key{}) != "trace" {
			t.Error("the request's values are lost")
		}
		h := stint.HopFromContext(ctx)
		if h.Owner != "" || h.Key != "" || h.RequestID != "r" || h.Remaining != 100*ctxTick {
			t.Errorf("%+v: want only the request id, and 100ms left", h)
		}
		<-ctx.Done()
		if err := context.Cause(ctx); err != context.DeadlineExceeded {
			t.Errorf("it ended with %v", err)
		}
		// Outside of everything it is a context with a limit.
		plain, cancel := stint.Detach(context.Background(), time.Second)
		defer cancel()
		if h := stint.HopFromContext(plain); h != (stint.Hop{Remaining: time.Second}) {
			t.Errorf("outside of a Gate: %+v", h)
		}
	})
}

// Work of its own is a path of its own: a layer under it claims the retries
// that under the request's owner it leaves alone.
func TestDetachHasNoOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ctxGate(t, context.Background(), stint.Hop{Owner: "edge"}, stint.GateOptions{})
		defer a.Finish(stint.Outcome{Kind: stint.OK})
		c, err := stint.NewCaller("d", stint.Policy{Retry: stint.Retry{Attempts: 3}}, &stint.CallerOptions{
			Classify: func(context.Context, error) stint.Outcome { return stint.Outcome{Kind: stint.Transient} },
		})
		if err != nil {
			t.Fatal(err)
		}
		attempts := func(ctx context.Context) (n int, owner string) {
			c.Do(ctx, stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) error {
				n, owner = n+1, stint.HopFromContext(ctx).Owner
				return errors.New("down")
			})
			return n, owner
		}
		if n, owner := attempts(a.Context()); n != 1 || owner != "edge" {
			t.Errorf("under an owner: %d attempts, owner %q; want 1, edge", n, owner)
		}
		ctx, cancel := stint.Detach(a.Context(), 0)
		defer cancel()
		if n, owner := attempts(ctx); n != 3 || owner != "shop" {
			t.Errorf("detached: %d attempts, owner %q; want 3, the Gate's service", n, owner)
		}
		// Detached within a Caller's attempt, it leaves that Caller's claim too.
		c.Do(ctx, stint.Op{Safety: stint.ReadOnly}, func(inner context.Context) error {
			if n, _ := attempts(inner); n != 1 {
				t.Errorf("under a Caller's claim: %d attempts, want 1", n)
			}
			free, cancel := stint.Detach(inner, 0)
			defer cancel()
			if n, _ := attempts(free); n != 3 {
				t.Errorf("detached in it: %d attempts, want 3", n)
			}
			return nil
		})
	})
}

// Only a trusted edge raises a class: work for a request that may be shed is
// not critical for going on after it.
func TestDetachKeepsTheClass(t *testing.T) {
	a := ctxGate(t, context.Background(), stint.Hop{Class: stint.Sheddable}, stint.GateOptions{})
	defer a.Finish(stint.Outcome{Kind: stint.OK})
	ctx, cancel := stint.Detach(a.Context(), 0)
	defer cancel()
	if c := stint.HopFromContext(ctx).Class; c != stint.Sheddable {
		t.Errorf("detached work has the class %q, want sheddable", c)
	}
}

// A ctxKind makes one of the package's own contexts under parent. use gets it
// with what ends it, as its owner would; after that it is never waited for.
type ctxKind struct {
	name  string
	cause error // of its own deadline
	use   func(t *testing.T, parent context.Context, use func(ctx context.Context, end func()))
}

// ctxKinds all end 100 ms after they were made, if their parents let them.
var ctxKinds = []ctxKind{
	{"call", stint.ErrCallTimeout, func(t *testing.T, parent context.Context, use func(context.Context, func())) {
		ctxDo(t, parent, stint.Policy{Timeout: 100 * ctxTick}, use)
	}},
	{"attempt", stint.ErrAttemptTimeout, func(t *testing.T, parent context.Context, use func(context.Context, func())) {
		ctxDo(t, parent, stint.Policy{Timeout: time.Minute, Retry: stint.Retry{AttemptTimeout: 100 * ctxTick}}, use)
	}},
	{"call under its caller's deadline", context.DeadlineExceeded, func(t *testing.T, parent context.Context, use func(context.Context, func())) {
		parent, cancel := context.WithTimeout(parent, 100*ctxTick)
		defer cancel()
		ctxDo(t, parent, stint.Policy{}, use)
	}},
	{"call with a reserve", context.DeadlineExceeded, func(t *testing.T, parent context.Context, use func(context.Context, func())) {
		parent, cancel := context.WithTimeout(parent, 150*ctxTick)
		defer cancel()
		ctxDo(t, parent, stint.Policy{Reserve: 50 * ctxTick}, use)
	}},
	{"gate", context.DeadlineExceeded, func(t *testing.T, parent context.Context, use func(context.Context, func())) {
		a := ctxGate(t, parent, stint.Hop{Remaining: 150 * ctxTick}, stint.GateOptions{Reserve: 50 * ctxTick, MaxTimeout: time.Hour, DefaultTimeout: time.Hour})
		// A quarter of 150 ms is less than the reserve.
		time.Sleep(12500 * time.Microsecond)
		use(a.Context(), func() { a.Finish(stint.Outcome{Kind: stint.OK}) })
		a.Finish(stint.Outcome{Kind: stint.OK})
	}},
}

// ctxDo runs use with the context of a call's attempt. Its end is the call's:
// what use does after end() happens when Do has returned.
func ctxDo(t *testing.T, parent context.Context, p stint.Policy, use func(context.Context, func())) {
	t.Helper()
	c, err := stint.NewCaller("d", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan context.Context)
	leave, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		c.Do(parent, stint.Op{}, func(ctx context.Context) error {
			got <- ctx
			<-leave
			return nil
		})
	}()
	ended := false
	end := func() {
		if !ended {
			ended = true
			close(leave)
			<-left
		}
	}
	use(<-got, end)
	end()
}

// ctxAsk are the ways to ask a context. Each answers in words, so that the
// answers of two contexts can be compared.
var ctxAsk = []struct {
	name string
	ask  func(ctx context.Context) string
}{
	{"Err", func(ctx context.Context) string { return fmt.Sprint(ctx.Err()) }},
	{"Done", func(ctx context.Context) string {
		select {
		case <-ctx.Done():
			return "done"
		default:
			return "not done"
		}
	}},
	{"Cause", func(ctx context.Context) string { return fmt.Sprint(context.Cause(ctx)) }},
	{"Deadline", func(ctx context.Context) string { d, ok := ctx.Deadline(); return fmt.Sprint(d, ok) }},
	{"WithCancel", func(ctx context.Context) string {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		return fmt.Sprint(child.Err(), context.Cause(child))
	}},
	{"WithTimeout", func(ctx context.Context) string {
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		d, _ := child.Deadline()
		return fmt.Sprint(child.Err(), context.Cause(child), d)
	}},
	{"AfterFunc", func(ctx context.Context) string {
		stop := context.AfterFunc(ctx, func() {})
		return fmt.Sprint("still to come: ", stop())
	}},
	{"WithoutCancel", func(ctx context.Context) string {
		child := context.WithoutCancel(ctx)
		_, ok := child.Deadline()
		return fmt.Sprint(child.Err(), context.Cause(child), child.Done() == nil, ok)
	}},
	{"WithValue", func(ctx context.Context) string {
		child := context.WithValue(ctx, ctxAskKey{}, 1)
		return fmt.Sprint(child.Err(), context.Cause(child), child.Value(ctxAskKey{}))
	}},
}

type ctxAskKey struct{}

// Whatever happens to it and in whatever order it is asked, the package's lazy
// context says what one of the standard library would say, which is made beside it.
func TestLazyContextIsAStandardOne(t *testing.T) {
	ms := func(n int) { time.Sleep(time.Duration(n) * ctxTick) }
	happenings := []struct {
		name string
		do   func(leave context.CancelCauseFunc, end, look func())
	}{
		{"nothing", func(context.CancelCauseFunc, func(), func()) { ms(10) }},
		{"1 ns before the deadline", func(context.CancelCauseFunc, func(), func()) { time.Sleep(100*ctxTick - 1) }},
		{"the deadline", func(context.CancelCauseFunc, func(), func()) { ms(100) }},
		{"long after the deadline", func(context.CancelCauseFunc, func(), func()) { ms(5000) }},
		{"the caller left", func(leave context.CancelCauseFunc, _, _ func()) { ms(10); leave(nil) }},
		{"the caller left, and said why", func(leave context.CancelCauseFunc, _, _ func()) { ms(10); leave(errCtxLeft) }},
		{"the caller left, then the deadline", func(leave context.CancelCauseFunc, _, _ func()) { ms(10); leave(errCtxLeft); ms(100) }},
		{"it ended", func(_ context.CancelCauseFunc, end, _ func()) { ms(10); end() }},
		{"it ended, then the caller left", func(leave context.CancelCauseFunc, end, _ func()) { ms(10); end(); leave(nil) }},
		{"the caller left, then it ended", func(leave context.CancelCauseFunc, end, _ func()) { ms(10); leave(errCtxLeft); end() }},
		{"the deadline, then it ended", func(_ context.CancelCauseFunc, end, look func()) { ms(110); look(); end() }},
		{"the deadline, then the caller left", func(leave context.CancelCauseFunc, _, look func()) { ms(110); look(); leave(errCtxLeft) }},
	}
	for _, kind := range ctxKinds {
		for _, h := range happenings {
			t.Run(kind.name+"/"+h.name, func(t *testing.T) {
				// Asked before it happens in one way or not at all, and then
				// in all ways, beginning with each.
				for before := -1; before < len(ctxAsk); before++ {
					for first := range ctxAsk {
						synctest.Test(t, func(t *testing.T) {
							ctxCompare(t, kind, h.do, before, first)
						})
					}
				}
			})
		}
	}
}

func ctxCompare(t *testing.T, kind ctxKind, happen func(context.CancelCauseFunc, func(), func()), before, first int) {
	parent, leave := context.WithCancelCause(context.Background())
	defer leave(nil)
	kind.use(t, parent, func(ctx context.Context, end func()) {
		d, ok := ctx.Deadline()
		if left := time.Until(d); !ok || left != 100*ctxTick {
			t.Fatalf("the deadline is in %v (%v), want 100ms", left, ok)
		}
		std, cancel := context.WithDeadlineCause(parent, d, kind.cause)
		defer cancel()
		compare := func(when string, i int) {
			t.Helper()
			a := ctxAsk[i]
			if got, want := a.ask(ctx), a.ask(std); got != want {
				t.Errorf("%s, by %s: it says %s, want %s", when, a.name, got, want)
			}
		}
		when := "asked for the first time"
		if before >= 0 {
			compare(when, before)
			when = "after " + ctxAsk[before].name + " in the beginning"
		}
		happen(leave, func() {
			end()
			cancel()
		}, func() { compare("in between", 0) })
		synctest.Wait()
		for i := range len(ctxAsk) + 1 {
			compare(when, (first+i)%len(ctxAsk))
			when += ", then " + ctxAsk[(first+i)%len(ctxAsk)].name
		}
	})
}

// One that ended well says so for good: whoever still holds it must not find
// later that it ran out of time. Without a timer it can't be told when it was
// that it ended, so this holds also if that was after its deadline.
func TestLazyContextFirstAskedLongAfterItsEnd(t *testing.T) {
	for _, kind := range ctxKinds {
		if kind.cause == context.DeadlineExceeded && kind.name != "gate" {
			continue // its parent has a deadline of its own, and what it says then is the parent's
		}
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kind.use(t, context.Background(), func(ctx context.Context, end func()) {
					time.Sleep(10 * ctxTick)
					end()
					time.Sleep(time.Minute)
					if err, cause := ctx.Err(), context.Cause(ctx); err != context.Canceled || cause != context.Canceled {
						t.Errorf("a minute after its end it says %v, because of %v; want canceled", err, cause)
					}
				})
			})
		})
	}
}

// Where nobody asked until both the deadline and the caller had gone, their
// order can't be known. The caller wins: nothing is held against a dependency
// that may be well.
func TestLazyContextBothAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancelCause(context.Background())
		ctxDo(t, parent, stint.Policy{Timeout: 100 * ctxTick}, func(ctx context.Context, _ func()) {
			time.Sleep(200 * ctxTick)
			leave(errCtxLeft)
			if ctx.Err() != context.Canceled || context.Cause(ctx) != errCtxLeft {
				t.Errorf("%v because of %v, want canceled by the caller", ctx.Err(), context.Cause(ctx))
			}
		})
	})
}

// Who waits is woken at the deadline itself, and hears which limit it was.
func TestLazyContextWakes(t *testing.T) {
	for _, kind := range ctxKinds {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kind.use(t, context.Background(), func(ctx context.Context, _ func()) {
					start := time.Now()
					child, cancel := context.WithCancel(context.WithValue(ctx, ctxAskKey{}, 1))
					defer cancel()
					var told time.Duration
					var cause error
					context.AfterFunc(child, func() { told, cause = time.Since(start), context.Cause(child) })
					<-child.Done()
					synctest.Wait()
					if told != 100*ctxTick || cause != kind.cause {
						t.Errorf("told after %v that it was %v; want 100ms, %v", told, cause, kind.cause)
					}
					if !errors.Is(cause, context.DeadlineExceeded) {
						t.Errorf("%v is not a DeadlineExceeded", cause)
					}
				})
			})
		})
	}
}

// The causes are timeouts to whoever asks in the ways of package net.
func TestLimitErrors(t *testing.T) {
	for _, err := range []error{stint.ErrAttemptTimeout, stint.ErrCallTimeout} {
		var n interface {
			Timeout() bool
			Temporary() bool
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &n) || !n.Timeout() || !n.Temporary() {
			t.Errorf("%v does not pass for a deadline that was exceeded", err)
		}
	}
	if errors.Is(stint.ErrAttemptTimeout, stint.ErrCallTimeout) || errors.Is(stint.ErrCallTimeout, stint.ErrAttemptTimeout) {
		t.Error("the two limits can't be told apart")
	}
}

// ctxOpaque hides what it is from the standard library.
type ctxOpaque struct{ context.Context }

func (ctxOpaque) Value(any) any { return nil }

// The standard library knows the package's contexts for what they are, so that
// what is derived from one costs no goroutine: not in a handler, nor in a call,
// nor in a call of a call.
func TestLazyContextsDeriveWithoutGoroutines(t *testing.T) {
	watchers := func() int {
		buf := make([]byte, 1<<20)
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "propagateCancel.func")
	}
	derive := func(ctx context.Context) (stop func()) {
		var stops []func()
		for range 10 {
			a, cancelA := context.WithCancel(ctx)
			b, cancelB := context.WithTimeout(a, time.Hour)
			c, cancelC := context.WithCancelCause(context.WithValue(b, ctxAskKey{}, 1))
			off := context.AfterFunc(c, func() {})
			context.WithoutCancel(c)
			stops = append(stops, cancelA, cancelB, func() { cancelC(nil) }, func() { off() })
		}
		return func() {
			for _, s := range stops {
				s()
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(context.Background())
		defer leave()
		check := func(name string, ctx context.Context) {
			t.Helper()
			before := watchers()
			stop := derive(ctx)
			synctest.Wait()
			if n := watchers() - before; n != 0 {
				t.Errorf("%s: %d goroutines watch it", name, n)
			}
			stop()
		}
		a := ctxGate(t, parent, stint.Hop{Remaining: time.Second}, stint.GateOptions{})
		check("handler", a.Context())
		p := stint.Policy{Retry: stint.Retry{AttemptTimeout: 100 * ctxTick}}
		ctxDo(t, a.Context(), stint.Policy{Timeout: 500 * ctxTick}, func(ctx context.Context, _ func()) {
			check("call", ctx)
			ctxDo(t, ctx, p, func(ctx context.Context, _ func()) {
				check("attempt in a call", ctx)
				clean, cancel := stint.Cleanup(ctx)
				defer cancel()
				check("cleanup", clean)
			})
		})
		detached, cancel := stint.Detach(a.Context(), 0)
		defer cancel()
		check("detached", detached)
		a.Finish(stint.Outcome{Kind: stint.OK})

		// The count does find them where there are some.
		before := watchers()
		stop := derive(ctxOpaque{parent})
		synctest.Wait()
		if watchers() == before {
			t.Error("the check is blind: it found no goroutine for a context that needs one")
		}
		stop()
		synctest.Wait()
	})
}
