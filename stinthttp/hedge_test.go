package stinthttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// replicas are servers of the same thing, over one protocol.
type replicas struct {
	hosts []string
	base  *http.Transport
}

// protocols in which a hop may go.
var protocols = []string{"HTTP/1.1", "HTTP/2"}

// start serves each handler on a server of its own.
func start(t testing.TB, protocol string, handlers ...http.Handler) (rs *replicas, scheme string) {
	rs = &replicas{base: stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: time.Minute, TLSHandshake: time.Minute})}
	rs.base.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // httptest's certificate
	t.Cleanup(rs.base.CloseIdleConnections)
	for _, h := range handlers {
		srv := httptest.NewUnstartedServer(h)
		srv.Config.ConnContext = stinthttp.ConnContext
		if scheme = "http"; protocol == "HTTP/2" {
			scheme = "https"
			srv.EnableHTTP2 = true
			srv.StartTLS()
		} else {
			srv.Start()
		}
		t.Cleanup(srv.Close)
		rs.hosts = append(rs.hosts, srv.Listener.Addr().String())
	}
	return rs, scheme
}

// slow counts its requests, and answers none before its caller has left.
type slow struct {
	count atomic.Int64
	left  chan struct{} // one for each caller that has
}

func newSlow() *slow { return &slow{left: make(chan struct{}, 100)} }

func (s *slow) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.count.Add(1)
	io.Copy(io.Discard, r.Body) // or net/http would not see the caller leave
	<-r.Context().Done()
	s.left <- struct{}{}
}

// await fails the test if nothing comes.
func await[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing within 20 s", what)
	}
	return v
}

// The winner's body stays readable to the end, and the loser is cancelled at
// once, though the winner's body is still to be read.
func TestB25WinnersBody(t *testing.T) {
	const size, chunks = 512 << 10, 32
	chunk := bytes.Repeat([]byte("w"), size/chunks)
	for _, protocol := range protocols {
		for name, retry := range map[string]stint.Retry{"alone": {}, "with retry and attempt timeout": {Attempts: 3, AttemptTimeout: 20 * time.Second}} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				lose, gate := newSlow(), make(chan struct{})
				win := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					for i := range chunks {
						if i == 1 {
							<-gate // until the loser has been seen to go
						}
						rw.Write(chunk)
						rw.(http.Flusher).Flush()
					}
				})
				rs, scheme := start(t, protocol, lose, win)
				var rec stinttest.Recorder
				caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Retry: retry, Bulkhead: 2,
					Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}, stint.CallerOptions{Observer: &rec})
				client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, Alternates: rs.hosts[1:]}}
				resp, err := client.Get(scheme + "://" + rs.hosts[0])
				if err != nil {
					t.Fatal(err)
				}
				if resp.Proto[:6] != protocol[:6] {
					t.Errorf("spoke %s", resp.Proto)
				}
				if lose.count.Load() > 0 { // it may have lost before its request was out
					await(t, "the loser's cancel", lose.left)
				}
				close(gate)
				n, err := io.Copy(io.Discard, resp.Body)
				if n != size || err != nil {
					t.Errorf("read %d bytes, %v; want %d", n, err, size)
				}
				resp.Body.Close()
				poll(t, "both attempts reported", func() bool { return len(rec.Events(stint.AttemptDone)) == 2 })
				for range 2 { // both slots are free again
					if err := caller.Do(t.Context(), stint.Op{}, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// poll waits for a condition that other goroutines bring about.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// Which requests are sent twice.
func TestB27HedgesOnlyWhatMayRunTwice(t *testing.T) {
	for _, protocol := range protocols {
		for _, c := range []struct {
			name, method, key string
			body              io.Reader
			want              int64 // at the replica that the copy would go to
		}{
			{"GET", "GET", "", nil, 1},
			{"POST", "POST", "", strings.NewReader("b"), 0},
			{"PATCH", "PATCH", "", strings.NewReader("b"), 0},
			{"POST with a key", "POST", "k-1", strings.NewReader("b"), 1},
			{"one-shot GET", "GET", "", io.NopCloser(strings.NewReader("b")), 0},
			{"one-shot PUT", "PUT", "", io.NopCloser(strings.NewReader("b")), 0},
		} {
			t.Run(protocol+" "+c.name, func(t *testing.T) {
				var keys, bodies []string
				var mu sync.Mutex
				note := func(r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					mu.Lock()
					defer mu.Unlock()
					keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
				}
				var copies atomic.Int64
				a := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					note(r)
					enough := make(<-chan time.Time)
					if c.want == 0 {
						enough = time.After(100 * time.Millisecond) // for a copy, were there one
					}
					select {
					case <-r.Context().Done():
					case <-enough:
					}
				})
				b := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					note(r)
					copies.Add(1)
				})
				rs, scheme := start(t, protocol, a, b)
				caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}, stint.CallerOptions{})
				client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, Alternates: rs.hosts[1:]}}
				req, err := http.NewRequest(c.method, scheme+"://"+rs.hosts[0], c.body)
				if err != nil {
					t.Fatal(err)
				}
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if copies.Load() != c.want {
					t.Errorf("%d copies arrived, want %d", copies.Load(), c.want)
				}
				want := 10 - float64(c.want) + 0.1
				if got := caller.Budget().Balance(); got != min(want, 10) {
					t.Errorf("the budget holds %v, want %v", got, want)
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range keys {
					if keys[i] != c.key {
						t.Errorf("keys %q, want %q on each", keys, c.key)
					}
					if c.body != nil && bodies[i] != "b" {
						t.Errorf("bodies %q", bodies)
					}
				}
			})
		}
	}
}

// Without another replica a copy goes over another connection, also where one
// would carry both.
func TestHedgeOverAnotherConnection(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			lost := newSlow()
			var mu sync.Mutex
			var peers []string
			var hedging atomic.Bool
			h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				mu.Lock()
				peers = append(peers, r.RemoteAddr)
				n := len(peers)
				mu.Unlock()
				if hedging.Load() && n == 2 {
					lost.ServeHTTP(rw, r)
				}
			})
			rs, scheme := start(t, protocol, h)
			caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Hedge: stint.Hedge{Copies: 1, Delay: 200 * time.Millisecond}}, stint.CallerOptions{})
			tr := &stinthttp.Transport{Caller: caller, Base: rs.base}
			client := &http.Client{Transport: tr}
			url := scheme + "://" + rs.hosts[0]
			if err := get(t.Context(), client, url); err != nil { // from then on there is a connection, and we know what it speaks
				t.Fatal(err)
			}
			hedging.Store(true)
			if err := get(t.Context(), client, url); err != nil {
				t.Fatal(err)
			}
			await(t, "the loser's cancel", lost.left)
			if len(peers) != 3 || peers[0] != peers[1] || peers[2] == peers[1] {
				t.Errorf("connections %q, want the copy on another one", peers)
			}
			client.CloseIdleConnections()
		})
	}
}

// Attempts go round the alternates; a redirect elsewhere does not.
func TestAlternates(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	replica := func(name string, status int) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, name+" "+r.Host)
			if r.URL.Path == "/away" {
				http.Redirect(rw, r, "http://localhost:"+strings.Split(r.Host, ":")[1]+"/there", http.StatusFound)
				return
			}
			rw.WriteHeader(status)
		})
	}
	rs, _ := start(t, "HTTP/1.1", replica("a", 503), replica("b", 503), replica("c", 503))
	caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 4, Base: 1, Cap: 1}}, stint.CallerOptions{})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, Alternates: rs.hosts[1:]}}
	resp, err := client.Get("http://" + rs.hosts[0] + "/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	a := rs.hosts[0]
	if want := []string{"a " + a, "b " + a, "c " + a, "a " + a}; !slices.Equal(seen, want) {
		t.Errorf("went to %q, want %q: all in turn, under one Host", seen, want)
	}
	if resp.Request.URL.Host != a {
		t.Errorf("the response says that it is of %s", resp.Request.URL.Host)
	}
	seen = nil
	if resp, err = client.Get("http://" + a + "/away"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for _, s := range seen[1:] {
		if !strings.HasPrefix(s, "a localhost") {
			t.Errorf("after a redirect elsewhere: %q, want none of the alternates", seen)
			break
		}
	}
	for _, bad := range []string{"", "http://b", "b/path", "b c", "u@b"} {
		client.Transport = &stinthttp.Transport{Caller: caller, Base: rs.base, Alternates: []string{bad}}
		if _, err := client.Get("http://" + a); err == nil || !strings.Contains(err.Error(), "must be a host") {
			t.Errorf("alternate %q: %v", bad, err)
		}
	}
}

// A small body that can't be produced again is repeated where BufferBody says so.
func TestBufferBody(t *testing.T) {
	for _, c := range []struct {
		name   string
		body   string
		length int64 // as the request says; -1: unknown
		limit  int64
		want   int
	}{
		{"fits", "12345", -1, 5, 2},
		{"length known", "12345", 5, 5, 2},
		{"too long", "123456", -1, 5, 1},
		{"too long, length known", "123456", 6, 5, 1},
		{"empty", "", -1, 5, 2},
		{"not asked for", "12345", -1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var bodies []string
			var lengths []int64
			rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				if bodies, lengths = append(bodies, string(b)), append(lengths, r.ContentLength); len(bodies) == 1 {
					rw.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}}, stint.CallerOptions{})
			client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: c.limit}}
			body := &closes{Reader: strings.NewReader(c.body)}
			req, _ := http.NewRequest(http.MethodPut, "http://"+rs.hosts[0], body)
			req.ContentLength = c.length
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if len(bodies) != c.want {
				t.Errorf("sent %d times, want %d", len(bodies), c.want)
			}
			for i, b := range bodies {
				if b != c.body {
					t.Errorf("attempt %d sent %q, want %q", i+1, b, c.body)
				}
				if c.want == 2 && lengths[i] != int64(len(c.body)) {
					t.Errorf("attempt %d had length %d", i+1, lengths[i])
				}
			}
			poll(t, "the body closed", func() bool { return body.closed.Load() })
		})
	}
}

type closes struct {
	io.Reader
	closed atomic.Bool
}

func (c *closes) Close() error { c.closed.Store(true); return nil }

// Reading the body beforehand takes from the call's time, and fails before
// anything is sent.
func TestBufferBodyBounds(t *testing.T) {
	var count atomic.Int64
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { count.Add(1) }))
	caller := newCaller(t, "s", stint.Policy{Timeout: 50 * time.Millisecond}, stint.CallerOptions{})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: 100}}
	stalled, w := io.Pipe()
	defer w.Close()
	_, err := client.Post("http://"+rs.hosts[0], "text/plain", stalled)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("a stalled body: %v", err)
	}
	broken, w2 := io.Pipe()
	w2.CloseWithError(errors.New("disk"))
	if _, err = client.Post("http://"+rs.hosts[0], "text/plain", broken); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a broken body: %v", err)
	}
	if count.Load() != 0 {
		t.Errorf("%d requests were sent", count.Load())
	}
}

// An attempt that never had a connection was not started, whatever ended it:
// then even a POST is sent again.
func TestNoConnectionIsNotStarted(t *testing.T) {
	var dials, count atomic.Int64
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { count.Add(1) }))
	dial := rs.base.DialContext
	rs.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			select { // a host that does not answer at all
			case <-ctx.Done():
			case <-t.Context().Done():
			case <-time.After(2 * time.Second):
			}
			return nil, errors.New("no route")
		}
		return dial(ctx, network, addr)
	}
	var rec stinttest.Recorder
	caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1, AttemptTimeout: 500 * time.Millisecond}},
		stint.CallerOptions{Observer: &rec})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base}}
	resp, err := client.Post("http://"+rs.hosts[0], "text/plain", strings.NewReader("pay"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	e := rec.Events(stint.AttemptDone)
	if count.Load() != 1 || len(e) != 2 || e[0].Outcome.Kind != stint.TimedOut || !e[0].Outcome.NotStarted {
		t.Errorf("%d arrived; attempts %+v", count.Load(), e)
	}
}

// The time that a connection takes is not told to the peer as still left.
func TestDialTimeIsTakenOff(t *testing.T) {
	var told atomic.Value
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told.Store(r.Header.Get("X-Deadline-Ms")) }))
	dial := rs.base.DialContext
	rs.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(300 * time.Millisecond)
		return dial(ctx, network, addr)
	}
	caller := newCaller(t, "s", stint.Policy{Timeout: 9999 * time.Millisecond}, stint.CallerOptions{})
	if err := get(t.Context(), &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base}}, "http://"+rs.hosts[0]); err != nil {
		t.Fatal(err)
	}
	if v, _ := told.Load().(string); len(v) != 4 || v > "9699" {
		t.Errorf("told %q ms, want at least the 300 of the dial taken off 9999", v)
	}
}
