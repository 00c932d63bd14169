package stinthttp_test

import (
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

// claimed is what anybody can write into a request.
var claimed = http.Header{"X-Deadline-Ms": {"250"}, "X-Timeout-Ms": {"260"}, "X-Retry-Owner": {"stranger"}, "X-Attempt": {"3"},
	"X-Criticality": {"critical-plus"}, "X-Request-Id": {"their-id"}, "Idempotency-Key": {"order-1"}, "X-Own": {"1"}}

func (w *world) claim(host, path string) *http.Response {
	w.t.Helper()
	req, _ := http.NewRequest("GET", "http://"+host+path, nil)
	req.Header = claimed.Clone()
	resp, err := (&http.Client{Transport: w.base}).Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// One Gate, two kinds of callers: by route of one mux, and by listener.
func TestTrustPerRouteAndPerListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var rec stinttest.Recorder
		internal := newGate(t, "s", stint.GateOptions{Trust: stint.TrustPeers, Limit: 2, Observer: &rec})
		edge := internal.WithTrust(stint.TrustDeadlineOnly)
		release := make(chan struct{})
		h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Owner", stint.HopFromContext(r.Context()).Owner)
			if r.URL.Query().Has("wait") {
				<-release
			}
		})
		mux := http.NewServeMux()
		mux.Handle("/public", stinthttp.Handler(edge, h))
		mux.Handle("/internal", stinthttp.Handler(internal, h))
		w.Serve(t, "both", mux)
		w.ServeServer(t, "outside", stinthttp.NewServer("", edge, h, nil).Server)
		w.ServeServer(t, "inside", stinthttp.NewServer("", internal, h, nil).Server)
		for _, c := range []struct{ host, path, owner string }{
			{"both", "/public", ""}, {"both", "/internal", "stranger"}, {"outside", "/", ""}, {"inside", "/", "stranger"},
		} {
			if owner := w.claim(c.host, c.path).Header.Get("X-Owner"); owner != c.owner {
				t.Errorf("%s%s: owner %q, want %q", c.host, c.path, owner, c.owner)
			}
		}
		for _, e := range rec.Events(stint.GateEntered) {
			if ignored := 4; (e.Owner == "") != (e.Ignored == ignored) {
				t.Errorf("event %+v", e)
			}
		}
		// The places are one service's, whoever takes them.
		client := &http.Client{Transport: w.base}
		go client.Get("http://outside/?wait")
		go client.Get("http://inside/?wait")
		synctest.Wait()
		for _, host := range []string{"inside", "outside"} {
			req, _ := http.NewRequest("GET", "http://"+host, nil)
			req.Header.Set("X-Deadline-Ms", "1") // no time to wait for a place
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 503 {
				t.Errorf("%s, full from both sides: %s", host, resp.Status)
			}
		}
		close(release)
	})
}

// What the handler behind a Gate sees of the request: nothing that a stranger
// claims, everything that a peer says. The request of others is not changed.
func TestHandlerSeesWhatIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for trust, want := range map[stint.Trust]http.Header{
			stint.TrustPeers:        claimed,
			stint.TrustDeadlineOnly: {"Idempotency-Key": {"order-1"}, "X-Own": {"1"}},
		} {
			var seen http.Header
			var id string
			h := stinthttp.Handler(newGate(t, "s", stint.GateOptions{Trust: trust}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				seen, id = r.Header, stint.HopFromContext(r.Context()).RequestID
				if left, _ := stint.Remaining(r.Context()); left > 250*time.Millisecond {
					t.Errorf("trust %v: %v left, want the claimed limit", trust, left)
				}
			}))
			w.Serve(t, trust.String(), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(rw, r)
				for name := range claimed {
					if r.Header[name] == nil {
						t.Errorf("trust %v: %s is gone for the handlers outside as well", trust, name)
					}
				}
			}))
			w.claim(trust.String(), "/")
			for name := range claimed {
				if name != "X-Request-Id" && seen.Get(name) != want.Get(name) {
					t.Errorf("trust %v: %s is %q, want %q", trust, name, seen.Get(name), want.Get(name))
				}
			}
			if got := seen.Get("X-Request-Id"); got != id || (got == "their-id") != (trust == stint.TrustPeers) {
				t.Errorf("trust %v: request id %q, want the Gate's %q", trust, got, id)
			}
		}
	})
}

// A reverse proxy copies every field both ways; no mark and no claim gets through
// it to somebody who would believe it wrongly.
func TestReverseProxyPassesNoMarks(t *testing.T) {
	const none, own = "", "*"
	for _, c := range []struct {
		name    string
		trust   stint.Trust
		peer    stinthttp.Peer
		plain   bool
		backend map[string]string // what it is told; * is not what the caller claimed
	}{
		{"edge, to a peer", stint.TrustDeadlineOnly, stinthttp.PeerStint, false,
			map[string]string{"X-Deadline-Ms": own, "X-Timeout-Ms": none, "X-Retry-Owner": own, "X-Attempt": none, "X-Criticality": none, "X-Request-Id": own, "Idempotency-Key": "order-1"}},
		{"edge, to a stranger", stint.TrustDeadlineOnly, stinthttp.PeerExternal, false,
			map[string]string{"X-Deadline-Ms": own, "X-Timeout-Ms": none, "X-Retry-Owner": none, "X-Attempt": none, "X-Criticality": none, "X-Request-Id": own, "Idempotency-Key": "order-1"}},
		{"edge, plain", stint.TrustDeadlineOnly, 0, true,
			map[string]string{"X-Deadline-Ms": none, "X-Timeout-Ms": none, "X-Retry-Owner": none, "X-Attempt": none, "X-Criticality": none, "X-Request-Id": own, "Idempotency-Key": "order-1"}},
		{"inside, to a peer", stint.TrustPeers, stinthttp.PeerStint, false,
			map[string]string{"X-Deadline-Ms": own, "X-Timeout-Ms": none, "X-Retry-Owner": "stranger", "X-Attempt": none, "X-Criticality": "critical-plus", "X-Request-Id": "their-id", "Idempotency-Key": "order-1"}},
		{"inside, to a stranger", stint.TrustPeers, stinthttp.PeerExternal, false,
			map[string]string{"X-Deadline-Ms": own, "X-Timeout-Ms": none, "X-Retry-Owner": none, "X-Attempt": none, "X-Criticality": none, "X-Request-Id": "their-id", "Idempotency-Key": "order-1"}},
		{"inside, plain", stint.TrustPeers, 0, true, // as it came, the time limit too
			map[string]string{"X-Deadline-Ms": "250", "X-Timeout-Ms": "260", "X-Retry-Owner": "stranger", "X-Attempt": "3", "X-Criticality": "critical-plus", "X-Request-Id": "their-id", "Idempotency-Key": "order-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				backend := stinttest.NewDependency(stinttest.Step{Latency: 20 * time.Millisecond, Status: 503,
					Header: http.Header{"X-Not-Started": {"full"}, "X-Retry": {"never"}, "X-Own": {"2"}, "Retry-After": {"7"}}})
				w.Serve(t, "backend", backend)
				target, _ := url.Parse("http://backend")
				proxy := httputil.NewSingleHostReverseProxy(target)
				proxy.Transport = w.base
				if !c.plain {
					proxy.Transport = &stinthttp.Transport{Caller: newCaller(t, "backend", retrying, stint.CallerOptions{}), Base: w.base, Peer: c.peer}
				}
				w.Serve(t, "proxy", stinthttp.Handler(newGate(t, "proxy", stint.GateOptions{Trust: c.trust}), proxy))
				resp := w.claim("proxy", "/")
				if h := resp.Header; resp.StatusCode != 503 || h.Get("X-Not-Started") != "" || h.Get("X-Retry") != "never" || h.Get("X-Own") != "2" || h.Get("Retry-After") != "7" {
					t.Errorf("answered %d %v; want everything but X-Not-Started", resp.StatusCode, h)
				}
				if n := backend.Count(); n != 1 {
					t.Fatalf("%d requests at the backend, want 1: never is for everybody", n)
				}
				told := backend.Arrivals()[0].Header
				for name, want := range c.backend {
					if got := told.Get(name); got != want && (want != own || got == "" || got == claimed.Get(name)) {
						t.Errorf("the backend was told %s %q, want %q", name, got, want)
					}
				}
				if told.Get("X-Own") != "1" {
					t.Errorf("the backend was told %v", told)
				}
			})
		})
	}
}
