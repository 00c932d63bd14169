package stinttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/stinttest"
)

// HTTP/2 in memory: streams share a connection, take virtual time side by side,
// and end one by one.
func TestNetworkHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := stinttest.NewNetwork()
		body := bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // 256 KiB: beyond the buffers and the windows
		n.Serve(t, "s", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if in, err := io.ReadAll(r.Body); err != nil || len(in) > 0 && !bytes.Equal(in, body) {
				t.Errorf("%d bytes arrived, %v", len(in), err)
			}
			time.Sleep(30 * time.Millisecond) // virtual
			w.Write(body)
		}))
		client := &http.Client{Transport: n.TransportHTTP2(t)}
		post := func(n int) {
			resp, err := client.Post("http://s", "text/plain", bytes.NewReader(body[:n]))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if out, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(out, body) || resp.ProtoMajor != 2 {
				t.Errorf("%s: %d bytes came back, %v", resp.Proto, len(out), err)
			}
		}
		post(0) // the one connection
		start := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { post(len(body)) })
		}
		all.Wait()
		if took := time.Since(start); took != 30*time.Millisecond || n.Dials("s") != 1 {
			t.Errorf("10 streams took %v on %d connections, want 30ms on one", took, n.Dials("s"))
		}
		if resp, err := (&http.Client{Transport: n.Transport(t)}).Head("http://s"); err != nil || resp.ProtoMajor != 1 {
			t.Errorf("%v, %v; want the other Transport to speak HTTP/1.1", resp, err)
		}
	})
}

// A peer that begins well and then reads nothing stops nobody's clock, also not
// while several requests wait to write on one HTTP/2 connection.
func TestPeerThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := stinttest.NewNetwork()
		l, err := n.Listen("deaf")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
				if io.ReadFull(c, preface); string(preface[:3]) == "PRI" {
					c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // an empty SETTINGS frame
				}
			}
		}()
		for _, tr := range []*http.Transport{n.Transport(t), n.TransportHTTP2(t)} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					req, _ := http.NewRequestWithContext(ctx, "PUT", "http://deaf", strings.NewReader(strings.Repeat("x", 1<<20)))
					if _, err := tr.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v, want the deadline", err)
					}
				})
			}
			all.Wait()
			cancel()
			if took := time.Since(start); took != time.Second {
				t.Errorf("back after %v, want 1s", took)
			}
		}
		l.Close()
	})
}

// The end of a test waits for the handlers of HTTP/2 requests whose caller left.
func TestServerWaitsForHTTP2Handlers(t *testing.T) {
	ended := false
	synctest.Test(t, func(t *testing.T) {
		n := stinttest.NewNetwork()
		t.Cleanup(func() { // runs after the server's own
			if !ended {
				t.Error("the test's end did not wait for the handler")
			}
		})
		n.Serve(t, "s", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Second) // virtual, and deaf
			ended = true
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://s", nil)
		if _, err := n.TransportHTTP2(t).RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
	})
}

// Connections keep what net.Conn promises.
func TestConn(t *testing.T) {
	pair := func(t *testing.T) (client, server net.Conn) {
		t.Helper()
		n := stinttest.NewNetwork()
		l, err := n.Listen("s")
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan net.Conn)
		go func() {
			c, _ := l.Accept()
			accepted <- c
		}()
		if client, err = n.DialContext(t.Context(), "tcp", "s:80"); err != nil {
			t.Fatal(err)
		}
		server = <-accepted
		t.Cleanup(func() { client.Close(); server.Close(); l.Close() })
		return client, server
	}
	buf := make([]byte, 100)
	for name, test := range map[string]func(t *testing.T, a, b net.Conn){
		"what was written before Close is read": func(t *testing.T, a, b net.Conn) {
			io.WriteString(a, "hello")
			a.Close()
			if text, err := io.ReadAll(b); string(text) != "hello" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			if _, err := b.Write(buf); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("write to a peer that closed: %v", err)
			}
			if _, err := a.Read(buf); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read of a closed end: %v", err)
			}
			if _, err := a.Write(buf); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write to a closed end: %v", err)
			}
			if err := a.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("deadline of a closed end: %v", err)
			}
		},
		"a full buffer makes the writer wait": func(t *testing.T, a, b net.Conn) {
			start := time.Now()
			time.AfterFunc(time.Second, func() { io.CopyN(io.Discard, b, 200<<10) })
			if n, err := a.Write(make([]byte, 200<<10)); n != 200<<10 || err != nil || time.Since(start) != time.Second {
				t.Errorf("%d bytes, %v after %v", n, err, time.Since(start))
			}
		},
		"deadlines": func(t *testing.T, a, b net.Conn) {
			start := time.Now()
			a.SetReadDeadline(start.Add(time.Hour))
			a.SetReadDeadline(start.Add(time.Second)) // replaces
			if _, err := a.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("read: %v after %v", err, time.Since(start))
			}
			a.SetWriteDeadline(start.Add(2 * time.Second))
			if n, err := a.Write(make([]byte, 1<<20)); n != 128<<10 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 2*time.Second {
				t.Errorf("write: %d bytes, %v after %v", n, err, time.Since(start))
			}
			a.SetDeadline(time.Time{})
			io.WriteString(b, "late")
			if n, err := a.Read(buf); n != 4 || err != nil {
				t.Errorf("read after the deadline was taken away: %d, %v", n, err)
			}
			time.AfterFunc(time.Second, func() { a.SetReadDeadline(time.Unix(1, 0)) }) // how net/http stops a read
			var late net.Error
			if _, err := a.Read(buf); !errors.As(err, &late) || !late.Timeout() || time.Since(start) != 3*time.Second {
				t.Errorf("a read that was under way: %v after %v", err, time.Since(start))
			}
		},
		"Close wakes": func(t *testing.T, a, b net.Conn) {
			time.AfterFunc(time.Second, func() { a.Close() })
			if _, err := a.Read(buf); !errors.Is(err, net.ErrClosed) {
				t.Errorf("own read: %v", err)
			}
			if _, err := b.Read(buf); err != io.EOF {
				t.Errorf("the peer's: %v", err)
			}
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := pair(t)
				test(t, a, b)
			})
		})
	}
}
