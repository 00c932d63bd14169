package stinthttp_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
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

// What a framePeer does with a request.
type frameAnswer = func(*frameConn, frameRequest)

var frameAnswers = map[string]frameAnswer{
	"ok":                         func(c *frameConn, r frameRequest) { c.ok(r) },
	"REFUSED_STREAM":             func(c *frameConn, r frameRequest) { c.reset(r, codeRefused) },
	"GOAWAY below":               func(c *frameConn, r frameRequest) { c.goAway(max(r.stream, 2)-2, codeNone) },
	"GOAWAY at, closed":          func(c *frameConn, r frameRequest) { c.goAway(r.stream, codeNone); c.Close() },
	"RST_STREAM internal":        func(c *frameConn, r frameRequest) { c.reset(r, codeInternal) },
	"RST_STREAM protocol":        func(c *frameConn, r frameRequest) { c.reset(r, codeProtocol) },
	"headers, RST_STREAM":        func(c *frameConn, r frameRequest) { c.begin(r); c.reset(r, codeInternal) },
	"headers, REFUSED_STREAM":    func(c *frameConn, r frameRequest) { c.begin(r); c.reset(r, codeRefused) },
	"headers, connection closed": func(c *frameConn, r frameRequest) { c.begin(r); c.Close() },
}

// B16: an HTTP/2 request that the server did not look at is sent again, whatever
// its method, as an attempt like any other; one that it may have done is not,
// unless that is safe.
func TestB16HTTP2Refusals(t *testing.T) {
	post, get, put := "POST", "GET", "PUT"
	for _, c := range []struct {
		answers []string // one a request; the last goes on
		method  string
		oneShot bool
		sent    int
		status  int          // zero: an error
		broken  bool         // the response's body is
		reason  stint.Reason // of the call
	}{
		// Proof that nothing was done.
		{answers: []string{"REFUSED_STREAM", "ok"}, method: post, sent: 2, status: 200},
		{answers: []string{"REFUSED_STREAM", "ok"}, method: get, sent: 2, status: 200},
		{answers: []string{"GOAWAY below", "ok"}, method: post, sent: 2, status: 200},
		{answers: []string{"GOAWAY below", "ok"}, method: get, sent: 2, status: 200},
		{answers: []string{"GOAWAY below", "REFUSED_STREAM", "ok"}, method: post, sent: 3, status: 200},
		// So says net/http of a request that the peer could not make out (RFC 9113,
		// 8.1.1), and we can't tell which of the three it was.
		{answers: []string{"RST_STREAM protocol", "ok"}, method: post, sent: 2, status: 200},
		{answers: []string{"RST_STREAM protocol", "ok"}, method: get, sent: 2, status: 200},
		// A server that refuses everything.
		{answers: []string{"REFUSED_STREAM"}, method: post, sent: 3, reason: stint.AttemptsSpent},
		{answers: []string{"REFUSED_STREAM"}, method: get, sent: 3, reason: stint.AttemptsSpent},
		{answers: []string{"GOAWAY below"}, method: post, sent: 3, reason: stint.AttemptsSpent},
		{answers: []string{"GOAWAY below"}, method: get, sent: 3, reason: stint.AttemptsSpent},
		// A body that can't be had again.
		{answers: []string{"REFUSED_STREAM", "ok"}, method: post, oneShot: true, sent: 1, reason: stint.OneShot},
		{answers: []string{"GOAWAY below", "ok"}, method: put, oneShot: true, sent: 1, reason: stint.OneShot},
		// It may have been done.
		{answers: []string{"GOAWAY at, closed", "ok"}, method: post, sent: 1, reason: stint.NotRepeatable},
		{answers: []string{"GOAWAY at, closed", "ok"}, method: get, sent: 2, status: 200},
		{answers: []string{"GOAWAY at, closed", "ok"}, method: put, sent: 2, status: 200},
		{answers: []string{"RST_STREAM internal", "ok"}, method: post, sent: 1, reason: stint.NotRepeatable},
		{answers: []string{"RST_STREAM internal", "ok"}, method: get, sent: 2, status: 200},
		// The answer has begun, and is the caller's.
		{answers: []string{"headers, RST_STREAM", "ok"}, method: get, sent: 1, status: 200, broken: true},
		{answers: []string{"headers, REFUSED_STREAM", "ok"}, method: post, sent: 1, status: 200, broken: true},
		{answers: []string{"headers, connection closed", "ok"}, method: get, sent: 1, status: 200, broken: true},
	} {
		for _, warm := range []bool{false, true} { // on a connection that has served a request
			name := strings.Join(c.answers, ", then ") + ", " + c.method
			if c.oneShot {
				name += " one-shot"
			}
			if warm {
				name += ", warm"
			}
			t.Run(strings.NewReplacer(", ", ",", " ", "_").Replace(name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.base = w.TransportHTTP2(t)
					l, err := w.Listen("s")
					if err != nil {
						t.Fatal(err)
					}
					before := 0
					peer := serveFrames(t, l, func(fc *frameConn, r frameRequest) {
						if r.number <= before {
							fc.ok(r)
							return
						}
						frameAnswers[c.answers[min(r.number-before, len(c.answers))-1]](fc, r)
					})
					var rec stinttest.Recorder
					client := w.client("s", unlimited(3), stint.CallerOptions{Observer: &rec})
					if warm {
						before = 1
						if status, _, err := fetch(t.Context(), client, "GET", "http://s", ""); status != 200 {
							t.Fatal(status, err)
						}
						rec.Reset()
					}
					var body io.Reader
					text := ""
					if c.method != get {
						text = strings.Repeat("0123456789", 10)
						body = strings.NewReader(text)
					}
					req, _ := http.NewRequestWithContext(t.Context(), c.method, "http://s", body)
					if c.oneShot {
						req.GetBody = nil
					}
					start := time.Now()
					resp, err := client.Do(req)
					took, status, broken := time.Since(start), 0, false
					if err == nil {
						_, rerr := io.Copy(io.Discard, resp.Body)
						status, broken = resp.StatusCode, rerr != nil
						resp.Body.Close()
					}
					synctest.Wait()
					arrived := peer.arrived()[before:]
					attempts, call := rec.Events(stint.AttemptDone), rec.Events(stint.CallDone)[0]
					if len(arrived) != c.sent || status != c.status || broken != c.broken || call.Reason != c.reason {
						t.Errorf("sent %d times; %d (body broken: %v), %v, %q; want %d, %d (%v), %q",
							len(arrived), status, broken, err, call.Reason, c.sent, c.status, c.broken, c.reason)
					}
					if len(attempts)+len(rec.Events(stint.Resent)) != len(arrived) || call.Attempt != len(arrived) {
						t.Errorf("%d attempts reported, %d counted, %d on the wire", len(attempts), call.Attempt, len(arrived))
					}
					if took > 2*time.Millisecond { // the waits between the attempts, and no other
						t.Errorf("took %v", took)
					}
					for i, r := range arrived {
						if i > 0 && strings.HasPrefix(c.answers[min(i-1, len(c.answers)-1)], "GOAWAY") && r.conn == arrived[i-1].conn {
							t.Errorf("request %d came on the connection that had said GOAWAY", r.number)
						}
						if r.body != text {
							t.Errorf("request %d brought %d bytes, want %d", r.number, len(r.body), len(text))
						}
					}
				})
			})
		}
	}
}

// B16: a refusal that is repeated for ever ends at the deadline as well.
func TestB16RefusalsEndAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.base = w.TransportHTTP2(t)
		l, err := w.Listen("s")
		if err != nil {
			t.Fatal(err)
		}
		peer := serveFrames(t, l, frameAnswers["REFUSED_STREAM"])
		p := unlimited(1000)
		p.Timeout, p.Retry.Base, p.Retry.Cap = time.Second, 100*time.Millisecond, 100*time.Millisecond
		var rec stinttest.Recorder
		start := time.Now()
		_, _, err = fetch(t.Context(), w.client("s", p, stint.CallerOptions{Observer: &rec}), "POST", "http://s", "one cup of tea")
		if took := time.Since(start); err == nil || took > time.Second || rec.Refused()[stint.NoTime] != 1 || len(peer.arrived()) != 10 {
			t.Errorf("%v after %v, %d requests, refused %v; want 10 within the second, then no_time", err, took, len(peer.arrived()), rec.Refused())
		}
	})
}

// B16, on a real socket and over TLS: the wire has as many requests as there are
// attempts.
func TestB16OverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	cert, pool := srv.TLS.Certificates[0], x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	srv.Close()
	for _, method := range []string{"GET", "POST"} {
		for _, answer := range []string{"REFUSED_STREAM", "GOAWAY below"} {
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			// Limits that a busy machine does not meet.
			base := stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: time.Minute, TLSHandshake: time.Minute})
			base.TLSClientConfig = &tls.Config{RootCAs: pool}
			t.Cleanup(base.CloseIdleConnections)
			body := ""
			if method == "POST" {
				body = "one cup of tea"
			}
			peer := serveFrames(t, l, frameAnswers[answer])
			p := unlimited(3)
			p.Timeout = 10 * time.Second
			client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: base}}
			_, _, err = fetch(t.Context(), client, method, "https://"+l.Addr().String(), body)
			if n := len(peer.arrived()); n != 3 || err == nil {
				t.Errorf("%s, %s: %d requests, %v; want 3 and an error", method, answer, n, err)
			}
		}
	}
}

// A connection that a server ends in good order costs no token of the retry
// budget, as every long-lived one ends like that; a refusal on one that goes on does.
func TestGoAwayCostsNoToken(t *testing.T) {
	for answer, want := range map[string]float64{"GOAWAY below": 1, "REFUSED_STREAM": 0.1} {
		for _, method := range []string{"GET", "POST"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, err := w.Listen("s")
				if err != nil {
					t.Fatal(err)
				}
				peer := serveFrames(t, l, func(fc *frameConn, r frameRequest) {
					if r.number == 1 {
						frameAnswers[answer](fc, r)
					} else {
						fc.ok(r)
					}
				})
				caller := newCaller(t, "s", stint.Policy{Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1, BudgetCeiling: 1}}, stint.CallerOptions{})
				client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: w.TransportHTTP2(t)}}
				status, _, err := fetch(t.Context(), client, method, "http://s", "body")
				if status != 200 || len(peer.arrived()) != 2 || caller.Budget().Balance() != want {
					t.Errorf("%s, %s: %d, %v, sent %d times, the budget holds %v; want 200, 2, %v", answer, method, status, err,
						len(peer.arrived()), caller.Budget().Balance(), want)
				}
			})
		}
	}
}
