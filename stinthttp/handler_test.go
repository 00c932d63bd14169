package stinthttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// serve runs h behind a gate of 1 s and returns a plain client.
func (w *world) serve(o stint.GateOptions, h http.HandlerFunc) *http.Client {
	w.Serve(w.t, "s", stinthttp.Handler(newGate(w.t, "s", o), h))
	return &http.Client{Transport: w.base}
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		w := newWorld(t)
		entered := 0
		client := w.serve(stint.GateOptions{MinUseful: 30 * time.Millisecond, Limit: 1, Observer: &rec}, func(rw http.ResponseWriter, r *http.Request) {
			entered++
			<-r.Context().Done()
		})
		do := func(ms string) *http.Response {
			req, _ := http.NewRequest("GET", "http://s", nil)
			req.Header.Set("X-Deadline-Ms", ms)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		resp := do("29")
		if resp.StatusCode != 504 || resp.Header.Get("X-Not-Started") != "no_time" || entered != 0 {
			t.Errorf("29 ms of 30: %d %v, entered %d", resp.StatusCode, resp.Header, entered)
		}
		held := make(chan *http.Response)
		go func() { held <- do("500") }()
		synctest.Wait()
		resp = do("30") // it has no time to wait
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != 503 || resp.Header.Get("X-Not-Started") != "full" || after < "1" || after > "3" || entered != 1 {
			t.Errorf("beyond the limit: %d %v, entered %d", resp.StatusCode, resp.Header, entered)
		}
		if resp = <-held; resp.StatusCode != 504 || resp.Header.Get("X-Not-Started") != "" {
			t.Errorf("the one inside: %d %v, want a 504 that does not say not started", resp.StatusCode, resp.Header)
		}
	})
}

// The caller's leaving is no server error, and what is done after it is wasted.
func TestCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		w := newWorld(t)
		client := w.serve(stint.GateOptions{Observer: &rec}, func(rw http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(70 * time.Millisecond) // virtual
			stinthttp.WriteError(rw, r, fmt.Errorf("query: %w", r.Context().Err()))
		})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://s", nil)
		if _, err := client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // virtual
		left, wasted := rec.Events(stint.GateLeft), rec.Events(stint.WorkWasted)
		if len(left) != 1 || left[0].Outcome.Code != "499" || left[0].Outcome.Kind != stint.Canceled {
			t.Errorf("left: %+v, want one 499 that is nobody's failure", left)
		}
		if len(wasted) != 1 || wasted[0].Elapsed != 70*time.Millisecond {
			t.Errorf("wasted: %+v, want 70ms", wasted)
		}
	})
}

// A server that is shutting down cancels its requests, and their callers are
// still there: they must not be told 200.
func TestServerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		base, stop := context.WithCancel(context.Background())
		h := stinthttp.Handler(newGate(t, "s", stint.GateOptions{}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		w.ServeServer(t, "s", &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return base }})
		time.AfterFunc(10*time.Millisecond, stop)
		if status, _, err := fetch(t.Context(), &http.Client{Transport: w.base}, "GET", "http://s", ""); status != 503 || err != nil {
			t.Errorf("%d, %v; want 503", status, err)
		}
	})
}

func TestPanicPassesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		w := newWorld(t)
		panics := true
		client := w.serve(stint.GateOptions{Limit: 1, Observer: &rec}, func(rw http.ResponseWriter, r *http.Request) {
			if panics {
				panics = false
				panic("a bug in the handler")
			}
		})
		if _, err := client.Get("http://s"); err == nil {
			t.Error("a panicking handler answered")
		}
		resp, err := client.Get("http://s")
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("after the panic: %v, %v; want the place to be free", resp, err)
		}
		resp.Body.Close()
		synctest.Wait()
		if left := rec.Events(stint.GateLeft); len(left) != 2 || left[0].Outcome.Code != "panic" {
			t.Errorf("left: %+v", left)
		}
	})
}

// The Gate does not stand in the way of a response.
func TestResponsesPassUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.serve(stint.GateOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			h := rw.Header()
			switch r.URL.Path {
			case "/trailers":
				h.Set("Trailer", "X-Sum")
				io.WriteString(rw, "body")
				h.Set("X-Sum", "42")
				h.Set(http.TrailerPrefix+"X-Late", "yes")
			case "/early":
				h.Set("Link", "</a.css>; rel=preload")
				rw.WriteHeader(http.StatusEarlyHints)
				h.Set("X-Real", "1")
				rw.WriteHeader(http.StatusAccepted)
			case "/flush":
				h.Set("X-Real", "1")
				rw.WriteHeader(http.StatusPartialContent)
				io.WriteString(rw, "first")
				if err := http.NewResponseController(rw).Flush(); err != nil {
					t.Error(err)
				}
				time.Sleep(50 * time.Millisecond) // virtual
				io.WriteString(rw, " second")
			case "/copy":
				if n, err := io.Copy(rw, strings.NewReader(strings.Repeat("x", 100_000))); n != 100_000 || err != nil {
					t.Error(n, err)
				}
			case "/hijack":
				c, buf, err := http.NewResponseController(rw).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if _, err := rw.Write([]byte("x")); err != http.ErrHijacked {
					t.Errorf("write after Hijack: %v", err)
				}
				buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
				buf.Flush()
			case "/nothing":
				h.Set("X-Real", "1")
			case "/deadline":
				if err := http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
					t.Error(err)
				}
			}
		})
		get := func(path string) (*http.Response, string) {
			resp, err := client.Get("http://s" + path)
			if err != nil {
				t.Fatal(path, err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(path, err)
			}
			return resp, string(text)
		}
		if resp, text := get("/trailers"); text != "body" || resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Late") != "yes" {
			t.Errorf("trailers: %q %v", text, resp.Trailer)
		}
		if resp, _ := get("/early"); resp.StatusCode != 202 || resp.Header.Get("X-Real") != "1" || resp.Header.Get("Link") == "" {
			t.Errorf("early hints: %d %v", resp.StatusCode, resp.Header)
		}
		if resp, text := get("/copy"); len(text) != 100_000 || resp.StatusCode != 200 {
			t.Errorf("copy: %d bytes", len(text))
		}
		if _, text := get("/hijack"); text != "hi" {
			t.Errorf("hijack: %q", text)
		}
		if resp, text := get("/nothing"); resp.StatusCode != 200 || resp.Header.Get("X-Real") != "1" || text != "" {
			t.Errorf("nothing written: %d %v", resp.StatusCode, resp.Header)
		}
		get("/deadline")

		start := time.Now()
		resp, err := client.Get("http://s/flush")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		first := make([]byte, 5)
		io.ReadFull(resp.Body, first)
		if resp.StatusCode != 206 || string(first) != "first" || time.Since(start) != 0 || resp.Header.Get("X-Real") != "1" {
			t.Errorf("flush: %d %q after %v", resp.StatusCode, first, time.Since(start))
		}
	})
}

// An answer that net/http still holds back at the deadline comes not at all.
func TestUnflushedAnswerIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		entered := 0
		client := w.serve(stint.GateOptions{DefaultTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			entered++
			rw.WriteHeader(http.StatusPartialContent)
			io.WriteString(rw, "begun")
			time.Sleep(time.Second) // virtual
			io.WriteString(rw, ", ended")
		})
		resp, err := client.Get("http://s")
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, io.EOF) || entered != 1 {
			t.Errorf("%v, %v after %d requests, want the connection's end", resp, err, entered)
		}
	})
}

// A body that does not come commits nothing.
func TestCopyFromASlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.serve(stint.GateOptions{DefaultTimeout: 200 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			pr, pw := io.Pipe()
			time.AfterFunc(100*time.Millisecond, func() {
				if r.URL.Path == "/late" {
					io.WriteString(pw, strings.Repeat("x", 100))
					pw.Close()
				}
				pw.CloseWithError(context.DeadlineExceeded)
			})
			rw.Header().Set("X-Real", "1")
			if n, err := io.Copy(rw, pr); err != nil && n == 0 {
				stinthttp.WriteError(rw, r, err)
			}
		})
		for path, want := range map[string]int{"/never": 504, "/late": 200} {
			resp, err := client.Get("http://s" + path)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || want == 200 && (len(text) != 100 || resp.Header.Get("X-Real") != "1") {
				t.Errorf("%s: %d %q, want %d", path, resp.StatusCode, text, want)
			}
		}
	})
}

// A handler that obeys its context does not cost its caller the connection.
func TestObedientTimeoutsKeepTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.serve(stint.GateOptions{DefaultTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		for range 5 {
			resp, err := client.Get("http://s")
			if err != nil || resp.StatusCode != 504 {
				t.Fatal(resp, err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if w.Dials("s") != 1 {
			t.Errorf("%d connections for 5 timeouts, want 1", w.Dials("s"))
		}
	})
}

// What went out with a 1xx is not the 504's.
func TestAnswerAfterEarlyHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.serve(stint.GateOptions{DefaultTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Cache-Control", "public, max-age=3600")
			rw.WriteHeader(http.StatusEarlyHints)
			time.Sleep(time.Second) // virtual
		})
		resp, err := client.Get("http://s")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 504 || resp.Header.Get("Cache-Control") != "" || !resp.Close {
			t.Errorf("%d %v, want a 504 of its own that closes the connection", resp.StatusCode, resp.Header)
		}
	})
}

// A client that sends its body slowly does not keep the 504 back.
func TestAnswerWhileTheBodyIsBeingSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		read := make(chan error, 1)
		w.serve(stint.GateOptions{DefaultTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			read <- err
		})
		c, err := w.DialContext(t.Context(), "tcp", "s:80")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\nhalf")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if took := time.Since(start); err != nil || resp.StatusCode != 504 || took != 47500*time.Microsecond || !resp.Close {
			t.Errorf("%v, %v after %v; want 504 after 47.5ms, and the connection closed", resp, err, took)
		}
		if err := <-read; err == nil { // nor does it hold the handler, though it stays connected
			t.Error("the handler read a whole body")
		}
		c.Close()
	})
}

// A dependency's "never" goes on, with whatever status, also without a Gate.
func TestWriteErrorMarks(t *testing.T) {
	answer := func(status int, never bool) error {
		r := &http.Response{StatusCode: status, Header: http.Header{}}
		if never {
			r.Header.Set("X-Retry", "never")
		}
		return stinthttp.CheckStatus(r)
	}
	for _, c := range []struct {
		err    error
		status int
		never  bool
	}{
		{answer(503, false), 503, false}, {answer(503, true), 503, true}, {answer(502, false), 502, false},
		{answer(504, true), 504, true}, {answer(500, false), 502, true}, {answer(404, false), 502, true},
		{context.DeadlineExceeded, 504, false}, {answer(429, false), 503, true},
		{stinthttp.CheckStatus(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}}), 503, false},
		// A service over gRPC whose time was up more than a quarter of it before ours.
		{outcomeError(stint.Outcome{Kind: stint.Failed, Code: "DEADLINE_EXCEEDED"}), 504, true},
		{outcomeError(stint.Outcome{Kind: stint.TimedOut, Code: "DEADLINE_EXCEEDED"}), 504, false},
	} {
		rec := httptest.NewRecorder()
		stinthttp.WriteError(rec, httptest.NewRequest("GET", "/", nil), c.err)
		if rec.Code != c.status || (rec.Header().Get("X-Retry") == "never") != c.never || rec.Header().Get("X-Not-Started") != "" {
			t.Errorf("%v: %d %v, want %d, never: %v", c.err, rec.Code, rec.Header(), c.status, c.never)
		}
	}
	rec := httptest.NewRecorder()
	stinthttp.Handler(new(stint.Gate), http.NotFoundHandler()).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if _, marked := rec.Header()["X-Not-Started"]; rec.Code != 500 || marked {
		t.Errorf("a Gate that NewGate did not make: %d %v, want 500 and no mark", rec.Code, rec.Header())
	}
}

func TestWriteError(t *testing.T) {
	caller := func(p stint.Policy) *stint.Caller {
		return newCaller(t, "c", p, stint.CallerOptions{Rand: func() float64 { return 1 }})
	}
	do := func(c *stint.Caller, o stint.Outcome) error {
		return c.Do(t.Context(), stint.Op{}, func(context.Context) error { return outcomeError(o) })
	}
	open := caller(stint.Policy{Breaker: stint.Breaker{MinCalls: 1}})
	do(open, stint.Outcome{Kind: stint.Failed})
	live, gone := t.Context(), canceled()
	for _, c := range []struct {
		name       string
		ctx        context.Context
		err        error
		status     int
		retryAfter bool
	}{
		{"deadline", live, fmt.Errorf("query: %w", context.DeadlineExceeded), 504, false},
		{"attempt timeout", live, stint.ErrAttemptTimeout, 504, false},
		{"no time", live, stint.Require(short(t), time.Minute), 504, false},
		{"breaker open", live, do(open, stint.Outcome{}), 503, true},
		{"dependency 503", live, do(caller(stint.Policy{}), stint.Outcome{Kind: stint.Transient, Code: "503"}), 503, false},
		{"dependency 503 with a hint", live, do(caller(stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 2}}),
			stint.Outcome{Kind: stint.Transient, Code: "503", NotStarted: true, Hinted: true, RetryAfter: 2 * time.Second}), 503, true},
		{"dependency 503, no time for another", live, do(caller(stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 2, Base: time.Hour, Cap: time.Hour}}),
			stint.Outcome{Kind: stint.Transient, Code: "503", NotStarted: true}), 504, false},
		{"dependency 429", live, do(caller(stint.Policy{}), stint.Outcome{Kind: stint.Overloaded, Code: "429"}), 503, false},
		{"dependency 504", live, do(caller(stint.Policy{}), stint.Outcome{Kind: stint.Transient, Code: "504"}), 504, false},
		{"dependency 500", live, do(caller(stint.Policy{}), stint.Outcome{Kind: stint.Failed, Code: "500"}), 502, false},
		{"dependency 404", live, do(caller(stint.Policy{}), stint.Outcome{Kind: stint.Rejected, Code: "404"}), 502, false},
		{"reset", live, do(caller(stint.Policy{}), stint.Outcome{Kind: stint.Transient, Code: "reset"}), 502, false},
		{"caller left", gone, fmt.Errorf("query: %w", context.Canceled), 499, false},
		{"cancelled here", live, context.Canceled, 503, false},
		{"a bug", live, errors.New("nil map"), 500, false},
		{"nil", live, nil, 500, false},
	} {
		rec := httptest.NewRecorder()
		stinthttp.WriteError(rec, httptest.NewRequest("GET", "/", nil).WithContext(c.ctx), c.err)
		if has := rec.Header().Get("Retry-After") != ""; rec.Code != c.status || has != c.retryAfter {
			t.Errorf("%s: %d, Retry-After %q; want %d, %v (%v)", c.name, rec.Code, rec.Header().Get("Retry-After"), c.status, c.retryAfter, c.err)
		}
		if c.err != nil && strings.Contains(rec.Body.String(), "nil map") {
			t.Errorf("%s: the error's text leaked: %q", c.name, rec.Body)
		}
	}
}

type outcomeError stint.Outcome

func (e outcomeError) Error() string          { return stint.Outcome(e).String() }
func (e outcomeError) Outcome() stint.Outcome { return stint.Outcome(e) }

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Every phase has the bound that its field says, and no other.
func TestNewTransportBoundsEveryPhase(t *testing.T) {
	type phases struct {
		tls, header, expect, idle, ping, pong, write time.Duration
		conns                                        int
	}
	const s = time.Second
	standard := phases{s, 30 * s, s, 90 * s, 2 * s, s, 3 * s, 64}
	for _, c := range []struct {
		options *stinthttp.TransportOptions
		want    phases
	}{
		{nil, standard},
		{&stinthttp.TransportOptions{Dial: -1, TLSHandshake: -1, ResponseHeader: -1, ExpectContinue: -1, Ping: -1, Pong: -1, Idle: -1, IdleConns: -1}, standard},
		{&stinthttp.TransportOptions{TLSHandshake: 2, ResponseHeader: 3, ExpectContinue: 4, Ping: 5, Pong: 6, Idle: 7, IdleConns: 8}, phases{2, 3, 4, 7, 5, 6, 11, 8}},
	} {
		tr := stinthttp.NewTransport(c.options)
		got := phases{tr.TLSHandshakeTimeout, tr.ResponseHeaderTimeout, tr.ExpectContinueTimeout, tr.IdleConnTimeout,
			tr.HTTP2.SendPingTimeout, tr.HTTP2.PingTimeout, tr.HTTP2.WriteByteTimeout, tr.MaxIdleConnsPerHost}
		if got != c.want || !tr.ForceAttemptHTTP2 || tr.DialContext == nil {
			t.Errorf("%+v: %+v, want %+v", c.options, got, c.want)
		}
	}
	// A dial has no time to read back: one that is over before it began shows it.
	_, err := stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: 1}).DialContext(t.Context(), "tcp", "127.0.0.1:9")
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("a dial of 1 ns: %v, want its timeout", err)
	}
}

func TestNewClientBoundsEveryPhase(t *testing.T) {
	tr := stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: -1})
	if tr.TLSHandshakeTimeout <= 0 || tr.ResponseHeaderTimeout <= 0 || tr.ExpectContinueTimeout <= 0 || tr.IdleConnTimeout <= 0 || tr.DialContext == nil {
		t.Errorf("a phase is not bounded: %+v", tr)
	}
	idle := &idleCounter{}
	(&http.Client{Transport: &stinthttp.Transport{Base: idle}}).CloseIdleConnections()
	if idle.closed != 1 {
		t.Errorf("CloseIdleConnections reached Base %d times, want once", idle.closed)
	}
	if c := stinthttp.NewClient(newCaller(t, "c", stint.Policy{}, stint.CallerOptions{}), stinthttp.PeerStint); c.Timeout != 10*time.Second {
		t.Errorf("backstop %v, want 10s", c.Timeout)
	}
	if c := stinthttp.NewClient(newCaller(t, "c", stint.Policy{Timeout: 2 * time.Second, Reserve: 3 * time.Second}, stint.CallerOptions{}), stinthttp.PeerStint); c.Timeout != 6*time.Second {
		t.Errorf("backstop %v, want 6s: the Caller takes its reserve from it", c.Timeout)
	}
	long := stinthttp.NewClient(newCaller(t, "c", stint.Policy{Timeout: time.Hour}, stint.CallerOptions{}), stinthttp.PeerStint)
	if tr := long.Transport.(*stinthttp.Transport).Base.(*http.Transport); tr.ResponseHeaderTimeout != time.Hour {
		t.Errorf("an hour's call may wait %v for the header", tr.ResponseHeaderTimeout)
	}
	if c := stinthttp.NewClient(newCaller(t, "c", stint.Policy{Timeout: 2 * time.Second}, stint.CallerOptions{}), stinthttp.PeerStint); c.Timeout != 3*time.Second {
		t.Errorf("backstop %v, want 3s", c.Timeout)
	}
}

type idleCounter struct {
	http.RoundTripper
	closed int
}

func (c *idleCounter) CloseIdleConnections() { c.closed++ }
