package integration

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

const policyOrders = `service: orders
entry:
  trust: peers
  deadline: 1s
  reserve: 10ms
  exempt: [/livez]
  routes:
    "POST /reports": {deadline: 5s, class: sheddable}
dependencies:
  inventory:
    service: inventory
    timeout: 500ms
    retry: {maxAttempts: 3, perAttemptTimeout: 100ms, backoff: {base: 1ms, cap: 2ms}}
    operations:
      "GET /heavy/{id}": {retry: none, timeout: 300ms}
      "POST /search": {safety: readOnly}
`

// One file, on both sides of a service: what it says about routes and operations is what happens over HTTP, and a new
// file changes it while the service runs.
func TestPolicyFileOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "orders.yaml")
		write := func(data string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(policyOrders)
		var told []error
		w, err := policy.Watch(t.Context(), path, &policy.WatchOptions{
			Changed: func(_ *policy.File, err error) { told = append(told, err) },
			Gate:    &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		gate, err := w.Gate()
		if err != nil {
			t.Fatal(err)
		}
		routes, err := w.Routes()
		if err != nil {
			t.Fatal(err)
		}
		inventory, err := w.Caller("inventory")
		if err != nil {
			t.Fatal(err)
		}
		op, err := stinthttp.RouteOp(w.File().Patterns("inventory")...)
		if err != nil {
			t.Fatal(err)
		}

		nw := stinttest.NewNetwork()
		down := stinttest.NewDependency(stinttest.Step{Status: http.StatusServiceUnavailable})
		nw.Serve(t, "inventory", down)
		client := &http.Client{Transport: &stinthttp.Transport{Caller: inventory, Base: nw.Transport(t), Peer: stinthttp.PeerStint, Op: op}}
		handler, err := stinthttp.Routes(gate, routes, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			left, _ := stint.Remaining(r.Context())
			io.WriteString(rw, left.Round(10*time.Millisecond).String()+" "+stint.HopFromContext(r.Context()).Class.String())
		}))
		if err != nil {
			t.Fatal(err)
		}
		nw.Serve(t, "orders", handler)
		plain := &http.Client{Transport: nw.Transport(t)}

		ask := func(c *http.Client, method, url string) string {
			t.Helper()
			req, err := http.NewRequestWithContext(context.Background(), method, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		requests := func(method, path string) int {
			t.Helper()
			before := down.Count()
			ask(client, method, "http://inventory"+path)
			return down.Count() - before
		}
		check := func(when string, asked map[string]string, sent map[string]int) {
			t.Helper()
			for route, want := range asked {
				method, path, _ := strings.Cut(route, " ")
				if got := ask(plain, method, "http://orders"+path); got != want {
					t.Errorf("%s: %s ran with %q, want %q", when, route, got, want)
				}
			}
			for route, want := range sent {
				method, path, _ := strings.Cut(route, " ")
				if got := requests(method, path); got != want {
					t.Errorf("%s: %s made %d requests, want %d", when, route, got, want)
				}
			}
		}

		check("at first",
			map[string]string{"GET /orders": "990ms ", "POST /reports": "4.99s sheddable", "GET /reports": "990ms ", "GET /livez": "990ms "},
			map[string]int{"GET /stock": 3, "GET /heavy/7": 1, "POST /search": 3, "POST /stock": 1})

		write(strings.NewReplacer("maxAttempts: 3", "maxAttempts: 2", "deadline: 5s", "deadline: 6s", "deadline: 1s", "deadline: 2s").Replace(policyOrders))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		check("with the new file",
			map[string]string{"GET /orders": "1.99s ", "POST /reports": "5.99s sheddable"},
			map[string]int{"GET /stock": 2, "GET /heavy/7": 1, "POST /search": 2})

		write(policyOrders + "bogus: 1\n")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		check("with a bad file", map[string]string{"GET /orders": "1.99s "}, map[string]int{"GET /stock": 2})
		if len(told) != 2 || told[0] != nil || told[1] == nil {
			t.Errorf("told %v, want a change and an error", told)
		}
	})
}
