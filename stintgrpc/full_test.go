package stintgrpc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// A peer that is full is well: its refusals open no breaker, which would leave it
// idle. The word of others is not believed.
func TestFullOpensNoBreaker(t *testing.T) {
	for peer, want := range map[stintgrpc.Peer]int{stintgrpc.PeerStint: 40, stintgrpc.PeerExternal: 20} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				return nil, errors.Join(grpc.SetTrailer(ctx, metadata.Pairs("x-not-started", "full", "grpc-retry-pushback-ms", "-1")), unavailable)
			}}
			w.serve("s", s)
			client := w.plain("s", stintgrpc.DialOptions(newCaller(t, "s", stint.Policy{}, stint.CallerOptions{}), &stintgrpc.ClientOptions{Peer: peer})...)
			for range 40 {
				call(t.Context(), client)
			}
			if s.Calls() != want {
				t.Errorf("peer %v: %d of 40 calls were sent, want %d", peer, s.Calls(), want)
			}
		})
	}
}
