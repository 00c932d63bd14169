package integration

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
)

// rpc is grpc's own test service, with UnaryCall made of a function. Its methods
// may be called at the same time.
type rpc struct {
	testpb.UnimplementedTestServiceServer
	// answer answers the nth call, 1-based. Nil: all is well.
	answer func(ctx context.Context, n int) error

	mu    sync.Mutex
	calls []rpcCall
}

// An rpcCall is a call that reached the handler.
type rpcCall struct {
	at   time.Time
	left time.Duration // zero: it has no deadline
	hop  stint.Hop
	md   metadata.MD
}

func (s *rpc) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	c := rpcCall{at: time.Now(), hop: stint.HopFromContext(ctx)}
	c.left, _ = stint.Remaining(ctx)
	c.md, _ = metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	s.calls = append(s.calls, c)
	n := len(s.calls)
	s.mu.Unlock()
	if s.answer != nil {
		if err := s.answer(ctx, n); err != nil {
			return nil, err
		}
	}
	return &testpb.SimpleResponse{Username: "ok"}, nil
}

// Calls returns the calls so far.
func (s *rpc) Calls() []rpcCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[:len(s.calls):len(s.calls)]
}

// serve runs a grpc server with s on l until the test ends.
func (s *rpc) serve(t testing.TB, l net.Listener, opts ...grpc.ServerOption) {
	srv := grpc.NewServer(opts...)
	testpb.RegisterTestServiceServer(srv, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
}

// serveTCP is serve on a port of its own.
func (s *rpc) serveTCP(t testing.TB, opts ...grpc.ServerOption) (addr string) {
	t.Helper()
	l := testenv.Listen(t)
	s.serve(t, l, opts...)
	return l.Addr().String()
}

// rpcClient is a grpc client of target; with no options, one without stint.
func rpcClient(t testing.TB, target string, opts ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testpb.NewTestServiceClient(conn)
}

func newCaller(t testing.TB, name string, p stint.Policy, o stint.CallerOptions) *stint.Caller {
	t.Helper()
	if o.Rand == nil {
		o.Rand = func() float64 { return 1 }
	}
	c, err := stint.NewCaller(name, p, &o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// upTo is a policy of so many attempts at calls that may be repeated, a
// millisecond apart.
func upTo(n int) stint.Policy {
	return stint.Policy{Safety: stint.ReadOnly, Retry: stint.Retry{Attempts: n, Base: time.Millisecond, Cap: time.Millisecond}}
}
