package stinthttp_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

var quiet = slog.New(slog.DiscardHandler)

func newCaller(t testing.TB, name string, p stint.Policy, o stint.CallerOptions) *stint.Caller {
	t.Helper()
	c, err := stint.NewCaller(name, p, &o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newGate(t testing.TB, name string, o stint.GateOptions) *stint.Gate {
	t.Helper()
	o.Logger = quiet
	g, err := stint.NewGate(name, &o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// peers are gate options as the articles' chains have them.
var peers = stint.GateOptions{Trust: stint.TrustPeers, Reserve: stint.NoReserve}

// world is an in-memory network with services on it.
type world struct {
	*stinttest.Network
	t    testing.TB
	base *http.Transport
}

func newWorld(t testing.TB) *world {
	n := stinttest.NewNetwork()
	return &world{n, t, n.Transport(t)}
}

// client calls dependency under p; the jitter is always the longest.
func (w *world) client(dependency string, p stint.Policy, o stint.CallerOptions) *http.Client {
	if o.Rand == nil {
		o.Rand = func() float64 { return 1 }
	}
	return &http.Client{Transport: &stinthttp.Transport{
		Caller: newCaller(w.t, dependency, p, o), Base: w.base, Peer: stinthttp.PeerStint}}
}

// relay serves host: a service that calls next for each request and hands on
// its failure with WriteError.
func (w *world) relay(host, next string, g stint.GateOptions, p stint.Policy) {
	client := w.client(next, p, stint.CallerOptions{Observer: g.Observer})
	w.Serve(w.t, host, stinthttp.Handler(newGate(w.t, host, g), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := get(r.Context(), client, "http://"+next); err != nil {
			stinthttp.WriteError(rw, r, err)
		}
	})))
}

// get makes one call and makes an error of a bad status, as most code does.
func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return stinthttp.CheckStatus(resp)
}

func fetch(ctx context.Context, client *http.Client, method, url, body string) (int, string, error) {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, rd)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// bubbleGoroutines counts the goroutines of the synctest bubble once all of them
// wait: the runtime names the bubble in its dump. NumGoroutine would count the
// runtime's own as well.
func bubbleGoroutines() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "synctest bubble")
}

// articlePolicy is the articles' retry: a millisecond between attempts.
func articlePolicy(attempts int, minUseful time.Duration) stint.Policy {
	return stint.Policy{MinUseful: minUseful, Retry: stint.Retry{Attempts: attempts, Base: time.Millisecond, Cap: time.Millisecond}}
}

// put sends a body that may be readable only once.
func put(ctx context.Context, client *http.Client, body string, oneShot bool) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://s", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if oneShot {
		req.GetBody = nil
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// drips answers its first request with a 503 whose body does not end, and the
// others with 200.
type drips struct{ count int }

func (d *drips) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if d.count++; d.count > 1 {
		return
	}
	rw.WriteHeader(http.StatusServiceUnavailable)
	for r.Context().Err() == nil {
		rw.Write([]byte("drip"))
		rw.(http.Flusher).Flush()
		time.Sleep(10 * time.Millisecond) // virtual
	}
}
