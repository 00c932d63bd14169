package stinthttp_test

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// A call that nobody may repeat claims nothing, so the layer below may retry its
// own reads; one that may be repeated claims the path.
func TestUnsafeCallClaimsNothing(t *testing.T) {
	for _, c := range []struct {
		method, key string
		atB, atC    int
		owner       string // what B is told
	}{
		{method: "POST", atB: 1, atC: 3},
		{method: "POST", key: "order-1", atB: 3, atC: 3, owner: "client"},
		{method: "GET", atB: 3, atC: 3, owner: "client"},
	} {
		t.Run(c.method+c.key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
				w.Serve(t, "c", leaf)
				var rec stinttest.Recorder
				options := peers
				options.Observer = &rec
				w.relay("b", "c", options, retrying)
				req, _ := http.NewRequest(c.method, "http://b", nil)
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				resp, err := w.client("b", retrying, stint.CallerOptions{}).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				entered := rec.Events(stint.GateEntered)
				if len(entered) != c.atB || leaf.Count() != c.atC || entered[0].Owner != c.owner {
					t.Errorf("%d requests at B, told owner %q, %d at C; want %d, %q, %d", len(entered), entered[0].Owner, leaf.Count(), c.atB, c.owner, c.atC)
				}
			})
		})
	}
}

// What a Gate believes: a stranger may shorten its deadline, and that is all.
func TestInboundTrust(t *testing.T) {
	claims := http.Header{"X-Deadline-Ms": {"250"}, "X-Retry-Owner": {"stranger"}, "X-Attempt": {"3"}, "X-Criticality": {"critical-plus"},
		"X-Request-Id": {"their-id"}, "Idempotency-Key": {"order-1"}}
	for _, c := range []struct {
		trust   stint.Trust
		owner   string
		attempt int
		class   stint.Class
		id      string
		ignored int
		atC     int
	}{
		{trust: stint.TrustDeadlineOnly, ignored: 4, atC: 3},
		{trust: stint.TrustPeers, owner: "stranger", attempt: 3, class: stint.CriticalPlus, id: "their-id", atC: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
			w.Serve(t, "c", leaf)
			var rec stinttest.Recorder
			w.relay("b", "c", stint.GateOptions{Trust: c.trust, Observer: &rec}, retrying)
			req, _ := http.NewRequest("GET", "http://b", nil)
			req.Header = claims.Clone()
			resp, err := (&http.Client{Transport: w.base}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			e := rec.Events(stint.GateEntered)[0]
			if e.Owner != c.owner || e.Attempt != c.attempt || e.Class != c.class || e.Ignored != c.ignored || e.Budget != 250*time.Millisecond ||
				c.id != "" && e.RequestID != c.id || c.id == "" && (len(e.RequestID) != 16 || e.RequestID == "their-id") {
				t.Errorf("%v: entered %+v", c.trust, e)
			}
			if leaf.Count() != c.atC {
				t.Errorf("%v: %d requests at C, want %d: a stranger's claim must not stop our retries", c.trust, leaf.Count(), c.atC)
			}
			if id := leaf.Arrivals()[0].Header.Get("X-Request-Id"); id != e.RequestID {
				t.Errorf("%v: C was told request id %q, want %q as in the Gate's event", c.trust, id, e.RequestID)
			}
		})
	}
}

// What a Transport tells, and what it believes.
func TestOutboundTrust(t *testing.T) {
	for _, c := range []struct {
		peer  stinthttp.Peer
		told  []string
		count int // of a POST that the peer says it never started
	}{
		{stinthttp.PeerExternal, []string{"X-Deadline-Ms", "Idempotency-Key"}, 1},
		{stinthttp.PeerStint, []string{"X-Deadline-Ms", "Idempotency-Key", "X-Retry-Owner", "X-Criticality", "X-Attempt"}, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
			w.Serve(t, "s", leaf)
			op := func(*http.Request) stint.Op {
				return stint.Op{Name: "order", Safety: stint.Idempotent, Key: "order-1", Class: stint.SheddablePlus}
			}
			tr := &stinthttp.Transport{Caller: newCaller(t, "s", retrying, stint.CallerOptions{Service: "edge"}), Base: w.base, Peer: c.peer, Op: op}
			req, _ := http.NewRequest("POST", "http://s", nil)
			req.Header.Set("X-Retry-Owner", "copied")
			req.Header.Set("X-Timeout-Ms", "99999")
			req.Header.Set("Connect-Timeout-Ms", "99999")
			resp, err := (&http.Client{Transport: tr}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			last := leaf.Arrivals()[2].Header
			for _, name := range []string{"X-Deadline-Ms", "Idempotency-Key", "X-Retry-Owner", "X-Criticality", "X-Attempt", "X-Timeout-Ms"} {
				want := false
				for _, told := range c.told {
					want = want || told == name
				}
				if got := last.Get(name); (got != "") != want || got == "copied" {
					t.Errorf("peer %d: %s is %q, told: %v", c.peer, name, got, want)
				}
			}
			if last.Get("Connect-Timeout-Ms") != last.Get("X-Deadline-Ms") {
				t.Errorf("Connect-Timeout-Ms %q beside %q left", last.Get("Connect-Timeout-Ms"), last.Get("X-Deadline-Ms"))
			}
			if len(req.Header) != 3 {
				t.Errorf("the caller's request was changed: %v", req.Header)
			}

			refused := stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"X-Not-Started": {"full"}}})
			w.Serve(t, "r", refused)
			tr = &stinthttp.Transport{Caller: newCaller(t, "r", retrying, stint.CallerOptions{}), Base: w.base, Peer: c.peer}
			req, _ = http.NewRequest("POST", "http://r", nil)
			if resp, err = (&http.Client{Transport: tr}).Do(req); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if refused.Count() != c.count {
				t.Errorf("peer %d: a POST marked not-started was sent %d times, want %d", c.peer, refused.Count(), c.count)
			}
		})
	}
}

// A redirect to another host leaves the circle of peers, for good.
func TestRedirectToAnotherHostIsExternal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		other, back := stinttest.NewDependency(stinttest.Step{Status: 302, Header: http.Header{"Location": {"/again"}}},
			stinttest.Step{Status: 302, Header: http.Header{"Location": {"http://s/back"}}}), stinttest.NewDependency()
		w.Serve(t, "other", other)
		mux := http.NewServeMux()
		mux.Handle("/", http.RedirectHandler("/within", http.StatusFound))
		within := stinttest.NewDependency(stinttest.Step{Status: 302, Header: http.Header{"Location": {"http://other/"}}})
		mux.Handle("/within", within)
		mux.Handle("/back", back)
		w.Serve(t, "s", mux)
		if err := get(t.Context(), w.client("s", retrying, stint.CallerOptions{}), "http://s"); err != nil {
			t.Fatal(err)
		}
		all := append(append(within.Arrivals(), other.Arrivals()...), back.Arrivals()...)
		if len(all) != 4 {
			t.Fatalf("%d requests, want 4", len(all))
		}
		for i, a := range all {
			if owner := a.Header.Get("X-Retry-Owner"); (owner != "") != (i == 0) || a.Header.Get("X-Deadline-Ms") == "" {
				t.Errorf("redirect %d was told %v; want the deadline, and an owner only within the first host", i+1, a.Header)
			}
		}
	})
}

// "Never" is obeyed whoever says it, and travels up to the first owner; "not
// started" does not travel.
func TestMarksTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"X-Retry": {"never"}, "X-Not-Started": {"full"}}})
		w.Serve(t, "c", leaf)
		w.relay("b", "c", peers, retrying)
		target, _ := url.Parse("http://b")
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = w.base
		w.Serve(t, "a", stinthttp.Handler(newGate(t, "a", peers), proxy)) // copies every header both ways

		for _, host := range []string{"b", "a"} {
			before := leaf.Count()
			resp, err := w.client(host, retrying, stint.CallerOptions{}).Get("http://" + host)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if n := leaf.Count() - before; n != 1 || resp.Header.Get("X-Retry") != "never" || resp.Header.Get("X-Not-Started") != "" {
				t.Errorf("through %s: %d requests at C, answer %v; want 1, never, and no not-started", host, n, resp.Header)
			}
		}
	})
}

// A layer that retries on its own account under another owner says so when it
// gives up, and the layers do not multiply.
func TestOwnerAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503})
		w.Serve(t, "c", leaf)
		always := retrying
		always.Retry.Owner = stint.OwnerAlways
		w.relay("b", "c", peers, always)
		w.relay("a", "b", peers, retrying)
		get(t.Context(), w.client("a", retrying, stint.CallerOptions{}), "http://a")
		if leaf.Count() != 3 {
			t.Errorf("%d requests at C, want B's 3 and nobody's else", leaf.Count())
		}
	})
}

// Also what provably never started does not multiply: a layer below the owner
// may try again, and if it gives up, nobody above starts over.
func TestNotStartedDoesNotMultiply(t *testing.T) {
	full := stinttest.Step{Status: 503, Header: http.Header{"X-Not-Started": {"full"}}}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(full)
		w.Serve(t, "c", leaf)
		w.relay("b", "c", peers, retrying)
		w.relay("a", "b", peers, retrying)
		get(t.Context(), w.client("a", retrying, stint.CallerOptions{}), "http://a")
		if leaf.Count() != 3 {
			t.Errorf("across hops: %d requests at C, want one layer's 3", leaf.Count())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(full)
		w.Serve(t, "s", leaf)
		inner := &stinthttp.Transport{Caller: newCaller(t, "sdk", retrying, stint.CallerOptions{}), Base: w.base, Peer: stinthttp.PeerStint}
		outer := &stinthttp.Transport{Caller: newCaller(t, "app", articlePolicy(4, 0), stint.CallerOptions{}), Base: inner, Peer: stinthttp.PeerStint}
		get(t.Context(), &http.Client{Transport: outer}, "http://s")
		if leaf.Count() != 3 {
			t.Errorf("in one process: %d requests, want the inner layer's 3", leaf.Count())
		}
	})
}

// A peer that is full is well: its refusals open no breaker, which would leave it
// idle. The word of others is not believed.
func TestFullOpensNoBreaker(t *testing.T) {
	for _, mark := range []http.Header{{"Retry-After": {"1"}}, {"X-Retry": {"never"}}} {
		for peer, want := range map[stinthttp.Peer]int{stinthttp.PeerStint: 40, stinthttp.PeerExternal: 20} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				h := mark.Clone()
				h.Set("X-Not-Started", "full")
				s := stinttest.NewDependency(stinttest.Step{Status: 503, Header: h})
				w.Serve(t, "s", s)
				client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", stint.Policy{}, stint.CallerOptions{}), Base: w.base, Peer: peer}}
				for range 40 {
					get(t.Context(), client, "http://s")
				}
				if s.Count() != want {
					t.Errorf("%v, peer %v: %d of 40 requests were sent, want %d", mark, peer, s.Count(), want)
				}
			})
		}
	}
}

// What was final at C stays final one hop up, whatever status B makes of it.
func TestFinalStaysFinal(t *testing.T) {
	for _, status := range []int{404, 422, 500, 501} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: status})
			w.Serve(t, "c", leaf)
			w.relay("b", "c", peers, retrying)
			got, _, err := fetch(t.Context(), w.client("b", retrying, stint.CallerOptions{}), "GET", "http://b", "")
			if leaf.Count() != 1 || got != 502 || err != nil {
				t.Errorf("%d: %d requests at C, the client got %d, %v; want 1 and 502", status, leaf.Count(), got, err)
			}
		})
	}
}

// A deadline that has passed on one of the other names is not revived.
func TestExpiredAliasIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency()
		w.Serve(t, "s", leaf)
		for name, value := range map[string]string{"Grpc-Timeout": "500u", "Connect-Timeout-Ms": "0"} {
			req, _ := http.NewRequest("GET", "http://s", nil)
			req.Header.Set(name, value)
			resp, err := w.client("s", stint.Policy{}, stint.CallerOptions{}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			as := leaf.Arrivals()
			if got := as[len(as)-1].Header.Get(name); got != value {
				t.Errorf("%s: %s became %s", name, value, got)
			}
		}
	})
}

// The Gate's refusal is proof that a POST may be sent again.
func TestNotStartedIsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Latency: 500 * time.Millisecond})
		options := peers
		options.LongLimit = 1
		w.Serve(t, "s", stinthttp.Handler(newGate(t, "s", options).LongRunning(), leaf)) // where nobody waits for a place
		client := w.client("s", stint.Policy{Retry: stint.Retry{Attempts: 3}}, stint.CallerOptions{Rand: func() float64 { return 0 }})
		done := make(chan int)
		post := func() {
			status, _, err := fetch(context.Background(), client, "POST", "http://s", "")
			if err != nil {
				t.Error(err)
			}
			done <- status
		}
		start := time.Now()
		go post()
		synctest.Wait()
		go post() // full: told to come back in one to three seconds, which it does
		a, b := <-done, <-done
		if took := time.Since(start); a != 200 || b != 200 || leaf.Count() != 2 || took < 1500*time.Millisecond || took > 3500*time.Millisecond {
			t.Errorf("answered %d and %d after %v, %d handled; want 200 twice after 1.5s to 3.5s", a, b, took, leaf.Count())
		}
	})
}
