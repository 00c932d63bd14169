package stinthttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// B14: what may have been done is not done again unless it may be. The server
// has read the whole request, and done what it asks, before it fails.
func TestB14UnsafeAfterAmbiguousFailure(t *testing.T) {
	policy := articlePolicy(3, 0)
	policy.Timeout, policy.Retry.AttemptTimeout = 10*time.Second, 100*time.Millisecond
	failures := map[string]struct {
		step stinttest.Step
		code string
	}{
		"502":                      {stinttest.Step{Status: 502, Latency: 10 * time.Millisecond}, "502"},
		"503":                      {stinttest.Step{Status: 503}, "503"},
		"503 with a hint":          {stinttest.Step{Status: 503, Header: http.Header{"Retry-After": {"1"}}}, "503"},
		"504":                      {stinttest.Step{Status: 504}, "504"},
		"reset":                    {stinttest.Step{Reset: true}, "reset"},
		"reset after a while":      {stinttest.Step{Reset: true, Latency: 10 * time.Millisecond}, "reset"},
		"a stall past the limit":   {stinttest.Step{Stall: true}, "attempt_timeout"},
		"an answer past the limit": {stinttest.Step{Latency: 150 * time.Millisecond}, "attempt_timeout"},
	}
	for _, c := range []struct {
		method, key string
		repeated    bool
	}{
		{method: "POST"},
		{method: "PATCH"},
		{method: "POST", key: "order-1", repeated: true},
		{method: "PATCH", key: "order-1", repeated: true},
		{method: "PUT", repeated: true},
		{method: "DELETE", repeated: true},
		{method: "GET", repeated: true},
	} {
		for failure, f := range failures {
			t.Run(strings.ReplaceAll(c.method+c.key+" "+failure, " ", "_"), func(t *testing.T) {
				bothProtocols(t, func(t *testing.T, w *world) {
					leaf := stinttest.NewDependency(f.step, f.step, stinttest.Step{})
					effects := make(map[string]int) // one a key, as a server that honours keys does
					w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						effects[r.Header.Get("Idempotency-Key")]++
						leaf.ServeHTTP(rw, r)
					}))
					var rec stinttest.Recorder
					client := w.client("s", policy, stint.CallerOptions{Observer: &rec})
					var body io.Reader = strings.NewReader("one cup of tea")
					if c.method == "GET" {
						body = nil
					}
					req, _ := http.NewRequestWithContext(t.Context(), c.method, "http://s", body)
					if c.key != "" {
						req.Header.Set("Idempotency-Key", c.key)
					}
					resp, err := client.Do(req)
					status := 0
					if err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						status = resp.StatusCode
					}
					call := rec.Events(stint.CallDone)[0]
					if c.repeated {
						if leaf.Count() != 3 || status != 200 || call.Attempt != 3 {
							t.Errorf("%d requests, %d attempts, %d, %v; want 3 and success", leaf.Count(), call.Attempt, status, err)
						}
						if len(effects) != 1 || effects[c.key] != 3 {
							t.Errorf("keys of the attempts: %v, want %q three times", effects, c.key)
						}
						return
					}
					// The answer, or an error that says that it may have been executed.
					var e *stint.Error
					if leaf.Count() != 1 || !errors.As(call.Err, &e) {
						t.Fatalf("%d requests, %d, %v; want 1 and an Error", leaf.Count(), status, call.Err)
					}
					if e.Reason != stint.NotRepeatable || e.Attempts != 1 || e.Outcome().NotStarted || e.Last.Code != f.code ||
						!strings.Contains(e.Error(), "not_repeatable (and may have been executed)") {
						t.Errorf("%v (%+v), want one %s, not repeatable, and no word that it never started", e, e.Last, f.code)
					}
					if f.step.Status != status || (err == nil) != (status != 0) || err != nil && !errors.As(err, &e) {
						t.Errorf("the caller got %d, %v", status, err)
					}
				})
			})
		}
	}
}

// B14: what was never sent may be sent, whatever the method.
func TestB14RefusedConnectionIsRepeated(t *testing.T) {
	for _, method := range []string{"POST", "PATCH"} {
		bothProtocols(t, func(t *testing.T, w *world) {
			leaf := stinttest.NewDependency()
			w.Serve(t, "s", leaf)
			dials, dial := 0, w.base.DialContext
			w.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials++; dials < 3 {
					addr = "nobody:80"
				}
				return dial(ctx, network, addr)
			}
			status, _, err := fetch(t.Context(), w.client("s", retrying, stint.CallerOptions{}), method, "http://s", "one cup of tea")
			if status != 200 || err != nil || dials != 3 || leaf.Count() != 1 || string(leaf.Arrivals()[0].Body) != "one cup of tea" {
				t.Errorf("%s: %d, %v after %d dials, %d requests; want the third dial's success, once", method, status, err, dials, leaf.Count())
			}
		})
	}
}

// B14: the operation's own key is every attempt's, also where the request came
// without one.
func TestB14OneKeyForAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 502}, stinttest.Step{Reset: true}, stinttest.Step{})
		w.Serve(t, "s", leaf)
		tr := &stinthttp.Transport{Caller: newCaller(t, "s", retrying, stint.CallerOptions{}), Base: w.base,
			Op: func(*http.Request) stint.Op { return stint.Op{Name: "order", Key: "order-7"} }}
		status, _, err := fetch(t.Context(), &http.Client{Transport: tr}, "POST", "http://s", "one cup of tea")
		if status != 200 || err != nil || leaf.Count() != 3 {
			t.Errorf("%d, %v after %d requests, want the third one's success", status, err, leaf.Count())
		}
		for i, a := range leaf.Arrivals() {
			if keys := a.Header["Idempotency-Key"]; len(keys) != 1 || keys[0] != "order-7" || string(a.Body) != "one cup of tea" {
				t.Errorf("attempt %d: keys %q, body %q", i+1, keys, a.Body)
			}
		}
	})
}

// B14: a 503 does not say that nothing was done. Who knows that of a service
// says it: the service, by its mark, or the caller, of the operation. A list of
// codes is no such word.
func TestB14ServiceAnswersBeforeItWorks(t *testing.T) {
	busy := stinttest.Step{Status: 503, Header: http.Header{"Retry-After": {"1"}}}
	marked := stinttest.Step{Status: 503, Header: http.Header{"Retry-After": {"1"}, "X-Not-Started": {"full"}}}
	safe := func(*http.Request) stint.Op { return stint.Op{Name: "order", Safety: stint.Idempotent} }
	for _, c := range []struct {
		name  string
		step  stinttest.Step
		codes []string
		op    func(*http.Request) stint.Op
		peer  stinthttp.Peer
		sent  int
	}{
		{name: "nobody says so", step: busy, peer: stinthttp.PeerStint, sent: 1},
		{name: "a list of codes", step: busy, codes: []string{"503"}, peer: stinthttp.PeerStint, sent: 1},
		{name: "the operation", step: busy, op: safe, sent: 2},
		{name: "a peer's mark", step: marked, peer: stinthttp.PeerStint, sent: 2},
		{name: "a stranger's mark", step: marked, peer: stinthttp.PeerExternal, sent: 1},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				leaf := stinttest.NewDependency(c.step, stinttest.Step{})
				w.Serve(t, "s", leaf)
				p := articlePolicy(3, 0)
				p.Retry.Codes = c.codes
				tr := &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: w.base, Op: c.op, Peer: c.peer}
				start := time.Now()
				status, _, err := fetch(t.Context(), &http.Client{Transport: tr}, "POST", "http://s", "one cup of tea")
				if want := map[int]int{1: 503, 2: 200}[c.sent]; leaf.Count() != c.sent || status != want || err != nil {
					t.Errorf("sent %d times, %d, %v; want %d and %d", leaf.Count(), status, err, c.sent, want)
				}
				if waited := time.Since(start) >= time.Second; waited != (c.sent > 1) {
					t.Errorf("took %v, want the hint's second before a second request and no other wait", time.Since(start))
				}
			})
		})
	}
}
