package stinthttp_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// A handler that announced and wrote its whole answer, and works on.
func TestCompleteButHeldBack(t *testing.T) {
	for _, protocol := range protocols {
		for _, method := range []string{"GET", "HEAD"} {
			release := make(chan struct{})
			h := stinthttp.Handler(newGate(t, "s", stint.GateOptions{MaxTimeout: 200 * time.Millisecond}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Length", "2")
				io.WriteString(rw, "ok")
				select {
				case <-release:
				case <-time.After(5 * time.Second):
				}
			}))
			rs, scheme := start(t, protocol, h)
			done := make(chan time.Duration, 1)
			begun := time.Now()
			go func() {
				req, _ := http.NewRequest(method, scheme+"://"+rs.hosts[0], nil)
				resp, err := rs.base.RoundTrip(req)
				if err == nil {
					io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				done <- time.Since(begun)
			}()
			select {
			case <-done:
			case <-time.After(2 * time.Second):
				t.Errorf("%s %s: no answer and no end 1.8 s after the deadline", protocol, method)
			}
			close(release)
		}
	}
}

type onlyReader struct{ io.Reader }

func TestHandlerRaces(t *testing.T) {
	for _, protocol := range protocols {
		for _, connctx := range []bool{true, false} {
			var rec stinttest.Recorder
			g := newGate(t, "s", stint.GateOptions{MaxTimeout: 20 * time.Millisecond, Limit: stint.NoLimit, Observer: &rec})
			mode := func(r *http.Request) (m, us int) {
				m, _ = strconv.Atoi(r.Header.Get("M"))
				us, _ = strconv.Atoi(r.Header.Get("Us"))
				return
			}
			h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				m, us := mode(r)
				wait := func() { time.Sleep(time.Duration(us) * time.Microsecond) }
				switch m {
				case 0:
					wait()
					io.WriteString(rw, "full")
				case 1:
					rw.Header().Set("Content-Length", "4")
					io.WriteString(rw, "fu")
					rw.(http.Flusher).Flush()
					wait()
					io.WriteString(rw, "ll")
				case 2:
					io.WriteString(rw, "fu")
					rw.(http.Flusher).Flush()
					wait()
					io.WriteString(rw, "ll")
				case 3:
					wait()
					rw.(io.ReaderFrom).ReadFrom(strings.NewReader("full"))
				case 4:
					rw.Header().Set("Trailer", "X-T")
					io.WriteString(rw, "full")
					rw.(http.Flusher).Flush()
					wait()
					rw.Header().Set("X-T", "t")
				case 5:
					wait()
					panic(http.ErrAbortHandler)
				case 6:
					io.WriteString(rw, "fu")
					wait()
					stinthttp.WriteError(rw, r, errors.New("x"))
				case 7:
					wait()
					stinthttp.WriteError(rw, r, errors.New("x"))
				case 8:
					io.ReadAll(r.Body)
					wait()
					rw.WriteHeader(304)
				case 9:
					go func() { wait(); rw.Header(); rw.Write([]byte("late")) }()
					time.Sleep(25 * time.Millisecond)
				case 10:
					rw.(io.ReaderFrom).ReadFrom(io.MultiReader(strings.NewReader(strings.Repeat("x", 5000)), onlyReader{readerFunc(func(p []byte) (int, error) { wait(); return 0, io.EOF })}))
				}
			})
			srv := httptest.NewUnstartedServer(stinthttp.Handler(g, h))
			if connctx {
				srv.Config.ConnContext = stinthttp.ConnContext
			}
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			scheme := "http"
			if protocol == "HTTP/2" {
				srv.EnableHTTP2 = true
				srv.StartTLS()
				scheme = "https"
			} else {
				srv.Start()
			}
			base := stinthttp.NewTransport(nil)
			base.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
			var sent atomic.Int64
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(1, uint64(w)))
					for range 120 {
						m := r.IntN(11)
						if m == 9 {
							m = 0
						} // 9 misuses the ResponseWriter after the handler
						us := []int{0, 17000 + r.IntN(5000), 10000 + r.IntN(15000)}[r.IntN(3)]
						req, _ := http.NewRequest([]string{"GET", "HEAD", "POST"}[r.IntN(3)], scheme+"://"+srv.Listener.Addr().String(), nil)
						if req.Method == "POST" {
							req.Body = io.NopCloser(strings.NewReader("body"))
						}
						req.Header.Set("M", fmt.Sprint(m))
						req.Header.Set("Us", fmt.Sprint(us))
						sent.Add(1)
						resp, err := base.RoundTrip(req)
						if err != nil {
							continue
						}
						b, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || req.Method == "HEAD" {
							continue
						}
						want := "full"
						if m == 10 {
							want = strings.Repeat("x", 5000)
						}
						switch {
						case resp.StatusCode == 200 && string(b) == want:
							if m == 4 && resp.Trailer.Get("X-T") != "t" {
								t.Errorf("%s mode 4: a whole body without its trailer: %v", protocol, resp.Trailer)
							}
						case resp.StatusCode >= 300:
						default:
							if m == 9 {
								continue
							}
							t.Errorf("%s connctx %v mode %d us %d: %d %.20q looks whole", protocol, connctx, m, us, resp.StatusCode, b)
						}
					}
				})
			}
			wg.Wait()
			base.CloseIdleConnections()
			srv.Close()
			time.Sleep(50 * time.Millisecond)
			<-g.Drain()
			in, out := len(rec.Events(stint.GateEntered)), len(rec.Events(stint.GateLeft))
			if in != out {
				t.Errorf("%d entered, %d left", in, out)
			}
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
