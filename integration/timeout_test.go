package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
)

// A handler that did not look at its context while its time ran out learns so
// when it does look, and not that its caller has left. The Gate has answered in
// its place meanwhile, and ended the reading of the request.
func TestTimeThatRanOutIsNoCancel(t *testing.T) {
	eachVersion(t, func(t *testing.T, w way) {
		connection := make(chan context.Context, 1)
		ended := make(chan error, 1)
		g := gate(t, "leaf", stint.GateOptions{MaxTimeout: 200 * time.Millisecond})
		h := stinthttp.Handler(g, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-(<-connection).Done() // net/http reads no more
			ended <- r.Context().Err()
		}))
		l := testenv.StartLeaf(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			connection <- r.Context()
			h.ServeHTTP(rw, r)
		}))
		n := w.nginx(t, "", "", l.Addr)
		cl := w.client(t, n.Addr, stint.Policy{}, stinthttp.PeerStint)
		cl.want(t, cl.get(t.Context()), http.StatusGatewayTimeout, stint.AttemptsSpent, "504")
		if err := await(t, "the handler", ended); err != context.DeadlineExceeded {
			t.Errorf("the handler's context: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
