package stinthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// mixed serves what a service has on one server: ordinary routes, long-running
// ones under /long/, probes, and under /beside/ what no Gate guards. h is behind
// all but the probes.
func (w *world) mixed(g *stint.Gate, o stinthttp.ServerOptions, h http.HandlerFunc) (*stinthttp.Server, *http.Client) {
	o.H2C = true
	srv := stinthttp.NewServer("", g, h, &o)
	mux := http.NewServeMux()
	mux.Handle("/", srv.Handler)
	mux.Handle("/long/", stinthttp.Handler(g.LongRunning(), h))
	mux.Handle("/beside/", h)
	mux.Handle("/livez", stinthttp.Handler(g.Exempt(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	mux.Handle("/readyz", srv.Ready())
	srv.Handler = mux
	w.ServeServer(w.t, "s", srv.Server)
	return srv, &http.Client{Transport: w.base}
}

// lasting answers /events with an event every 10 s, as many as ?n=, /poll after 10
// minutes, and /upload with the number of bytes that came.
func lasting(t *testing.T) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			var n int
			fmt.Sscan(r.FormValue("n"), &n)
			tick := time.NewTicker(10 * time.Second)
			defer tick.Stop()
			for i := range n {
				fmt.Fprintf(rw, "data: %d\n\n", i)
				if http.NewResponseController(rw).Flush() != nil {
					return
				}
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		case strings.HasSuffix(r.URL.Path, "/poll"):
			select {
			case <-time.After(10 * time.Minute):
				io.WriteString(rw, "news")
			case <-r.Context().Done():
				stinthttp.WriteError(rw, r, r.Context().Err())
			}
		case strings.HasSuffix(r.URL.Path, "/upload"):
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, n, " ", err)
		}
	}
}

// trickle is a body of n bytes, one every 10 s.
func trickle(n int) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		for range n {
			time.Sleep(10 * time.Second) // virtual
			if _, err := io.WriteString(pw, "x"); err != nil {
				return
			}
		}
		pw.Close()
	}()
	return pr
}

// Streams, long polls and uploads last as the view's Gate allows, on a server that
// bounds its ordinary requests by seconds; and the next request on the connection
// has these bounds again.
func TestLongRunningOutlastsTheServersTimeouts(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		srv, client := w.mixed(newGate(t, "s", stint.GateOptions{MaxTimeout: time.Second}), stinthttp.ServerOptions{}, lasting(t))
		if srv.WriteTimeout != 6*time.Second || srv.ReadTimeout != 6*time.Second {
			t.Fatalf("the server's timeouts are %v and %v", srv.ReadTimeout, srv.WriteTimeout)
		}
		call := func(method, path string, body io.Reader) (text string, took time.Duration, err error) {
			t.Helper()
			req, _ := http.NewRequest(method, "http://s"+path, body)
			start := time.Now()
			resp, err := client.Do(req)
			if err != nil {
				return "", time.Since(start), err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), time.Since(start), err
		}
		if text, took, err := call("GET", "/long/events?n=60", nil); strings.Count(text, "data:") != 60 || took != 10*time.Minute || err != nil {
			t.Errorf("%d events, %v after %v; want 60 and their end after 10m", strings.Count(text, "data:"), err, took)
		}
		if text, took, err := call("GET", "/long/poll", nil); text != "news" || took != 10*time.Minute || err != nil {
			t.Errorf("a long poll: %q, %v after %v", text, err, took)
		}
		// What is written when the server's 6 s are over does not arrive.
		if text, took, err := call("GET", "/beside/events?n=60", nil); strings.Count(text, "data:") != 1 || err == nil || took > 10*time.Second {
			t.Errorf("beside the Gate: %d events, %v after %v; want the server's own limit", strings.Count(text, "data:"), err, took)
		}
		if text, took, err := call("POST", "/long/upload", trickle(60)); text != "60 <nil>" || took != 10*time.Minute || err != nil {
			t.Errorf("an upload: %q, %v after %v", text, err, took)
		}
		if text, took, _ := call("POST", "/beside/upload", trickle(60)); strings.HasSuffix(text, "<nil>") || took > 10*time.Second {
			t.Errorf("an upload beside the Gate: %q after %v; want the server's own limit", text, took)
		}
		time.Sleep(time.Minute) // virtual: the bodies have noticed
		want := 2               // each of the two beside the Gate took its connection with it, and the one before it had used that
		if w.base.Protocols != nil {
			want = 1
		}
		if n := w.Dials("s"); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
	})
}

// The Gate's own limits hold for what lasts: the view's, or the caller's if that
// is sooner. And for ordinary requests the server's hold, whatever the Gate allows.
func TestLongRunningEndsAtItsDeadline(t *testing.T) {
	for _, c := range []struct {
		path, told string
		least      time.Duration
		most       time.Duration
	}{
		{"/long/events", "", 20 * time.Minute, 20 * time.Minute},
		{"/long/events", "30000", 30 * time.Second, 30 * time.Second},
		{"/events", "", 2 * time.Second, 10 * time.Second}, // the write after it fails
	} {
		bothProtocols(t, func(t *testing.T, w *world) {
			o := stint.GateOptions{MaxTimeout: 10 * time.Minute, DefaultTimeout: 10 * time.Minute, LongTimeout: 20 * time.Minute, Reserve: stint.NoReserve}
			_, client := w.mixed(newGate(t, "s", o), stinthttp.ServerOptions{Write: 2 * time.Second}, func(rw http.ResponseWriter, r *http.Request) {
				for {
					if _, err := io.WriteString(rw, "data\n"); err != nil || http.NewResponseController(rw).Flush() != nil {
						return
					}
					time.Sleep(time.Second) // virtual, and deaf to the context
				}
			})
			req, _ := http.NewRequest("GET", "http://s"+c.path, nil)
			if c.told != "" {
				req.Header.Set("X-Deadline-Ms", c.told)
			}
			start := time.Now()
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			if took := time.Since(start); err == nil || took < c.least || took > c.most {
				t.Errorf("%s, told %q: %v after %v, want it cut off after %v to %v", c.path, c.told, err, took, c.least, c.most)
			}
		})
	}
}

// A deadline that has passed behind a complete answer is not the connection's.
func TestLongRunningLeavesItsConnection(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		_, client := w.mixed(newGate(t, "s", stint.GateOptions{MaxTimeout: time.Second, LongTimeout: time.Minute}), stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				rw.Header().Set("Content-Length", "4")
				io.WriteString(rw, "done")
				http.NewResponseController(rw).Flush()
				time.Sleep(61 * time.Second) // virtual: for nobody
			}
		})
		for _, path := range []string{"/long/", "/"} {
			if status, _, err := fetch(t.Context(), client, "GET", "http://s"+path, ""); status != 200 || err != nil {
				t.Errorf("%s: %d, %v", path, status, err)
			}
			time.Sleep(3 * time.Minute) // virtual: the handler has returned
		}
		if n := w.Dials("s"); n != 1 && w.base.Protocols == nil {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// A stream does not hold the end of its server for longer than an ordinary request
// can; one that watches for the end holds it not at all.
func TestShutdownWithLongRunning(t *testing.T) {
	for _, watches := range []bool{true, false} {
		bothProtocols(t, func(t *testing.T, w *world) {
			stop, stopping := context.WithCancel(t.Context())
			g := newGate(t, "s", stint.GateOptions{MaxTimeout: time.Second})
			srv, client := w.mixed(g, stinthttp.ServerOptions{}, func(rw http.ResponseWriter, r *http.Request) {
				http.NewResponseController(rw).Flush()
				end := stop.Done()
				if !watches {
					end = nil
				}
				select {
				case <-end:
					io.WriteString(rw, "event: bye\n\n")
				case <-r.Context().Done():
				}
			})
			resp, err := client.Get("http://s/long/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			start := time.Now()
			stopping()
			err = srv.Shutdown(t.Context())
			took := time.Since(start)
			text, broken := io.ReadAll(resp.Body)
			if watches {
				if err != nil || took > 3*time.Second || string(text) != "event: bye\n\n" || broken != nil {
					t.Errorf("watching: %v after %v, the caller saw %q, %v; want an end in order, as soon as net/http looks", err, took, text, broken)
				}
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) || took != 6*time.Second || broken == nil {
				t.Errorf("deaf: %v after %v, the caller saw %v; want it cut off after 6s", err, took, broken)
			}
		})
	}
}
