package stinthttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// retrying is a policy of three attempts, a millisecond apart.
var retrying = articlePolicy(3, 0)

// B01: a call with no limit of any kind still ends.
func TestB01NoLimitAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Serve(t, "s", stinttest.NewDependency(stinttest.Step{Stall: true}))
		client := w.client("s", stint.Policy{}, stint.CallerOptions{})
		goroutines := bubbleGoroutines()
		start := time.Now()
		err := get(context.Background(), client, "http://s")
		if took := time.Since(start); took != 10*time.Second || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stint.ErrCallTimeout) {
			t.Errorf("back after %v with %v, want 10s and a call timeout", took, err)
		}
		time.Sleep(time.Second) // virtual
		if n := bubbleGoroutines(); n > goroutines {
			t.Errorf("%d goroutines a second later, %d before", n, goroutines)
		}
	})
}

// B03: almost no time left never becomes all the time in the world.
func TestB03AlmostNoTimeLeft(t *testing.T) {
	for _, c := range []struct {
		left   time.Duration
		header string // empty: nothing is sent
		took   time.Duration
	}{
		{400 * time.Millisecond, "400", 400 * time.Millisecond},
		{1999 * time.Microsecond, "1", 1999 * time.Microsecond},
		{time.Millisecond, "1", time.Millisecond},
		{999 * time.Microsecond, "", 0},
		{400 * time.Microsecond, "", 0},
		{0, "", 0},
		{-time.Second, "", 0},
	} {
		t.Run(c.left.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(stinttest.Step{Stall: true})
				w.Serve(t, "s", leaf)
				var rec stinttest.Recorder
				client := w.client("s", retrying, stint.CallerOptions{Observer: &rec})
				ctx, cancel := context.WithTimeout(t.Context(), c.left)
				defer cancel()
				start := time.Now()
				err := get(ctx, client, "http://s")
				if took := time.Since(start); took != c.took || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("back after %v with %v, want %v and a deadline error", took, err, c.took)
				}
				if c.header == "" {
					if leaf.Count() != 0 || w.Dials("s") != 0 || rec.Refused()[stint.NoTime] != 1 {
						t.Errorf("%d requests, %d connections, refusals %v; want nothing sent and one refusal", leaf.Count(), w.Dials("s"), rec.Refused())
					}
					return
				}
				synctest.Wait()
				if as := leaf.Arrivals(); len(as) != 1 || as[0].Header.Get("X-Deadline-Ms") != c.header {
					t.Errorf("arrived: %+v, want one with %s ms", as, c.header)
				}
			})
		})
	}
}

// B06: the attempt's own limit is not the caller giving up.
func TestB06AttemptLimitIsNotTheCallers(t *testing.T) {
	policy := func(timeout, minUseful time.Duration) stint.Policy {
		return stint.Policy{Timeout: timeout, MinUseful: minUseful,
			Retry: stint.Retry{Attempts: 3, AttemptTimeout: 100 * time.Millisecond, Base: time.Millisecond, Cap: time.Millisecond}}
	}
	for _, c := range []struct {
		name     string
		policy   stint.Policy
		cancel   time.Duration
		count    int
		took     time.Duration
		is       error
		reason   stint.Reason
		succeeds bool
	}{
		{name: "retried", policy: policy(time.Second, 0), count: 2, took: 101 * time.Millisecond, succeeds: true},
		{name: "no time for another", policy: policy(150*time.Millisecond, 60*time.Millisecond), count: 1, took: 100 * time.Millisecond,
			is: stint.ErrAttemptTimeout, reason: stint.NoTime},
		{name: "caller cancels", policy: policy(time.Second, 0), cancel: 50 * time.Millisecond, count: 1, took: 50 * time.Millisecond,
			is: context.Canceled, reason: stint.CallerGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(stinttest.Step{Stall: true}, stinttest.Step{})
				w.Serve(t, "s", leaf)
				client := w.client("s", c.policy, stint.CallerOptions{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				start := time.Now()
				err := get(ctx, client, "http://s")
				took := time.Since(start)
				if leaf.Count() != c.count || took != c.took || (err == nil) != c.succeeds {
					t.Errorf("%d requests, back after %v with %v; want %d, %v", leaf.Count(), took, err, c.count, c.took)
				}
				var e *stint.Error
				if c.is != nil && (!errors.Is(err, c.is) || !errors.As(err, &e) || e.Reason != c.reason) {
					t.Errorf("error %v, want %v and reason %v", err, c.is, c.reason)
				}
			})
		})
	}
}

// B08: nobody retries for a caller that has left.
func TestB08CallerCancels(t *testing.T) {
	policy := stint.Policy{Retry: stint.Retry{Attempts: 7, Base: time.Second, Cap: time.Second}}
	for _, c := range []struct {
		name   string
		step   stinttest.Step
		cancel time.Duration // negative: before the call
		count  int
	}{
		{"during the attempt", stinttest.Step{Stall: true}, 30 * time.Millisecond, 1},
		{"during the back-off", stinttest.Step{Status: 503, Latency: 10 * time.Millisecond}, 30 * time.Millisecond, 1},
		{"before the call", stinttest.Step{}, -1, 0}, // an expired one: B03
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(c.step)
				w.Serve(t, "s", leaf)
				var rec stinttest.Recorder
				client := w.client("s", policy, stint.CallerOptions{Observer: &rec})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel < 0 {
					cancel()
				} else {
					time.AfterFunc(c.cancel, cancel)
				}
				start := time.Now()
				err := get(ctx, client, "http://s")
				if took := time.Since(start); took != max(c.cancel, 0) || !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("back after %v with %v, want at the cancel with context.Canceled", took, err)
				}
				synctest.Wait()
				refused := rec.Refused()
				if leaf.Count() != c.count || len(rec.Events(stint.AttemptDone)) != c.count || refused[stint.CallerGone] != 1 || len(refused) != 1 {
					t.Errorf("%d requests, %d attempts, refusals %v; want %d and one caller_gone", leaf.Count(), len(rec.Events(stint.AttemptDone)), refused, c.count)
				}
			})
		})
	}
}

// B11: a retry that does not fit is refused at once, with the real response.
func TestB11NoSleepIntoTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Latency: 10 * time.Millisecond, Body: "come back later"})
		w.Serve(t, "s", leaf)
		var rec stinttest.Recorder
		client := w.client("s", stint.Policy{Retry: stint.Retry{Attempts: 3, Base: 10 * time.Second, Cap: 10 * time.Second}},
			stint.CallerOptions{Observer: &rec})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		status, text, err := fetch(ctx, client, "GET", "http://s", "")
		if took := time.Since(start); took != 10*time.Millisecond || status != 503 || text != "come back later" || err != nil || ctx.Err() != nil {
			t.Errorf("%d %q %v after %v (context %v), want the 503 after 10ms, the context alive", status, text, err, took, ctx.Err())
		}
		if leaf.Count() != 1 || rec.Refused()[stint.NoTime] != 1 {
			t.Errorf("%d requests, refusals %v, want 1 and one no_time", leaf.Count(), rec.Refused())
		}
		call := rec.Events(stint.CallDone)[0]
		var e *stint.Error
		if !errors.As(call.Err, &e) || e.Last.Code != "503" || e.Remaining != 290*time.Millisecond || !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("the call's error: %v, want the 503 with 290ms left, a deadline error", call.Err)
		}
	})
}

// 90 ms left, and the server asks for 2 s: its answer comes back untouched.
func TestRetryAfterThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Body: "maintenance",
			Header: http.Header{"Retry-After": {"2"}, "X-Why": {"upgrade"}}})
		w.Serve(t, "s", leaf)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://s", nil)
		start := time.Now()
		resp, err := w.client("s", retrying, stint.CallerOptions{}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 503 || string(text) != "maintenance" || err != nil || resp.Header.Get("X-Why") != "upgrade" || time.Since(start) != 0 || leaf.Count() != 1 {
			t.Errorf("%d %v %q %v after %v, %d requests; want the 503 whole, at once, after one", resp.StatusCode, resp.Header, text, err, time.Since(start), leaf.Count())
		}
	})
}

// A thousand clients that were told the same time do not come back together.
func TestRetryAfterIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var back []time.Duration
		seen := make(map[string]bool)
		start := time.Now()
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			id := r.Header.Get("X-Client")
			if seen[id] {
				back = append(back, time.Since(start))
				return
			}
			seen[id] = true
			rw.Header().Set("Retry-After", "2")
			rw.WriteHeader(503)
		}))
		rnd := rand.New(rand.NewPCG(1, 2))
		draw := func() float64 { mu.Lock(); defer mu.Unlock(); return rnd.Float64() }
		policy := stint.Policy{Bulkhead: stint.NoLimit, Breaker: stint.Breaker{Off: true},
			Retry: stint.Retry{Attempts: 2, Base: 500 * time.Millisecond, BudgetCeiling: 1000}}
		client := w.client("s", policy, stint.CallerOptions{Rand: draw})
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://s", nil)
				req.Header.Set("X-Client", fmt.Sprint(i))
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		}
		wg.Wait()
		if len(back) != 1000 {
			t.Fatalf("%d came back, want 1000", len(back))
		}
		slices.Sort(back)
		perMs := make(map[time.Duration]int)
		most := 0
		for _, d := range back {
			perMs[d.Truncate(time.Millisecond)]++
			most = max(most, perMs[d.Truncate(time.Millisecond)])
		}
		first, last := back[0], back[999]
		if first < 2*time.Second || last >= 2500*time.Millisecond || last-first < 400*time.Millisecond || most > 12 {
			t.Errorf("back between %v and %v, at most %d in one ms; want all in [2s, 2.5s), spread out", first, last, most)
		}
	})
}

// B12: no Retry-After makes a wait negative, short or longer than there is time.
func TestB12RetryAfterForms(t *testing.T) {
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	// What each value does to the second attempt, with 60 s left and a back-off of
	// 70 ms, full: the wait on top of that, or negative for "not at all". So what
	// can't be read is an ordinary back-off, and never less.
	const never, usual = -1 * time.Second, 70 * time.Millisecond
	for _, c := range []struct {
		name  string
		value func() []string
		at    time.Duration
	}{
		{"120", func() []string { return []string{"120"} }, never},
		{"3", func() []string { return []string{" 3 "} }, 3 * time.Second},
		{"0", func() []string { return []string{"0"} }, 0},
		{"fits int64 seconds", func() []string { return []string{"9223372036"} }, never},
		{"wraps", func() []string { return []string{"9223372037"} }, never},
		{"max int64", func() []string { return []string{"9223372036854775807"} }, never},
		{"40 digits", func() []string { return []string{strings.Repeat("9", 40)} }, never},
		{"negative", func() []string { return []string{"-5"} }, 0},
		{"plus", func() []string { return []string{"+5"} }, 0},
		{"fraction", func() []string { return []string{"1.5"} }, 0},
		{"exponent", func() []string { return []string{"1e3"} }, 0},
		{"empty", func() []string { return []string{""} }, 0},
		{"word", func() []string { return []string{"soon"} }, 0},
		{"IMF-fixdate ahead", func() []string { return []string{date(2 * time.Second)} }, 2 * time.Second},
		{"in the past", func() []string { return []string{date(-time.Hour)} }, 0},
		{"year 9999", func() []string { return []string{"Fri, 31 Dec 9999 23:59:59 GMT"} }, never},
		{"RFC 850", func() []string {
			return []string{time.Now().Add(2 * time.Second).UTC().Format("Monday, 02-Jan-06 15:04:05 GMT")}
		}, 2 * time.Second},
		{"asctime", func() []string { return []string{time.Now().Add(2 * time.Second).UTC().Format(time.ANSIC)} }, 2 * time.Second},
		{"twice: the longer", func() []string { return []string{"1", "4"} }, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"Retry-After": c.value()}}, stinttest.Step{})
				w.Serve(t, "s", leaf)
				client := w.client("s", stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 2, Base: usual, Cap: usual}}, stint.CallerOptions{})
				start := time.Now()
				status, _, err := fetch(t.Context(), client, "GET", "http://s", "")
				if err != nil {
					t.Fatal(err)
				}
				as := leaf.Arrivals()
				if c.at == never {
					if len(as) != 1 || status != 503 || time.Since(start) != 0 {
						t.Errorf("%d requests, %d after %v; want the 503 at once", len(as), status, time.Since(start))
					}
					return
				}
				if len(as) != 2 || as[1].At.Sub(start) != c.at+usual || status != 200 {
					t.Errorf("%d requests, status %d, second after %v; want it after %v", len(as), status, time.Since(start), c.at+usual)
				}
			})
		})
	}
}

// B17: when attempts run out, the last response is there, whole.
func TestB17LastResponseIsKept(t *testing.T) {
	t.Run("response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			body := `{"error":"` + strings.Repeat("quota ", 2000) + `"}`
			leaf := stinttest.NewDependency(stinttest.Step{Status: 429, Body: body,
				Header: http.Header{"Retry-After": {"0"}, "Content-Type": {"application/json"}, "X-Quota": {"spent"}}})
			w.Serve(t, "s", leaf)
			req, _ := http.NewRequest("GET", "http://s", nil)
			resp, err := (&stinthttp.Transport{Caller: newCaller(t, "s", retrying, stint.CallerOptions{}), Base: w.base}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 429 || string(text) != body || err != nil || leaf.Count() != 3 ||
				resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Quota") != "spent" || resp.Request != req {
				t.Errorf("%d, %d bytes of %d, %v, %v, %d requests", resp.StatusCode, len(text), len(body), err, resp.Header, leaf.Count())
			}
		})
	})
	t.Run("error after responses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503}, stinttest.Step{Status: 503}, stinttest.Step{Reset: true})
			w.Serve(t, "s", leaf)
			err := get(t.Context(), w.client("s", retrying, stint.CallerOptions{}), "http://s")
			var e *stint.Error
			if !errors.As(err, &e) || !errors.Is(err, io.EOF) || strings.Join(e.Outcomes, " ") != "503 503 reset" || !strings.Contains(err.Error(), "503, 503, reset") {
				t.Errorf("error %v, want the reset, and that two 503 came before", err)
			}
		})
	})
}

// B18: two of our layers in one process are one owner.
func TestB18LayersInOneProcess(t *testing.T) {
	for _, outerAttempts := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
			w.Serve(t, "s", leaf)
			inner := &stinthttp.Transport{Caller: newCaller(t, "sdk", articlePolicy(3, 0), stint.CallerOptions{}), Base: w.base}
			outer := &stinthttp.Transport{Caller: newCaller(t, "app", articlePolicy(outerAttempts, 0), stint.CallerOptions{}), Base: inner}
			get(t.Context(), &http.Client{Transport: outer}, "http://s")
			if want := map[int]int{1: 3, 4: 4}[outerAttempts]; leaf.Count() != want { // who makes one claims nothing
				t.Errorf("transport in transport, %d x 3 attempts: %d requests, want %d", outerAttempts, leaf.Count(), want)
			}

			before := leaf.Count()
			client := &http.Client{Transport: inner}
			helper := newCaller(t, "helper", articlePolicy(4, 0), stint.CallerOptions{})
			err := helper.Do(t.Context(), stint.Op{Name: "job", Safety: stint.ReadOnly}, func(ctx context.Context) error { return get(ctx, client, "http://s") })
			if n := leaf.Count() - before; n != 4 || err == nil {
				t.Errorf("our call inside our own helper: %d requests, %v; want 4", n, err)
			}
		})
	}
}

// A body that was read slowly stays readable until the deadline.
func TestBodyOutlivesRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		chunk := bytes.Repeat([]byte("x"), 16<<10)
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			for range 32 {
				rw.Write(chunk)
				rw.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond) // virtual
			}
		}))
		policy := stint.Policy{Timeout: 5 * time.Second, Retry: stint.Retry{Attempts: 2, AttemptTimeout: 4 * time.Second}}
		_, text, err := fetch(t.Context(), w.client("s", policy, stint.CallerOptions{}), "GET", "http://s", "")
		if len(text) != 32*len(chunk) || err != nil {
			t.Errorf("%d bytes, %v; want %d", len(text), err, 32*len(chunk))
		}
	})
}

// Redirects share the first request's time, through NewClient as well.
func TestRedirectsShareOneBudget(t *testing.T) {
	for _, backstop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var hops atomic.Int32
			w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				n := hops.Add(1)
				time.Sleep(300 * time.Millisecond) // virtual
				http.Redirect(rw, r, fmt.Sprintf("/%d", n), http.StatusFound)
			}))
			client := w.client("s", stint.Policy{Timeout: time.Second}, stint.CallerOptions{})
			if backstop {
				client.Timeout = 2 * time.Second
			}
			start := time.Now()
			err := get(t.Context(), client, "http://s")
			if took := time.Since(start); took != time.Second || !errors.Is(err, context.DeadlineExceeded) || hops.Load() != 4 {
				t.Errorf("backstop %v: %d hops, back after %v with %v; want 4 hops within one second", backstop, hops.Load(), took, err)
			}
		})
	}
}

// What a redirect chain reports is what ended it, and the reserve is taken once.
func TestRedirectLimits(t *testing.T) {
	loop := func(w *world, each time.Duration) {
		w.Serve(w.t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(each) // virtual
			http.Redirect(rw, r, r.URL.Path+"x", http.StatusFound)
		}))
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		loop(w, 300*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := get(ctx, w.client("s", stint.Policy{}, stint.CallerOptions{}), "http://s/")
		if errors.Is(err, stint.ErrCallTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's own deadline: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		loop(w, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var rec stinttest.Recorder
		get(ctx, w.client("s", stint.Policy{Reserve: 150 * time.Millisecond}, stint.CallerOptions{Observer: &rec}), "http://s/")
		if n := len(rec.Events(stint.AttemptDone)); n != 10 {
			t.Errorf("%d hops of 10 ms in 850 ms, want all 10", n)
		}
	})
}

// The last response is kept when the retry that was to follow it does not come
// about after all.
func TestResponseIsKeptWhenTheRetryIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bulkhead fills up during the wait
		w := newWorld(t)
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				time.Sleep(time.Second) // virtual
				return
			}
			http.Error(rw, "maintenance", http.StatusServiceUnavailable)
		}))
		p := stint.Policy{Timeout: 200 * time.Millisecond, Bulkhead: 1, Retry: stint.Retry{Attempts: 2, Base: 50 * time.Millisecond, Cap: 50 * time.Millisecond}}
		var rec stinttest.Recorder
		client := w.client("s", p, stint.CallerOptions{Observer: &rec})
		time.AfterFunc(10*time.Millisecond, func() { fetch(context.Background(), client, "POST", "http://s/slow", "") })
		status, text, err := fetch(t.Context(), client, "GET", "http://s/", "")
		if status != 503 || text != "maintenance\n" || err != nil || rec.Refused()[stint.Full] != 1 {
			t.Errorf("%d %q %v, refused %v; want the 503, and the refusal counted", status, text, err, rec.Refused())
		}
	})
	synctest.Test(t, func(t *testing.T) { // draining it takes no more time than there is
		w := newWorld(t)
		s := new(drips)
		w.Serve(t, "s", s)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		if err := get(ctx, w.client("s", articlePolicy(3, 20*time.Millisecond), stint.CallerOptions{}), "http://s/"); err != nil || s.count != 2 {
			t.Errorf("%v after %d requests, want the second to succeed", err, s.count)
		}
	})
}

// A heavy read that the peer gave up on is not repeated either, nor is one that
// this side gave up on; one that failed is.
func TestNotAfterTimeoutOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := 0
		w.serve(stint.GateOptions{Trust: stint.TrustPeers}, func(rw http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				rw.WriteHeader(503)
				return
			}
			<-r.Context().Done()
			stinthttp.WriteError(rw, r, r.Context().Err())
		})
		p := articlePolicy(5, 0)
		p.Retry.AttemptTimeout, p.Retry.NotAfterTimeout = 100*time.Millisecond, true
		status, _, err := fetch(t.Context(), w.client("s", p, stint.CallerOptions{}), "GET", "http://s", "")
		if n != 2 || status != 504 || err != nil {
			t.Errorf("%d requests, %d, %v; want the 503 repeated and the 504 not", n, status, err)
		}
	})
}

func TestNilCaller(t *testing.T) {
	body := &closeRecorder{}
	req, _ := http.NewRequest("POST", "http://s", body)
	if _, err := (&stinthttp.Transport{}).RoundTrip(req); err == nil || !body.closed {
		t.Errorf("error %v, body closed %v; want a clear error and the body closed", err, body.closed)
	}
}

type closeRecorder struct{ closed bool }

func (*closeRecorder) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closeRecorder) Close() error           { c.closed = true; return nil }
