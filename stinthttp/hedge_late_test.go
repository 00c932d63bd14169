package stinthttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// hosts is a RoundTripper that counts bodies, keeps the last request to each
// host, and lets the attempts to one of them ignore that they are cancelled.
type hosts struct {
	bodies
	deaf string
	mu   sync.Mutex
	last map[string]*http.Request
}

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	if h.last == nil {
		h.last = make(map[string]*http.Request)
	}
	h.last[r.URL.Host] = r
	h.mu.Unlock()
	if r.URL.Host == h.deaf {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	return h.bodies.RoundTrip(r)
}

func (h *hosts) context(host string) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[host].Context()
}

// B25, in virtual time: the loser is gone when the call has its answer, the
// winner's context lives until its body is closed, and every byte arrives.
func TestB25LoserIsGoneAtOnce(t *testing.T) {
	alone := stint.Policy{Timeout: 20 * time.Second, Bulkhead: 2, Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}
	bounded := alone
	bounded.Retry = stint.Retry{Attempts: 3, AttemptTimeout: 5 * time.Second, Base: time.Millisecond, Cap: time.Millisecond}
	for _, c := range []struct {
		name   string
		policy stint.Policy
		failed int    // attempts that the first host answers with 503 before
		winner string // the host that answers
		deaf   bool   // the loser answers all the same, 200 ms later
	}{
		{name: "alone", policy: alone, winner: "b"},
		{name: "alone, late answer", policy: alone, winner: "b", deaf: true},
		{name: "attempt timeout", policy: bounded, winner: "b"},
		{name: "attempt timeout, late answer", policy: bounded, winner: "b", deaf: true},
		{name: "after a retry", policy: bounded, failed: 1, winner: "a"},
		{name: "after a retry, late answer", policy: bounded, failed: 1, winner: "a", deaf: true},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				loser := map[string]string{"a": "b", "b": "a"}[c.winner]
				var left time.Time
				failed := 0
				for _, host := range []string{"a", "b"} {
					w.Serve(t, host, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						switch {
						case host == "a" && failed < c.failed:
							failed++
							rw.WriteHeader(503)
						case host == c.winner:
							chunked(10*time.Millisecond)(rw, r)
						case c.deaf:
							time.Sleep(200 * time.Millisecond) // virtual
							io.WriteString(rw, strings.Repeat("late ", 10_000))
						default:
							<-r.Context().Done()
							left = time.Now()
						}
					}))
				}
				base := &hosts{bodies: bodies{base: w.base}}
				if c.deaf {
					base.deaf = loser
				}
				var rec stinttest.Recorder
				caller := newCaller(t, "s", c.policy, stint.CallerOptions{Observer: &rec})
				client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base, Alternates: []string{"b"}}}
				resp, err := client.Get("http://a")
				if err != nil {
					t.Fatal(err)
				}
				decided := time.Now()
				synctest.Wait()
				if err := base.context(loser).Err(); err != context.Canceled {
					t.Errorf("the loser's context when the call has its answer: %v", err)
				}
				if base.context(c.winner).Err() != nil {
					t.Error("the winner's context ended with the race")
				}
				n, err := io.Copy(io.Discard, resp.Body)
				if n != chunkedBytes || err != nil {
					t.Errorf("read %d bytes, %v; want %d", n, err, chunkedBytes)
				}
				resp.Body.Close()
				synctest.Wait()
				if !c.deaf && left.Sub(decided) != 0 {
					t.Errorf("the loser's server saw it leave %v after the decision, want at once", left.Sub(decided))
				}
				if base.context(c.winner).Err() == nil {
					t.Error("the winner's context still lives after Close")
				}
				if all, open := base.all.Load(), base.open.Load(); open != 0 || c.deaf && int(all) != 2+c.failed {
					t.Errorf("%d responses, %d bodies open; want all closed, the loser's among them", all, open)
				}
				if wasted := rec.Events(stint.WorkWasted); len(wasted) != 1 || wasted[0].Outcome.Code != "hedge_lost" {
					t.Errorf("wasted work: %+v, want the loser's", wasted)
				}
			})
		})
	}
}

// B26 over HTTP: a thousand losers that ignore their cancellation and answer
// 200 ms later. Each call has one result; what comes late is closed, and
// changes nothing but the wasted work.
func TestB26LateAnswersOverHTTP(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		const calls = 1000
		late, quick := stinttest.NewDependency(stinttest.Step{Latency: 210 * time.Millisecond, Body: "late"}), stinttest.NewDependency(stinttest.Step{Body: "quick"})
		w.Serve(t, "a", late)
		w.Serve(t, "b", quick)
		base := &hosts{bodies: bodies{base: w.base}, deaf: "a"}
		var rec stinttest.Recorder
		p := stint.Policy{Timeout: time.Minute, Bulkhead: stint.NoLimit, Retry: stint.Retry{BudgetRatio: 1}, Hedge: stint.Hedge{Copies: 1, Delay: 10 * time.Millisecond}}
		caller := newCaller(t, "s", p, stint.CallerOptions{Observer: &rec})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base, Alternates: []string{"b"}}}
		before := bubbleGoroutines()
		for i := range calls {
			if status, text, err := fetch(t.Context(), client, "GET", "http://a", ""); status != 200 || text != "quick" || err != nil {
				t.Fatalf("call %d: %d %q, %v", i, status, text, err)
			}
		}
		tokens, wasted := caller.Budget().Balance(), len(rec.Events(stint.WorkWasted))
		time.Sleep(time.Second) // virtual: the last of them is through
		w.base.CloseIdleConnections()
		if n := bubbleGoroutines(); n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		if late.Count() != calls || quick.Count() != calls || base.all.Load() != 2*calls || base.open.Load() != 0 {
			t.Errorf("%d and %d requests, %d responses, %d bodies open; want %d of each, and none", late.Count(), quick.Count(), base.all.Load(), base.open.Load(), calls)
		}
		if done, all := len(rec.Events(stint.CallDone)), len(rec.Events(stint.WorkWasted)); done != calls || all != calls || wasted == calls {
			t.Errorf("%d calls done, %d times wasted work, %d of them before the end", done, all, wasted)
		}
		if now := caller.Budget().Balance(); now != tokens || len(rec.Events(stint.BreakerChanged)) != 0 {
			t.Errorf("the budget went from %v to %v, the breaker %+v; want nothing changed", tokens, now, rec.Events(stint.BreakerChanged))
		}
	})
}

// B27 with the figures of its row: how many requests a slow server sees.
func TestB27RequestsAtASlowServer(t *testing.T) {
	hedge := stint.Policy{Timeout: 10 * time.Second, Hedge: stint.Hedge{Copies: 1, Delay: 50 * time.Millisecond}}
	two, hurry := hedge, hedge
	two.Hedge.Copies = 2
	hurry.Timeout, hurry.MinUseful = 600*time.Millisecond, 551*time.Millisecond // 550 ms are left for a copy
	for _, c := range []struct {
		name, method, key string
		body              io.Reader
		policy            stint.Policy
		sent              int
	}{
		{"POST", "POST", "", strings.NewReader("b"), hedge, 1},
		{"POST with a key", "POST", "k-1", strings.NewReader("b"), hedge, 2},
		{"GET", "GET", "", nil, hedge, 2},
		{"one-shot PUT", "PUT", "", io.NopCloser(strings.NewReader("b")), hedge, 1},
		{"GET, two copies at most", "GET", "", nil, two, 3},
		{"GET with too little left", "GET", "", nil, hurry, 1},
	} {
		t.Run(strings.NewReplacer(", ", ",", " ", "_").Replace(c.name), func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				leaf := stinttest.NewDependency(stinttest.Step{Latency: 500 * time.Millisecond})
				w.Serve(t, "s", leaf)
				caller := newCaller(t, "s", c.policy, stint.CallerOptions{})
				client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: w.base}}
				req, _ := http.NewRequestWithContext(t.Context(), c.method, "http://s", c.body)
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if want := min(10-float64(c.sent-1)+0.1, 10); leaf.Count() != c.sent || caller.Budget().Balance() != want {
					t.Errorf("%d requests, the budget holds %v; want %d and %v", leaf.Count(), caller.Budget().Balance(), c.sent, want)
				}
				for i, a := range leaf.Arrivals() {
					if a.Header.Get("Idempotency-Key") != c.key {
						t.Errorf("request %d: key %q, want %q", i+1, a.Header.Get("Idempotency-Key"), c.key)
					}
				}
				client.CloseIdleConnections() // the copies' own pool as well
			})
		})
	}
}
