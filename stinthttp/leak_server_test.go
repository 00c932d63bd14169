package stinthttp_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// A thousand requests that a server refuses, cuts off or answers for leave no
// goroutine, no connection and no place behind.
func TestNothingGrowsOverAThousandBadEnds(t *testing.T) {
	flushed := func(rw http.ResponseWriter) {
		io.WriteString(rw, "begun")
		rw.(http.Flusher).Flush()
	}
	deaf := func() { time.Sleep(100 * time.Millisecond) } // virtual, and beyond the deadline
	for _, c := range []struct {
		name    string
		told    string // X-Deadline-Ms
		end     string // the code of the event, or the reason of the refusal
		drained bool
		full    bool
		leave   bool // the caller does, after 5 ms
		handler http.HandlerFunc
	}{
		{name: "too little time", told: "1", end: "no_time"},
		{name: "full", full: true, end: "full"},
		{name: "draining", drained: true, end: "draining"},
		{name: "panic", end: "panic", handler: func(http.ResponseWriter, *http.Request) { panic("a bug") }},
		{name: "panic in the answer", end: "panic", handler: func(rw http.ResponseWriter, _ *http.Request) { flushed(rw); panic("a bug") }},
		{name: "context ended", end: "504", handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "context ignored", end: "504", handler: func(http.ResponseWriter, *http.Request) { deaf() }},
		{name: "cut off", end: "aborted", handler: func(rw http.ResponseWriter, _ *http.Request) { flushed(rw); deaf() }},
		{name: "error in the answer", end: "aborted", handler: func(rw http.ResponseWriter, r *http.Request) {
			flushed(rw)
			stinthttp.WriteError(rw, r, context.DeadlineExceeded)
		}},
		{name: "caller left", leave: true, end: "499", handler: func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // or net/http would not see it leave
			<-r.Context().Done()
		}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, w *world) {
				var rec stinttest.Recorder
				g := newGate(t, "s", stint.GateOptions{MaxTimeout: 50 * time.Millisecond, MinUseful: 2 * time.Millisecond, Limit: 1, Observer: &rec})
				next := c.handler
				if next == nil {
					next = func(http.ResponseWriter, *http.Request) { t.Error("the handler was entered") }
				}
				var server sockets
				srv := stinthttp.NewServer("", g, next, &stinthttp.ServerOptions{H2C: true})
				srv.ConnState, srv.ErrorLog = server.state, log.New(io.Discard, "", 0)
				w.ServeServer(t, "s", srv.Server)
				var held stint.Admission
				if c.full {
					if err := g.Admit(context.Background(), stint.Hop{}, &held); err != nil {
						t.Fatal(err)
					}
				}
				if c.drained {
					g.Drain()
				}
				client := &http.Client{Transport: w.base}
				before := bubbleGoroutines()
				for i := range 1000 {
					ctx, cancel := context.WithCancel(t.Context())
					if c.leave {
						time.AfterFunc(5*time.Millisecond, cancel)
					}
					req, _ := http.NewRequestWithContext(ctx, "POST", "http://s", strings.NewReader("body"))
					if c.told != "" {
						req.Header.Set("X-Deadline-Ms", c.told)
					}
					if resp, err := client.Do(req); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					cancel()
					time.Sleep(200 * time.Millisecond) // virtual: the handler has returned
					event := rec.Events(stint.GateLeft, stint.GateEntered)
					last := event[len(event)-1]
					if end := last.Outcome.Code; end != c.end && last.Reason.String() != c.end {
						t.Fatalf("request %d: ended as %q, %q; want %q", i+1, end, last.Reason, c.end)
					}
					rec.Reset()
					if open := server.open.Load(); open > 2 {
						t.Fatalf("after %d requests: %d connections", i+1, open)
					}
				}
				w.base.CloseIdleConnections()
				time.Sleep(2 * time.Second) // virtual: the half second that net/http lingers
				if n := bubbleGoroutines(); n != before || server.open.Load() != 0 {
					t.Errorf("%d goroutines, %d before, %d connections; want nothing left", n, before, server.open.Load())
				}
				if c.full {
					held.Finish(stint.Outcome{})
				}
				if !c.drained { // the only place is free
					var adm stint.Admission
					if err := g.Admit(t.Context(), stint.Hop{}, &adm); err != nil {
						t.Errorf("afterwards: %v", err)
					}
					adm.Finish(stint.Outcome{})
				}
			})
		})
	}
}
