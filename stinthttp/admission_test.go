package stinthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
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

// places fails unless nobody is in g's handler or waits, and just limit calls of
// /hold are in it at once, and one more waits.
func (w *world) places(g *stint.Gate, client *http.Client, limit int, entered *atomic.Int64) {
	w.t.Helper()
	synctest.Wait()
	if g.Running() != 0 || g.Queued() != 0 {
		w.t.Errorf("%d run and %d wait, with nobody there", g.Running(), g.Queued())
	}
	before := entered.Load()
	ctx, release := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for range limit + 1 {
		all.Go(func() { fetch(ctx, client, "GET", "http://s/hold", "") })
	}
	synctest.Wait()
	if n := entered.Load() - before; n != int64(limit) || g.Running() != limit || g.Queued() != 1 {
		w.t.Errorf("of %d calls %d entered the handler; %d run and %d wait; want %d and one", limit+1, n, g.Running(), g.Queued(), limit)
	}
	release()
	all.Wait()
	synctest.Wait()
}

// Ten thousand calls, a third of them cancelled in the queue, a third while they
// run, the rest ended in every way there is, cost no place and make none.
func TestB28CapacityIsKept(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		const limit, rounds = 10, 334 // of 30 calls each
		var entered, panics atomic.Int64
		var rec stinttest.Recorder
		g := newGate(t, "s", stint.GateOptions{Limit: limit, Observer: &rec})
		w.Serve(t, "s", stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			entered.Add(1)
			switch r.URL.Path {
			case "/hold":
				<-r.Context().Done()
			case "/panic":
				panics.Add(1)
				panic("a bug")
			case "/stream":
				for range 3 {
					io.WriteString(rw, "data\n")
					http.NewResponseController(rw).Flush()
				}
			case "/hijack":
				if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
					c.Close()
				}
			case "/fail":
				rw.WriteHeader(http.StatusInternalServerError)
			}
		})))
		client := &http.Client{Transport: w.base}
		group := func(ctx context.Context, paths ...string) *sync.WaitGroup {
			var all sync.WaitGroup
			for i := range limit {
				all.Go(func() { fetch(ctx, client, "POST", "http://s"+paths[i%len(paths)], "") })
			}
			synctest.Wait()
			return &all
		}
		for round := range rounds {
			ctx1, cancel1 := context.WithCancel(t.Context())
			ctx2, cancel2 := context.WithCancel(t.Context())
			running, queued := group(ctx1, "/hold"), group(ctx2, "/hold")
			before := entered.Load()
			if g.Running() != limit || g.Queued() != limit {
				t.Fatalf("round %d: %d run and %d wait", round, g.Running(), g.Queued())
			}
			cancel2()
			queued.Wait()
			synctest.Wait()
			if g.Running() != limit || g.Queued() != 0 || entered.Load() != before {
				t.Fatalf("round %d: after %d left the queue, %d run, %d wait, and %d have come in", round, limit, g.Running(), g.Queued(), entered.Load()-before)
			}
			cancel1()
			running.Wait()
			synctest.Wait()
			ends := []string{"/early", "/stream", "/hijack", "/fail"}
			if round%3 == 0 {
				ends = []string{"/panic"}
			}
			group(t.Context(), ends...).Wait()
			synctest.Wait()
			if g.Running() != 0 || g.Queued() != 0 {
				t.Fatalf("round %d: %d run and %d wait, with nobody there", round, g.Running(), g.Queued())
			}
		}
		if panics.Load() < 100 {
			t.Errorf("%d panics", panics.Load())
		}
		gone, left := 0, len(rec.Events(stint.GateLeft))
		for _, e := range rec.Events(stint.GateEntered) {
			if e.Reason == stint.CallerGone {
				gone++
			}
		}
		if gone != limit*rounds || int64(left) != entered.Load() {
			t.Errorf("%d left the queue, want %d; %d entered the handler and %d left it", gone, limit*rounds, entered.Load(), left)
		}
		w.places(g, client, limit, &entered)
	})
}

// An answer that is streamed holds its place until its end: its own, its
// deadline, or its caller's leaving.
func TestB28StreamsHoldTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		told string
		ends time.Duration
	}{{"its end", "", 5 * time.Second}, {"its deadline", "2000", 2 * time.Second}, {"its caller", "", time.Second}} {
		bothProtocols(t, func(t *testing.T, w *world) {
			g := newGate(t, "s", stint.GateOptions{Limit: 1, Reserve: stint.NoReserve})
			client := w.serveTicks(g, 5)
			req, _ := http.NewRequest("GET", "http://s", nil)
			if c.told != "" {
				req.Header.Set("X-Deadline-Ms", c.told)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if c.name == "its caller" {
				time.AfterFunc(c.ends, func() { resp.Body.Close() })
			} else {
				defer resp.Body.Close()
			}
			time.Sleep(c.ends - time.Millisecond) // virtual
			if n := g.Running(); n != 1 {
				t.Errorf("%s: %d run while it is streamed", c.name, n)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if n := g.Running(); n != 0 {
				t.Errorf("%s: %d run afterwards", c.name, n)
			}
		})
	}
}

// serveTicks serves a stream of n events, one a second, that obeys its context.
func (w *world) serveTicks(g *stint.Gate, n int) *http.Client {
	w.Serve(w.t, "s", stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for range n {
			io.WriteString(rw, "data\n")
			http.NewResponseController(rw).Flush()
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
		}
	})))
	return &http.Client{Transport: w.base}
}

// Probes are answered at once whatever the load, the excess of what is ordinary is
// refused at once, and the rest is served.
func TestB29ProbesUnderOverload(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		const limit, callers, work, told = 5, 50, 100 * time.Millisecond, "300"
		g := newGate(t, "s", stint.GateOptions{Limit: limit, MinUseful: work}) // known from the start, so that the first are judged as well
		var most atomic.Int64
		_, client := w.mixed(g, stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), int64(g.Running())))
			time.Sleep(work) // virtual
		})
		end := time.Now().Add(5 * time.Second)
		var mu sync.Mutex
		refusals, served := make(map[time.Duration]int), 0
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for time.Now().Before(end) {
					req, _ := http.NewRequest("GET", "http://s/", nil)
					req.Header.Set("X-Deadline-Ms", told)
					start := time.Now()
					resp, err := client.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					mu.Lock()
					if h := resp.Header; resp.StatusCode == 200 {
						served++
					} else if refusals[time.Since(start)]++; resp.StatusCode != 503 || h.Get("X-Not-Started") != "full" || h.Get("Retry-After") < "1" {
						t.Errorf("refused with %d %v", resp.StatusCode, h)
					}
					mu.Unlock()
					if resp.StatusCode != 200 {
						time.Sleep(50 * time.Millisecond) // virtual: sooner than it is told
					}
				}
			})
		}
		probes := 0
		for ; time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // virtual
			for _, path := range []string{"/livez", "/readyz"} {
				start := time.Now()
				status, _, err := fetch(t.Context(), client, "GET", "http://s"+path, "")
				if took := time.Since(start); status != 200 || err != nil || took != 0 {
					t.Fatalf("%s: %d, %v after %v; want 200 at once", path, status, err, took)
				}
				probes++
			}
		}
		all.Wait()
		refused, atOnce := 0, refusals[0]
		for _, n := range refusals {
			refused += n
		}
		t.Logf("%d probes, %d served, %d refused, %d of them at once", probes, served, refused, atOnce)
		if most.Load() != limit {
			t.Errorf("%d were in the handler at once, want %d: probes take no place", most.Load(), limit)
		}
		if atOnce < refused*9/10 || refused < 1000 {
			t.Errorf("%d of %d refusals came at once", atOnce, refused)
		}
		if most := int(5 * time.Second / work * limit); served < most*9/10 || served > most+limit+callers {
			t.Errorf("%d served, want about %d: what there is capacity for", served, most)
		}
	})
}

// A probe that waits takes no place either, also of the drain.
func TestB29ExemptTakesNoPlace(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		g := newGate(t, "s", stint.GateOptions{Limit: 1})
		release := make(chan struct{})
		w.Serve(t, "s", stinthttp.Handler(g.Exempt(), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if _, bounded := r.Context().Deadline(); !bounded {
				t.Error("a probe without a deadline")
			}
			<-release
		})))
		client := &http.Client{Transport: w.base}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if status, _, err := fetch(t.Context(), client, "GET", "http://s", ""); status != 200 || err != nil {
					t.Errorf("%d, %v", status, err)
				}
			})
		}
		synctest.Wait()
		if g.Running() != 0 || g.Exempt().Running() != 0 || g.Exempt().Limit() != stint.NoLimit {
			t.Errorf("%d run", g.Running())
		}
		select {
		case <-g.Drain():
		default:
			t.Error("the drain waits for probes")
		}
		close(release)
		all.Wait()
		if status, _, err := fetch(t.Context(), client, "GET", "http://s", ""); status != 200 || err != nil {
			t.Errorf("while it drains: %d, %v", status, err)
		}
	})
}

// What lasts takes no place of what does not, nor the other way round, and has a
// limit of its own.
func TestB30LongRunningHasPlacesOfItsOwn(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		const limit = 5
		g := newGate(t, "s", stint.GateOptions{Limit: limit, LongLimit: limit})
		socket := websocket(t)
		hold := make(chan struct{})
		_, client := w.mixed(g, stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("Upgrade") != "":
				socket(rw, r)
			case r.URL.Path == "/hold":
				<-hold
			default:
				lasting(t)(rw, r)
			}
		})
		kinds := []string{"events?n=1000", "events?n=1000", "poll", "poll", "ws"}
		if w.base.Protocols != nil {
			kinds[4] = "poll" // an upgrade is HTTP/1's
		}
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, kind := range kinds {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://s/long/"+kind, nil)
			if kind == "ws" {
				req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
			}
			all.Go(func() {
				resp, err := client.Do(req)
				if err != nil {
					return // a long poll that was left
				}
				<-ctx.Done()
				resp.Body.Close()
			})
		}
		synctest.Wait()
		if long := g.LongRunning(); long.Running() != limit || g.Running() != 0 || long.Limit() != limit {
			t.Fatalf("%d long-running, %d ordinary", long.Running(), g.Running())
		}
		for range limit {
			all.Go(func() {
				if status, _, err := fetch(t.Context(), client, "GET", "http://s/hold", ""); status != 200 || err != nil {
					t.Errorf("ordinary: %d, %v", status, err)
				}
			})
		}
		synctest.Wait()
		if g.Running() != limit {
			t.Errorf("%d of %d ordinary requests are in the handler", g.Running(), limit)
		}
		// The sixth that lasts is refused, though it has an hour, and once one has
		// left the next comes in. Overload is 503; there is no quota that 429 would be for.
		start := time.Now()
		resp, err := client.Get("http://s/long/poll")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != 503 || resp.Header.Get("X-Not-Started") != "full" || after < 1 || after > 3 || time.Since(start) != 0 {
			t.Errorf("the sixth: %d %v after %v", resp.StatusCode, resp.Header, time.Since(start))
		}
		close(hold)
		synctest.Wait()
		leave()
		all.Wait()
		synctest.Wait()
		if n := g.LongRunning().Running(); n != 0 {
			t.Errorf("%d are still there", n)
		}
		if status, _, err := fetch(t.Context(), client, "GET", "http://s/long/events?n=1", ""); status != 200 || err != nil {
			t.Errorf("afterwards: %d, %v", status, err)
		}
	})
}

// How long streams take is not learned from; the same requests behind the Gate
// itself bring its limit down.
func TestB30LongRunningIsNotLearnedFrom(t *testing.T) {
	const ceiling = 10
	for path, learned := range map[string]bool{"/long/": false, "/slow": true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			g := newGate(t, "s", stint.GateOptions{MaxLimit: ceiling})
			_, client := w.mixed(g, stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					time.Sleep(10 * time.Millisecond) // virtual
				} else {
					time.Sleep(time.Second)
				}
			})
			// load returns the lowest limit on the way: when the work itself is slow, it rises again.
			load := func(path string, d time.Duration) int {
				end := time.Now().Add(d)
				var all sync.WaitGroup
				var mu sync.Mutex
				least := g.Limit()
				for range 2 * ceiling {
					all.Go(func() {
						for time.Now().Before(end) {
							fetch(t.Context(), client, "GET", "http://s"+path, "")
							mu.Lock()
							least = min(least, g.Limit())
							mu.Unlock()
						}
					})
				}
				all.Wait()
				return least
			}
			load("/", 2*time.Second)
			if n := g.Limit(); n != ceiling {
				t.Fatalf("the limit is %d where nobody waits for anybody, want %d", n, ceiling)
			}
			if n := load(path, 5*time.Second); (n != ceiling) != learned {
				t.Errorf("under %s the limit was %d at the lowest", path, n)
			}
		})
	}
}

// A refusal for load that says never, because what comes are retries already, is
// repeated by nobody, and a service in the middle hands it up.
func TestNeverTravelsUp(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		var rec stinttest.Recorder
		full := newGate(t, "c", stint.GateOptions{Trust: stint.TrustPeers, Limit: 1, Observer: &rec})
		w.Serve(t, "c", stinthttp.Handler(full, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was entered") })))
		held := new(stint.Admission)
		if err := full.Admit(t.Context(), stint.Hop{}, held); err != nil {
			t.Fatal(err)
		}
		defer held.Finish(stint.Outcome{})
		once := articlePolicy(1, 0)
		once.Retry.AttemptTimeout = 20 * time.Millisecond // what waits at C is refused soon
		w.relay("b", "c", peers, once)
		owner := w.client("b", articlePolicy(3, 0), stint.CallerOptions{})

		ask := func() (at int, h http.Header) {
			t.Helper()
			rec.Reset()
			resp, err := owner.Get("http://b")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 503 || resp.Header.Get("X-Not-Started") != "" || resp.Header.Get("Retry-After") == "" {
				t.Errorf("the owner got %d %v", resp.StatusCode, resp.Header)
			}
			return len(rec.Events(stint.GateEntered)), resp.Header
		}
		if n, h := ask(); n != 3 || h.Get("X-Retry") != "" {
			t.Errorf("%d requests at C, X-Retry %q; want the owner's 3, which nobody forbids", n, h.Get("X-Retry"))
		}
		for range 20 { // others, who come again
			err := full.Admit(t.Context(), stint.Hop{Attempt: 2, Remaining: time.Millisecond}, new(stint.Admission))
			if e := (*stint.Error)(nil); !errors.As(err, &e) || e.Reason != stint.Full {
				t.Fatal(err)
			}
		}
		if n, h := ask(); n != 1 || h.Get("X-Retry") != "never" {
			t.Errorf("%d requests at C, X-Retry %q; want 1 and never", n, h.Get("X-Retry"))
		}
		// C's own answer, and what a stranger's Transport makes of it.
		req, _ := http.NewRequest("GET", "http://c", nil)
		req.Header.Set("X-Deadline-Ms", "1")
		resp, err := (&http.Client{Transport: w.base}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if h := resp.Header; resp.StatusCode != 503 || h.Get("X-Retry") != "never" || h.Get("X-Not-Started") != "full" || h.Get("Retry-After") == "" {
			t.Errorf("C says %d %v", resp.StatusCode, h)
		}
		rec.Reset()
		twice := articlePolicy(3, 0)
		twice.Retry.AttemptTimeout = 20 * time.Millisecond
		stranger := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "c", twice, stint.CallerOptions{}), Base: w.base}}
		if status, _, err := fetch(t.Context(), stranger, "GET", "http://c", ""); status != 503 || err != nil || len(rec.Events(stint.GateEntered)) != 1 {
			t.Errorf("%d, %v and %d requests at C; want 1", status, err, len(rec.Events(stint.GateEntered)))
		}
	})
}

// holding serves s with one place, whose holder has it until hold is closed, and
// counts who is in the handler.
func (w *world) holding(g *stint.Gate) (srv *stinthttp.Server, client *http.Client, hold chan struct{}, entered *atomic.Int64) {
	hold, entered = make(chan struct{}), new(atomic.Int64)
	srv, client = w.mixed(g, stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
		entered.Add(1)
		if r.URL.Path == "/hold" {
			<-hold
		}
	})
	return srv, client, hold, entered
}

// A caller that leaves the queue is gone at once, does not reach the handler, and
// is nobody's failure.
func TestQueuedCallerLeaves(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		var rec stinttest.Recorder
		g := newGate(t, "s", stint.GateOptions{Limit: 1, Observer: &rec})
		_, client, hold, entered := w.holding(g)
		var all sync.WaitGroup
		all.Go(func() { fetch(t.Context(), client, "GET", "http://s/hold", "") })
		synctest.Wait()
		methods := map[string]string{"GET": "", "POST": ""}
		if w.base.Protocols != nil {
			methods["PUT"] = "body" // HTTP/1 sees who leaves only once the body has been read
		}
		for method, body := range methods {
			ctx, leave := context.WithCancel(t.Context())
			all.Go(func() {
				if _, _, err := fetch(ctx, client, method, "http://s/", body); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", method, err)
				}
			})
			synctest.Wait()
			if g.Queued() != 1 {
				t.Fatalf("%s: %d wait", method, g.Queued())
			}
			time.Sleep(time.Second) // virtual
			rec.Reset()
			leave()
			synctest.Wait()
			if g.Queued() != 0 || entered.Load() != 1 {
				t.Errorf("%s: %d wait, %d entered the handler", method, g.Queued(), entered.Load())
			}
			e := rec.Events()
			if len(e) != 1 || e[0].Kind != stint.GateEntered || e[0].Reason != stint.CallerGone || e[0].Waited != time.Second || !e[0].Outcome.NotStarted {
				t.Errorf("%s: events %+v, want one that says that the caller left after 1s", method, e)
			}
		}
		close(hold)
		all.Wait()
		if status, _, err := fetch(t.Context(), client, "GET", "http://s/", ""); status != 200 || err != nil || entered.Load() != 2 {
			t.Errorf("afterwards: %d, %v, %d entered", status, err, entered.Load())
		}
	})
}

// Who waits already when the service is told to end still gets a turn; who comes
// later does not; then the server ends.
func TestDrainWhileQueued(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		g := newGate(t, "s", stint.GateOptions{Limit: 1})
		srv, client, hold, entered := w.holding(g)
		var all sync.WaitGroup
		for _, path := range []string{"/hold", "/", "/", "/"} {
			all.Go(func() {
				if status, _, err := fetch(t.Context(), client, "GET", "http://s"+path, ""); status != 200 || err != nil {
					t.Errorf("%s: %d, %v", path, status, err)
				}
			})
			synctest.Wait()
		}
		ended := make(chan error, 1)
		go func() { ended <- srv.Shutdown(t.Context()) }()
		synctest.Wait()
		resp, err := client.Get("http://s/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("X-Not-Started") != "draining" || g.Queued() != 3 || g.Running() != 1 {
			t.Errorf("a latecomer got %d %v, %d wait, %d run", resp.StatusCode, resp.Header, g.Queued(), g.Running())
		}
		time.Sleep(time.Second) // virtual
		select {
		case err := <-ended:
			t.Fatalf("it ended with %v, and four inside", err)
		default:
		}
		close(hold)
		all.Wait()
		if err := <-ended; err != nil || entered.Load() != 4 {
			t.Errorf("ended with %v, %d served", err, entered.Load())
		}
	})
}

// What strangers claim of their class and attempt changes nothing about their
// turn; what peers do does. (At the Gate itself the test has thousands.)
func TestStrangersWaitInLine(t *testing.T) {
	for _, trust := range []stint.Trust{stint.TrustDeadlineOnly, stint.TrustPeers} {
		bothProtocols(t, func(t *testing.T, w *world) {
			const callers = 200
			g := newGate(t, "s", stint.GateOptions{Trust: trust, Limit: 1})
			var order []string
			hold := make(chan struct{})
			w.Serve(t, "s", stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hold" {
					<-hold
					return
				}
				order = append(order, r.URL.Query().Get("n")) // there is one place
				time.Sleep(time.Millisecond)                  // virtual
			})))
			client := &http.Client{Transport: w.base}
			var all sync.WaitGroup
			send := func(path string, h http.Header) {
				all.Go(func() {
					req, _ := http.NewRequest("GET", "http://s"+path, nil)
					req.Header = h
					resp, err := client.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
				synctest.Wait()
			}
			send("/hold", http.Header{})
			classes := []string{"sheddable", "critical-plus", "sheddable-plus", "critical", "nonsense", ""}
			var want []string
			for i := range callers {
				want = append(want, strconv.Itoa(i))
				send(fmt.Sprint("/?n=", i), http.Header{"X-Criticality": {classes[i%len(classes)]}, "X-Attempt": {strconv.Itoa(1 + i%3)}, "X-Deadline-Ms": {"5000"}})
			}
			close(hold)
			all.Wait()
			if inLine := slices.Equal(order, want); inLine != (trust == stint.TrustDeadlineOnly) {
				t.Errorf("trust %v: in the order of arrival: %v (%s)", trust, inLine, strings.Join(order, " "))
			}
		})
	}
}
