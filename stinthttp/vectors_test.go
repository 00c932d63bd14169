package stinthttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// The vectors of testdata/wire once more, as bytes on a connection: HTTP trims,
// folds and refuses before anybody reads a value.
type vectors struct {
	Header                               string
	NowMs, ToleranceMs, DefaultMs, MaxMs int64
	Vectors                              []vector
}

type vector struct {
	Name       string
	Headers    [][2]string
	Values     []string
	Expect     string
	Ms, SkewMs int64
	Folded     bool
}

func readVectors(t testing.TB, file string) vectors {
	t.Helper()
	text, err := os.ReadFile("../testdata/wire/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Vectors) < 40 {
		t.Fatalf("only %d vectors: the file was not read as it is meant", len(v.Vectors))
	}
	for i := range v.Vectors {
		for _, value := range v.Vectors[i].Values {
			v.Vectors[i].Headers = append(v.Vectors[i].Headers, [2]string{v.Header, value})
		}
	}
	return v
}

func (v vector) head() string {
	var head strings.Builder
	for _, h := range v.Headers {
		fmt.Fprintf(&head, "%s: %s\r\n", h[0], h[1])
	}
	return head.String()
}

// malformed reports whether HTTP itself has to refuse the vector's headers.
func (v vector) malformed() bool {
	for _, h := range v.Headers {
		if !v.Folded && strings.ContainsFunc(h[1], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return true
		}
	}
	return false
}

// injects reports whether a value holds a line break that is not a fold.
func (v vector) injects() bool {
	for _, h := range v.Headers {
		if !v.Folded && strings.Contains(h[1], "\r\n") {
			return true
		}
	}
	return false
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// overConnections sends each vector to a Gate, as bytes, at the file's own time,
// and checks that HTTP's own refusals enter nothing. did is nil then; else it
// tells what the handler got, if it was entered.
func overConnections(t *testing.T, f vectors, o stint.GateOptions, check func(t *testing.T, v vector, resp *http.Response, did *stint.Hop, e stint.Event)) {
	for _, v := range f.Vectors {
		if v.injects() {
			continue // over a connection it would be two headers, and both good
		}
		t.Run(v.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.UnixMilli(f.NowMs))) // virtual
				w := newWorld(t)
				var rec stinttest.Recorder
				o := o
				o.Observer = &rec
				var did *stint.Hop
				w.serve(o, func(rw http.ResponseWriter, r *http.Request) {
					if _, ok := r.Context().Deadline(); !ok {
						t.Error("an unbounded context")
					}
					h := stint.HopFromContext(r.Context())
					did = &h
				})
				c, err := w.DialContext(t.Context(), "tcp", "s")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: s\r\n%s\r\n", v.head())
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				entered := rec.Events(stint.GateEntered)
				if v.malformed() {
					if resp.StatusCode != 400 || len(entered) != 0 {
						t.Errorf("%d, %d reached the gate; want 400 and none", resp.StatusCode, len(entered))
					}
					return
				}
				if len(entered) != 1 {
					t.Fatalf("%d, %d reached the gate", resp.StatusCode, len(entered))
				}
				check(t, v, resp, did, entered[0])
			})
		})
	}
}

// Whatever is said, the handler has a bounded context, or is not entered.
func TestDeadlineVectorsOverAConnection(t *testing.T) {
	for _, file := range []string{"deadlines.json", "absolute-deadlines.json"} {
		f := readVectors(t, file)
		if file == "deadlines.json" {
			f.Vectors = append(f.Vectors,
				vector{Name: "lower case name", Headers: [][2]string{{"x-deadline-ms", "250"}}, Expect: "deadline", Ms: 250},
				vector{Name: "list of lists", Headers: [][2]string{{"X-Deadline-Ms", ",, 900 ,"}, {"X-Deadline-Ms", "+1,800"}}, Expect: "deadline", Ms: 800})
		}
		o := peers
		o.ClockSkew, o.DefaultTimeout, o.MaxTimeout = milliseconds(f.ToleranceMs), milliseconds(f.DefaultMs), milliseconds(f.MaxMs)
		t.Run(file, func(t *testing.T) {
			overConnections(t, f, o, func(t *testing.T, v vector, resp *http.Response, did *stint.Hop, e stint.Event) {
				if e.Skew != milliseconds(v.SkewMs) {
					t.Errorf("a skew of %v was reported, want %d ms", e.Skew, v.SkewMs)
				}
				if v.Expect == "expired" {
					if resp.StatusCode != 504 || resp.Header.Get("X-Not-Started") != "no_time" || did != nil {
						t.Errorf("%d %v, handler had %+v; want a 504 that never started", resp.StatusCode, resp.Header, did)
					}
					return
				}
				want := map[string]int64{"deadline": v.Ms, "default": f.DefaultMs, "max": f.MaxMs}[v.Expect]
				if resp.StatusCode != 200 || did == nil || did.Remaining.Truncate(time.Millisecond) != milliseconds(want) {
					t.Errorf("%d, handler had %+v; want %d ms", resp.StatusCode, did, want)
				}
			})
		})
	}
}

func TestSingleValueVectorsOverAConnection(t *testing.T) {
	for file, get := range map[string]func(stint.Hop) string{
		"idempotency-keys.json": func(h stint.Hop) string { return h.Key },
		"owners.json":           func(h stint.Hop) string { return h.Owner },
		"classes.json":          func(h stint.Hop) string { return h.Class.String() },
	} {
		t.Run(file, func(t *testing.T) {
			overConnections(t, readVectors(t, file), peers, func(t *testing.T, v vector, resp *http.Response, did *stint.Hop, e stint.Event) {
				if resp.StatusCode != 200 || did == nil || get(*did) != v.Expect {
					t.Errorf("%d, handler had %+v; want %q", resp.StatusCode, did, v.Expect)
				}
			})
		})
	}
}

// What a client makes of a Retry-After is what its attempt's outcome says.
func TestRetryAfterVectorsOverAConnection(t *testing.T) {
	f := readVectors(t, "retry-after.json")
	for _, v := range f.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.UnixMilli(f.NowMs))) // virtual
				w := newWorld(t)
				l, err := w.Listen("s")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					c, err := l.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", v.head())
					}
				}()
				var rec stinttest.Recorder
				status, _, err := fetch(t.Context(), w.client("s", stint.Policy{}, stint.CallerOptions{Observer: &rec}), "GET", "http://s", "")
				if status != 503 || err != nil {
					t.Fatalf("%d, %v", status, err)
				}
				o := rec.Events(stint.AttemptDone)[0].Outcome
				switch v.Expect {
				case "wait":
					if !o.Hinted || o.RetryAfter != milliseconds(v.Ms) {
						t.Errorf("%v (%v), want %d ms", o.RetryAfter, o.Hinted, v.Ms)
					}
				case "too_long":
					if !o.Hinted || o.RetryAfter < 9223372036*time.Second {
						t.Errorf("%v (%v), want longer than any deadline", o.RetryAfter, o.Hinted)
					}
				case "none":
					if o.Hinted || o.RetryAfter != 0 {
						t.Errorf("%v (%v), want none", o.RetryAfter, o.Hinted)
					}
				default:
					t.Fatalf("the file expects %q, which this test does not know", v.Expect)
				}
			})
		})
	}
}

// B21: over HTTP as anywhere, a drained budget is filled again by successes.
func TestB21BudgetRefillsOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		status := 503
		hits := 0
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { hits++; rw.WriteHeader(status) }))
		p := retrying
		p.Breaker.Off = true
		client := w.client("s", p, stint.CallerOptions{})
		calls := func(n int) int {
			before := hits
			for range n {
				fetch(t.Context(), client, "GET", "http://s", "")
			}
			return hits - before
		}
		if n := calls(100); n != 110 {
			t.Errorf("100 failing calls made %d requests, want 110", n)
		}
		status = 200
		calls(100)
		status = 503
		if n := calls(100); n != 110 {
			t.Errorf("100 more after 100 successes made %d requests, want 110", n)
		}
	})
}

// B22: the budget is the Caller's, whatever hosts it calls, and nobody else's.
func TestB22BudgetIsTheDependencys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two, other := stinttest.NewDependency(stinttest.Step{Status: 503}), stinttest.NewDependency(stinttest.Step{Status: 503}), stinttest.NewDependency(stinttest.Step{Status: 503})
		w.Serve(t, "payments-1", one)
		w.Serve(t, "payments-2", two)
		w.Serve(t, "search", other)
		p := retrying
		p.Breaker.Off = true
		payments, search := w.client("payments", p, stint.CallerOptions{}), w.client("search", p, stint.CallerOptions{})
		for range 50 {
			fetch(t.Context(), payments, "GET", "http://payments-1", "")
			fetch(t.Context(), payments, "GET", "http://payments-2", "")
		}
		fetch(t.Context(), search, "GET", "http://search", "")
		if n := one.Count() + two.Count(); n != 110 || other.Count() != 3 {
			t.Errorf("%d requests to payments' two hosts, %d to search; want 110 from one budget, and 3", n, other.Count())
		}
	})
}

// B24: callers that leave are no failure of the dependency, over HTTP.
func TestB24CallersThatLeaveOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Serve(t, "s", stinttest.NewDependency(stinttest.Step{Latency: 50 * time.Millisecond}))
		var rec stinttest.Recorder
		client := w.client("s", stint.Policy{}, stint.CallerOptions{Observer: &rec})
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Millisecond, cancel)
			get(ctx, client, "http://s")
			time.Sleep(95 * time.Millisecond) // virtual: 100 of them within 10 s
		}
		if status, _, err := fetch(t.Context(), client, "GET", "http://s", ""); status != 200 || err != nil || len(rec.Events(stint.BreakerChanged)) != 0 {
			t.Errorf("%d, %v, breaker %+v; want it closed", status, err, rec.Events(stint.BreakerChanged))
		}
	})
}
