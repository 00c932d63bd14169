package stinttest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// handLayer passes on its deadline by hand, or fails to in the way of break.
func handLayer(name, fault string) Layer {
	return Layer{Name: name, Handler: func(base http.RoundTripper, next string, work func(context.Context)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			left, err := time.ParseDuration(r.Header.Get("X-Deadline-Ms") + "ms")
			if err == nil && fault != "header unread" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, left-time.Millisecond)
				defer cancel()
			}
			switch fault {
			case "work in the background context":
				work(context.Background())
			case "work forgotten":
			default:
				work(ctx)
			}
			status := 0
			if next != "" && ctx.Err() == nil {
				req, _ := http.NewRequestWithContext(ctx, "GET", next, nil)
				if d, ok := ctx.Deadline(); ok && fault != "header unwritten" {
					req.Header.Set("X-Deadline-Ms", strings.TrimSuffix(time.Until(d).Truncate(time.Millisecond).String(), "ms"))
				}
				if resp, err := base.RoundTrip(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					status = resp.StatusCode
				}
			}
			if ctx.Err() != nil || status >= 500 {
				status = http.StatusGatewayTimeout
				if fault == "answers 500" {
					status = 500
				}
			}
			if status != 0 {
				w.WriteHeader(status)
			}
		})
	}}
}

// The matrix names the layer at which the chain breaks, and only that.
func TestMatrixFindsTheBreak(t *testing.T) {
	for _, c := range []struct {
		fault string
		at    int // the layer that has it
		slow  int // where it shows
		want  string
	}{
		{fault: ""},
		{fault: "work in the background context", at: 1, slow: 1, want: "b: the chain breaks here: its work went on until 200ms"},
		{fault: "work in the background context", at: 0, slow: 0, want: "a: answered 504 after 200ms, want it within 50ms"},
		{fault: "answers 500", at: 0, slow: 0, want: "a: answered 500"},
		{fault: "answers 500", at: 0, slow: 2, want: "a: answered 500"},
		{fault: "header unwritten", at: 1, slow: 2, want: ""}, // cancellation still ends C: it left with the connection
		{fault: "header unread", at: 0, slow: 0, want: "a: the chain breaks here: its work went on until 200ms"},
		{fault: "work forgotten", at: 2, slow: 2, want: "c: its work was never called"},
	} {
		t.Run(strings.ReplaceAll(c.fault, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				layers := []Layer{handLayer("a", ""), handLayer("b", ""), handLayer("c", "")}
				layers[c.at] = handLayer(layers[c.at].Name, c.fault)
				faults := strings.Join(delayAt(t, layers, c.slow, 50*time.Millisecond, 200*time.Millisecond), "\n")
				if c.want == "" && faults != "" || !strings.Contains(faults, c.want) {
					t.Errorf("found %q, want %q", faults, c.want)
				}
			})
		})
	}
}
