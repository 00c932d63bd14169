package stinttest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := stinttest.NewNetwork()
		n.Serve(t, "up", stinttest.NewDependency(stinttest.Step{Latency: 30 * time.Millisecond, Status: 201, Body: "hello", Header: http.Header{"X-A": {"1"}}}))
		client := &http.Client{Transport: n.Transport(t)}
		start := time.Now()
		resp, err := client.Get("http://up:8080/path")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 201 || string(text) != "hello" || resp.Header.Get("X-A") != "1" || time.Since(start) != 30*time.Millisecond {
			t.Errorf("%d %q %v after %v", resp.StatusCode, text, resp.Header, time.Since(start))
		}
		if resp, err := client.Get("http://up"); err != nil || n.Dials("up") != 2 {
			t.Errorf("%v, %d connections; up and up:8080 are two addresses of one host", err, n.Dials("up"))
		} else {
			resp.Body.Close()
		}
		_, err = client.Get("http://down")
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" {
			t.Errorf("nobody listens: %v, want a dial error", err)
		}
		if _, err := n.Listen("up"); err == nil {
			t.Error("two listeners at one host")
		}
		l, err := n.Listen("backlog")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.DialContext(ctx, "tcp", "backlog:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody accepts: %v, want the context's end", err)
		}
		l.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestDependencyScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := stinttest.NewNetwork()
		dep := stinttest.NewDependency(stinttest.Step{Reset: true}, stinttest.Step{Status: 503}, stinttest.Step{Stall: true}, stinttest.Step{})
		n.Serve(t, "d", dep)
		client := &http.Client{Transport: n.Transport(t)}
		status := func() (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://d", nil)
			resp, err := client.Do(req)
			if err != nil {
				return 0, err
			}
			resp.Body.Close()
			return resp.StatusCode, nil
		}
		if _, err := status(); !errors.Is(err, io.EOF) {
			t.Errorf("reset: %v, want EOF", err)
		}
		if s, err := status(); s != 503 || err != nil {
			t.Errorf("second: %d %v", s, err)
		}
		start := time.Now()
		if _, err := status(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("stall: %v after %v", err, time.Since(start))
		}
		for range 2 { // the last step repeats
			if s, err := status(); s != 200 || err != nil {
				t.Errorf("last: %d %v", s, err)
			}
		}
		synctest.Wait()
		as := dep.Arrivals()
		if dep.Count() != 5 || len(as) != 5 || as[2].Left.Sub(as[2].At) != time.Second || !as[3].Left.IsZero() {
			t.Errorf("arrivals: %+v", as)
		}
	})
}

func TestRecorder(t *testing.T) {
	var rec stinttest.Recorder
	for _, e := range []stint.Event{{Kind: stint.CallDone}, {Kind: stint.AttemptDone}, {Kind: stint.CallDone, Reason: stint.Full}} {
		rec.Observe(t.Context(), e)
	}
	if n := len(rec.Events()); n != 3 {
		t.Errorf("%d events in all, want 3", n)
	}
	if n := len(rec.Events(stint.CallDone)); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
	if r := rec.Refused(); len(r) != 1 || r[stint.Full] != 1 {
		t.Errorf("refused: %v", r)
	}
	if rec.Reset(); len(rec.Events()) != 0 {
		t.Error("Reset kept events")
	}
}
