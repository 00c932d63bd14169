package stinthttp_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// B05: accepted work neither dies with its request nor lives without a limit.
func TestB05AcceptedWork(t *testing.T) {
	type traceKey struct{}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency()
		w.Serve(t, "leaf", leaf)
		client := w.client("leaf", stint.Policy{}, stint.CallerOptions{})
		var jobs stint.Background
		start := time.Now()
		var finished time.Duration
		var deadline time.Time
		work := func(ctx context.Context) {
			deadline, _ = ctx.Deadline()
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
				t.Errorf("the job was ended after %v: %v", time.Since(start), context.Cause(ctx))
			}
			if ctx.Value(traceKey{}) != "trace" {
				t.Error("the job has lost the request's values")
			}
			if err := get(ctx, client, "http://leaf"); err != nil {
				t.Error(err)
			}
			finished = time.Since(start)
		}
		var told error
		endless := func(ctx context.Context) { <-ctx.Done(); told = ctx.Err() }
		front := w.serve(peers, func(rw http.ResponseWriter, r *http.Request) {
			ctx := context.WithValue(r.Context(), traceKey{}, "trace")
			for _, job := range []func(context.Context){work, endless} {
				if err := jobs.Go(ctx, job); err != nil {
					t.Error(err)
				}
			}
			rw.WriteHeader(http.StatusAccepted)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://s", nil)
		req.Header.Set("X-Deadline-Ms", "200")
		req.Header.Set("X-Request-Id", "r")
		resp, err := front.Do(req)
		if err != nil || resp.StatusCode != 202 || time.Since(start) != 0 {
			t.Fatalf("%v, %v after %v; want 202 at once", resp, err, time.Since(start))
		}
		resp.Body.Close()
		time.Sleep(3 * time.Second) // virtual
		synctest.Wait()
		if finished != 2*time.Second || deadline.Sub(start) != 30*time.Second {
			t.Errorf("finished after %v with a limit of %v, want 2s and 30s", finished, deadline.Sub(start))
		}
		// What it calls has the job's time and not the request's.
		if h := leaf.Arrivals()[0].Header; h.Get("X-Request-Id") != "r" || h.Get("X-Deadline-Ms") != "28000" {
			t.Errorf("the job's own call said %v", h)
		}
		if err := jobs.Shutdown(t.Context()); err != nil || told != context.Canceled || time.Since(start) != 3*time.Second {
			t.Errorf("shutdown: %v after %v, the job was told %v", err, time.Since(start), told)
		}
	})
}
