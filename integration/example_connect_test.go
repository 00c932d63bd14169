package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinthttp"
)

type (
	request  = testpb.SimpleRequest
	response = testpb.SimpleResponse
)

const getStock = "/shop.Stock/Get"

// readOnly is what generated code says for a method without side effects. It makes
// the client send GET, which HTTP's rules let a Caller repeat.
var readOnly = connect.WithIdempotency(connect.IdempotencyNoSideEffects)

func connectClient(c *stint.Caller, url string) *connect.Client[request, response] {
	return connect.NewClient[request, response](stinthttp.NewClient(c, stinthttp.PeerStint), url+getStock, readOnly, connect.WithHTTPGet())
}

func connectServer(g *stint.Gate, get func(context.Context) error) *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle(getStock, connect.NewUnaryHandler(getStock, func(ctx context.Context, _ *connect.Request[request]) (*connect.Response[response], error) {
		if err := get(ctx); err != nil {
			return nil, err
		}
		return connect.NewResponse(&response{}), nil
	}, readOnly))
	return httptest.NewServer(stinthttp.Handler(g, mux))
}

// The two have the same codes, but neither reads the other's errors: without
// these, what a dependency said becomes "unknown", which nobody repeats.
func toConnect(err error) error {
	if err == nil {
		return nil
	}
	return connect.NewError(connect.Code(status.Code(err)), errors.New("stock does not answer"))
}

func toGRPC(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Code(connect.CodeOf(err)), "warehouse does not answer")
}

// middle is the gRPC service between the two of connect-go.
type middle struct {
	testpb.UnimplementedTestServiceServer
	next *connect.Client[request, response]
}

func (m middle) UnaryCall(ctx context.Context, _ *request) (*response, error) {
	_, err := m.next.CallUnary(ctx, connect.NewRequest(&request{}))
	return &response{}, toGRPC(err)
}

// connect-go needs nothing of its own: a shop calls stock with it, stock calls
// its storage over gRPC, and storage a warehouse with connect-go again. There is
// one deadline, and one owner of the retries: each may try three times, and
// the warehouse sees three requests, not 27.
func Example_connect() {
	gate := func(service string) *stint.Gate {
		g, err := stint.NewGate(service, &stint.GateOptions{Trust: stint.TrustPeers, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			panic(err)
		}
		return g
	}
	caller := func(service, dependency string) *stint.Caller {
		c, err := stint.NewCaller(dependency, stint.Policy{
			Timeout: 5 * time.Second,
			Safety:  stint.ReadOnly, // of the gRPC method, whose descriptor says nothing
			Retry:   stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond},
		}, &stint.CallerOptions{Service: service})
		if err != nil {
			panic(err)
		}
		return c
	}

	// The warehouse is overloaded, and sees who repeats and what is left of the time.
	requests := 0
	last := 5 * time.Second
	warehouse := connectServer(gate("warehouse"), func(ctx context.Context) error {
		requests++
		left, _ := stint.Remaining(ctx)
		fmt.Println("warehouse: owner", stint.HopFromContext(ctx).Owner, "- less time than before:", left < last)
		last = left
		return connect.NewError(connect.CodeUnavailable, errors.New("busy"))
	})
	defer warehouse.Close()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	storage := grpc.NewServer(stintgrpc.ServerOptions(gate("storage"), nil)...)
	testpb.RegisterTestServiceServer(storage, middle{next: connectClient(caller("storage", "warehouse"), warehouse.URL)})
	go storage.Serve(l)
	defer storage.Stop()

	conn, err := grpc.NewClient(l.Addr().String(), append(
		stintgrpc.DialOptions(caller("stock", "storage"), &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	stock := connectServer(gate("stock"), func(ctx context.Context) error {
		_, err := testpb.NewTestServiceClient(conn).UnaryCall(ctx, &request{})
		return toConnect(err)
	})
	defer stock.Close()

	_, err = connectClient(caller("shop", "stock"), stock.URL).CallUnary(context.Background(), connect.NewRequest(&request{}))
	fmt.Println("shop:", connect.CodeOf(err), "after", requests, "requests")
	// Output:
	// warehouse: owner shop - less time than before: true
	// warehouse: owner shop - less time than before: true
	// warehouse: owner shop - less time than before: true
	// shop: unavailable after 3 requests
}
