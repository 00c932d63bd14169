package stinthttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// logged is what a server writes to its ErrorLog.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// bothProtocols runs f with a world whose base speaks HTTP/1.1, and HTTP/2.
func bothProtocols(t *testing.T, f func(t *testing.T, w *world)) {
	for _, name := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if name == "HTTP/2" {
					w.base.Protocols = new(http.Protocols)
					w.base.Protocols.SetUnencryptedHTTP2(true)
				}
				f(t, w)
			})
		})
	}
}

// server serves h at http://s as NewServer has it, and returns what it logs.
func (w *world) server(o stint.GateOptions, h http.HandlerFunc) (*stinthttp.Server, *logged) {
	srv := stinthttp.NewServer("", newGate(w.t, "s", o), h, &stinthttp.ServerOptions{H2C: true})
	errors := new(logged)
	srv.ErrorLog = log.New(errors, "", 0)
	w.ServeServer(w.t, "s", srv.Server)
	return srv, errors
}

// chain is a client whose whole way is stint's.
func (w *world) chain() *http.Client { return w.client("s", stint.Policy{}, stint.CallerOptions{}) }

func TestB31FlushedAnswerPassesAtOnce(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		_, errors := w.server(stint.GateOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Real", "1")
			rw.WriteHeader(http.StatusPartialContent)
			io.WriteString(rw, "first")
			rw.(http.Flusher).Flush()
			time.Sleep(time.Second) // virtual
			io.WriteString(rw, " second")
		})
		start := time.Now()
		resp, err := w.chain().Get("http://s")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		first := make([]byte, 5)
		io.ReadFull(resp.Body, first)
		if took := time.Since(start); took != 0 || resp.StatusCode != 206 || resp.Header.Get("X-Real") != "1" || string(first) != "first" {
			t.Errorf("%d %v %q after %v, want all of it at once", resp.StatusCode, resp.Header, first, took)
		}
		if rest, err := io.ReadAll(resp.Body); string(rest) != " second" || err != nil || time.Since(start) != time.Second {
			t.Errorf("then %q, %v after %v", rest, err, time.Since(start))
		}
		if errors.String() != "" {
			t.Errorf("the server logged %s", errors)
		}
	})
}

func TestB31DeadlineBeforeTheFirstByte(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		_, errors := w.server(stint.GateOptions{MaxTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second) // virtual
			rw.WriteHeader(http.StatusTeapot)
			if _, err := rw.Write([]byte("late")); err != http.ErrHandlerTimeout {
				t.Errorf("late write: %v, want ErrHandlerTimeout", err)
			}
		})
		start := time.Now()
		resp, err := w.chain().Get("http://s")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 504 || string(text) != "Gateway Timeout: no_time\n" {
			t.Errorf("%d %q %v, want the Gate's 504", resp.StatusCode, text, err)
		}
		// On HTTP/2 the body is there as well, but only a reset can end its stream.
		ends, clean := 47500*time.Microsecond, true
		if w.base.Protocols != nil {
			ends, clean = 52500*time.Microsecond, false
		}
		if took := time.Since(start); took != ends || (err == nil) != clean {
			t.Errorf("the body ended with %v after %v, want after %v", err, took, ends)
		}
		time.Sleep(2 * time.Second) // virtual
		if errors.String() != "" {
			t.Errorf("the server logged %s", errors)
		}
	})
}

// What has begun and is not done by the deadline is cut off then, whatever the
// handler does, and nothing looks whole.
func TestB31DeadlineAfterTheFirstByte(t *testing.T) {
	for name, goesOn := range map[string]func(t *testing.T, rw http.ResponseWriter, r *http.Request){
		"deaf": func(t *testing.T, rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second) // virtual
			if _, err := io.WriteString(rw, ", ended"); err != http.ErrHandlerTimeout {
				t.Errorf("late write: %v, want ErrHandlerTimeout", err)
			}
			if err := http.NewResponseController(rw).Flush(); err != http.ErrHandlerTimeout {
				t.Errorf("late flush: %v, want ErrHandlerTimeout", err)
			}
			rw.WriteHeader(http.StatusInternalServerError)
			stinthttp.WriteError(rw, r, context.DeadlineExceeded)
		},
		"panics late": func(t *testing.T, rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second) // virtual
			panic(http.ErrAbortHandler)
		},
		"writes on and on": func(t *testing.T, rw http.ResponseWriter, r *http.Request) {
			for {
				if _, err := rw.Write(make([]byte, 10_000)); err != nil {
					return
				}
				time.Sleep(time.Millisecond) // virtual
			}
		},
		"copies a body that does not come": func(t *testing.T, rw http.ResponseWriter, r *http.Request) {
			pr, pw := io.Pipe()
			time.AfterFunc(time.Second, func() { pw.Close() })
			go pw.Write(make([]byte, 10_000))
			io.Copy(rw, pr)
		},
		"waits for the request's body": func(t *testing.T, rw http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Error("read a whole body that never came")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				var rec stinttest.Recorder
				_, errors := w.server(stint.GateOptions{MaxTimeout: 50 * time.Millisecond, Limit: 1, Observer: &rec}, func(rw http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						return
					}
					http.NewResponseController(rw).EnableFullDuplex()
					rw.WriteHeader(http.StatusPartialContent)
					io.WriteString(rw, "begun")
					rw.(http.Flusher).Flush()
					goesOn(t, rw, r)
				})
				start := time.Now()
				pr, pw := io.Pipe()
				defer pw.Close()
				resp, err := w.chain().Post("http://s", "", pr)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 206 || !strings.HasPrefix(string(text), "begun") || strings.Contains(string(text), "ended") || strings.Contains(string(text), "Timeout") {
					t.Errorf("%d %q", resp.StatusCode, text)
				}
				if took := time.Since(start); err == nil || took != 50*time.Millisecond {
					t.Errorf("the body ended with %v after %v, want an error after 50ms", err, took)
				}
				if w.base.Protocols == nil && err != io.ErrUnexpectedEOF {
					t.Errorf("the body ended with %v, want an unexpected EOF", err)
				}
				time.Sleep(2 * time.Second) // virtual: the handler has come back
				if left := rec.Events(stint.GateLeft); len(left) != 1 || left[0].Outcome != (stint.Outcome{Kind: stint.Expired, Code: "aborted"}) {
					t.Errorf("left: %+v, want one aborted", left)
				}
				if err := get(t.Context(), w.chain(), "http://s"); err != nil {
					t.Errorf("the next request: %v, want the place to be free", err)
				}
				if errors.String() != "" {
					t.Errorf("the server logged %s", errors)
				}
			})
		})
	}
}

// A handler that obeys its context and says so in the middle of its answer does
// not make a whole answer of it either.
func TestWriteErrorInTheMiddleOfAnAnswer(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		_, errors := w.server(stint.GateOptions{MaxTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "begun")
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
			stinthttp.WriteError(wrapped{rw}, r, r.Context().Err())
		})
		start := time.Now()
		status, text, err := fetch(t.Context(), w.chain(), "GET", "http://s", "")
		if took := time.Since(start); status != 200 || text != "begun" || err == nil || took != 45*time.Millisecond {
			t.Errorf("%d %q, %v after %v; want a broken body after 45ms", status, text, err, took)
		}
		synctest.Wait()
		if errors.String() != "" {
			t.Errorf("the server logged %s", errors)
		}
	})
}

type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// An answer that is complete is left alone, though its handler works on.
func TestCompleteAnswersAreLeftAlone(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		var rec stinttest.Recorder
		_, errors := w.server(stint.GateOptions{MaxTimeout: 50 * time.Millisecond, Observer: &rec}, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/none" {
				rw.Header().Set("Content-Length", "1000")
			}
			switch {
			case r.URL.Path == "/none":
				rw.WriteHeader(http.StatusNoContent)
			case r.Method == http.MethodHead:
				rw.WriteHeader(http.StatusOK)
			case r.URL.Path == "/copied":
				io.Copy(rw, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1000))})
			default:
				io.WriteString(rw, strings.Repeat("x", 1000))
			}
			http.NewResponseController(rw).Flush()
			time.Sleep(time.Second) // virtual
		})
		for _, c := range []struct {
			method, path string
			length       int
		}{{"GET", "/", 1000}, {"GET", "/copied", 1000}, {"HEAD", "/", 0}, {"GET", "/none", 0}} {
			req, _ := http.NewRequest(c.method, "http://s"+c.path, nil)
			resp, err := w.chain().Do(req)
			if err != nil {
				t.Fatal(c, err)
			}
			if text, err := io.ReadAll(resp.Body); len(text) != c.length || err != nil {
				t.Errorf("%v: %d bytes, %v", c, len(text), err)
			}
			resp.Body.Close()
			time.Sleep(2 * time.Second) // virtual
		}
		for _, e := range rec.Events(stint.GateLeft) {
			if e.Outcome.Kind != stint.OK {
				t.Errorf("left: %+v, want ok", e)
			}
		}
		if n := w.Dials("s"); n != 1 {
			t.Errorf("%d connections, want 1: none was closed", n)
		}
		if errors.String() != "" {
			t.Errorf("the server logged %s", errors)
		}
	})
}

// Under an http.Server that does not tell its connections the answer can't go on
// either, and is cut off when the handler returns.
func TestCutOffWithoutConnContext(t *testing.T) {
	for path, want := range map[string]time.Duration{"/works": time.Second, "/reads": 50 * time.Millisecond} {
		cutOffWithoutConnContext(t, path, want)
	}
}

func cutOffWithoutConnContext(t *testing.T, path string, want time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		errors := new(logged)
		g := newGate(t, "s", stint.GateOptions{MaxTimeout: 50 * time.Millisecond})
		w.ServeServer(t, "s", &http.Server{ErrorLog: log.New(errors, "", 0), Handler: stinthttp.Handler(g, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			http.NewResponseController(rw).EnableFullDuplex()
			io.WriteString(rw, "begun")
			rw.(http.Flusher).Flush()
			if r.URL.Path == "/reads" { // what does not come: it is not to be held by that
				io.Copy(io.Discard, r.Body)
				return
			}
			time.Sleep(time.Second) // virtual
		}))})
		start := time.Now()
		pr, pw := io.Pipe()
		defer pw.Close()
		resp, err := w.chain().Post("http://s"+path, "", pr)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if took := time.Since(start); string(text) != "begun" || err != io.ErrUnexpectedEOF || took != want || errors.String() != "" {
			t.Errorf("%s: %q, %v after %v, logged %q; want an unexpected EOF after %v", path, text, err, took, errors, want)
		}
	})
}

// A body over HTTP/1.0 ends with its connection: a cut has to be a reset.
func TestCutOffOverHTTP10(t *testing.T) {
	srv := stinthttp.NewServer("", newGate(t, "s", stint.GateOptions{MaxTimeout: 500 * time.Millisecond}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "begun")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
		time.Sleep(20 * time.Millisecond) // past the deadline
	}), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	defer srv.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	if text, err := io.ReadAll(c); err == nil || !strings.HasSuffix(string(text), "\r\n\r\nbegun") {
		t.Errorf("%q, %v; want the beginning and a reset", text, err)
	}
}

// Over TLS as well the caller is not told that all was sent.
func TestCutOffOverTLS(t *testing.T) {
	release := make(chan struct{})
	h := stinthttp.Handler(newGate(t, "s", stint.GateOptions{MaxTimeout: 500 * time.Millisecond}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "begun")
		rw.(http.Flusher).Flush()
		<-release
	}))
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnContext = stinthttp.ConnContext
	srv.StartTLS()
	defer srv.Close()
	defer close(release)
	if _, text, err := fetch(t.Context(), srv.Client(), "GET", srv.URL, ""); text != "begun" || err == nil {
		t.Errorf("%q, %v; want a broken body while the handler is still at work", text, err)
	}
}

// An event stream flows event by event, and is bounded like anything else.
func TestEventStream(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		_, errors := w.server(stint.GateOptions{MaxTimeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := 0; ; i++ {
				fmt.Fprintf(rw, "data: %d\n\n", i)
				if err := http.NewResponseController(rw).Flush(); err != nil {
					t.Error(err)
				}
				select {
				case <-r.Context().Done():
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
		start := time.Now()
		resp, err := w.chain().Get("http://s")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines, n := bufio.NewScanner(resp.Body), 0
		for lines.Scan() {
			if want := fmt.Sprint("data: ", n); lines.Text() == want {
				if took := time.Since(start); took != time.Duration(n)*10*time.Millisecond {
					t.Errorf("event %d after %v", n, took)
				}
				n++
			}
		}
		if took := time.Since(start); n != 5 || lines.Err() != nil || took != 45*time.Millisecond || errors.String() != "" {
			t.Errorf("%d events, %v after %v, logged %q; want 5 and an end after 45ms", n, lines.Err(), took, errors)
		}
	})
}

// The handler's ResponseController reaches the connection.
func TestResponseController(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		failed := make(chan error, 1)
		w.server(stint.GateOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(rw)
			if r.URL.Path == "/duplex" {
				if err := rc.EnableFullDuplex(); err != nil && w.base.Protocols == nil {
					t.Error(err)
				}
				rc.Flush()
				buf := make([]byte, 4)
				for {
					n, err := r.Body.Read(buf)
					rw.Write(buf[:n])
					rc.Flush()
					if err != nil {
						return
					}
				}
			}
			if err := rc.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			var err error
			for err == nil {
				_, err = rw.Write(make([]byte, 1<<20))
			}
			failed <- err
		})
		start := time.Now()
		resp, err := w.chain().Get("http://s/deadline") // and does not read
		if err != nil {
			t.Fatal(err)
		}
		err = <-failed
		if took := time.Since(start); took != 20*time.Millisecond || w.base.Protocols == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write failed with %v after %v, want the handler's own 20ms", err, took)
		}
		resp.Body.Close()

		pr, pw := io.Pipe()
		resp, err = w.chain().Post("http://s/duplex", "", pr)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, word := range []string{"ping", "pong"} {
			io.WriteString(pw, word)
			got := make([]byte, 4)
			if _, err := io.ReadFull(resp.Body, got); string(got) != word || err != nil {
				t.Errorf("sent %s, got %q, %v", word, got, err)
			}
		}
		pw.Close()
		if rest, err := io.ReadAll(resp.Body); len(rest) != 0 || err != nil {
			t.Errorf("at the end %q, %v", rest, err)
		}
	})
}

// websocket is a handler that makes the handshake of RFC 6455 and echoes the
// payload of each short frame.
func websocket(t *testing.T) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			websocketAccept(r.Header.Get("Sec-WebSocket-Key")))
		buf.Flush()
		for {
			head := make([]byte, 6) // final text frame, masked length, mask
			if _, err := io.ReadFull(buf, head); err != nil {
				return
			}
			payload := make([]byte, head[1]&0x7f)
			io.ReadFull(buf, payload)
			for i := range payload {
				payload[i] ^= head[2+i%4]
			}
			buf.Write([]byte{head[0], byte(len(payload))})
			buf.Write(payload)
			buf.Flush()
		}
	}
}

func websocketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func TestB31WebSocketPassesTheWholeChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var rec stinttest.Recorder
		_, errors := w.server(stint.GateOptions{MaxTimeout: 50 * time.Millisecond, Observer: &rec}, websocket(t))
		target, _ := url.Parse("http://s")
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = w.chain().Transport
		edge := stinthttp.NewServer("", newGate(t, "edge", stint.GateOptions{}), proxy, nil)
		w.ServeServer(t, "edge", edge.Server)

		for _, c := range []struct {
			host  string
			pause time.Duration // the Gate's deadline does not end it, a reverse proxy's context would
		}{{"s", time.Second}, {"edge", 10 * time.Millisecond}} {
			req, _ := http.NewRequest("GET", "http://"+c.host, nil)
			for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
				req.Header.Set(name, value)
			}
			resp, err := w.client(c.host, stint.Policy{}, stint.CallerOptions{}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			conn, ok := resp.Body.(io.ReadWriteCloser)
			if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || !ok {
				t.Fatalf("%s: %d %v %T", c.host, resp.StatusCode, resp.Header, resp.Body)
			}
			for _, word := range []string{"hello", "again"} {
				frame := []byte{0x81, 0x80 | byte(len(word)), 1, 2, 3, 4}
				for i := range word {
					frame = append(frame, word[i]^frame[2+i%4])
				}
				conn.Write(frame)
				got := make([]byte, 2+len(word))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != "\x81\x05"+word {
					t.Errorf("%s: echo %q, %v", c.host, got, err)
				}
				time.Sleep(c.pause) // virtual
			}
			conn.Close()
			synctest.Wait()
		}
		if left := rec.Events(stint.GateLeft); len(left) != 2 || left[0].Outcome.Code != "hijacked" {
			t.Errorf("left: %+v, want two hijacked", left)
		}
		if errors.String() != "" {
			t.Errorf("the server logged %s", errors)
		}
	})
}

// 100 MiB pass without being held anywhere: what is allocated on both sides, for
// the whole of it, is little.
func TestB31LargeAnswerIsNotBuffered(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		const size = 100 << 20
		chunk := make([]byte, 1<<20)
		w.server(stint.GateOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/copy" {
				io.Copy(rw, io.LimitReader(zeros{}, size))
				return
			}
			for range size / len(chunk) {
				rw.Write(chunk)
			}
		})
		for _, path := range []string{"/copy", "/write"} {
			if path == "/copy" && w.base.Protocols != nil {
				continue // HTTP/2 has no way of its own for it
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			resp, err := w.chain().Get("http://s" + path)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.CopyBuffer(onlyWriter{io.Discard}, resp.Body, make([]byte, 64<<10))
			resp.Body.Close()
			runtime.ReadMemStats(&after)
			if n != size || err != nil {
				t.Errorf("%s: %d bytes, %v", path, n, err)
			}
			most := uint64(size / 25)
			if w.base.Protocols != nil { // net/http's HTTP/2 takes its buffers anew, more or less of them
				most = size / 2
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > most {
				t.Errorf("%s: %d KiB were allocated for %d KiB", path, allocated>>10, size>>10)
			} else {
				t.Logf("%s: %d KiB were allocated for %d KiB", path, allocated>>10, size>>10)
			}
		}
	})
}

type onlyWriter struct{ io.Writer }

// Whatever way a handler ends, its place is free again.
func TestEveryEndFreesThePlace(t *testing.T) {
	bothProtocols(t, func(t *testing.T, w *world) {
		var rec stinttest.Recorder
		w.server(stint.GateOptions{Limit: 1, MaxTimeout: 50 * time.Millisecond, Observer: &rec}, func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/panic":
				panic("a bug")
			case "/begun":
				rw.(http.Flusher).Flush()
				panic("a bug")
			case "/late":
				time.Sleep(time.Second) // virtual
				panic("a bug")
			case "/cut":
				rw.(http.Flusher).Flush()
				time.Sleep(time.Second) // virtual
				panic("a bug")
			case "/hijacked":
				if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
					defer c.Close()
				}
				panic("a bug")
			}
		})
		for _, path := range []string{"/panic", "/begun", "/late", "/cut", "/hijacked"} {
			fetch(t.Context(), w.chain(), "POST", "http://s"+path, "")
			time.Sleep(2 * time.Second) // virtual
			if err := get(t.Context(), w.chain(), "http://s/"); err != nil {
				t.Errorf("after %s: %v", path, err)
			}
		}
		var codes []string
		for _, e := range rec.Events(stint.GateLeft) {
			if e.Outcome.Code != "200" {
				codes = append(codes, e.Outcome.Code)
			}
		}
		if got := strings.Join(codes, " "); got != "panic panic 504 aborted panic" {
			t.Errorf("ends: %s", got)
		}
	})
}

// A body that is too long closes its connection, as without the Gate.
func TestTooLargeClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server(stint.GateOptions{}, func(rw http.ResponseWriter, r *http.Request) {
			var tooLarge *http.MaxBytesError
			if _, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 10)); !errors.As(err, &tooLarge) {
				t.Errorf("read: %v", err)
			}
			http.Error(rw, "too large", http.StatusRequestEntityTooLarge)
		})
		c, err := w.DialContext(t.Context(), "tcp", "s:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The rest does not come, and nobody waits for it.
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 1000\r\n\r\n%s", strings.Repeat("x", 100))
		start := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 413 || !resp.Close || time.Since(start) != 0 {
			t.Errorf("%v, %v after %v; want a 413 that closes its connection at once", resp, err, time.Since(start))
		}
	})
}
