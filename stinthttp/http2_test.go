package stinthttp_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// A hundred calls are a hundred streams of one connection. Each is told its
// deadline, and one that is cancelled takes no other with it.
func TestHundredStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.base = w.TransportHTTP2(t)
		var mu sync.Mutex
		told, left := make(map[string]int), make(map[string]time.Duration)
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			start, name := time.Now(), r.URL.Query().Get("n")
			mu.Lock()
			told[r.Header.Get("X-Deadline-Ms")]++
			mu.Unlock()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
				mu.Lock()
				left[name] = time.Since(start)
				mu.Unlock()
			}
		}))
		goroutines := bubbleGoroutines()
		client := w.client("s", stint.Policy{Timeout: 300 * time.Millisecond, Bulkhead: stint.NoLimit}, stint.CallerOptions{})
		if err := get(t.Context(), client, "http://s"); err != nil { // makes the connection
			t.Fatal(err)
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				want, is := 100*time.Millisecond, error(nil)
				if i == 42 {
					want, is = 50*time.Millisecond, context.Canceled
					time.AfterFunc(want, cancel)
				}
				err := get(ctx, client, "http://s?n="+strconv.Itoa(i))
				if took := time.Since(start); !errors.Is(err, is) || took != want {
					t.Errorf("call %d: back after %v with %v, want %v and %v", i, took, err, want, is)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if len(left) != 1 || left["42"] != 50*time.Millisecond {
			t.Errorf("left at the server: %v, want the one that was cancelled, after 50ms", left)
		}
		if len(told) != 1 || told["300"] != 101 || w.Dials("s") != 1 {
			t.Errorf("told %v on %d connections, want 300 ms each time and one connection", told, w.Dials("s"))
		}
		w.base.CloseIdleConnections()
		if n := bubbleGoroutines(); n != goroutines {
			t.Errorf("%d goroutines, %d before", n, goroutines)
		}
	})
}

// On HTTP/2 an attempt that hangs costs its stream; the next one goes over the
// same connection, and so do the calls beside it.
func TestAttemptTimeoutResetsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.base = w.TransportHTTP2(t)
		leaf := stinttest.NewDependency(stinttest.Step{Stall: true}, stinttest.Step{Latency: 250 * time.Millisecond}, stinttest.Step{})
		w.Serve(t, "s", leaf)
		p := articlePolicy(2, 0)
		p.Retry.AttemptTimeout = 100 * time.Millisecond
		var beside atomic.Int64
		done := make(chan struct{})
		start := time.Now()
		go func() { // the second request: under way before, during and after the reset
			defer close(done)
			time.Sleep(10 * time.Millisecond) // virtual
			if err := get(context.Background(), w.client("s", stint.Policy{}, stint.CallerOptions{}), "http://s"); err != nil {
				t.Error(err)
			}
			beside.Store(int64(time.Since(start)))
		}()
		err := get(t.Context(), w.client("s", p, stint.CallerOptions{}), "http://s")
		if took := time.Since(start); err != nil || took != 101*time.Millisecond {
			t.Errorf("%v after %v, want the second attempt's success after 101ms", err, took)
		}
		<-done
		if took := time.Duration(beside.Load()); took != 260*time.Millisecond {
			t.Errorf("the call beside it took until %v, want 260ms", took)
		}
		as := leaf.Arrivals()
		if len(as) != 3 || as[0].Left.Sub(start) != 100*time.Millisecond || w.Dials("s") != 1 {
			t.Errorf("%d requests on %d connections, the first left after %v; want 3 on one, 100ms", len(as), w.Dials("s"), as[0].Left.Sub(start))
		}
	})
}

// More calls than a connection has streams for are no failures of anybody: they
// wait, or go over another connection, with one attempt each and one request. (A
// server that allows fewer than 100 streams does refuse some: net/http starts
// before it knows.)
func TestMoreCallsThanStreams(t *testing.T) {
	for _, warm := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.base = w.TransportHTTP2(t)
			leaf := stinttest.NewDependency(stinttest.Step{Latency: 10 * time.Millisecond})
			w.ServeServer(t, "s", &http.Server{Handler: leaf, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}})
			client := w.client("s", stint.Policy{Bulkhead: stint.NoLimit}, stint.CallerOptions{})
			calls := 200
			if warm {
				if err := get(t.Context(), client, "http://s"); err != nil {
					t.Fatal(err)
				}
				calls++
			}
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					if err := get(t.Context(), client, "http://s"); err != nil {
						t.Errorf("warm %v: %v", warm, err)
					}
				})
			}
			all.Wait()
			if leaf.Count() != calls {
				t.Errorf("warm %v: %d requests for %d calls", warm, leaf.Count(), calls)
			}
		})
	}
}
