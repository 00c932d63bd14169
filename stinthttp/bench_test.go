package stinthttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

var answer = []byte("a hundred bytes are enough to be a body, and not so many that reading it is what is measured......")

// A keep-alive GET of 100 bytes over loopback, client and server in one process.
// Compare the two in one run: ratios hold on a busy machine, nanoseconds do not.
func BenchmarkHop(b *testing.B) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(answer) })
	base := stinthttp.NewTransport(nil)
	defer base.CloseIdleConnections()
	caller := newCaller(b, "s", stint.Policy{Timeout: 2 * time.Second, Retry: stint.Retry{Attempts: 3}}, stint.CallerOptions{})
	for _, side := range []struct {
		name string
		rt   http.RoundTripper
		h    http.Handler
	}{
		{"plain", base, plain},
		{"stint", &stinthttp.Transport{Caller: caller, Base: base, Peer: stinthttp.PeerStint},
			stinthttp.Handler(newGate(b, "s", stint.GateOptions{Trust: stint.TrustPeers}), plain)},
	} {
		b.Run(side.name, func(b *testing.B) {
			srv := httptest.NewServer(side.h)
			defer srv.Close()
			client := &http.Client{Transport: side.rt}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Get(srv.URL)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
