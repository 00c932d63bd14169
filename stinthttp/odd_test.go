package stinthttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

type lostAnswer struct{ posts int }

func (l *lostAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	l.posts++ // it was executed
	r.Body.Close()
	return nil, errors.New("stream reset while waiting for the answer")
}

// A protocol registered with http.Transport (HTTP/3, say) knows no httptrace.
func TestRegisteredProtocol(t *testing.T) {
	base := stinthttp.NewTransport(nil)
	base.ForceAttemptHTTP2 = false
	rt := &lostAnswer{}
	base.RegisterProtocol("https", rt)
	caller := newCaller(t, "s", stint.Policy{Timeout: 10 * time.Second, Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}}, stint.CallerOptions{})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
	_, err := client.Post("https://127.0.0.1:1", "text/plain", strings.NewReader("pay"))
	if rt.posts != 1 {
		t.Errorf("a POST without a key was sent %d times (%v)", rt.posts, err)
	}
}

// counted is a connection as a program that counts bytes wraps it. The first
// one breaks on its second request before a byte of it has been written.
type counted struct {
	net.Conn
	broken *atomic.Bool
}

func (c *counted) Write(p []byte) (int, error) {
	if c.broken != nil && c.broken.Load() {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(p)
}

// A POST without a key must run at most once.
func TestWrappedTLSConn(t *testing.T) {
	var posts atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			posts.Add(1)
		}
	}))
	defer srv.Close()
	twice, never := 0, 0
	for range 40 {
		posts.Store(0)
		var broken atomic.Bool
		var conns atomic.Int64
		base := stinthttp.NewTransport(nil)
		base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			if conns.Add(1) == 1 {
				return &counted{c, &broken}, nil
			}
			return &counted{c, nil}, nil
		}
		var rec stinttest.Recorder
		caller := newCaller(t, "s", stint.Policy{Timeout: 10 * time.Second, Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}}, stint.CallerOptions{Observer: &rec})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
		if err := get(t.Context(), client, srv.URL); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		req, _ := http.NewRequest("POST", srv.URL, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Log(err)
		} else {
			resp.Body.Close()
		}
		time.Sleep(5 * time.Millisecond)
		switch posts.Load() {
		case 0:
			never++
		case 1:
		default:
			twice++
			if twice == 1 {
				for _, e := range rec.Events(stint.AttemptDone) {
					t.Logf("%d %+v", e.Attempt, e.Outcome)
				}
			}
		}
		base.CloseIdleConnections()
	}
	if twice > 0 {
		t.Errorf("of 40 POSTs without a key %d were executed more than once", twice)
	}
}

type calls struct{ c *stint.Caller }

func (c calls) Read([]byte) (int, error) {
	return 0, c.c.Do(context.Background(), stint.Op{}, func(context.Context) error { return errors.New("never comes here") })
}

// The request's body is read from another dependency, whose Caller refuses. That
// says nothing about the request that was on its way.
func TestBodyErrorJudges(t *testing.T) {
	var posts atomic.Int64
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		io.ReadAll(r.Body)
	}))
	store := newCaller(t, "store", stint.Policy{Timeout: 10 * time.Second, Bulkhead: 1}, stint.CallerOptions{})
	hold := make(chan struct{})
	defer close(hold)
	in := make(chan struct{})
	go store.Do(context.Background(), stint.Op{}, func(context.Context) error { close(in); <-hold; return nil })
	<-in
	if err := store.SetPolicy(stint.Policy{Timeout: 20 * time.Millisecond, Bulkhead: 1}); err != nil {
		t.Fatal(err)
	}
	var rec stinttest.Recorder
	caller := newCaller(t, "s", stint.Policy{Timeout: 10 * time.Second, Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}}, stint.CallerOptions{Observer: &rec})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base}}
	body := func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), calls{store})), nil
	}
	b, _ := body()
	req, _ := http.NewRequest("POST", "http://"+rs.hosts[0], b)
	req.GetBody = body
	_, err := client.Do(req)
	t.Log(err)
	for _, e := range rec.Events(stint.AttemptDone) {
		t.Logf("%d %+v", e.Attempt, e.Outcome)
	}
	if posts.Load() > 1 {
		t.Errorf("a POST without a key reached the handler %d times", posts.Load())
	}
}

// A request that net/http refuses to write is its own fault: it will not be
// better at the next try.
func TestInvalidRequest(t *testing.T) {
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {}))
	for name, spoil := range map[string]func(*http.Request){
		"header":  func(r *http.Request) { r.Header.Set("X-User", "a\nb") },
		"trailer": func(r *http.Request) { r.Trailer = http.Header{"X-User": {"a\nb"}} },
		"method":  func(r *http.Request) { r.Method = "G T" },
	} {
		var rec stinttest.Recorder
		caller := newCaller(t, "s", stint.Policy{Timeout: 10 * time.Second, Retry: stint.Retry{Attempts: 3, Base: 1, Cap: 1}}, stint.CallerOptions{Observer: &rec})
		tr := &stinthttp.Transport{Caller: caller, Base: rs.base}
		for range 30 {
			req, _ := http.NewRequest("GET", "http://"+rs.hosts[0], nil)
			spoil(req)
			tr.RoundTrip(req)
		}
		e := rec.Events(stint.CallDone)[0]
		if e.Attempt > 1 {
			t.Errorf("%s: tried %d times: %+v %v", name, e.Attempt, e.Outcome, e.Err)
		}
		if n := len(rec.Events(stint.BreakerChanged)); n > 0 {
			t.Errorf("%s: the breaker of a healthy dependency opened", name)
		}
	}
}

// A Transport on a Transport: the inner one's retries and copies are no resends
// of net/http, and its copies are sent at the same time.
func TestNested(t *testing.T) {
	lose := newSlow()
	rs, scheme := start(t, "HTTP/1.1", lose, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {}))
	inner := &stinthttp.Transport{Base: rs.base, Alternates: rs.hosts[1:],
		Caller: newCaller(t, "inner", stint.Policy{Timeout: time.Minute, Hedge: stint.Hedge{Copies: 1, Delay: 1}}, stint.CallerOptions{})}
	var rec stinttest.Recorder
	outer := &stinthttp.Transport{Base: inner, Caller: newCaller(t, "outer", stint.Policy{Timeout: time.Minute}, stint.CallerOptions{Observer: &rec})}
	for range 5 {
		if err := get(t.Context(), &http.Client{Transport: outer}, scheme+"://"+rs.hosts[0]); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(rec.Events(stint.Resent)); n > 0 {
		t.Errorf("%d resends reported, none happened", n)
	}
}

// A client of an upgraded connection that closes its half still gets the answer.
func TestUpgradeHalfClose(t *testing.T) {
	for _, through := range []string{"net/http", "stint"} {
		back, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			c, buf, _ := rw.(http.Hijacker).Hijack()
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
			all, _ := io.ReadAll(buf)
			time.Sleep(50 * time.Millisecond)
			io.WriteString(c, "got "+string(all))
		}))
		u, _ := url.Parse("http://" + back.hosts[0])
		proxy := httputil.NewSingleHostReverseProxy(u)
		proxy.Transport = back.base
		if through == "stint" {
			proxy.Transport = &stinthttp.Transport{Base: back.base, Caller: newCaller(t, "s", stint.Policy{Timeout: time.Minute}, stint.CallerOptions{})}
		}
		front, _ := start(t, "HTTP/1.1", proxy)
		c, err := net.Dial("tcp", front.hosts[0])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		all, err := io.ReadAll(c)
		if s := string(all); len(s) < 9 || s[len(s)-9:] != "got hello" {
			t.Errorf("through %s: %q, %v; want the answer to hello", through, s, err)
		}
		c.Close()
	}
}
