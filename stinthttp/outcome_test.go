package stinthttp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// B15: what can't get better is not tried again.
func TestB15FinalStatuses(t *testing.T) {
	never := []int{400, 401, 403, 404, 409, 410, 418, 422, 425, 500, 501, 505, 506, 510, 511}
	again := []int{408, 429, 502, 503, 504}
	for _, status := range append(never, again...) {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				step := stinttest.Step{Status: status}
				if status == 429 { // without a hint it is final
					step.Header = http.Header{"Retry-After": {"0"}}
				}
				leaf := stinttest.NewDependency(step)
				w.Serve(t, "s", leaf)
				got, _, err := fetch(t.Context(), w.client("s", retrying, stint.CallerOptions{}), "GET", "http://s", "")
				want := 1
				for _, s := range again {
					if s == status {
						want = 3
					}
				}
				if leaf.Count() != want || got != status || err != nil {
					t.Errorf("%d requests, answered %d, %v; want %d requests and the status", leaf.Count(), got, err, want)
				}
			})
		})
	}
}

// Beyond the default: 429 without a hint, and 500, only where the policy says so.
func TestCodesOfThePolicy(t *testing.T) {
	for _, c := range []struct {
		status int
		codes  []string
		want   int
	}{{429, nil, 1}, {429, []string{"429"}, 3}, {500, nil, 1}, {500, []string{"500"}, 3}, {500, []string{"5xx"}, 1}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: c.status})
			w.Serve(t, "s", leaf)
			p := retrying
			p.Retry.Codes = c.codes
			fetch(t.Context(), w.client("s", p, stint.CallerOptions{}), "GET", "http://s", "")
			if leaf.Count() != c.want {
				t.Errorf("%d with codes %v: %d requests, want %d", c.status, c.codes, leaf.Count(), c.want)
			}
		})
	}
}

// B15: certificates, schemes and redirect loops, over the real transport. The
// back-off of an hour shows that nothing was waited for.
func TestB15FinalErrors(t *testing.T) {
	// A retry would come after its caller has lost patience: a failure, not a hang.
	policy := stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 3, Base: time.Minute - time.Second, Cap: time.Minute - time.Second}}
	attempts := func(t *testing.T, base http.RoundTripper, url string) (int, error) {
		var rec stinttest.Recorder
		caller := newCaller(t, "s", policy, stint.CallerOptions{Observer: &rec, Rand: func() float64 { return 1 }})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return len(rec.Events(stint.AttemptDone)), err
	}

	t.Run("self-signed", func(t *testing.T) {
		url, _ := tlsServer(t, "127.0.0.1", time.Hour)
		n, err := attempts(t, transport(t, nil), url)
		var unknown x509.UnknownAuthorityError
		if n != 1 || !errors.As(err, &unknown) {
			t.Errorf("%d attempts, %v; want 1 and an unknown authority", n, err)
		}
	})
	t.Run("expired", func(t *testing.T) {
		url, pool := tlsServer(t, "127.0.0.1", -time.Hour)
		n, err := attempts(t, transport(t, pool), url)
		var invalid x509.CertificateInvalidError
		if n != 1 || !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
			t.Errorf("%d attempts, %v; want 1 and an expired certificate", n, err)
		}
	})
	t.Run("wrong host", func(t *testing.T) {
		url, pool := tlsServer(t, "elsewhere.example", time.Hour)
		n, err := attempts(t, transport(t, pool), url)
		var host x509.HostnameError
		if n != 1 || !errors.As(err, &host) {
			t.Errorf("%d attempts, %v; want 1 and a host name error", n, err)
		}
	})
	t.Run("unknown scheme", func(t *testing.T) {
		if n, err := attempts(t, transport(t, nil), "foo://x/"); n != 1 || err == nil {
			t.Errorf("%d attempts, %v; want 1 and an error", n, err)
		}
	})
	t.Run("wrapped", func(t *testing.T) { // classification survives a wrapper of somebody else's
		url, _ := tlsServer(t, "127.0.0.1", time.Hour)
		inner := transport(t, nil)
		wrap := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(r)
			if err != nil {
				err = fmt.Errorf("middleware: %w", err)
			}
			return resp, err
		})
		if n, err := attempts(t, wrap, url); n != 1 || err == nil {
			t.Errorf("%d attempts, %v; want 1", n, err)
		}
	})
	t.Run("redirect loop", func(t *testing.T) {
		var hits int
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hits++
			http.Redirect(w, r, "/again", http.StatusFound)
		}))
		defer srv.Close()
		if _, err := attempts(t, transport(t, nil), srv.URL); err == nil || hits != 10 {
			t.Errorf("%d requests, %v; want the loop of 10 once", hits, err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func transport(t *testing.T, roots *x509.CertPool) *http.Transport {
	tr := stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: time.Minute, TLSHandshake: time.Minute}) // whatever else the machine has to do
	tr.TLSClientConfig = &tls.Config{RootCAs: roots}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// tlsServer serves a certificate for host that is valid for so long from now,
// and returns the pool that trusts it.
func tlsServer(t *testing.T, host string, valid time.Duration) (url string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(valid), IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		cert.IPAddresses = []net.IP{ip}
	} else {
		cert.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, pool
}

// A Base that returns less than it should does no harm.
func TestOddBases(t *testing.T) {
	n := 0
	bare := roundTripper(func(*http.Request) (*http.Response, error) { // mocks leave the body out
		if n++; n == 1 {
			return &http.Response{StatusCode: 503, Header: http.Header{}}, nil
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}}, nil
	})
	nothing := roundTripper(func(*http.Request) (*http.Response, error) { n++; return nil, nil })
	client := func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", retrying, stint.CallerOptions{}), Base: base}}
	}
	resp, err := client(bare).Get("http://x/")
	if err != nil || resp.StatusCode != 200 || n != 2 {
		t.Fatalf("%v, %v after %d", resp, err, n)
	}
	resp.Body.Close()
	n = 0
	final := roundTripper(func(*http.Request) (*http.Response, error) {
		n++
		return nil, outcomeError(stint.Outcome{Kind: stint.Failed, Code: "no_token"})
	})
	if _, err := client(final).Get("http://x/"); err == nil || n != 1 {
		t.Errorf("an error that answers for itself: %v after %d attempts, want 1", err, n)
	}
	n = 0
	if _, err := client(nothing).Get("http://x/"); err == nil || n != 1 {
		t.Errorf("neither response nor error: %v after %d attempts, want an error after 1", err, n)
	}
}

// Every response of every attempt is closed, the last one by its reader.
func TestAllBodiesAreClosed(t *testing.T) {
	var bodies []*closeRecorder
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		b := new(closeRecorder)
		bodies = append(bodies, b)
		return &http.Response{StatusCode: 503, Header: http.Header{}, Body: b}, nil
	})
	resp, err := (&http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", retrying, stint.CallerOptions{}), Base: base}}).Get("http://x/")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} {
		if bodies[i].closed != want {
			t.Errorf("body %d of %d is closed: %v", i+1, len(bodies), bodies[i].closed)
		}
	}
	if resp.Body.Close(); !bodies[2].closed {
		t.Error("the last body stays open")
	}
}

// HTTP/2: a stream that is reset is a reset, as on HTTP/1.
func TestStreamReset(t *testing.T) {
	n := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			panic(http.ErrAbortHandler)
		}
		w.Write([]byte(r.Proto))
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	var rec stinttest.Recorder
	caller := newCaller(t, "s", retrying, stint.CallerOptions{Observer: &rec})
	status, text, err := fetch(t.Context(), &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: srv.Client().Transport}}, "GET", srv.URL, "")
	attempts := rec.Events(stint.AttemptDone)
	if status != 200 || text != "HTTP/2.0" || err != nil || len(attempts) != 2 || attempts[0].Outcome.Code != "reset" {
		t.Errorf("%d %q %v, attempts %+v; want the reset repeated", status, text, err, attempts)
	}
}

// HTTP/2: the answer in the place of a deaf handler arrives while it is still at
// work, whole; then its stream is reset, as net/http would end it only with the
// handler.
func TestAnswerInPlaceOverHTTP2(t *testing.T) {
	release := make(chan struct{})
	g := newGate(t, "s", stint.GateOptions{DefaultTimeout: 50 * time.Millisecond})
	srv := httptest.NewUnstartedServer(stinthttp.Handler(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release })))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	defer close(release)
	client := srv.Client()
	client.Timeout = 10 * time.Second // not the handler's end
	resp, err := client.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.ProtoMajor != 2 || resp.StatusCode != 504 || err == nil || errors.Is(err, context.DeadlineExceeded) || string(text) != "Gateway Timeout: no_time\n" {
		t.Errorf("%v %q %v, want a 504 on HTTP/2", resp, text, err)
	}
}

// What never left may be sent again, whatever the method; what may have been
// done may not.
func TestUnsafeRequests(t *testing.T) {
	for _, c := range []struct {
		name, method, key string
		steps             []stinttest.Step
		refused           int // connections refused before the first
		count             int
	}{
		{name: "POST, 503", method: "POST", steps: []stinttest.Step{{Status: 503}, {}}, count: 1},
		{name: "POST, 502", method: "POST", steps: []stinttest.Step{{Status: 502}, {}}, count: 1},
		{name: "POST, reset", method: "POST", steps: []stinttest.Step{{Reset: true}, {}}, count: 1},
		{name: "PATCH, 503", method: "PATCH", steps: []stinttest.Step{{Status: 503}, {}}, count: 1},
		{name: "POST with a key", method: "POST", key: "order-1", steps: []stinttest.Step{{Status: 503}, {Reset: true}, {}}, count: 3},
		{name: "PUT", method: "PUT", steps: []stinttest.Step{{Status: 503}, {}}, count: 2},
		{name: "DELETE", method: "DELETE", steps: []stinttest.Step{{Reset: true}, {}}, count: 2},
		{name: "POST, connection refused", method: "POST", steps: []stinttest.Step{{}}, refused: 2, count: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := stinttest.NewDependency(c.steps...)
				w.Serve(t, "s", leaf)
				refused := 0
				base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if refused < c.refused {
						refused++
						addr = "nobody:80"
					}
					return w.DialContext(ctx, network, addr)
				}}
				defer base.CloseIdleConnections()
				client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", retrying, stint.CallerOptions{}), Base: base}}
				req, _ := http.NewRequest(c.method, "http://s", nil)
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				resp, err := client.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				as := leaf.Arrivals()
				if len(as) != c.count || refused != c.refused {
					t.Errorf("%d requests arrived, %d connections refused; want %d and %d", len(as), refused, c.count, c.refused)
				}
				for _, a := range as {
					if a.Header.Get("Idempotency-Key") != c.key {
						t.Errorf("key %q, want %q on every attempt", a.Header.Get("Idempotency-Key"), c.key)
					}
				}
			})
		})
	}
}

// A request body is produced anew for each attempt; one that can't be is sent once.
func TestBodiesAreSentWhole(t *testing.T) {
	for _, oneShot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := stinttest.NewDependency(stinttest.Step{Status: 503, Header: http.Header{"Connection": {"close"}}}, stinttest.Step{})
			w.Serve(t, "s", leaf)
			var rec stinttest.Recorder
			client := w.client("s", retrying, stint.CallerOptions{Observer: &rec})
			body := "a body of some bytes"
			want, status := 2, 200
			if oneShot {
				want, status = 1, 503
			}
			got, _, err := put(t.Context(), client, body, oneShot)
			if leaf.Count() != want || got != status || err != nil || oneShot && rec.Refused()[stint.OneShot] != 1 {
				t.Errorf("one-shot %v: %d requests, %d, %v, refusals %v", oneShot, leaf.Count(), got, err, rec.Refused())
			}
			for i, a := range leaf.Arrivals() {
				if string(a.Body) != body {
					t.Errorf("attempt %d brought %q", i+1, a.Body)
				}
			}
		})
	}
}
