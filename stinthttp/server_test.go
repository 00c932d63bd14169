package stinthttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

func TestNewServerBoundsEveryPhase(t *testing.T) {
	type phases struct{ head, read, write, idle, ping, pong, stall time.Duration }
	g := newGate(t, "s", stint.GateOptions{MaxTimeout: 20 * time.Second, Reserve: time.Second})
	standard := phases{5 * time.Second, 25 * time.Second, 26 * time.Second, 2 * time.Minute, 30 * time.Second, 10 * time.Second, 10 * time.Second}
	for _, c := range []struct {
		options *stinthttp.ServerOptions
		want    phases
		h2c     bool
	}{
		{nil, standard, false},
		{&stinthttp.ServerOptions{ReadHeader: -1, Read: -1, Write: -1, Idle: -1, Ping: -1, Stall: -1, DrainDelay: -1}, standard, false},
		{&stinthttp.ServerOptions{ReadHeader: time.Second, H2C: true}, phases{time.Second, 21 * time.Second, 26 * time.Second, 2 * time.Minute, 30 * time.Second, 10 * time.Second, 10 * time.Second}, true},
		{&stinthttp.ServerOptions{ReadHeader: 1, Read: 2, Write: 3, Idle: 4, Ping: 5, Stall: 6}, phases{1, 2, 3, 4, 5, 6, 6}, false},
	} {
		s := stinthttp.NewServer("127.0.0.1:0", g, http.NotFoundHandler(), c.options)
		got := phases{s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout, s.HTTP2.SendPingTimeout, s.HTTP2.PingTimeout, s.HTTP2.WriteByteTimeout}
		if got != c.want || s.Addr != "127.0.0.1:0" {
			t.Errorf("%+v: %+v, want %+v", c.options, got, c.want)
		}
		if p := s.Protocols; !p.HTTP1() || !p.HTTP2() || p.UnencryptedHTTP2() != c.h2c {
			t.Errorf("%+v: %v", c.options, p)
		}
	}
	if s := stinthttp.NewServer("", newGate(t, "s", stint.GateOptions{MaxTimeout: math.MaxInt64}), http.NotFoundHandler(), nil); s.ReadTimeout <= 0 || s.WriteTimeout <= 0 {
		t.Errorf("the longest MaxTimeout leaves a phase unbounded: %v, %v", s.ReadTimeout, s.WriteTimeout)
	}
}

// draining is a server at work: what its requests to /work wait for, and how it
// ended.
type draining struct {
	*stinthttp.Server
	release chan struct{}
	ended   chan error
	client  *http.Client
}

// drain serves with a request inside, probes beside the Gate and a connection
// that is idle.
func (w *world) drain(g *stint.Gate, o stinthttp.ServerOptions) *draining {
	d := &draining{release: make(chan struct{}), ended: make(chan error, 1), client: &http.Client{Transport: w.base}}
	o.H2C = true
	d.Server = stinthttp.NewServer("", g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/work" {
			<-d.release
		}
	}), &o)
	mux := http.NewServeMux()
	mux.Handle("/", d.Handler)
	mux.Handle("/readyz", d.Ready())
	mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	d.Handler = mux
	w.ServeServer(w.t, "s", d.Server.Server)
	return d
}

func (d *draining) shutdown(ctx context.Context) {
	go func() { d.ended <- d.Shutdown(ctx) }()
}

// The whole end: not ready, then refusing, then closed, and what is inside is done.
func TestShutdown(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		var rec stinttest.Recorder
		g := newGate(t, "s", stint.GateOptions{Observer: &rec})
		d := w.drain(g, stinthttp.ServerOptions{DrainDelay: 5 * time.Second})
		status := func(path string) int {
			got, _, err := fetch(t.Context(), d.client, "GET", "http://s"+path, "")
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return got
		}
		if r, l, h := status("/readyz"), status("/livez"), status("/"); r != 200 || l != 200 || h != 200 {
			t.Errorf("at work: ready %d, live %d, handler %d", r, l, h)
		}
		worked := make(chan int, 1)
		go func() { worked <- status("/work") }()
		synctest.Wait()

		start := time.Now()
		d.shutdown(t.Context())
		synctest.Wait()
		if r, l, h := status("/readyz"), status("/livez"), status("/"); r != 503 || l != 200 || h != 200 {
			t.Errorf("not ready: ready %d, live %d, handler %d", r, l, h)
		}
		time.Sleep(5 * time.Second) // virtual
		synctest.Wait()
		if r, l := status("/readyz"), status("/livez"); r != 503 || l != 200 {
			t.Errorf("refusing: ready %d, live %d", r, l)
		}
		entered := len(rec.Events(stint.GateEntered))
		resp, err := d.client.Post("http://s/", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != 503 || h.Get("X-Not-Started") != "draining" || h.Get("Retry-After") != "1" || h.Get("Retry-After-Ms") != "1" ||
			string(text) != "Service Unavailable: draining\n" || resp.ProtoMajor == 1 && !resp.Close {
			t.Errorf("refusing: %v %q", resp, text)
		}
		if e := rec.Events(stint.GateEntered)[entered]; e.Reason != stint.Draining || e.Outcome.Kind != stint.Refused {
			t.Errorf("event %+v, want a refusal", e)
		}
		time.Sleep(3 * time.Second) // virtual: somebody is still inside, within the deadline
		select {
		case err := <-d.ended:
			t.Fatalf("ended with %v, and work inside", err)
		default:
		}
		close(d.release)
		if got := <-worked; got != 200 {
			t.Errorf("the work inside got %d", got)
		}
		if err := <-d.ended; err != nil || time.Since(start) < 8*time.Second || time.Since(start) > 10*time.Second {
			t.Errorf("ended with %v after %v, want nil soon after 8s", err, time.Since(start))
		}
		if _, err := d.client.Get("http://s/livez"); err == nil {
			t.Error("it answers after its end")
		}
	})
}

// What overstays is cut off at the caller's end, or at what the Gate can have
// promised at the latest.
func TestShutdownIsBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		want    time.Duration
	}{{"by its context", 2 * time.Second, 2 * time.Second}, {"by itself", 0, 16 * time.Second}} { // 1 s of delay, 10 s, 5 s
		t.Run(c.name, func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				d := w.drain(newGate(t, "s", stint.GateOptions{MaxTimeout: 10 * time.Second}), stinthttp.ServerOptions{DrainDelay: time.Second})
				broken := make(chan error, 1)
				go func() {
					resp, err := d.client.Get("http://s/work") // ignores its context, and is answered for
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					broken <- err
				}()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				if c.timeout > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.timeout)
				}
				defer cancel()
				start := time.Now()
				err := d.Shutdown(ctx)
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "before its work was done") || took != c.want {
					t.Errorf("%v after %v, want it closed after %v", err, took, c.want)
				}
				if err := <-broken; c.timeout > 0 && err == nil {
					t.Error("its caller still waits for it")
				}
				close(d.release)
			})
		})
	}
}

// Without a delay and with nobody inside the end is at once.
func TestShutdownOfAnIdleServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.drain(newGate(t, "s", stint.GateOptions{}), stinthttp.ServerOptions{})
		get(t.Context(), d.client, "http://s")
		synctest.Wait() // until the server has found its connection idle
		start := time.Now()
		if err := d.Shutdown(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A hijacked connection's handler is waited for, which net/http would not do.
func TestShutdownWaitsForHijacked(t *testing.T) {
	shutdownWithHijacked(t, 3*time.Second, 3*time.Second)
	shutdownWithHijacked(t, time.Minute, 15*time.Second)
}

func shutdownWithHijacked(t *testing.T, works, ends time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		srv, _ := w.server(stint.GateOptions{MaxTimeout: 10 * time.Second}, func(rw http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			time.Sleep(works)
		})
		go w.chain().Get("http://s")
		synctest.Wait()
		start := time.Now()
		if err := srv.Shutdown(t.Context()); (err == nil) != (ends == works) || time.Since(start) != ends {
			t.Errorf("%v after %v, want the end after %v, and an error if the handler is at work", err, time.Since(start), ends)
		}
		time.Sleep(works - ends) // virtual: the bubble is over when the handler is
		synctest.Wait()
	})
}

// To a caller a draining instance is proof that even a POST may go elsewhere, at once.
func TestDrainingIsRetriedElsewhere(t *testing.T) {
	for peer, want := range map[stinthttp.Peer]int{stinthttp.PeerStint: 200, stinthttp.PeerExternal: 503} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			g := newGate(t, "s", stint.GateOptions{Trust: stint.TrustPeers})
			leaf := stinttest.NewDependency()
			old, fresh := stinthttp.Handler(g, leaf), stinthttp.Handler(newGate(t, "s", stint.GateOptions{}), leaf)
			w.Serve(t, "old", old)
			w.Serve(t, "fresh", fresh)
			g.Drain()
			base := &http.Transport{DialContext: w.DialContext}
			defer base.CloseIdleConnections()
			hosts := []string{"old", "fresh"}
			balanced := roundTripper(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.URL.Host, hosts = hosts[0], hosts[1:]
				return base.RoundTrip(r)
			})
			var rec stinttest.Recorder
			caller := newCaller(t, "s", retrying, stint.CallerOptions{Observer: &rec, Rand: func() float64 { return 0 }})
			start := time.Now()
			status, _, err := fetch(t.Context(), &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: balanced, Peer: peer}}, "POST", "http://s", "")
			if took := time.Since(start); status != want || err != nil || took > time.Millisecond || (leaf.Count() == 1) != (want == 200) {
				t.Errorf("peer %d: %d, %v after %v, %d handled; want %d", peer, status, err, took, leaf.Count(), want)
			}
			if o := rec.Events(stint.AttemptDone)[0].Outcome; o.Kind != stint.Transient || o.NotStarted != (want == 200) {
				t.Errorf("peer %d: outcome %+v", peer, o)
			}
		})
	}
}

// A refusal in this process is answered as one of a dependency that is full.
func TestWriteErrorOfADrainingGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate(t, "inner", stint.GateOptions{})
		g.Drain()
		w.server(stint.GateOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			stinthttp.WriteError(rw, r, g.Admit(r.Context(), stint.Hop{}, new(stint.Admission)))
		})
		if status, text, err := fetch(t.Context(), w.chain(), "GET", "http://s", ""); status != 503 || text != "Service Unavailable: draining\n" || err != nil {
			t.Errorf("%d %q %v", status, text, err)
		}
	})
}
