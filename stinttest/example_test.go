package stinttest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// A chain's own test: does every layer stop when its caller's time is up?
func ExampleDelayMatrix() {
	orders := stinttest.Layer{Name: "orders", Handler: func(base http.RoundTripper, next string, work func(context.Context)) http.Handler {
		gate, err := stint.NewGate("orders", &stint.GateOptions{Trust: stint.TrustPeers})
		if err != nil {
			panic(err)
		}
		caller, err := stint.NewCaller("inventory", stint.Policy{}, nil)
		if err != nil {
			panic(err)
		}
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base, Peer: stinthttp.PeerStint}}
		return stinthttp.Handler(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			work(r.Context()) // where the service asks its database
			req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, next, nil)
			if err != nil {
				stinthttp.WriteError(w, r, err)
				return
			}
			resp, err := client.Do(req)
			if err == nil {
				defer resp.Body.Close()
				err = stinthttp.CheckStatus(resp)
			}
			if err != nil {
				stinthttp.WriteError(w, r, err)
			}
		}))
	}}
	inventory := stinttest.Layer{Name: "inventory", Handler: func(_ http.RoundTripper, _ string, work func(context.Context)) http.Handler {
		gate, err := stint.NewGate("inventory", &stint.GateOptions{Trust: stint.TrustPeers})
		if err != nil {
			panic(err)
		}
		return stinthttp.Handler(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { work(r.Context()) }))
	}}

	_ = func(t *testing.T) { // func TestDeadlines(t *testing.T)
		stinttest.DelayMatrix(t, []stinttest.Layer{orders, inventory}, 50*time.Millisecond, 200*time.Millisecond)
	}
}
