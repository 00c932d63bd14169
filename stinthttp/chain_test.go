package stinthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// The articles' chain: a client calls A, A calls B, B calls C; C answers 503.

// naiveRetry is the loop that the articles warn of, a millisecond apart.
func naiveRetry(ctx context.Context, attempts int, fn func(context.Context) error) (err error) {
	for range attempts {
		if err = fn(ctx); err == nil {
			return nil
		}
		timer := time.NewTimer(time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func TestNaiveChainMultiplies(t *testing.T) {
	for _, c := range []struct {
		a, b, want int
		took       time.Duration // a virtual millisecond after each attempt, the last included
	}{{1, 1, 1, 2 * time.Millisecond}, {1, 3, 3, 4 * time.Millisecond}, {3, 3, 9, 12 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			client := &http.Client{Transport: w.base}
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
			w.Serve(t, "c", leaf)
			relay := func(host, next string, attempts int) {
				w.Serve(t, host, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					call := func(ctx context.Context) error { return get(ctx, client, "http://"+next) }
					if naiveRetry(r.Context(), attempts, call) != nil {
						rw.WriteHeader(http.StatusBadGateway)
					}
				}))
			}
			relay("b", "c", c.b)
			relay("a", "b", c.a)
			start := time.Now()
			err := get(t.Context(), client, "http://a")
			if took := time.Since(start); leaf.Count() != c.want || err == nil || took != c.took {
				t.Errorf("%d attempts at A and %d at B: %d requests at C after %v, error %v; want %d after %v and an error", c.a, c.b, leaf.Count(), took, err, c.want, c.took)
			}
		})
	}
}

func TestOneOwnerRetries(t *testing.T) {
	for _, c := range []struct {
		a, b, want int
		took       time.Duration // waits of one virtual millisecond
	}{
		{1, 1, 1, 0},
		{1, 3, 3, 2 * time.Millisecond}, // A can't repeat, so B owns
		{3, 3, 3, 2 * time.Millisecond}, // A owns, B makes one try each
	} {
		t.Run(fmt.Sprintf("%dx%d", c.a, c.b), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
				w.Serve(t, "c", leaf)
				w.relay("b", "c", peers, articlePolicy(c.b, 0))
				w.relay("a", "b", peers, articlePolicy(c.a, 0))
				start := time.Now()
				err := get(t.Context(), w.client("a", stint.Policy{}, stint.CallerOptions{}), "http://a")
				if leaf.Count() != c.want || err == nil || time.Since(start) != c.took {
					t.Errorf("%d requests at C after %v, error %v; want %d after %v and an error", leaf.Count(), time.Since(start), err, c.want, c.took)
				}
			})
		})
	}
}

func TestFiveLayersOfThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
		w.Serve(t, "l5", leaf)
		for i := 4; i >= 0; i-- {
			w.relay(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d", i+1), peers, articlePolicy(3, 0))
		}
		start := time.Now()
		err := get(t.Context(), w.client("l0", articlePolicy(1, 0), stint.CallerOptions{}), "http://l0")
		if took := time.Since(start); leaf.Count() != 3 || err == nil || took != 2*time.Millisecond {
			t.Errorf("%d requests at the leaf after %v, error %v; want 3 (naive: 243) after 2ms and an error", leaf.Count(), took, err)
		}
	})
}

func TestDeadlineCutsTheThirdAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Latency: 120 * time.Millisecond})
		w.Serve(t, "c", leaf)
		w.relay("b", "c", peers, articlePolicy(3, 130*time.Millisecond))
		w.relay("a", "b", peers, articlePolicy(3, 130*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := get(ctx, w.client("a", stint.Policy{}, stint.CallerOptions{}), "http://a")
		// 120 ms, a wait of 1 ms, 120 ms; then 59 ms are left, below the guard.
		if took := time.Since(start); leaf.Count() != 2 || err == nil || took != 241*time.Millisecond {
			t.Errorf("%d requests at C, back after %v, error %v; want 2, 241ms and an error", leaf.Count(), took, err)
		}
		for i, a := range leaf.Arrivals() {
			left := []string{"300", "179"}[i]
			if got := a.Header.Get("X-Deadline-Ms"); got != left {
				t.Errorf("request %d told C %q ms left, want %s", i+1, got, left)
			}
		}
	})
}

// stintLayer is a service of the delay matrix, built as a user would.
func stintLayer(t *testing.T, name string, rec *stinttest.Recorder, cleanup func(context.Context)) stinttest.Layer {
	return stinttest.Layer{Name: name, Handler: func(base http.RoundTripper, next string, work func(context.Context)) http.Handler {
		g := newGate(t, name, stint.GateOptions{Trust: stint.TrustPeers, Observer: rec})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, name+"-next", stint.Policy{}, stint.CallerOptions{}),
			Base: base, Peer: stinthttp.PeerStint}}
		return stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			work(r.Context())
			if r.Context().Err() != nil {
				if cleanup != nil {
					cleanup(r.Context())
				}
				stinthttp.WriteError(rw, r, r.Context().Err())
				return
			}
			if next == "" {
				return
			}
			if err := get(r.Context(), client, next); err != nil {
				stinthttp.WriteError(rw, r, err)
			}
		}))
	}}
}

func TestDelayMatrixOnAChain(t *testing.T) {
	var rec stinttest.Recorder
	var cleaned int
	cleanup := func(ctx context.Context) {
		c, cancel := stint.Cleanup(ctx)
		defer cancel()
		// A tenth of the 50, 45 and 40 ms that arrive at A, B and C.
		want := []time.Duration{5 * time.Millisecond, 4500 * time.Microsecond, 4 * time.Millisecond}[cleaned]
		if left, _ := stint.Remaining(c); ctx.Err() == nil || c.Err() != nil || left != want {
			t.Errorf("handler's context: %v; Cleanup: %v, %v left; want it over, and %v to clean up", ctx.Err(), c.Err(), left, want)
		}
		cleaned++
	}
	layers := []stinttest.Layer{stintLayer(t, "a", &rec, cleanup), stintLayer(t, "b", &rec, cleanup), stintLayer(t, "c", &rec, cleanup)}
	stinttest.DelayMatrix(t, layers, 50*time.Millisecond, 200*time.Millisecond)
	if cleaned != 3 {
		t.Errorf("the slow handler cleaned up %d times, want once for each layer", cleaned)
	}
	for _, e := range rec.Events(stint.WorkWasted) {
		t.Errorf("%s worked %v for nobody", e.Service, e.Elapsed)
	}
}

// A handler that ignores its context is answered for in time all the same.
func TestIgnoringHandlerIsAnsweredFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		w := newWorld(t)
		g := newGate(t, "s", stint.GateOptions{Trust: stint.TrustPeers, Observer: &rec})
		first := true
		w.Serve(t, "s", stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if !first {
				return
			}
			first = false
			time.Sleep(200 * time.Millisecond) // virtual: the handler that never looks at its context
			rw.Header().Set("X-Late", "1")
			if _, err := rw.Write([]byte("late")); err != http.ErrHandlerTimeout {
				t.Errorf("late write: %v, want ErrHandlerTimeout", err)
			}
		})))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		status, text, err := fetch(ctx, w.client("s", stint.Policy{}, stint.CallerOptions{}), "GET", "http://s", "")
		// The context ends 5 ms before the deadline, the answer goes out halfway.
		if took := time.Since(start); status != 504 || err != nil || took != 47500*time.Microsecond || strings.Contains(text, "late") {
			t.Errorf("%d %q %v after %v, want the Gate's 504 after 47.5ms", status, text, err, took)
		}
		time.Sleep(time.Second) // virtual: the handler comes back
		wasted := rec.Events(stint.WorkWasted)
		if len(wasted) != 1 || wasted[0].Elapsed != 152500*time.Microsecond {
			t.Errorf("wasted work: %+v, want one event of 152.5ms", wasted)
		}
		// Its connection was closed, so that the next request does not wait behind it.
		if err := get(t.Context(), w.client("s", stint.Policy{}, stint.CallerOptions{}), "http://s"); w.Dials("s") != 2 {
			t.Errorf("%d connections for two requests (%v), want 2", w.Dials("s"), err)
		}
	})
}
