//go:build !race

package stinthttp_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

func TestAllocHTTPHop(t *testing.T) {
	plainHandler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(answer) })
	gate := newGate(t, "s", stint.GateOptions{Trust: stint.TrustPeers})
	caller := newCaller(t, "s", stint.Policy{Timeout: 2 * time.Second, Retry: stint.Retry{Attempts: 3}}, stint.CallerOptions{})
	base := stinthttp.NewTransport(nil)
	defer base.CloseIdleConnections()
	hop := func(client *http.Client, h http.Handler) float64 {
		srv := httptest.NewServer(h)
		defer srv.Close()
		return allocsPerCall(func() {
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	plain := hop(&http.Client{Transport: base}, plainHandler)
	client := hop(&http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base, Peer: stinthttp.PeerStint}}, plainHandler)
	server := hop(&http.Client{Transport: base}, stinthttp.Handler(gate, plainHandler))
	both := hop(&http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base, Peer: stinthttp.PeerStint}}, stinthttp.Handler(gate, plainHandler))
	backed := stinthttp.NewClient(caller, stinthttp.PeerStint)
	defer backed.CloseIdleConnections()
	all := hop(backed, stinthttp.Handler(gate, plainHandler))
	t.Logf("allocations a hop: plain %.1f, stint client %.1f, stint server %.1f, both %.1f, both with NewClient's backstop %.1f",
		plain, client, server, both, all)
	// What the runtime does beside the calls adds a tenth now and then.
	if extra := math.Round(both - plain); extra > 20 {
		t.Errorf("stint on both sides: %v allocations above plain net/http, want at most 20", extra)
	}
}

// allocsPerCall counts the allocations of all goroutines, as client and server
// run on several. It is the least of some rounds: a collection empties net/http's
// pools, which is not the call's doing.
func allocsPerCall(call func()) float64 {
	const rounds, n = 5, 200
	least := math.Inf(1)
	for range rounds {
		for range 20 {
			call()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			call()
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/n)
	}
	return least
}
