package stinthttp_test

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

var allForms = []string{"X-Timeout-Ms", "grpc-timeout", "X-Request-Deadline"}

// also calls http://s under p with the further forms of the deadline, and
// external unless a peer is asked for.
func (w *world) also(p stint.Policy, peer stinthttp.Peer, names ...string) *http.Client {
	return &http.Client{Transport: &stinthttp.Transport{AlsoWrite: names, Base: w.base, Peer: peer,
		Caller: newCaller(w.t, "s", p, stint.CallerOptions{Rand: func() float64 { return 1 }})}}
}

// B02: a legal but huge grpc-timeout is long, not negative and not expired; one
// that is not legal is as none. Whatever there is to say is written in 1 to 8
// digits and a unit, never as 0.
func TestB02GRPCTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"99999999H": 30 * time.Second, "99999999M": 30 * time.Second, "99999999S": 30 * time.Second, "2S": 2 * time.Second,
		"-1S": 10 * time.Second, "1": 10 * time.Second, "1X": 10 * time.Second, "S": 10 * time.Second, "123456789m": 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var left time.Duration
			front := w.serve(peers, func(rw http.ResponseWriter, r *http.Request) { left, _ = stint.Remaining(r.Context()) })
			req, _ := http.NewRequest("GET", "http://s", nil)
			req.Header.Set("Grpc-Timeout", value)
			resp, err := front.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 || left != want {
				t.Errorf("%s: %d, the handler had %v, want %v", value, resp.StatusCode, left, want)
			}
		})
	}
	form := regexp.MustCompile(`^[1-9][0-9]{0,7}[HMSmun]$`)
	for _, left := range []time.Duration{time.Millisecond, 2*time.Millisecond - 1, 100 * time.Millisecond, 27 * time.Hour, 28 * time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency()
			w.Serve(t, "s", leaf)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			start := time.Now()
			if err := get(ctx, w.also(stint.Policy{Timeout: left}, stinthttp.PeerExternal, allForms...), "http://s"); err != nil {
				t.Fatal(err)
			}
			h := leaf.Arrivals()[0].Header
			value := h.Get("Grpc-Timeout")
			told := stint.ParseHop(map[string][]string{"grpc-timeout": {value}})
			if want := min(left.Truncate(time.Millisecond), 24*time.Hour); !form.MatchString(value) || told.Remaining != want || told.Ignored != 0 {
				t.Errorf("%v was written as %q, which is %v; want %v", left, value, told.Remaining, want)
			} else if until := strconv.FormatInt(start.Add(want).UnixMilli(), 10); h.Get("X-Request-Deadline") != until {
				t.Errorf("%v: the instant is %s, want %s", left, h.Get("X-Request-Deadline"), until)
			}
		})
	}
}

// Each attempt says its own time, in every form that was asked for.
func TestAlsoWriteIsPerAttempt(t *testing.T) {
	for _, peer := range []stinthttp.Peer{stinthttp.PeerExternal, stinthttp.PeerStint} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Latency: 60*time.Millisecond + 300*time.Microsecond}, stinttest.Step{})
			w.Serve(t, "s", leaf)
			policy := articlePolicy(2, 0)
			policy.Timeout, policy.Retry.AttemptTimeout = 150*time.Millisecond, 100*time.Millisecond
			start := time.Now()
			if err := get(t.Context(), w.also(policy, peer, allForms...), "http://s"); err != nil {
				t.Fatal(err)
			}
			for i, want := range []struct {
				ms    string
				until time.Duration
			}{{"100", 100 * time.Millisecond}, {"88", 150 * time.Millisecond}} {
				h := leaf.Arrivals()[i].Header
				until := strconv.FormatInt(start.Add(want.until).UnixMilli(), 10)
				for name, want := range map[string]string{"X-Deadline-Ms": want.ms, "X-Timeout-Ms": want.ms, "Grpc-Timeout": want.ms + "m", "X-Request-Deadline": until} {
					if got := h[name]; len(got) != 1 || got[0] != want {
						t.Errorf("peer %v, attempt %d: %s is %q, want %q", peer, i+1, name, got, want)
					}
				}
			}
		})
	}
}

// What the request brought under these names does not pass through, asked for
// or not; a grpc-timeout is only ever lowered.
func TestAlsoWriteReplacesWhatCame(t *testing.T) {
	for _, c := range []struct {
		names []string
		grpc  string
		want  map[string]string
	}{
		{nil, "", map[string]string{"X-Timeout-Ms": "", "Grpc-Timeout": "", "X-Request-Deadline": ""}},
		{nil, "2S", map[string]string{"X-Timeout-Ms": "", "Grpc-Timeout": "500m", "X-Request-Deadline": ""}},
		{[]string{"x-timeout-ms"}, "", map[string]string{"X-Timeout-Ms": "500", "Grpc-Timeout": ""}},
		{allForms, "2S", map[string]string{"X-Timeout-Ms": "500", "Grpc-Timeout": "500m"}},
		{allForms, "100m", map[string]string{"X-Timeout-Ms": "500", "Grpc-Timeout": "100m"}},
		{allForms, "0m", map[string]string{"X-Timeout-Ms": "500", "Grpc-Timeout": "0m"}},
		{append(allForms, "Grpc-Timeout"), "", map[string]string{"X-Timeout-Ms": "500", "Grpc-Timeout": "500m"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency()
			w.Serve(t, "s", leaf)
			req, _ := http.NewRequest("GET", "http://s", nil)
			req.Header.Set("X-Timeout-Ms", "9999999")
			req.Header.Set("X-Request-Deadline", "9999999999999")
			if c.grpc != "" {
				req.Header.Set("Grpc-Timeout", c.grpc)
			}
			resp, err := w.also(stint.Policy{Timeout: 500 * time.Millisecond}, stinthttp.PeerStint, c.names...).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			for name, want := range c.want {
				if got := leaf.Arrivals()[0].Header.Get(name); got != want {
					t.Errorf("%v, grpc-timeout %q: %s is %q, want %q", c.names, c.grpc, name, got, want)
				}
			}
			if req.Header.Get("X-Timeout-Ms") != "9999999" {
				t.Error("the request was changed")
			}
		})
	}
}

// A host that one is redirected to is told the deadline as well.
func TestAlsoWriteOnARedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Serve(t, "s", stinttest.NewDependency(stinttest.Step{Status: 307, Latency: 40 * time.Millisecond, Header: http.Header{"Location": {"http://elsewhere"}}}))
		leaf := stinttest.NewDependency()
		w.Serve(t, "elsewhere", leaf)
		if err := get(t.Context(), w.also(stint.Policy{Timeout: 200 * time.Millisecond}, stinthttp.PeerStint, "X-Timeout-Ms"), "http://s"); err != nil {
			t.Fatal(err)
		}
		if got := leaf.Arrivals()[0].Header.Get("X-Timeout-Ms"); got != "160" {
			t.Errorf("told %q, want what is left: 160", got)
		}
	})
}

// A name that can't be written is an error that says which would be right, and
// nothing is sent.
func TestAlsoWriteUnknownName(t *testing.T) {
	for _, name := range []string{"", "X-Deadline", "X-Deadline-Ms", "x timeout ms", "X-Retry-Owner"} {
		body := new(closeRecorder)
		req, _ := http.NewRequest("POST", "http://s", body)
		tr := &stinthttp.Transport{Caller: newCaller(t, "s", stint.Policy{}, stint.CallerOptions{}), AlsoWrite: []string{"X-Timeout-Ms", name},
			Base: roundTripper(func(*http.Request) (*http.Response, error) { t.Error("it was sent"); return nil, nil })}
		_, err := tr.RoundTrip(req)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) || !strings.Contains(err.Error(), "X-Request-Deadline") || !body.closed {
			t.Errorf("%q: %v, body closed: %v", name, err, body.closed)
		}
	}
}

// B04: a wrong clock on either side changes no relative deadline, and an
// absolute one beside it shows how wrong.
func TestB04ClockSkew(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, off := range []time.Duration{0, 30 * time.Second, -30 * time.Second, year, -year} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.UnixMilli(1786000000000))) // virtual: an absolute deadline has 13 digits
			w := newWorld(t)
			var rec stinttest.Recorder
			o := peers
			o.ClockSkew, o.Observer = time.Second, &rec
			var left []time.Duration
			w.serve(o, func(rw http.ResponseWriter, r *http.Request) {
				for range 3 { // nor is there another one during the work
					d, _ := stint.Remaining(r.Context())
					left = append(left, d)
					time.Sleep(100 * time.Millisecond) // virtual
				}
			})
			client := w.also(stint.Policy{Timeout: 500 * time.Millisecond}, stinthttp.PeerStint, "X-Request-Deadline")
			base := client.Transport.(*stinthttp.Transport)
			base.Base = roundTripper(func(r *http.Request) (*http.Response, error) { // a caller whose clock is off
				ms, err := strconv.ParseInt(r.Header.Get("X-Request-Deadline"), 10, 64)
				if err != nil {
					t.Error(err)
				}
				r.Header.Set("X-Request-Deadline", strconv.FormatInt(ms+off.Milliseconds(), 10))
				return w.base.RoundTrip(r)
			})
			if err := get(t.Context(), client, "http://s"); err != nil {
				t.Fatalf("off by %v: %v", off, err)
			}
			for i, d := range left {
				if want := 500*time.Millisecond - time.Duration(i)*100*time.Millisecond; d > want || d < want-50*time.Millisecond {
					t.Errorf("off by %v: %v left, want %v", off, d, want)
				}
			}
			e := rec.Events(stint.GateEntered)[0]
			if len(left) != 3 || e.Skew != off || e.Ignored != 0 {
				t.Errorf("off by %v: %d looks, a skew of %v reported, %d ignored", off, len(left), e.Skew, e.Ignored)
			}
		})
	}
}

// B04: alone, an absolute deadline of a clock that is far off is not believed:
// neither an instant 504 nor 30.5 s. What is plausible is.
func TestB04AbsoluteAlone(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct{ off, left, skew time.Duration }{
		{0, 500 * time.Millisecond, 0},
		{200 * time.Millisecond, 700 * time.Millisecond, 0}, // as long as nobody can tell
		{30 * time.Second, 2 * time.Second, 20500 * time.Millisecond},
		{-30 * time.Second, 2 * time.Second, -29500 * time.Millisecond},
		{year, 2 * time.Second, year - 9500*time.Millisecond},
		{-year, 2 * time.Second, 500*time.Millisecond - year},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.UnixMilli(1786000000000))) // virtual
			w := newWorld(t)
			var rec stinttest.Recorder
			var left time.Duration
			front := w.serve(stint.GateOptions{Reserve: stint.NoReserve, DefaultTimeout: 2 * time.Second, MaxTimeout: 10 * time.Second, ClockSkew: time.Second, Observer: &rec},
				func(rw http.ResponseWriter, r *http.Request) { left, _ = stint.Remaining(r.Context()) })
			req, _ := http.NewRequest("GET", "http://s", nil)
			req.Header.Set("X-Request-Deadline", strconv.FormatInt(time.Now().Add(c.off+500*time.Millisecond).UnixMilli(), 10))
			resp, err := front.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			e := rec.Events(stint.GateEntered)[0]
			if ignored := e.Ignored == 1; resp.StatusCode != 200 || left != c.left || e.Skew != c.skew || ignored != (c.skew != 0) {
				t.Errorf("off by %v: %d with %v, skew %v, %d ignored; want %v and %v", c.off, resp.StatusCode, left, e.Skew, e.Ignored, c.left, c.skew)
			}
		})
	}
}

// B04: a clock that is set while a request is being served changes nothing
// either: whatever named the deadline, it is an instant of the monotonic clock,
// whose reading shows in its text. (In virtual time there is none.)
func TestB04DeadlineIsMonotonic(t *testing.T) {
	g := newGate(t, "s", stint.GateOptions{ClockSkew: time.Minute, Reserve: stint.NoReserve})
	var admitted, worked string
	url, base, _ := loopback(t, false, stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ends, _ := r.Context().Deadline()
		inner, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		after, _ := inner.Deadline()
		admitted, worked = ends.String(), after.String()
	})).ServeHTTP)
	for name, value := range map[string]string{
		"none":               "",
		"X-Deadline-Ms":      "20000",
		"Grpc-Timeout":       "20S",
		"X-Request-Deadline": strconv.FormatInt(time.Now().Add(20*time.Second).UnixMilli(), 10),
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if value != "" {
			req.Header.Set(name, value)
		}
		resp, err := base.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(admitted, " m=") || !strings.Contains(worked, " m=") {
			t.Errorf("%s: %d, the deadlines are %s and %s, want the monotonic clock's", name, resp.StatusCode, admitted, worked)
		}
	}
}
