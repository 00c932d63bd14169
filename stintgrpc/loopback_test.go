package stintgrpc_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// The chain of three over real connections, in real time: only counts.
func TestOneOwnerOverLoopback(t *testing.T) {
	serve := func(s testpb.TestServiceServer, opts ...grpc.ServerOption) (addr string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := grpc.NewServer(opts...)
		testpb.RegisterTestServiceServer(srv, s)
		go srv.Serve(l)
		t.Cleanup(srv.Stop)
		return l.Addr().String()
	}
	client := func(addr string, p stint.Policy) testpb.TestServiceClient {
		conn, err := grpc.NewClient(addr, append(stintgrpc.DialOptions(newCaller(t, "next", p, stint.CallerOptions{}), &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return testpb.NewTestServiceClient(conn)
	}
	leaf := answers(unavailable)
	addr := serve(leaf)
	for _, host := range []string{"b", "a"} {
		next := client(addr, articlePolicy(3, 0))
		addr = serve(&service{unary: func(ctx context.Context, _ int, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return next.UnaryCall(ctx, in)
		}}, stintgrpc.ServerOptions(newGate(t, host, peers), nil)...)
	}
	if err := call(t.Context(), client(addr, stint.Policy{})); leaf.Calls() != 3 || status.Code(err) != codes.Unavailable {
		t.Errorf("%d requests at C, %v; want 3 and UNAVAILABLE", leaf.Calls(), err)
	}
}
