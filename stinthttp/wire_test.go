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

// The deadline is written for each attempt, at the last moment, and never says
// more than the attempt's own limit; the owner is passed on, not replaced.
func TestWhatEachHopIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Stall: true}, stinttest.Step{Status: 503, Latency: 10 * time.Millisecond}, stinttest.Step{})
		w.Serve(t, "c", leaf)
		w.relay("b", "c", peers, articlePolicy(3, 0))
		policy := stint.Policy{Timeout: 250 * time.Millisecond,
			Retry: stint.Retry{Attempts: 3, AttemptTimeout: 100 * time.Millisecond, Base: time.Millisecond, Cap: time.Millisecond}}
		if err := get(t.Context(), w.client("b", policy, stint.CallerOptions{Service: "edge"}), "http://b"); err != nil {
			t.Fatal(err)
		}
		for i := range 3 { // 250 ms less 100, 1, 10 and 1 leave 138 to the third: above the attempt's limit still
			h, want := leaf.Arrivals()[i].Header, "100"
			if h.Get("X-Deadline-Ms") != want || h.Get("X-Retry-Owner") != "edge" || h.Get("X-Attempt") != "" {
				t.Errorf("attempt %d reached C with %v; want %s ms, the owner edge, and B's own first attempt", i+1, h, want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Latency: 60 * time.Millisecond}, stinttest.Step{})
		w.Serve(t, "s", leaf)
		policy := articlePolicy(3, 0)
		policy.Timeout, policy.Retry.AttemptTimeout = 150*time.Millisecond, 100*time.Millisecond
		if err := get(t.Context(), w.client("s", policy, stint.CallerOptions{}), "http://s"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct{ deadline, attempt string }{{"100", ""}, {"89", "2"}} {
			if h := leaf.Arrivals()[i].Header; h.Get("X-Deadline-Ms") != want.deadline || h.Get("X-Attempt") != want.attempt {
				t.Errorf("attempt %d: %v, want %v", i+1, h, want)
			}
		}
	})
}

// The body of a call that never left is closed all the same.
func TestRefusedCallClosesItsBody(t *testing.T) {
	body := new(closeRecorder)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://s", body)
	tr := &stinthttp.Transport{Caller: newCaller(t, "s", stint.Policy{}, stint.CallerOptions{})}
	if _, err := tr.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) || !body.closed {
		t.Errorf("%v, body closed: %v", err, body.closed)
	}
}

// Dropped responses are drained and closed, so that one connection serves all
// attempts; an endless one is given up.
func TestDroppedResponses(t *testing.T) {
	t.Run("one connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Body: strings.Repeat("x", 20_000)}, stinttest.Step{Status: 503}, stinttest.Step{})
			w.Serve(t, "s", leaf)
			w.base.MaxConnsPerHost = 1
			if err := get(t.Context(), w.client("s", retrying, stint.CallerOptions{}), "http://s"); err != nil || leaf.Count() != 3 || w.Dials("s") != 1 {
				t.Errorf("%v after %d requests over %d connections; want 3 over 1", err, leaf.Count(), w.Dials("s"))
			}
		})
	})
	t.Run("endless body that comes fast", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			n := 0
			w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if n++; n > 1 {
					return
				}
				rw.WriteHeader(503)
				for chunk := make([]byte, 4096); ; { // until the client hangs up
					if _, err := rw.Write(chunk); err != nil {
						return
					}
				}
			}))
			start := time.Now()
			err := get(t.Context(), w.client("s", retrying, stint.CallerOptions{}), "http://s")
			if took := time.Since(start); err != nil || took != time.Millisecond || w.Dials("s") != 2 {
				t.Errorf("%v after %v over %d connections; want it dropped after 64 KiB, without a wait", err, took, w.Dials("s"))
			}
		})
	})
	t.Run("endless body", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.Serve(t, "s", &drips{})
			start := time.Now()
			err := get(t.Context(), w.client("s", retrying, stint.CallerOptions{}), "http://s")
			if took := time.Since(start); err != nil || took > 60*time.Millisecond {
				t.Errorf("%v after %v; want the second attempt to follow within the drain's 50ms", err, took)
			}
		})
	})
}

// A response without a body is over when it is there.
func TestEmptyResponseFreesItsSlot(t *testing.T) {
	for _, status := range []int{204, 304} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.Serve(t, "s", stinttest.NewDependency(stinttest.Step{Status: status}))
			client := w.client("s", stint.Policy{Bulkhead: 1}, stint.CallerOptions{})
			for range 2 { // and nobody closes the body
				start := time.Now()
				if resp, err := client.Get("http://s"); err != nil || resp.StatusCode != status || time.Since(start) != 0 {
					t.Fatalf("%d: %v, %v after %v", status, resp, err, time.Since(start))
				}
			}
		})
	}
}

// A peer that refuses for want of time is not asked again: there will be less.
func TestRefusedForTimeIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		entered := 0
		options := peers
		options.MinUseful = 80 * time.Millisecond
		w.Serve(t, "s", stinthttp.Handler(newGate(t, "s", options), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered++ })))
		var rec stinttest.Recorder
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		status, _, err := fetch(ctx, w.client("s", retrying, stint.CallerOptions{Observer: &rec}), "GET", "http://s", "")
		attempts := rec.Events(stint.AttemptDone)
		if status != 504 || err != nil || entered != 0 || len(attempts) != 1 || rec.Refused()[stint.Final] != 1 {
			t.Errorf("%d, %v, entered %d, %d attempts, refused %v; want one 504", status, err, entered, len(attempts), rec.Refused())
		}
		if o := attempts[0].Outcome; o.Kind != stint.Refused || !o.NotStarted {
			t.Errorf("outcome %+v: want refused, neutral to the breaker", o)
		}
	})
}

// Only the Gate says "not started", and only failures are marked "never".
func TestMarksOfAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"X-Retry": {"Never"}}})
		w.Serve(t, "c", leaf)
		client := w.client("c", retrying, stint.CallerOptions{})
		status := 200
		w.serve(peers, func(rw http.ResponseWriter, r *http.Request) {
			get(r.Context(), client, "http://c")
			rw.Header().Set("X-Not-Started", "full")
			rw.WriteHeader(status)
		})
		for _, status = range []int{200, 404, 429, 500, 503} {
			resp, err := (&http.Client{Transport: w.base}).Get("http://s")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			never := status == 429 || status >= 500
			if resp.Header.Get("X-Not-Started") != "" || (resp.Header.Get("X-Retry") == "never") != never {
				t.Errorf("%d: %v; want never: %v, and no not-started", status, resp.Header, never)
			}
		}
	})
}

// The answer in a handler's place says "never" as well.
func TestAnswerInPlaceSaysNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Serve(t, "c", stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"X-Retry": {"never"}}}))
		client := w.client("c", stint.Policy{}, stint.CallerOptions{})
		front := w.serve(stint.GateOptions{DefaultTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			get(r.Context(), client, "http://c")
			time.Sleep(time.Second) // virtual
		})
		resp, err := front.Get("http://s")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 504 || resp.Header.Get("X-Retry") != "never" {
			t.Errorf("%d %v, want 504 and never", resp.StatusCode, resp.Header)
		}
	})
}

// Milliseconds win over seconds, and a date counts from the server's own clock.
func TestRetryAfterClocks(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		want   time.Duration
	}{
		{"milliseconds", http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1500"}}, 1500 * time.Millisecond},
		{"bad milliseconds", http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1.5"}}, 2 * time.Second},
		{"server a year ahead", http.Header{"Retry-After": {"Mon, 01 Jan 2001 00:00:03 GMT"}, "Date": {"Mon, 01 Jan 2001 00:00:00 GMT"}}, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Header: c.header}, stinttest.Step{})
			w.Serve(t, "s", leaf)
			start := time.Now()
			err := get(t.Context(), w.client("s", retrying, stint.CallerOptions{Rand: func() float64 { return 0 }}), "http://s")
			if took := time.Since(start); err != nil || took != c.want {
				t.Errorf("%s: %v after %v, want %v", c.name, err, took, c.want)
			}
		})
	}
}

// A connection that does not come up within the dialer's own limit is proof that
// nothing was sent, also for a POST.
func TestDialThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := stinttest.NewDependency()
		w.Serve(t, "s", leaf)
		dials := 0
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials == 1 {
				time.Sleep(100 * time.Millisecond) // virtual: as net.Dialer.Timeout would
				return nil, &net.OpError{Op: "dial", Net: network, Err: context.DeadlineExceeded}
			}
			return w.DialContext(ctx, network, addr)
		}}
		defer base.CloseIdleConnections()
		caller := newCaller(t, "s", articlePolicy(2, 0), stint.CallerOptions{Rand: func() float64 { return 1 }})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
		start := time.Now()
		status, _, err := fetch(t.Context(), client, "POST", "http://s", "")
		if took := time.Since(start); status != 200 || err != nil || leaf.Count() != 1 || took != 101*time.Millisecond {
			t.Errorf("%d, %v after %v, %d requests; want the POST sent once, by the second attempt", status, err, took, leaf.Count())
		}
	})
}

// An upgraded connection stays writable.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve(peers, func(rw http.ResponseWriter, r *http.Request) {
			c, buf, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			buf.Flush()
			line, _ := buf.ReadString('\n')
			buf.WriteString(line)
			buf.Flush()
		})
		req, _ := http.NewRequest("GET", "http://s", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := w.client("s", stint.Policy{}, stint.CallerOptions{}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("the body of a 101 is a %T", resp.Body)
		}
		defer rwc.Close()
		io.WriteString(rwc, "hello\n")
		if text, err := io.ReadAll(rwc); string(text) != "hello\n" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}
