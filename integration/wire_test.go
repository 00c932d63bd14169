package integration

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// seen is what a handler saw of its requests.
type seen struct {
	mu   sync.Mutex
	left []time.Duration
	head []http.Header
}

// note keeps a request, and returns its number.
func (s *seen) note(r *http.Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, _ := stint.Remaining(r.Context())
	s.left = append(s.left, left)
	s.head = append(s.head, r.Header.Clone())
	return len(s.head)
}

// remaining are the times that the handler had.
func (s *seen) remaining() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.left)
}

// told are the milliseconds that the requests brought.
func (s *seen) told(t *testing.T) (ms []int) {
	t.Helper()
	for _, v := range s.header("X-Deadline-Ms") {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Errorf("X-Deadline-Ms: %v", err)
		}
		ms = append(ms, n)
	}
	return ms
}

func (s *seen) header(name string) (values []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.head {
		values = append(values, h.Get(name))
	}
	return values
}

// A client calls B through nginx, and B calls C through the same nginx. C fails
// once.
func TestContractPassesTwoHops(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		socket := testenv.Listen(t)
		defer socket.Close()
		addr := socket.Addr().String()

		var atB, atC seen
		c := leaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if atC.note(r) == 1 {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		toC := w.client(t, addr, retrying(), stinthttp.PeerStint)
		toC.url += "/c"
		b := testenv.StartLeaf(t, stinthttp.Handler(gate(t, "b", stint.GateOptions{}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			atB.note(r)
			if a := toC.get(r.Context()); a.status != http.StatusOK {
				rw.WriteHeader(a.status)
			}
		})))
		testenv.StartNginxOn(t, socket, testenv.NginxConfig{
			Listen: w.listen,
			HTTP:   upstream("b", b.Addr) + upstream("c", c.Addr),
			Server: location("/b", "b", once) + location("/c", "c", once),
		})

		// The client is a service too, with a request that has 5 s and a class.
		var admission stint.Admission
		const budget = 5 * time.Second
		err := gate(t, "a", stint.GateOptions{}).Admit(t.Context(), stint.Hop{Remaining: budget, Class: stint.Sheddable, RequestID: "r-7"}, &admission)
		if err != nil {
			t.Fatal(err)
		}
		defer admission.Finish(stint.Outcome{Kind: stint.OK})
		toB := w.client(t, addr, retrying(), stinthttp.PeerStint)
		toB.url += "/b"
		a := toB.do(admission.Context(), http.MethodPost, "k-7", "order")
		toB.want(t, a, http.StatusOK, 0, "503", "200")
		if want := map[way]int{http1: 1, h2c: 2, h2: 2}[w]; a.proto != want {
			t.Errorf("nginx answered in HTTP/%d, want HTTP/%d", a.proto, want)
		}

		// What A said passes nginx, twice; what is each hop's own does not.
		for name, want := range map[string][2]string{
			"X-Retry-Owner":   {"a", "a"},
			"X-Criticality":   {"sheddable", "sheddable"},
			"X-Request-Id":    {"r-7", "r-7"},
			"Idempotency-Key": {"k-7", ""},
		} {
			for i, got := range [][]string{atB.header(name), atC.header(name)} {
				if !slices.Equal(got, []string{want[i], want[i]}) {
					t.Errorf("%s at %c: %q, want twice %q", name, 'B'+i, got, want[i])
				}
			}
		}
		// A numbers its attempts. B makes one each time, since A owns the path.
		if b, c := atB.header("X-Attempt"), atC.header("X-Attempt"); !slices.Equal(b, []string{"", "2"}) || !slices.Equal(c, []string{"", ""}) {
			t.Errorf("X-Attempt: %q at B, %q at C; want first and second at B, firsts at C", b, c)
		}
		// The time only shrinks: from one attempt to the next, over each hop by
		// at least B's reserve, and from the wire to the handler.
		ms, below := atB.told(t), atC.told(t)
		if len(ms) != 2 || len(below) != 2 {
			t.Fatalf("%d requests at B, %d at C; want 2 each", len(ms), len(below))
		}
		const reserve = 5
		for i := range ms {
			if limit := int(budget.Milliseconds()) - reserve; ms[i] > limit || below[i] > ms[i]-reserve || below[i] <= 0 {
				t.Errorf("attempt %d told B %d ms of at most %d, and C %d", i+1, ms[i], limit, below[i])
			}
			if i > 0 && (ms[i] > ms[i-1] || below[i] > below[i-1]) {
				t.Errorf("attempt %d has more time than the one before: %d, %d ms", i+1, ms, below)
			}
			for _, hop := range []struct {
				said int
				left time.Duration
			}{{ms[i], atB.remaining()[i]}, {below[i], atC.remaining()[i]}} {
				if said := time.Duration(hop.said) * time.Millisecond; hop.left <= 0 || hop.left > said {
					t.Errorf("attempt %d: a handler had %v of %v that its request brought", i+1, hop.left, said)
				}
			}
		}
	})
}

// A caller that leaves takes the work at the leaf with it, through nginx; where
// nginx is told not to notice, the deadline still ends the work.
func TestCallerLeaves(t *testing.T) {
	for _, c := range []struct {
		name, extra string
		deadline    time.Duration
		want        error
	}{
		{"nginx hangs up", "", patience, context.Canceled},
		{"nginx ignores it", "proxy_ignore_client_abort on;", time.Second, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				entered, ended := make(chan bool, 1), make(chan error, 1)
				l := leaf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					entered <- true
					<-r.Context().Done()
					ended <- r.Context().Err()
				}))
				n := w.nginx(t, "", c.extra, l.Addr)
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				left := make(chan answer, 1)
				go func() { left <- cl.get(ctx) }()
				await(t, "the request at the leaf", entered)
				cancel()
				if a := await(t, "the call", left); a.err == nil {
					t.Errorf("the call that was given up: status %d, want an error", a.status)
				}
				if err := await(t, "the end of the leaf's context", ended); err != c.want {
					t.Errorf("the leaf's context: %v, want %v", err, c.want)
				}
				if calls := cl.rec.Events(stint.CallDone); len(calls) != 1 || calls[0].Attempt != 1 || calls[0].Reason != stint.CallerGone {
					t.Errorf("calls: %+v, want one of one attempt, its caller gone", calls)
				}
			})
		})
	}
}

// An upstream that accepts and says nothing: the first of nginx's limit, the
// attempt's and the caller's deadline decides.
func TestUpstreamStalls(t *testing.T) {
	noRepeat := retrying()
	noRepeat.Retry.NotAfterTimeout = true
	ownLimit := retrying()
	ownLimit.Retry.AttemptTimeout = 400 * time.Millisecond
	const nginxGivesUp = once + "proxy_read_timeout 300ms;"
	for _, c := range []struct {
		name, extra, method string
		policy              stint.Policy
		status, count       int
		reason              stint.Reason
		codes               []string
	}{
		{"nginx gives up on a GET", nginxGivesUp, http.MethodGet, retrying(), 200, 2, 0, []string{"504", "200"}},
		{"nginx gives up on a POST", nginxGivesUp, http.MethodPost, retrying(), 504, 1, stint.NotRepeatable, []string{"504"}},
		{"not after a timeout", nginxGivesUp, http.MethodGet, noRepeat, 504, 1, stint.NotRepeatable, []string{"504"}},
		{"the attempt's limit is sooner", once, http.MethodGet, ownLimit, 200, 2, 0, []string{"attempt_timeout", "200"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				d := stinttest.NewDependency(stinttest.Step{Stall: true}, stinttest.Step{})
				n := w.nginx(t, "", c.extra, testenv.StartLeaf(t, d).Addr)
				cl := w.client(t, n.Addr, c.policy, stinthttp.PeerStint)
				cl.want(t, cl.do(t.Context(), c.method, "", "body"), c.status, c.reason, c.codes...)
				count(t, []int{c.count}, d)
				if first := cl.rec.Events(stint.AttemptDone)[0]; first.Outcome.Kind != stint.TimedOut {
					t.Errorf("the attempt is %v, want %v", first.Outcome.Kind, stint.TimedOut)
				}
			})
		})
	}
	t.Run("the caller's deadline is sooner", func(t *testing.T) {
		eachVersion(t, func(t *testing.T, w way) {
			d := stinttest.NewDependency(stinttest.Step{Stall: true})
			n := w.nginx(t, "", "", testenv.StartLeaf(t, d).Addr) // nginx would wait a minute
			cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			start := time.Now()
			a := cl.get(ctx)
			if took := time.Since(start); a.err == nil || ctx.Err() == nil || took > patience/2 {
				t.Errorf("status %d, error %v after %v; want an error at the deadline of 400ms", a.status, a.err, took)
			}
			count(t, []int{1}, d)
			if calls := cl.rec.Events(stint.CallDone); len(calls) != 1 || calls[0].Reason != stint.NoTime || calls[0].Outcome.Kind != stint.Expired {
				t.Errorf("calls: %+v, want one that expired", calls)
			}
		})
	})
}
