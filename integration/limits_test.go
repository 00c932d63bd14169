package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// limited is a location with a condition; what nginx refuses gets 503 with a hint.
func limited(condition, seconds string) string {
	return condition + `
		error_page 503 @limited;
	}
	location @limited { add_header Retry-After ` + seconds + ` always; return 503;`
}

// nginx's own refusal carries its hint: a floor for the wait, or, where it does
// not fit into the time left, the end of the call. And nothing else is believed
// of it: nginx does not say that a request never started.
func TestNginxRefuses(t *testing.T) {
	const zone = "limit_req_zone $server_port zone=one:32k rate=1r/m;\n"
	for _, c := range []struct {
		name, http, extra, method string
		hint                      time.Duration
		status                    int
		reason                    stint.Reason
		codes                     []string
	}{
		{"the hint fits", "", limited("if ($http_x_attempt = '') { return 503; }", "1"), http.MethodGet, time.Second, 200, 0, []string{"503", "200"}},
		{"the hint does not fit", zone, limited("limit_req zone=one;", "60"), http.MethodGet, time.Minute, 503, stint.NoTime, []string{"503"}},
		{"a POST", "", limited("if ($http_x_attempt = '') { return 503; }", "1"), http.MethodPost, time.Second, 503, stint.NotRepeatable, []string{"503"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				d := stinttest.NewDependency()
				n := w.nginx(t, c.http, c.extra, testenv.StartLeaf(t, d).Addr)
				served := 0
				if c.http != "" { // the one request a minute
					if a := w.client(t, n.Addr, stint.Policy{}, stinthttp.PeerStint).get(t.Context()); a.status != http.StatusOK {
						t.Fatalf("the request that is let through: status %d, error %v", a.status, a.err)
					}
					served++
				}
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				a := cl.do(t.Context(), c.method, "", "")
				cl.want(t, a, c.status, c.reason, c.codes...)
				first := cl.rec.Events(stint.AttemptDone)[0]
				if o := first.Outcome; !o.Hinted || o.RetryAfter != c.hint || o.NotStarted {
					t.Errorf("nginx's 503: %+v, want a hint of %v, and no word of never having started", o, c.hint)
				}
				if c.status == http.StatusOK {
					if served++; first.Delay < c.hint {
						t.Errorf("a wait of %v, want at least the %v that nginx asked for", first.Delay, c.hint)
					}
				} else if a.header.Get("Retry-After") == "" || first.Delay != 0 {
					t.Errorf("Retry-After %q after a wait of %v; want nginx's answer as it was, and no wait", a.header.Get("Retry-After"), first.Delay)
				}
				count(t, []int{served}, d)
			})
		})
	}
}

// A second connection to a full upstream gets nginx's 503 without a hint, and
// the ordinary backoff.
func TestNginxLimitsConnections(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		entered, release := make(chan bool, 2), make(chan bool)
		l := leaf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			entered <- true
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		n := w.nginx(t, "limit_conn_zone $server_port zone=one:32k;\n", "limit_conn one 1;", l.Addr)
		first := make(chan answer, 1)
		holder := w.client(t, n.Addr, stint.Policy{}, stinthttp.PeerStint)
		go func() { first <- holder.get(t.Context()) }()
		await(t, "the first request at the leaf", entered)

		cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
		a := cl.get(t.Context())
		cl.want(t, a, http.StatusServiceUnavailable, stint.AttemptsSpent, "503", "503", "503")
		close(release)
		if a := await(t, "the first call", first); a.status != http.StatusOK {
			t.Errorf("the first call: status %d, error %v", a.status, a.err)
		}
		again := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
		again.want(t, again.get(t.Context()), http.StatusOK, 0, "200")
	})
}

// What a Gate of ours refuses passes nginx, and is believed of a peer only.
func TestGateRefusesBehindNginx(t *testing.T) {
	for _, c := range []struct {
		name   string
		peer   stinthttp.Peer
		status int
		reason stint.Reason
		codes  []string
	}{
		{"a peer", stinthttp.PeerStint, 200, 0, []string{"503", "200"}},
		{"a stranger", stinthttp.PeerExternal, 503, stint.NotRepeatable, []string{"503"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				d := stinttest.NewDependency()
				entered, release := make(chan bool, 1), make(chan bool)
				full := gate(t, "full", stint.GateOptions{LongLimit: 1}).LongRunning() // where nobody waits for a place
				l := testenv.StartLeaf(t, stinthttp.Handler(full, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if d.ServeHTTP(rw, r); r.Method == http.MethodGet {
						entered <- true
						<-release
					}
				})))
				n := w.nginx(t, "", once, l.Addr)
				first := make(chan answer, 1)
				holder := w.client(t, n.Addr, stint.Policy{}, stinthttp.PeerStint)
				go func() { first <- holder.get(t.Context()) }()
				await(t, "the first request at the leaf", entered)

				// The place is free again when the refusal has been seen.
				cl := w.client(t, n.Addr, retrying(), c.peer)
				cl.afterFirst = func() {
					close(release)
					await(t, "the first call", first)
				}
				a := cl.do(t.Context(), http.MethodPost, "", "order")
				cl.want(t, a, c.status, c.reason, c.codes...)
				if c.status == http.StatusOK {
					count(t, []int{2}, d)
				} else if count(t, []int{1}, d); a.header.Get("X-Not-Started") != "full" {
					t.Errorf("X-Not-Started %q, want nginx to pass it on", a.header.Get("X-Not-Started"))
				}
			})
		})
	}
}

// Too little time is the one refusal that nobody repeats.
func TestGateRefusesForTimeBehindNginx(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		d := stinttest.NewDependency()
		slow := gate(t, "slow", stint.GateOptions{MinUseful: 8 * time.Second})
		n := w.nginx(t, "", "", testenv.StartLeaf(t, stinthttp.Handler(slow, d)).Addr)
		cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		cl.want(t, cl.get(ctx), http.StatusGatewayTimeout, stint.Final, "504")
		count(t, []int{0}, d)
	})
}

// A service's "never" passes nginx up to the owner, whoever the peer is.
func TestNeverPassesNginx(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		for _, peer := range []stinthttp.Peer{stinthttp.PeerStint, stinthttp.PeerExternal} {
			d := stinttest.NewDependency(stinttest.Step{Status: http.StatusServiceUnavailable, Header: http.Header{"X-Retry": {"never"}}})
			n := w.nginx(t, "", "", leaf(t, d).Addr)
			cl := w.client(t, n.Addr, retrying(), peer)
			cl.want(t, cl.get(t.Context()), http.StatusServiceUnavailable, stint.NeverRetry, "503")
			count(t, []int{1}, d)
		}
	})
}
