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

// The vectors of the deadline once more, and what only a connection can carry,
// as bytes to a server: whatever they say, the handler has a bounded context, or
// is not entered.
func TestDeadlineVectorsOverAConnection(t *testing.T) {
	type vector struct {
		Name    string
		Headers [][2]string
		Expect  string
		Ms      int
	}
	var file struct {
		DefaultMs, MaxMs int
		Vectors          []vector
	}
	text, err := os.ReadFile("../testdata/wire/deadlines.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, v := range append(file.Vectors,
		vector{Name: "folded", Headers: [][2]string{{"X-Deadline-Ms", "25\r\n 0"}}, Expect: "default"},
		vector{Name: "lower case name", Headers: [][2]string{{"x-deadline-ms", "250"}}, Expect: "deadline", Ms: 250},
		vector{Name: "list of lists", Headers: [][2]string{{"X-Deadline-Ms", ",, 900 ,"}, {"X-Deadline-Ms", "+1,800"}}, Expect: "deadline", Ms: 800},
	) {
		t.Run(v.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				left := time.Duration(-1)
				w.serve(peers, func(rw http.ResponseWriter, r *http.Request) {
					d, ok := r.Context().Deadline()
					if !ok {
						t.Error("an unbounded context")
					}
					left = time.Until(d).Truncate(time.Millisecond)
				})
				c, err := w.DialContext(t.Context(), "tcp", "s")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				var head strings.Builder
				head.WriteString("GET / HTTP/1.1\r\nHost: s\r\n")
				for _, h := range v.Headers {
					fmt.Fprintf(&head, "%s: %s\r\n", h[0], h[1])
				}
				fmt.Fprintf(c, "%s\r\n", &head)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]int{"deadline": v.Ms, "default": file.DefaultMs, "max": file.MaxMs}[v.Expect]
				if v.Expect == "expired" {
					if resp.StatusCode != 504 || resp.Header.Get("X-Not-Started") != "no_time" || left != -1 {
						t.Errorf("%d %v, handler had %v; want a 504 that never started", resp.StatusCode, resp.Header, left)
					}
				} else if resp.StatusCode != 200 || left != time.Duration(want)*time.Millisecond {
					t.Errorf("%d, handler had %v; want %d ms", resp.StatusCode, left, want)
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
