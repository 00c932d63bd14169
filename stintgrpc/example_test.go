package stintgrpc_test

import (
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// A client of a service that keeps the contract, and round_robin, so that a copy
// goes to another replica.
func ExampleDialOptions() {
	pricing, err := stint.NewCaller("pricing", stint.Policy{
		Retry: stint.Retry{Attempts: 3},
		Operations: map[string]stint.Policy{
			"shop.Price/Quote": {Safety: stint.ReadOnly, Retry: stint.Retry{Attempts: 2}, Hedge: stint.Hedge{Copies: 1}},
		},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("dns:///pricing:443", append(
		stintgrpc.DialOptions(pricing, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
	)...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
}

// A server whose calls pass through a Gate, and one method that lasts.
func ExampleServerOptions() {
	gate, err := stint.NewGate("pricing", &stint.GateOptions{Trust: stint.TrustPeers})
	if err != nil {
		log.Fatal(err)
	}
	srv := grpc.NewServer(stintgrpc.ServerOptions(gate, &stintgrpc.MethodOptions{
		LongRunning: func(fullMethod string) bool { return fullMethod == "/shop.Price/Watch" },
	})...)
	defer srv.GracefulStop()
}
