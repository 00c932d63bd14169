package stinthttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
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

// A thousand calls that fail, in every way that calls fail, leave no goroutine
// and no connection behind.
func TestNothingGrowsOverAThousandFailures(t *testing.T) {
	step := func(s stinttest.Step) http.Handler { return stinttest.NewDependency(s) }
	for _, c := range []struct {
		name     string
		server   http.Handler // nil: nobody listens
		policy   func(p *stint.Policy)
		cancel   time.Duration // the caller leaves then
		unread   bool          // the body is closed and not read
		unclosed bool          // nor closed
		held     bool          // another call hangs all the while
		reason   stint.Reason
		attempts int
	}{
		{name: "503", server: step(stinttest.Step{Status: 503, Body: strings.Repeat("x", 4<<10)}), reason: stint.AttemptsSpent, attempts: 2},
		{name: "429 that asks for too much", server: step(stinttest.Step{Status: 429, Header: http.Header{"Retry-After": {"3600"}}}),
			reason: stint.NoTime, attempts: 1},
		{name: "reset", server: step(stinttest.Step{Reset: true}), reason: stint.AttemptsSpent, attempts: 2},
		{name: "stall past the attempt's limit", server: step(stinttest.Step{Stall: true}), reason: stint.AttemptsSpent, attempts: 2},
		{name: "stall past the call's limit", server: step(stinttest.Step{Stall: true}),
			policy: func(p *stint.Policy) { p.Timeout = 20 * time.Millisecond; p.Retry.AttemptTimeout = 0 }, reason: stint.NoTime, attempts: 1},
		{name: "connection refused", reason: stint.AttemptsSpent, attempts: 2},
		{name: "endless answer", server: http.HandlerFunc(dripping), unread: true, reason: stint.AttemptsSpent, attempts: 2},
		{name: "caller cancels", server: step(stinttest.Step{Stall: true}), cancel: 5 * time.Millisecond, reason: stint.CallerGone, attempts: 1},
		{name: "breaker open", server: step(stinttest.Step{Status: 503}),
			policy: func(p *stint.Policy) { p.Breaker = stint.Breaker{MinCalls: 1, OpenFor: time.Hour} }, reason: stint.BreakerOpen},
		{name: "bulkhead full", server: step(stinttest.Step{Stall: true}), held: true,
			policy: func(p *stint.Policy) { p.Bulkhead, p.Retry.AttemptTimeout = 1, 0 }, cancel: -5 * time.Millisecond, reason: stint.Full},
		{name: "truncated body", server: http.HandlerFunc(truncated), attempts: 1},
		{name: "body that nobody reads", server: step(stinttest.Step{Body: strings.Repeat("x", 8<<10)}), unread: true, attempts: 1},
		{name: "body that nobody closes", server: step(stinttest.Step{Body: strings.Repeat("x", 8<<10)}), unread: true, unclosed: true, attempts: 1},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				var server sockets
				if c.server != nil {
					w.ServeServer(t, "s", &http.Server{Handler: c.server, ConnState: server.state})
				}
				p := unlimited(2)
				p.Timeout, p.Retry.AttemptTimeout = time.Minute, 20*time.Millisecond
				if c.policy != nil {
					c.policy(&p)
				}
				var last atomic.Pointer[stint.Event]
				client := w.client("s", p, stint.CallerOptions{Observer: eventFunc(func(e stint.Event) {
					if e.Kind == stint.CallDone {
						last.Store(&e)
					}
				})})
				before := bubbleGoroutines()
				call := func(i int) {
					ctx, cancel := context.WithCancel(t.Context())
					if c.cancel < 0 { // a deadline
						ctx, cancel = context.WithTimeout(ctx, -c.cancel)
					} else if c.cancel > 0 {
						time.AfterFunc(c.cancel, cancel)
					}
					defer cancel()
					if c.unclosed {
						ctx = context.Background()
					}
					req, _ := http.NewRequestWithContext(ctx, "GET", "http://s", nil)
					resp, err := client.Do(req)
					if err == nil && !c.unread {
						_, err = io.Copy(io.Discard, resp.Body)
					}
					if c.unclosed {
						time.Sleep(20 * time.Millisecond) // virtual: the attempt's limit
					} else if resp != nil {
						resp.Body.Close()
					}
					if e := last.Load(); i > 0 && (e.Reason != c.reason || e.Attempt != c.attempts) {
						t.Errorf("call %d: %d attempts, %q, %v; want %d, %q", i, e.Attempt, e.Reason, err, c.attempts, c.reason)
					}
				}
				release := func() {}
				if c.held {
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					var gone sync.WaitGroup
					gone.Go(func() { get(ctx, client, "http://s") })
					synctest.Wait()
					release = func() { cancel(); gone.Wait() }
				}
				calls := 1000
				if w.base.Protocols != nil { // HTTP/2, where a connection is not at stake
					calls = 200
				}
				for i := range calls {
					if call(i); t.Failed() {
						break
					}
					if open := server.open.Load(); open > 5 { // the last one's, and one that is being closed
						t.Fatalf("after %d calls: %d connections at the server", i+1, open)
					}
				}
				time.Sleep(2 * time.Second) // virtual: limits, and the half second that net/http lingers
				if n := bubbleGoroutines(); n > before+12 || server.open.Load() > 2 {
					t.Errorf("%d goroutines, %d before, %d connections at the server; want no more than an idle one's", n, before, server.open.Load())
				}
				release()
				synctest.Wait() // an HTTP/2 connection is idle once its stream's end is through
				w.base.CloseIdleConnections()
				time.Sleep(2 * time.Second) // virtual
				if n := bubbleGoroutines(); n != before || server.open.Load() != 0 {
					t.Errorf("with idle connections closed: %d goroutines, %d before, %d connections at the server; want nothing left", n, before, server.open.Load())
				}
			})
		})
	}
}

type eventFunc func(stint.Event)

func (eventFunc) StartAttempt(ctx context.Context, _ stint.Event) context.Context { return ctx }
func (f eventFunc) Observe(_ context.Context, e stint.Event)                      { f(e) }

// dripping answers every request with a 503 that does not end.
func dripping(rw http.ResponseWriter, r *http.Request) { new(drips).ServeHTTP(rw, r) }

// truncated promises more than it sends.
func truncated(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Length", "20")
	rw.Write(make([]byte, 10))
	rw.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// Nor do a thousand handshakes that fail: with a server that does not speak TLS,
// and, since keys cost time, fewer with one whose certificate nobody trusts.
func TestNothingGrowsOverAThousandHandshakes(t *testing.T) {
	plain, _, _ := loopback(t, false, func(http.ResponseWriter, *http.Request) {})
	untrusted, _ := tlsServer(t, "127.0.0.1", time.Hour)
	// Limits that a busy machine does not meet, a pool that trusts nobody, and the
	// cheapest key exchange.
	base := stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: time.Minute, TLSHandshake: time.Minute})
	base.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), CurvePreferences: []tls.CurveID{tls.X25519}}
	var open, made atomic.Int32
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		made.Add(1)
		open.Add(1)
		return &countedConn{c, sync.OnceFunc(func() { open.Add(-1) })}, nil
	}
	p := unlimited(2)
	p.Timeout = time.Minute
	client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: base}}
	goroutines := runtime.NumGoroutine()
	for url, calls := range map[string]int32{strings.Replace(plain, "http:", "https:", 1): 1000, untrusted: 100} {
		made.Store(0)
		for range calls {
			var e *stint.Error
			if err := get(t.Context(), client, url); !errors.As(err, &e) || e.Last.Code != "tls" {
				t.Fatal(err)
			}
		}
		if made.Load() != calls {
			t.Errorf("%s: %d connections, want one a call", url, made.Load())
		}
		eventually(t, func() bool { return open.Load() == 0 && runtime.NumGoroutine() <= goroutines },
			func() string { return fmt.Sprintf("%s: %d connections open, %s", url, open.Load(), stacks(goroutines)) })
	}
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// eventually waits until a condition holds, for what real sockets do after a
// call; in virtual time synctest.Wait is exact.
func eventually(t *testing.T, holds func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Error(what())
			return
		}
	}
}

// stacks says which goroutines there are, when there are more than before.
func stacks(before int) string {
	buf := make([]byte, 64<<10)
	return fmt.Sprintf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}
