package integration

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// dying serves before until it returns, and is killed then, in the middle of
// the first request.
func dying(t *testing.T, before http.HandlerFunc) *testenv.Leaf {
	t.Helper()
	self := make(chan *testenv.Leaf, 1)
	l := testenv.StartLeaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		before(rw, r)
		(<-self).Kill()
	}))
	self <- l
	return l
}

// A server that is killed in the middle of a request is nginx's 502. Where
// nginx is told to leave retries alone, the owner's rules decide: what is safe
// or keyed is repeated, and the others are sent once.
func TestUpstreamDies(t *testing.T) {
	for _, c := range []struct {
		method, key  string
		status       int
		first, other int
		reason       stint.Reason
		codes        []string
	}{
		{http.MethodGet, "", 200, 1, 1, 0, []string{"502", "200"}},
		{http.MethodPut, "", 200, 1, 1, 0, []string{"502", "200"}},
		{http.MethodPost, "", 502, 1, 0, stint.NotRepeatable, []string{"502"}},
		{http.MethodPost, "order-1", 200, 1, 1, 0, []string{"502", "200"}},
	} {
		t.Run(c.method+c.key, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				first, other := stinttest.NewDependency(), stinttest.NewDependency()
				n := w.nginx(t, "", once, dying(t, first.ServeHTTP).Addr, testenv.StartLeaf(t, other).Addr)
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				cl.want(t, cl.do(t.Context(), c.method, c.key, "body"), c.status, c.reason, c.codes...)
				count(t, []int{c.first, c.other}, first, other)
				for i, a := range append(first.Arrivals(), other.Arrivals()...) {
					attempt := []string{"", "2"}[i]
					if a.Header.Get("Idempotency-Key") != c.key || string(a.Body) != "body" || a.Header.Get("X-Attempt") != attempt {
						t.Errorf("request %d: key %q, body %q, X-Attempt %q; want %q, body, %q",
							i+1, a.Header.Get("Idempotency-Key"), a.Body, a.Header.Get("X-Attempt"), c.key, attempt)
					}
				}
			})
		})
	}
}

// Nobody listens: nothing reached a server, but nginx's 502 does not say so, and
// a request without a key is not repeated.
func TestUpstreamRefuses(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		for _, c := range []struct {
			extra  string
			status int
			reason stint.Reason
			count  int
		}{
			{once, 502, stint.NotRepeatable, 0},
			{"", 200, 0, 1}, // by default nginx asks the next server itself, since it has sent nothing yet
		} {
			d := stinttest.NewDependency()
			n := w.nginx(t, "", c.extra, testenv.RefusingAddr(t), testenv.StartLeaf(t, d).Addr)
			cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
			cl.want(t, cl.do(t.Context(), http.MethodPost, "", "body"), c.status, c.reason, fmt.Sprint(c.status))
			count(t, []int{c.count}, d)
		}
	})
}

// nginx's default is a second layer of retries, which no owner stops and no
// X-Attempt counts: it asks each server of an upstream for every attempt of ours.
func TestNginxRetriesMultiply(t *testing.T) {
	const post, put, get = http.MethodPost, http.MethodPut, http.MethodGet
	for _, c := range []struct {
		name, extra, method, key string
		count                    int
		attempts                 []string // each server's X-Attempts
	}{
		{"GET by default", "", get, "", 9, []string{"", "2", "3"}},
		{"PUT by default", "", put, "", 9, []string{"", "2", "3"}},
		{"POST by default", "", post, "", 1, nil},
		{"POST with a key by default", "", post, "k", 3, nil},
		{"GET under one owner", once, get, "", 3, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				var (
					servers []*stinttest.Dependency
					addrs   []string
					total   int
				)
				for range 3 {
					d := stinttest.NewDependency(stinttest.Step{Reset: true})
					servers = append(servers, d)
					addrs = append(addrs, testenv.StartLeaf(t, d).Addr+" max_fails=0") // never left out
				}
				n := w.nginx(t, "", c.extra, addrs...)
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				if a := cl.do(t.Context(), c.method, c.key, "body"); a.status != http.StatusBadGateway {
					t.Errorf("status %d, error %v; want 502", a.status, a.err)
				}
				for _, d := range servers {
					total += d.Count()
					if got := headers(d, "X-Attempt"); c.attempts != nil && !slices.Equal(got, c.attempts) {
						t.Errorf("X-Attempt at one server: %q, want %q: nginx repeats what it was sent", got, c.attempts)
					}
				}
				if total != c.count {
					t.Errorf("%d requests at three servers for %d attempts, want %d", total, len(cl.attempts()), c.count)
				}
			})
		})
	}
}

// A body is the same on the second attempt, whether nginx reads all of it first
// or passes it on as it comes.
func TestBodyIsReplayed(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 100<<10/16)
	for _, c := range []struct {
		name, extra string
		unread      bool // the first server dies before it has read the body
	}{
		{"buffered", "", false},
		{"unbuffered", "proxy_request_buffering off;", false},
		{"buffered, unread", "", true},
		{"unbuffered, unread", "proxy_request_buffering off;", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				first, other := stinttest.NewDependency(), stinttest.NewDependency()
				before, atFirst := first.ServeHTTP, 1
				if c.unread {
					before, atFirst = func(http.ResponseWriter, *http.Request) {}, 0
				}
				n := w.nginx(t, "", once+c.extra, dying(t, before).Addr, testenv.StartLeaf(t, other).Addr)
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				a := cl.do(t.Context(), http.MethodPut, "", body)
				// nginx may end the connection on which it had no use for the body, just when the next request is on it.
				codes := slices.DeleteFunc(cl.attempts(), func(code string) bool { return code == "reset" })
				if a.status != http.StatusOK || !slices.Equal(codes, []string{"502", "200"}) {
					t.Errorf("status %d, error %v, attempts %q; want 200 after a 502", a.status, a.err, cl.attempts())
				}
				count(t, []int{atFirst, 1}, first, other)
				for _, a := range append(first.Arrivals(), other.Arrivals()...) {
					if sha256.Sum256(a.Body) != sha256.Sum256([]byte(body)) {
						t.Errorf("a server had %d bytes that are not the %d sent", len(a.Body), len(body))
					}
				}
			})
		})
	}
}
