package stinthttp_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// A forgetful server answers the first request on each HTTP/1.1 connection and
// keeps the connection alive; the second one it reads, and hangs up. That is how
// a keep-alive that runs out looks to a client, and http.Transport then sends
// again, on its own, what it takes for safe.
type forgetful struct {
	mu       sync.Mutex
	requests []string // method and body, of those that it has read
	together int      // how many first requests it answers at once
	waiting  []net.Conn
}

// serveForgetful serves host until the test ends. The first requests of so many
// connections are answered together, so that all of them are idle afterwards.
func (w *world) serveForgetful(host string, together int) *forgetful {
	l, err := w.Listen(host)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &forgetful{together: together}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(c) })
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		w.base.CloseIdleConnections()
		running.Wait()
	})
	return s
}

func (s *forgetful) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	if s.read(r) != nil {
		return
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	if s.together--; s.together <= 0 {
		for _, c := range s.waiting {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		s.waiting = nil
	}
	s.mu.Unlock()
	s.read(r)
}

func (s *forgetful) read(r *bufio.Reader) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req.Method+string(body))
	return nil
}

func (s *forgetful) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// net/http sends again by itself on a reused connection that dies: events tell
// of each time, so that attempts and resends are the requests on the wire.
func TestResendOnADeadConnection(t *testing.T) {
	for _, c := range []struct {
		name, method, key, body string
		idle                    int // connections that have served one request each
		attempts                int // that the policy allows
		made                    int // attempts of the call
		sent                    int // requests on the wire, of the call
		reason                  stint.Reason
	}{
		{name: "GET", method: "GET", idle: 1, attempts: 1, made: 1, sent: 2},
		{name: "GET, three dead connections", method: "GET", idle: 3, attempts: 1, made: 1, sent: 4},
		{name: "GET, three attempts", method: "GET", idle: 3, attempts: 3, made: 1, sent: 4},
		{name: "POST with a key", method: "POST", key: "order-1", body: "tea", idle: 1, attempts: 1, made: 1, sent: 2},
		{name: "POST with a key, three attempts", method: "POST", key: "order-1", body: "tea", idle: 1, attempts: 3, made: 2, sent: 2}, // taken over
		{name: "POST", method: "POST", body: "tea", idle: 1, attempts: 3, made: 1, sent: 1, reason: stint.NotRepeatable},
		{name: "PUT", method: "PUT", body: "tea", idle: 1, attempts: 2, made: 2, sent: 2}, // stint's own
	} {
		t.Run(strings.NewReplacer(", ", ",", " ", "_").Replace(c.name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.base.MaxIdleConnsPerHost = 10
				server := w.serveForgetful("s", c.idle)
				var rec stinttest.Recorder
				client := w.client("s", unlimited(c.attempts), stint.CallerOptions{Observer: &rec})
				var all sync.WaitGroup
				for range c.idle {
					all.Go(func() {
						if err := get(t.Context(), client, "http://s"); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				before := server.seen()
				rec.Reset()

				req, _ := http.NewRequestWithContext(t.Context(), c.method, "http://s", strings.NewReader(c.body))
				if c.body == "" {
					req.Body, req.GetBody = nil, nil
				}
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
				call := rec.Events(stint.CallDone)[0]
				if sent := server.seen() - before; sent != c.sent || call.Attempt != c.made || call.Reason != c.reason {
					t.Errorf("%d requests on the wire for %d attempts, %q; want %d for %d, %q", sent, call.Attempt, call.Reason, c.sent, c.made, c.reason)
				}
				if told := len(rec.Events(stint.Resent)); told != c.sent-c.made {
					t.Errorf("%d resends reported, %d on the wire", told, c.sent-c.made)
				}
				for _, r := range server.requests[before:] {
					if r != c.method+c.body {
						t.Errorf("sent %q, want %q", r, c.method+c.body)
					}
				}
			})
		})
	}
}
