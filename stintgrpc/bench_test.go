package stintgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// A unary call over loopback, client and server in one process, with a deadline
// in both cases. Compare the two in one run.
func BenchmarkUnary(b *testing.B) {
	caller := newCaller(b, "s", stint.Policy{Timeout: 2 * time.Second, Retry: stint.Retry{Attempts: 3}}, stint.CallerOptions{})
	for _, side := range []struct {
		name string
		dial []grpc.DialOption
		opts []grpc.ServerOption
	}{
		{name: "plain"},
		{"stint", stintgrpc.DialOptions(caller, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
			stintgrpc.ServerOptions(newGate(b, "s", stint.GateOptions{Trust: stint.TrustPeers}), nil)},
	} {
		b.Run(side.name, func(b *testing.B) {
			srv := grpc.NewServer(side.opts...)
			testpb.RegisterTestServiceServer(srv, benchService{})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go srv.Serve(l)
			defer srv.Stop()
			conn, err := grpc.NewClient(l.Addr().String(), append(side.dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			client, in := testpb.NewTestServiceClient(conn), &testpb.SimpleRequest{}
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
				if _, err := client.UnaryCall(ctx, in); err != nil {
					b.Fatal(err)
				}
				cancel()
			}
		})
	}
}

type benchService struct {
	testpb.UnimplementedTestServiceServer
}

func (benchService) UnaryCall(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{}, nil
}
