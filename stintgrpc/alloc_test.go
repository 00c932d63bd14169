//go:build !race

package stintgrpc_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// What the interceptors allocate themselves, without what grpc-go allocates on
// their account: bench/ has both.
func TestAllocInterceptors(t *testing.T) {
	atMost := func(what string, limit float64, call func() error) {
		t.Helper()
		n := testing.AllocsPerRun(1000, func() {
			if err := call(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		})
		if t.Logf("%s: %v allocations", what, n); n > limit {
			t.Errorf("%s: %v allocations, want at most %v", what, n, limit)
		}
	}
	caller := newCaller(t, "s", stint.Policy{Timeout: 2 * time.Second, Safety: stint.ReadOnly, Retry: stint.Retry{Attempts: 3}}, stint.CallerOptions{})
	client := stintgrpc.UnaryClientInterceptor(caller, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint})
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	ctx := t.Context()
	// The state, the breaker's settling, the options, and what says that grpc-go is done.
	atMost("a call", 4, func() error { return client(ctx, "/"+unaryCall, nil, nil, nil, invoke) })
	// And the caller's metadata: a copy for the key, one for what is sent, and that put together with ours.
	given := metadata.AppendToOutgoingContext(ctx, "x-mine", "1")
	atMost("a call with metadata", 16, func() error { return client(given, "/"+unaryCall, nil, nil, nil, invoke) })

	server := stintgrpc.UnaryServerInterceptor(newGate(t, "s", peers), nil)
	info := &grpc.UnaryServerInfo{FullMethod: "/" + unaryCall}
	handle := func(context.Context, any) (any, error) { return nil, nil }
	in := metadata.NewIncomingContext(ctx, metadata.Pairs("x-retry-owner", "shop", ":authority", "s", "content-type", "application/grpc"))
	atMost("a request", 1, func() error { _, err := server(in, nil, info, handle); return err })
}
