package stinthttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

func TestRouteOp(t *testing.T) {
	op, err := stinthttp.RouteOp("GET /orders/{id}", "GET /orders/new", "/search/", "POST /search/{$}", "replica/orders/{id}", "/files/{path...}", "GET /{$}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, url, want string }{
		{"GET", "http://s/orders/5", "GET /orders/{id}"},
		{"", "http://s/orders/5", "GET /orders/{id}"},
		{"HEAD", "http://s:8080/orders/5?x=1", "GET /orders/{id}"},
		{"GET", "http://s/orders/new", "GET /orders/new"},
		{"GET", "http://s/orders/a%2Fb", "GET /orders/{id}"},
		{"DELETE", "http://s/orders/5", "DELETE"}, // ServeMux would say 405
		{"DELETE", "http://replica:80/orders/5", "replica/orders/{id}"},
		{"GET", "http://s/orders/5/items", "GET"},
		{"GET", "http://s/search/", "/search/"},
		{"POST", "http://s/search/", "POST /search/{$}"},
		{"POST", "http://s/search/a/b", "/search/"},
		{"GET", "http://s/search", "GET"},      // ServeMux would redirect,
		{"GET", "http://s//search/a", "GET"},   // here as well,
		{"GET", "http://s/search/../x", "GET"}, // and here
		{"PUT", "http://s/files/a/b/c", "/files/{path...}"},
		{"GET", "http://s", "GET /{$}"},
		{"GET", "http://s/", "GET /{$}"},
		{"PATCH", "http://s/x", "PATCH"},
		{"PURGE", "http://s/x", "other"},
		{"PURGE", "http://s/files/x", "/files/{path...}"},
		{"CONNECT", "http://s/search/", "/search/"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"", u.Host} { // http.NewRequest sets it, and nobody has to
			r := &http.Request{Method: c.method, URL: u, Host: host}
			before, ref := *r, stinthttp.RequestOp(r)
			got := op(r)
			if ref.Name = c.want; got != ref {
				t.Errorf("%s %s: %+v, want RequestOp's under the name %s", c.method, c.url, got, c.want)
			}
			if !reflect.DeepEqual(before, *r) || r.PathValue("id") != "" {
				t.Errorf("%s %s: the request was changed", c.method, c.url)
			}
		}
	}
	for _, r := range []*http.Request{{}, {Method: "GET", URL: &url.URL{Opaque: "//s/orders/5"}}, {Method: "GET", URL: &url.URL{}}} {
		if got := op(r).Name; got != "GET" && got != "GET /{$}" {
			t.Errorf("%+v: %q", r.URL, got)
		}
	}
	none, err := stinthttp.RouteOp()
	if err != nil || none(&http.Request{Method: "PUT", URL: &url.URL{Path: "/"}}).Name != "PUT" {
		t.Errorf("without patterns: %v", err)
	}
}

// What ServeMux panics at is an error here.
func TestRoutesRefusesPatterns(t *testing.T) {
	g := newGate(t, "s", stint.GateOptions{})
	h := http.NotFoundHandler()
	for want, patterns := range map[string][]string{
		`pattern "GET": `:      {"GET"},
		`pattern "": `:         {""},
		`pattern "/a/{": `:     {"/ok", "/a/{"},
		`pattern "/a": `:       {"/a", "/a"},
		`pattern "/{y}/b": `:   {"/a/{x}", "/{y}/b"},
		`pattern "/a/{x}/{x}"`: {"/a/{x}/{x}"},
	} {
		if op, err := stinthttp.RouteOp(patterns...); err == nil || op != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ".go") {
			t.Errorf("RouteOp: %v, want it to say %s", err, want)
		}
		views := map[string]*stint.Gate{}
		for _, p := range patterns {
			views[p] = g
		}
		if len(views) < len(patterns) {
			continue
		}
		if h, err := stinthttp.Routes(g, views, h); err == nil || h != nil || !strings.Contains(err.Error(), "pattern ") {
			t.Errorf("Routes: %v", err)
		}
	}
	if _, err := stinthttp.Routes(g, map[string]*stint.Gate{"/x": nil}, h); err == nil || !strings.Contains(err.Error(), `"/x" has no Gate`) {
		t.Errorf("%v", err)
	}
	if _, err := stinthttp.Routes(nil, nil, h); err == nil {
		t.Error("no Gate")
	}
	if _, err := stinthttp.Routes(g, nil, nil); err == nil {
		t.Error("no handler")
	}
}

// Each request comes in by its pattern's view, and reaches the handler as it came.
func TestRoutes(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		g := newGate(t, "s", stint.GateOptions{Reserve: stint.NoReserve, MaxTimeout: 10 * time.Second})
		o := g.Options()
		o.MaxTimeout, o.DefaultTimeout, o.Class = 5*time.Second, 5*time.Second, stint.Sheddable
		report, err := g.With(o)
		if err != nil {
			t.Fatal(err)
		}
		next := http.NewServeMux()
		next.HandleFunc("GET /report/{id}", func(rw http.ResponseWriter, r *http.Request) {
			left, _ := stint.Remaining(r.Context())
			io.WriteString(rw, r.PathValue("id")+" "+left.String()+" "+stint.HopFromContext(r.Context()).Class.String())
		})
		next.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
			left, _ := stint.Remaining(r.Context())
			io.WriteString(rw, r.URL.Path+" "+left.String())
		})
		h, err := stinthttp.Routes(g, map[string]*stint.Gate{"GET /report/{id}": report, "/events/": g.LongRunning(), "/livez": g.Exempt(), "other/report/{id}": g}, next)
		if err != nil {
			t.Fatal(err)
		}
		w.Serve(t, "s", h)
		client := &http.Client{Transport: w.base}
		ask := func(method, path string) string {
			t.Helper()
			_, text, err := fetch(t.Context(), client, method, "http://s"+path, "")
			if err != nil {
				t.Error(err)
			}
			return text
		}
		for _, c := range []struct{ method, path, want string }{
			{"GET", "/report/5", "5 5s sheddable"},
			{"POST", "/report/5", "/report/5 10s"},
			{"GET", "/x", "/x 10s"},
			{"GET", "/events/a", "/events/a 1h0m0s"},
			{"GET", "/events", "/events 10s"}, // no redirect of ours
			{"GET", "/livez", "/livez 10s"},
		} {
			if got := ask(c.method, c.path); got != c.want {
				t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
			}
		}
		o = g.Options()
		o.MaxTimeout, o.DefaultTimeout, o.LongTimeout = 8*time.Second, 8*time.Second, time.Minute
		if err := g.SetOptions(o); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{"/x": "/x 8s", "/report/5": "5 5s sheddable", "/events/a": "/events/a 1m0s"} {
			if got := ask("GET", path); got != want {
				t.Errorf("after SetOptions %s: %q, want %q", path, got, want)
			}
		}
		g.Drain()
		for path, want := range map[string]int{"/report/5": 503, "/x": 503, "/events/a": 503, "/livez": 200} {
			if status, _, err := fetch(t.Context(), client, "GET", "http://s"+path, ""); status != want || err != nil {
				t.Errorf("draining, %s: %d, %v; want %d", path, status, err, want)
			}
		}
	})
}

// Whether a request lasts is a matter of its view, and whether it is believed one
// of the options when it came in, however they change.
func TestHandlerFollowsSetOptions(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		g := newGate(t, "s", stint.GateOptions{MaxTimeout: time.Second})
		_, client := w.mixed(g, stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/owner" {
				io.WriteString(rw, r.Header.Get("X-Retry-Owner"))
				return
			}
			lasting(t)(rw, r)
		})
		owner := func() string {
			req, _ := http.NewRequest("GET", "http://s/owner", nil)
			req.Header.Set("X-Retry-Owner", "edge")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return string(b)
		}
		if got := owner(); got != "" {
			t.Errorf("a stranger's owner %q reached the handler", got)
		}
		o := g.Options()
		o.Trust, o.MaxTimeout, o.DefaultTimeout, o.LongTimeout = stint.TrustPeers, 30*time.Minute, time.Second, 30*time.Minute
		if err := g.SetOptions(o); err != nil { // MaxTimeout is LongTimeout, and still nobody's ordinary request lasts
			t.Fatal(err)
		}
		if got := owner(); got != "edge" {
			t.Errorf("a peer's owner is %q", got)
		}
		if _, text, err := fetch(t.Context(), client, "GET", "http://s/long/events?n=60", ""); strings.Count(text, "data:") != 60 || err != nil {
			t.Errorf("%d events, %v", strings.Count(text, "data:"), err)
		}
		req, _ := http.NewRequest("GET", "http://s/events?n=60", nil)
		req.Header.Set("X-Deadline-Ms", "1200000")
		if resp, err := client.Do(req); err == nil {
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil {
				t.Errorf("an ordinary request outlasted its server's timeouts: %d events", strings.Count(string(b), "data:"))
			}
		}
	})
}

// The time, the safety and the attempts are those of the operation that the
// Transport names, also where its body has to be read first.
func TestOperationsOverHTTP(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		seen := map[string][]string{}
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			mu.Lock()
			defer mu.Unlock()
			seen[r.URL.Path] = append(seen[r.URL.Path], r.Header.Get("X-Deadline-Ms"))
			rw.WriteHeader(503)
		}))
		op, err := stinthttp.RouteOp("POST /search", "POST /import")
		if err != nil {
			t.Fatal(err)
		}
		retry := stint.Retry{Attempts: 3, Base: 1, Cap: 1}
		c := newCaller(t, "s", stint.Policy{Timeout: 2 * time.Second, Retry: retry, Operations: map[string]stint.Policy{
			"POST /search": {Timeout: 4 * time.Second, Retry: retry, Safety: stint.ReadOnly},
			"POST /import": {Timeout: time.Minute},
		}}, stint.CallerOptions{})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: c, Base: w.base, Peer: stinthttp.PeerStint, Op: op, BufferBody: 1 << 10}}
		for path, wait := range map[string]time.Duration{"/search": 0, "/other": 0, "/import": 10 * time.Second} {
			body, send := io.Pipe()
			go func() {
				time.Sleep(wait) // virtual
				io.WriteString(send, "x")
				send.Close()
			}()
			resp, err := client.Post("http://s"+path, "", body)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			resp.Body.Close()
		}
		want := map[string][]string{"/search": {"4000", "3999", "3999"}, "/other": {"2000"}, "/import": {"50000"}}
		for path := range want {
			if len(seen[path]) != len(want[path]) || len(seen[path]) > 0 && seen[path][0] != want[path][0] {
				t.Errorf("%s: %v, want as many as %v", path, seen[path], want[path])
			}
		}
	})
}

// NewClient's own limits leave room for the longest of the operations.
func TestNewClientWithOperations(t *testing.T) {
	for _, c := range []struct {
		around, operation, want time.Duration
	}{{time.Second, time.Minute, 61 * time.Second}, {time.Minute, time.Second, 61 * time.Second}, {time.Second, 0, 10 * time.Second}} {
		caller := newCaller(t, "s", stint.Policy{Timeout: c.around, Operations: map[string]stint.Policy{
			"a": {Timeout: c.operation, Retry: stint.Retry{AttemptTimeout: 800 * time.Millisecond}}}}, stint.CallerOptions{})
		client := stinthttp.NewClient(caller, stinthttp.PeerStint)
		base := client.Transport.(*stinthttp.Transport).Base.(*http.Transport)
		if client.Timeout != c.want || base.ResponseHeaderTimeout < c.operation || base.HTTP2.SendPingTimeout != 200*time.Millisecond || base.HTTP2.PingTimeout != 400*time.Millisecond {
			t.Errorf("%+v: Timeout %v, header %v, signs of life %v and %v", c, client.Timeout, base.ResponseHeaderTimeout, base.HTTP2.SendPingTimeout, base.HTTP2.PingTimeout)
		}
	}
}

// A Gate's options change under requests over HTTP.
func TestRoutesRace(t *testing.T) {
	var rec stinttest.Recorder
	g := newGate(t, "s", stint.GateOptions{Observer: &rec})
	h, err := stinthttp.Routes(g, map[string]*stint.Gate{"/a": g.WithTrust(stint.TrustPeers), "/b/{x}": g.LongRunning()}, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	var setting, load sync.WaitGroup
	setting.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			o := stint.GateOptions{Trust: stint.Trust(i % 2), Limit: i % 3, Logger: quiet}
			if i%2 == 0 {
				o.Observer = &rec
			}
			if err := g.SetOptions(o); err != nil {
				t.Error(err)
			}
		}
	})
	for _, path := range []string{"/a", "/b/x", "/c", "/a"} {
		load.Go(func() {
			for range 200 {
				rw := httptest.NewRecorder()
				if h.ServeHTTP(rw, httptest.NewRequest("GET", path, nil)); rw.Code != 200 {
					t.Errorf("%s: %d", path, rw.Code)
				}
			}
		})
	}
	load.Wait()
	stop(errors.New("done"))
	setting.Wait()
	if g.Running() != 0 || g.LongRunning().Running() != 0 {
		t.Errorf("%d run", g.Running())
	}
}
