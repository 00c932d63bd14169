package stinthttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
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

// sockets counts a server's connections.
type sockets struct{ made, open atomic.Int32 }

func (s *sockets) state(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.made.Add(1)
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	}
}

// serveCounted serves h at host and counts the connections.
func (w *world) serveCounted(host string, h http.Handler) *sockets {
	s := new(sockets)
	w.ServeServer(w.t, host, &http.Server{Handler: h, ConnState: s.state})
	return s
}

// loopback serves h on a real socket, over HTTP/1.1 or unencrypted HTTP/2.
func loopback(t *testing.T, http2 bool, h http.HandlerFunc) (url string, base *http.Transport, count *sockets) {
	t.Helper()
	protocols, count := new(http.Protocols), new(sockets)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState, srv.Config.Protocols, srv.Config.ErrorLog = count.state, protocols, log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(srv.Close)
	base = stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: time.Minute}) // not for a busy machine to meet
	base.Protocols = protocols
	t.Cleanup(base.CloseIdleConnections)
	return srv.URL, base, count
}

// bodies is a RoundTripper that counts responses, and those whose body has not
// been closed.
type bodies struct {
	base      http.RoundTripper
	all, open atomic.Int32
	read      atomic.Int64 // bytes, of all of them
	last      atomic.Pointer[http.Request]
}

func (b *bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	b.last.Store(r)
	resp, err := b.base.RoundTrip(r)
	if err == nil {
		b.all.Add(1)
		b.open.Add(1)
		resp.Body = &countedBody{resp.Body, &b.read, sync.OnceFunc(func() { b.open.Add(-1) })}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser
	read   *atomic.Int64
	closed func()
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// chunked answers with 512 KiB in 32 chunks: more than any buffer on the way.
func chunked(pause time.Duration) http.HandlerFunc {
	chunk := bytes.Repeat([]byte("x"), 16<<10)
	return func(rw http.ResponseWriter, r *http.Request) {
		for i := 0; i < 32 && r.Context().Err() == nil; i++ {
			rw.Write(chunk)
			rw.(http.Flusher).Flush()
			if pause > 0 {
				time.Sleep(pause) // virtual
			}
		}
	}
}

const chunkedBytes = 512 << 10

// B07: an attempt's context lives until the response's body is read or closed,
// or the deadline is there; then everything of it is gone.
func TestB07BodyOutlivesTheAttempt(t *testing.T) {
	policies := map[string]stint.Policy{
		"attempt's limit is the call's": {Timeout: 5 * time.Second, Bulkhead: 1, Retry: stint.Retry{Attempts: 3, AttemptTimeout: 5 * time.Second}},
		"attempt's limit is shorter":    {Timeout: 20 * time.Second, Bulkhead: 1, Retry: stint.Retry{Attempts: 3, AttemptTimeout: 5 * time.Second}},
	}
	for name, p := range policies {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				gone := make(chan time.Time, 1)
				w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					chunked(10*time.Millisecond)(rw, r)
					if r.URL.Path == "/endless" {
						<-r.Context().Done()
						gone <- time.Now()
					}
				}))
				base := &bodies{base: w.base}
				client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: base}}
				send := func(path string) *http.Response {
					t.Helper()
					start := time.Now()
					resp, err := client.Get("http://s" + path)
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(start); took != 0 { // the bulkhead's only slot was free
						t.Errorf("%s: answered after %v", path, took)
					}
					if base.last.Load().Context().Err() != nil {
						t.Errorf("%s: the attempt's context ended before the body was read", path)
					}
					time.Sleep(100 * time.Millisecond) // virtual: the caller is busy elsewhere
					return resp
				}
				after := func(what string, goroutines int) int {
					t.Helper()
					n := bubbleGoroutines()
					if n > goroutines {
						t.Errorf("after %s: %d goroutines, %d before", what, n, goroutines)
					}
					if base.last.Load().Context().Err() == nil {
						t.Errorf("after %s the attempt's context still lives, with its timers", what)
					}
					return n
				}

				resp := send("/") // and nobody closes it
				if n, err := io.Copy(io.Discard, resp.Body); n != chunkedBytes || err != nil {
					t.Errorf("%d bytes, %v; want %d", n, err, chunkedBytes)
				}
				idle := after("EOF", 1<<10)

				resp = send("/")
				if _, err := io.ReadFull(resp.Body, make([]byte, 100<<10)); err != nil {
					t.Error(err)
				}
				resp.Body.Close()
				time.Sleep(time.Second) // virtual: the handler writes its rest to nobody
				after("Close", idle)

				start := time.Now()
				resp = send("/endless")                                                                // neither read nor closed
				if left := (<-gone).Sub(start); left < 5*time.Second || left > 5010*time.Millisecond { // a chunk's pause
					t.Errorf("a body that nobody closes was given up after %v, want the limit's 5s", left)
				}
				after("the limit", idle)
				if rest, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) && err == nil {
					t.Errorf("a late reader gets %d bytes and %v, want an error", len(rest), err)
				}
			})
		})
	}
	t.Run("HTTP/2_over_TLS", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(chunked(0))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		defer srv.Close()
		caller := newCaller(t, "s", policies["attempt's limit is shorter"], stint.CallerOptions{})
		status, text, err := fetch(t.Context(), &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: srv.Client().Transport}}, "GET", srv.URL, "")
		if status != 200 || len(text) != chunkedBytes || err != nil {
			t.Errorf("%d, %d bytes, %v; want %d", status, len(text), err, chunkedBytes)
		}
	})
}

// B09: a second attempt has the whole body of the first, whatever made it; a
// body that can't be had again is sent once, and the server's answer returned.
func TestB09BodyIsRewound(t *testing.T) {
	text := strings.Repeat("0123456789", 10)
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind    string
		body    func(t *testing.T) io.Reader
		want    string
		oneShot bool
	}{
		{kind: "bytes.Reader", body: func(*testing.T) io.Reader { return bytes.NewReader([]byte(text)) }, want: text},
		{kind: "strings.Reader", body: func(*testing.T) io.Reader { return strings.NewReader(text) }, want: text},
		{kind: "bytes.Buffer", body: func(*testing.T) io.Reader { return bytes.NewBufferString(text) }, want: text},
		{kind: "http.NoBody", body: func(*testing.T) io.Reader { return http.NoBody }},
		{kind: "nil", body: func(*testing.T) io.Reader { return nil }},
		{kind: "file", oneShot: true, want: text, body: func(t *testing.T) io.Reader {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			return f // the transport closes it
		}},
		{kind: "pipe", oneShot: true, want: text, body: func(*testing.T) io.Reader {
			r, w := io.Pipe()
			go func() {
				io.WriteString(w, text)
				w.Close()
			}()
			return r
		}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Body: "why", Header: http.Header{"Connection": {"close"}}}, stinttest.Step{})
				w.Serve(t, "s", leaf)
				var rec stinttest.Recorder
				req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://s", c.body(t))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := w.client("s", retrying, stint.CallerOptions{Observer: &rec}).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				answer, err := io.ReadAll(resp.Body)
				attempts, status, said, refused := 2, 200, "", stint.Reason(0)
				if c.oneShot {
					attempts, status, said, refused = 1, 503, "why", stint.OneShot
				}
				as, call := leaf.Arrivals(), rec.Events(stint.CallDone)[0]
				if len(as) != attempts || resp.StatusCode != status || string(answer) != said || err != nil || call.Reason != refused {
					t.Errorf("%d requests, %d %q %v, refused for %q; want %d, %d %q, %q", len(as), resp.StatusCode, answer, err, call.Reason, attempts, status, said, refused)
				}
				for i, a := range as {
					if string(a.Body) != c.want {
						t.Errorf("attempt %d brought %d bytes, want %d", i+1, len(a.Body), len(c.want))
					}
				}
			})
		})
	}
	t.Run("GetBody fails", func(t *testing.T) {
		bothProtocols(t, func(t *testing.T, w *world) {
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"Connection": {"close"}}}, stinttest.Step{})
			w.Serve(t, "s", leaf)
			gone := errors.New("the upload's file is gone")
			req, _ := http.NewRequest("PUT", "http://s", strings.NewReader(text))
			req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
			resp, err := w.client("s", retrying, stint.CallerOptions{}).Do(req)
			if !errors.Is(err, gone) || resp != nil || leaf.Count() != 1 {
				t.Errorf("%v, %v after %d requests; want GetBody's error after one", resp, err, leaf.Count())
			}
		})
	})
}

// B09: a stream is not kept in memory for an attempt that it can't have.
func TestB09StreamIsNotBuffered(t *testing.T) {
	const size = 16 << 20
	for _, http2 := range []bool{false, true} {
		var requests, arrived atomic.Int64
		url, base, _ := loopback(t, http2, func(rw http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			n, _ := io.Copy(io.Discard, r.Body)
			arrived.Add(n)
			rw.WriteHeader(503)
		})
		var rec stinttest.Recorder
		p := unlimited(3)
		p.Timeout = time.Minute // not for a busy machine to meet
		caller := newCaller(t, "s", p, stint.CallerOptions{Observer: &rec})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
		get(t.Context(), client, url) // the connection's own memory
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sent := requests.Load()
		status, _, err := fetchBody(t, client, url, io.LimitReader(zeros{}, size))
		runtime.ReadMemStats(&after)
		grown := after.TotalAlloc - before.TotalAlloc // a buffer for all of it would be size at least
		if status != 503 || err != nil || requests.Load()-sent != 1 || arrived.Load() != size || grown >= size {
			t.Errorf("HTTP/2 %v: %d %v, %d requests, %d bytes arrived, %d allocated; want the 503 of one request, %d bytes, and no memory for them",
				http2, status, err, requests.Load()-sent, arrived.Load(), grown, size)
		}
		if rec.Refused()[stint.OneShot] != 1 {
			t.Errorf("refused: %v, want one_shot", rec.Refused())
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// fetchBody PUTs a body that net/http has no GetBody for.
func fetchBody(t *testing.T, client *http.Client, url string, body io.Reader) (int, string, error) {
	req, err := http.NewRequestWithContext(t.Context(), "PUT", url, body)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// unlimited is retrying without the guards that end a series of failures.
func unlimited(attempts int) stint.Policy {
	p := articlePolicy(attempts, 0)
	p.Breaker.Off = true
	p.Retry.BudgetCeiling = 1 << 20
	return p
}

// B10: the responses of attempts that others follow are closed: a thousand calls
// of three attempts each need one connection, on a Base that allows no more.
func TestB10DroppedResponsesFreeTheirConnection(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var n atomic.Int32
		url, tr, count := loopback(t, http2, func(rw http.ResponseWriter, r *http.Request) {
			if n.Add(1)%3 > 0 {
				rw.WriteHeader(503)
				io.WriteString(rw, strings.Repeat("sorry ", 1000))
			}
		})
		tr.MaxConnsPerHost = 1
		base := &bodies{base: tr}
		p := unlimited(3)
		p.Retry.Base, p.Retry.Cap = time.Microsecond, time.Microsecond
		client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: base}}
		call := func() {
			t.Helper()
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			if open := base.open.Load(); resp.StatusCode != 200 || open != 1 {
				t.Fatalf("%d, %d bodies open; want 200 and only its own", resp.StatusCode, open)
			}
			resp.Body.Close()
		}
		call()
		goroutines := runtime.NumGoroutine()
		calls := int32(1000)
		if http2 { // where a connection is not at stake
			calls = 200
		}
		for range calls {
			call()
		}
		// A stall of the machine that outlasts the drain's 50 ms costs a connection.
		if count.made.Load() > 10 || n.Load() != 3*(calls+1) || base.open.Load() != 0 {
			t.Errorf("HTTP/2 %v: %d connections for %d requests, %d bodies open; want one for %d, 0", http2, count.made.Load(), n.Load(), base.open.Load(), 3*(calls+1))
		}
		eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, func() string { return stacks(goroutines) })
	}
}

// B10: of an answer without an end as much is read as its connection is worth,
// in bytes and in time, and the call goes on.
func TestB10EndlessAnswer(t *testing.T) {
	for name, pause := range map[string]time.Duration{"fast": 0, "slow": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				var written atomic.Int64
				var told []string
				hungUp := make(chan time.Duration, 1)
				start := time.Now()
				count := w.serveCounted("s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if told = append(told, r.Header.Get("X-Deadline-Ms")); len(told) > 1 {
						return
					}
					rw.WriteHeader(503)
					for chunk := make([]byte, 4096); r.Context().Err() == nil; {
						n, err := rw.Write(chunk)
						rw.(http.Flusher).Flush()
						if written.Add(int64(n)); err != nil {
							break
						}
						if pause > 0 {
							time.Sleep(pause) // virtual
						}
					}
					hungUp <- time.Since(start)
				}))
				w.base.MaxConnsPerHost = 1
				base := &bodies{base: w.base}
				p := unlimited(3)
				p.Timeout = time.Second
				caller := newCaller(t, "s", p, stint.CallerOptions{Rand: func() float64 { return 1 }})
				client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
				if err := get(t.Context(), client, "http://s"); err != nil {
					t.Fatal(err)
				}
				took, limit := time.Since(start), 51*time.Millisecond // the back-off's 1 ms and the drain's 50 ms
				if pause == 0 {
					limit = time.Millisecond // 64 KiB come at once
				}
				if took > limit || len(told) != 2 || told[1] != strconv.FormatInt((time.Second-took).Milliseconds(), 10) {
					t.Errorf("%d requests in %v, told %v; want the second within %v, its budget not eaten", len(told), took, told, limit)
				}
				if left := <-hungUp; left > limit+pause {
					t.Errorf("the server learnt of it after %v", left)
				}
				if n := base.read.Load(); n > 64<<10 || pause == 0 && n != 64<<10 {
					t.Errorf("%d bytes were read of it, want 64 KiB at most", n)
				}
				if written.Load() > 5<<20 || base.open.Load() != 0 {
					// On HTTP/2 net/http's own window is 4 MiB.
					t.Errorf("%d bytes were written to nobody, %d bodies open", written.Load(), base.open.Load())
				}
				synctest.Wait()
				if open := count.open.Load(); open > 1 {
					t.Errorf("%d connections open, want the first closed", open)
				}
			})
		})
	}
}

// Twenty failing calls through the defaults: nothing stays open, one connection
// serves them all, and what must not be repeated is not. (A chain of slow
// redirects: TestRedirectsShareOneBudget.)
func TestTwentyFailingCallsThroughTheDefaults(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Body: strings.Repeat("x", 64<<10)})
				w.Serve(t, "s", leaf)
				client := stinthttp.NewClient(newCaller(t, "s", stint.Policy{Retry: stint.Retry{Attempts: 3}}, stint.CallerOptions{}), stinthttp.PeerExternal)
				tr := client.Transport.(*stinthttp.Transport)
				tr.Base.(*http.Transport).DialContext = w.DialContext
				defer client.CloseIdleConnections()
				base := &bodies{base: tr.Base}
				tr.Base = base
				for i := range 20 {
					before := leaf.Count()
					status, text, err := fetch(t.Context(), client, method, "http://s", "")
					if status != 503 || len(text) != 64<<10 || err != nil {
						t.Fatalf("call %d: %d, %d bytes, %v", i+1, status, len(text), err)
					}
					sent, want := leaf.Count()-before, 1 // of a GET in the end as well: the retry budget is spent
					if method == "GET" && i < 5 {
						want = 3
					}
					if sent != want || base.open.Load() != 0 || w.Dials("s") > 1 {
						t.Errorf("call %d: sent %d times, %d bodies open, %d connections; want %d, 0, 1", i+1, sent, base.open.Load(), w.Dials("s"), want)
					}
				}
				base.base.(*http.Transport).CloseIdleConnections()
			})
		})
	}
}
