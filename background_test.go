package stint_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

type ctxTraceKey struct{}

// A job outlives its request, with its values and a limit of its own.
func TestBackgroundOutlivesItsRequest(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{{0, 30 * time.Second}, {5 * time.Second, 5 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			b := stint.Background{Timeout: c.timeout}
			g := hopGate(t, stint.GateOptions{Trust: stint.TrustPeers})
			request, left := context.WithCancel(context.WithValue(context.Background(), ctxTraceKey{}, "trace"))
			a := new(stint.Admission)
			in := stint.Hop{Remaining: 200 * time.Millisecond, Owner: "edge", Class: stint.Sheddable, RequestID: "r", Key: "k"}
			if err := g.Admit(request, in, a); err != nil {
				t.Fatal(err)
			}
			var job context.Context
			if err := b.Go(a.Context(), func(ctx context.Context) { job = ctx; <-ctx.Done() }); err != nil {
				t.Fatal(err)
			}
			a.Finish(stint.Outcome{Kind: stint.OK})
			left()
			synctest.Wait()
			// A path of its own: no owner, no key, but the same request.
			want := stint.Hop{Remaining: c.want, Class: stint.Sheddable, RequestID: "r"}
			if h := stint.HopFromContext(job); job.Err() != nil || h != want || job.Value(ctxTraceKey{}) != "trace" {
				t.Errorf("%v, %+v, trace %v; want it alive with %+v", job.Err(), h, job.Value(ctxTraceKey{}), want)
			}
			start := time.Now()
			<-job.Done()
			if took := time.Since(start); took != c.want || job.Err() != context.DeadlineExceeded {
				t.Errorf("ended after %v with %v, want %v", took, job.Err(), c.want)
			}
			if err := b.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Shutdown tells the jobs to stop and waits for them, and nothing starts after.
func TestBackgroundShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b stint.Background
		var told []error
		var mu sync.Mutex
		for i := range 3 {
			err := b.Go(t.Context(), func(ctx context.Context) {
				<-ctx.Done()
				mu.Lock()
				told = append(told, context.Cause(ctx))
				mu.Unlock()
				time.Sleep(time.Duration(i) * time.Second) // virtual: what it has to put away
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		err := b.Shutdown(ctx)
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 jobs still running") || time.Since(start) != time.Second+time.Millisecond {
			t.Errorf("%v after %v; want the one that is left named", err, time.Since(start))
		}
		synctest.Wait()
		if len(told) != 3 || !strings.Contains(told[0].Error(), "Shutdown") {
			t.Errorf("told %v, want three times by Shutdown", told)
		}
		ran := false
		var refused *stint.Error
		if err := b.Go(t.Context(), func(context.Context) { ran = true }); !errors.As(err, &refused) || refused.Reason != stint.Draining {
			t.Errorf("a job after Shutdown: %v", err)
		}
		// Several may wait, and again.
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := b.Shutdown(t.Context()); err != nil || time.Since(start) != 2*time.Second {
					t.Errorf("the second time: %v after %v, want nil after 2s", err, time.Since(start))
				}
			})
		}
		wg.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if err := b.Shutdown(gone); err != nil || ran {
				t.Fatalf("with nothing left: %v; the refused job ran: %v", err, ran)
			}
		}
	})
}

// At the limit a job is refused at once, and its place is free when it is over.
func TestBackgroundLimit(t *testing.T) {
	for _, c := range []struct{ limit, fit int }{{1, 1}, {3, 3}, {0, 256}, {stint.NoLimit, 1000}} {
		synctest.Test(t, func(t *testing.T) {
			b := stint.Background{Limit: c.limit}
			release := make(chan struct{})
			start := func() error { return b.Go(t.Context(), func(context.Context) { <-release }) }
			for i := range c.fit {
				if err := start(); err != nil {
					t.Fatalf("limit %d, job %d: %v", c.limit, i+1, err)
				}
			}
			var refused *stint.Error
			if err := start(); c.limit != stint.NoLimit && (!errors.As(err, &refused) || refused.Reason != stint.Full) {
				t.Errorf("limit %d: one more: %v, want full", c.limit, err)
			}
			close(release)
			synctest.Wait()
			if err := start(); err != nil {
				t.Errorf("limit %d: after all are done: %v", c.limit, err)
			}
		})
	}
}

// A job that leaves by runtime.Goexit, as a failed test does, frees its place.
func TestBackgroundGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stint.Background{Limit: 1}
		for range 3 {
			if err := b.Go(t.Context(), func(context.Context) { runtime.Goexit() }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := b.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A panic is not swallowed: it ends the process and names itself.
func TestBackgroundPanic(t *testing.T) {
	if os.Getenv("STINT_TEST_PANIC") != "" {
		var b stint.Background
		b.Go(context.Background(), func(context.Context) { panic("of a job") })
		b.Shutdown(context.Background())
		select {}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBackgroundPanic$")
	cmd.Env = append(os.Environ(), "STINT_TEST_PANIC=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: of a job") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestBackgroundBadInput(t *testing.T) {
	job := func(context.Context) { t.Error("it ran") }
	for _, c := range []struct {
		b    *stint.Background
		job  func(context.Context)
		want string
	}{
		{&stint.Background{Timeout: -1}, job, "Timeout"},
		{&stint.Background{Limit: -2}, job, "NoLimit"},
		{&stint.Background{}, nil, "function"},
	} {
		if err := c.b.Go(t.Context(), c.job); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want an error about %s", err, c.want)
		}
	}
	var unused stint.Background
	if err := unused.Shutdown(t.Context()); err != nil {
		t.Errorf("nothing to wait for: %v", err)
	}
}

// Many start while it stops: each job either runs and is waited for, or is
// refused.
func TestBackgroundRace(t *testing.T) {
	var b stint.Background
	var mu sync.Mutex
	started, ran, refused := 0, 0, 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				err := b.Go(t.Context(), func(context.Context) { mu.Lock(); ran++; mu.Unlock() })
				mu.Lock()
				if err == nil {
					started++
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	if err := b.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if ran != started || started+refused != 800 {
		t.Errorf("%d started, %d ran, %d refused", started, ran, refused)
	}
}
