package stintgrpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// A copy goes to the next server under round_robin; its answer is whole, and the
// loser writes nothing of the caller's.
func TestHedgeGoesElsewhere(t *testing.T) {
	for _, balancer := range []string{"round_robin", "pick_first"} {
		t.Run(balancer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var mu sync.Mutex
				served := map[string]int{}
				serve := func(host string) {
					w.serve(host, &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
						mu.Lock()
						served[host]++
						first := served["s1"]+served["s2"] == 1
						mu.Unlock()
						if first { // whoever is asked first is slow, and does not notice that nobody waits
							time.Sleep(time.Second) // virtual
						}
						grpc.SetHeader(ctx, metadata.Pairs("from", host))
						grpc.SetTrailer(ctx, metadata.Pairs("from", host))
						return &testpb.SimpleResponse{Username: host}, nil
					}})
				}
				serve("s1")
				serve("s2")
				r := manual.NewBuilderWithScheme("test")
				r.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: "s1"}, {Addr: "s2"}}})
				p := articlePolicy(1, 0)
				p.Hedge = stint.Hedge{Copies: 1, Delay: 10 * time.Millisecond}
				var rec stinttest.Recorder
				c := newCaller(t, "s", p, stint.CallerOptions{Observer: &rec})
				client := testpb.NewTestServiceClient(w.connect("test:///s", append(stintgrpc.DialOptions(c, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
					grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[{%q:{}}]}`, balancer)))...))
				time.Sleep(100 * time.Millisecond) // virtual
				client.EmptyCall(t.Context(), &testpb.Empty{})
				time.Sleep(100 * time.Millisecond) // virtual: both are connected
				var header, trailer metadata.MD
				var from peer.Peer
				in := &testpb.SimpleRequest{}
				start := time.Now()
				out, err := client.UnaryCall(t.Context(), in, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
				took := time.Since(start)
				in.FillUsername = true // the loser may still be reading its own
				if err != nil || took != 10*time.Millisecond {
					t.Fatalf("%v, %v after %v; want the copy's answer after 10ms", out, err, took)
				}
				if host := out.GetUsername(); only(header, "from") != host || only(trailer, "from") != host || from.Addr == nil {
					t.Errorf("answer of %q with %v, %v, %v", host, header, trailer, from)
				}
				elsewhere := served["s1"] == 1 && served["s2"] == 1
				if elsewhere != (balancer == "round_robin") || served["s1"]+served["s2"] != 2 {
					t.Errorf("served %v", served)
				}
				time.Sleep(2 * time.Second) // virtual: the slow one comes back
				if e := rec.Events(stint.WorkWasted); len(e) != 1 || e[0].Outcome.Code != "hedge_lost" {
					t.Errorf("wasted %+v, want the loser's", e)
				}
			})
		})
	}
}

// Two copies of a stream's start: the loser is ended.
func TestHedgedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{duplex: echo}
		w.serve("s", s)
		p := articlePolicy(1, 0)
		p.Bulkhead, p.Hedge = 2, stint.Hedge{Copies: 1, Delay: time.Millisecond}
		slow := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if md, _ := metadata.FromOutgoingContext(ctx); md["x-attempt"] == nil {
				time.Sleep(time.Second) // virtual
			}
			return next(ctx, desc, cc, method, opts...)
		}
		c := newCaller(t, "s", p, stint.CallerOptions{})
		client := w.plain("s", append(stintgrpc.DialOptions(c, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}), grpc.WithChainStreamInterceptor(slow))...)
		for range 3 { // three would not fit if a slot were lost
			start := time.Now()
			st, err := client.FullDuplexCall(t.Context())
			if took := time.Since(start); err != nil || took != time.Millisecond {
				t.Fatalf("%v after %v, want the copy's stream", err, took)
			}
			st.Send(&testpb.StreamingOutputCallRequest{})
			if _, err = st.Recv(); err != nil {
				t.Error(err)
			}
			st.CloseSend()
			for err == nil {
				_, err = st.Recv()
			}
			time.Sleep(2 * time.Second) // virtual
		}
	})
}
