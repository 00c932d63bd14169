package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

// mixed is a chain in virtual time: a client calls A over HTTP, A calls B over
// gRPC, B calls C over HTTP. A and B each work for a while before they call.
type mixed struct {
	edge *http.Client
	b    *rpc
	c    *stinttest.Dependency
}

func newMixed(t *testing.T, work, cLatency time.Duration, edge, a, b stint.Policy) *mixed {
	network := stinttest.NewNetwork()
	over := func(service, to string, p stint.Policy) *http.Client {
		return &http.Client{Transport: &stinthttp.Transport{Base: network.Transport(t), Peer: stinthttp.PeerStint,
			Caller: newCaller(t, to, p, stint.CallerOptions{Service: service})}}
	}
	m := &mixed{c: stinttest.NewDependency(stinttest.Step{Latency: cLatency, Status: http.StatusServiceUnavailable})}
	network.Serve(t, "c", stinthttp.Handler(gate(t, "c", stint.GateOptions{Reserve: stint.NoReserve}), m.c))

	toC := over("b", "c", b)
	m.b = &rpc{answer: func(ctx context.Context, _ int) error {
		time.Sleep(work) // virtual
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://c", nil)
		if err != nil {
			return err
		}
		resp, err := toC.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return stinthttp.CheckStatus(resp)
	}}
	l, err := network.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	m.b.serve(t, l, stintgrpc.ServerOptions(gate(t, "b", stint.GateOptions{Reserve: stint.NoReserve}), nil)...)

	toB := rpcClient(t, "passthrough:///b", append(
		stintgrpc.DialOptions(newCaller(t, "b", a, stint.CallerOptions{Service: "a"}), &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return network.DialContext(ctx, "tcp", addr) }))...)
	network.Serve(t, "a", stinthttp.Handler(gate(t, "a", stint.GateOptions{Reserve: stint.NoReserve}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(work)
		if _, err := toB.UnaryCall(r.Context(), &testpb.SimpleRequest{}); err != nil {
			stinthttp.WriteError(w, r, err)
		}
	})))
	m.edge = over("edge", "a", edge)
	return m
}

// call makes a call of A with so much time, and returns the status; zero: none.
func (m *mixed) call(t *testing.T, timeout time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := m.edge.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Across HTTP, gRPC and HTTP again one layer repeats, whichever can.
func TestMixedChainHasOneOwner(t *testing.T) {
	for _, c := range []struct {
		edge, a, b int
		want       int
		owner      string
	}{
		{1, 1, 1, 1, ""},
		{1, 1, 3, 3, "b"},
		{1, 3, 3, 3, "a"},
		{3, 3, 3, 3, "edge"},
	} {
		t.Run(fmt.Sprintf("%dx%dx%d", c.edge, c.a, c.b), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMixed(t, 0, 0, upTo(c.edge), upTo(c.a), upTo(c.b))
				status := m.call(t, time.Second)
				if status != http.StatusBadGateway || m.c.Count() != c.want {
					t.Errorf("%d requests at C, status %d; want %d and 502", m.c.Count(), status, c.want)
				}
				if got := headers(m.c, "X-Retry-Owner"); !slices.Equal(got, slices.Repeat([]string{c.owner}, c.want)) {
					t.Errorf("C saw the owners %q, want %q", got, c.owner)
				}
			})
		})
	}
}

// One deadline shrinks from hop to hop, by what each of them took.
func TestMixedChainHasOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMixed(t, 30*time.Millisecond, 0, upTo(1), upTo(1), upTo(1))
		m.call(t, 300*time.Millisecond)
		if left := m.b.Calls()[0].left; left != 270*time.Millisecond {
			t.Errorf("B had %v, want 270ms", left)
		}
		if got := headers(m.c, "X-Deadline-Ms"); !slices.Equal(got, []string{"240"}) {
			t.Errorf("C was told %q, want 240", got)
		}
	})
}

// Two attempts fit into 300 ms where C takes 120 and each layer asks for 130.
func TestMixedChainDeadlineCutsTheThirdAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := upTo(3)
		p.MinUseful = 130 * time.Millisecond
		m := newMixed(t, 0, 120*time.Millisecond, stint.Policy{}, p, p)
		start := time.Now()
		status := m.call(t, 300*time.Millisecond)
		// 120 ms, a wait of 1 ms, 120 ms; then 59 ms are left, below the guard.
		if took := time.Since(start); m.c.Count() != 2 || took != 241*time.Millisecond || status != http.StatusGatewayTimeout {
			t.Errorf("%d requests at C, status %d after %v; want 2, 504 and 241ms", m.c.Count(), status, took)
		}
		if got := headers(m.c, "X-Deadline-Ms"); !slices.Equal(got, []string{"300", "179"}) {
			t.Errorf("C was told %q, want 300 and 179", got)
		}
	})
}
