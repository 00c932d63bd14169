package integration

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
)

// half is the half of a body, more than nginx keeps back before it sends.
var half = bytes.Repeat([]byte("x"), 64<<10)

// A response that is cut in the middle is an error of the body's reader, and
// nobody asks again: the caller has had a part of it.
func TestUpstreamCutsBody(t *testing.T) {
	for _, c := range []struct {
		name     string
		promised bool // with a Content-Length; else chunked
	}{{"length", true}, {"chunked", false}} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				var reached atomic.Int64
				l := leaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					reached.Add(1)
					if c.promised {
						rw.Header().Set("Content-Length", strconv.Itoa(2*len(half)))
					}
					rw.Write(half)
					rw.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}))
				n := w.nginx(t, "", "", l.Addr)
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				const calls = 10
				for range calls {
					if a := cl.get(t.Context()); a.err == nil || a.status != http.StatusOK || len(a.body) > len(half) {
						t.Errorf("status %d, error %v, %d bytes; want 200, at most the half, and an error", a.status, a.err, len(a.body))
					}
				}
				if made := len(cl.attempts()); made != calls || reached.Load() != calls {
					t.Errorf("%d calls: %d attempts, %d requests at the leaf, want as many", calls, made, reached.Load())
				}
				most := int64(calls)
				if w == h2c {
					most = 1 // a stream's end is not its connection's
				}
				if got := cl.dials.Load(); got > most {
					t.Errorf("%d connections for %d calls one after another, want at most %d", got, calls, most)
				}
			})
		})
	}
}

// Over HTTP/1.0, which nginx speaks to its upstreams by default, a response
// without a Content-Length ends with the connection. So nginx takes the part for
// the whole, and nobody after it can tell.
func TestHTTP10HidesTheCut(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		l := leaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Write(half)
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}))
		n := testenv.StartNginx(t, testenv.NginxConfig{
			Listen: w.listen, HTTP: upstream("leaf", l.Addr), Server: "location / { proxy_pass http://leaf; }"})
		cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
		if a := cl.get(t.Context()); a.err != nil || a.status != http.StatusOK || a.body != string(half) {
			t.Errorf("status %d, error %v, %d bytes; want 200, no error, and the half", a.status, a.err, len(a.body))
		}
	})
}

// nginx's own death in the middle of a response is the same to the caller.
func TestNginxDiesInBody(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		var reached atomic.Int64
		ended := make(chan error, 1)
		l := leaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			reached.Add(1)
			rw.Header().Set("Content-Length", strconv.Itoa(2*len(half)))
			rw.Write(half)
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
			ended <- r.Context().Err()
		}))
		n := w.nginx(t, "", "proxy_buffering off;", l.Addr)
		cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cl.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cl.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, len(half))); err != nil {
			t.Fatalf("the first half: %v", err)
		}
		n.Kill()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the second half: no error, though nobody can have sent it")
		}
		if err := await(t, "the end of the leaf's context", ended); err != context.Canceled {
			t.Errorf("the leaf's context: %v, want it canceled", err)
		}
		if got := cl.attempts(); len(got) != 1 || cl.dials.Load() != 1 || reached.Load() != 1 {
			t.Errorf("attempts %q over %d connections, %d requests at the leaf; want one of each", got, cl.dials.Load(), reached.Load())
		}
	})
}

// What a handler flushes comes through whole, and at once where nginx is told
// not to wait for more.
func TestStream(t *testing.T) {
	const chunk, chunks = 16 << 10, 64
	for _, c := range []struct{ name, extra, header string }{
		{"buffered", "", ""},
		{"unbuffered", "proxy_buffering off;", ""},
		{"unbuffered by the handler", "", "no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, w way) {
				read := make(chan bool, 1) // the client has read an event
				l := leaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if c.header != "" {
						rw.Header().Set("X-Accel-Buffering", c.header)
					}
					flusher := rw.(http.Flusher)
					if r.URL.Path == "/events" {
						rw.Header().Set("Content-Type", "text/event-stream")
						for i := range 3 {
							io.WriteString(rw, "data: "+strconv.Itoa(i)+"\n\n")
							flusher.Flush()
							select {
							case <-read:
							case <-r.Context().Done():
								return
							}
						}
						return
					}
					for i := range chunks {
						rw.Write(bytes.Repeat([]byte{'a' + byte(i%26)}, chunk))
						flusher.Flush()
					}
				}))
				n := w.nginx(t, "", c.extra, l.Addr)
				cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
				var want strings.Builder
				for i := range chunks {
					want.WriteString(strings.Repeat(string(rune('a'+i%26)), chunk))
				}
				if a := cl.get(t.Context()); a.err != nil || a.status != 200 || a.body != want.String() {
					t.Errorf("status %d, error %v, %d bytes; want 200 and the %d sent", a.status, a.err, len(a.body), want.Len())
				}
				if c.extra == "" && c.header == "" {
					return // nginx keeps events back until there is enough of them
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, cl.url+"/events", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := cl.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				var got []string
				for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
					if lines.Text() != "" {
						got = append(got, lines.Text())
						read <- true // only now does the handler send the next
					}
				}
				if strings.Join(got, " ") != "data: 0 data: 1 data: 2" {
					t.Errorf("events %q, want three", got)
				}
			})
		})
	}
}
