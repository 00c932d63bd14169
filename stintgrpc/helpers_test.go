package stintgrpc_test

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// Methods of grpc's own test service, whose descriptors say nothing about safety.
const (
	unaryCall = "grpc.testing.TestService/UnaryCall"
	emptyCall = "grpc.testing.TestService/EmptyCall"
	upload    = "grpc.testing.TestService/StreamingInputCall"
	duplex    = "grpc.testing.TestService/FullDuplexCall"
)

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

func newGate(t testing.TB, name string, o stint.GateOptions) *stint.Gate {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	g, err := stint.NewGate(name, &o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// peers are gate options as the articles' chains have them.
var peers = stint.GateOptions{Trust: stint.TrustPeers, Reserve: stint.NoReserve}

// articlePolicy is the articles' retry, a millisecond between attempts, of calls
// that may be repeated.
func articlePolicy(attempts int, minUseful time.Duration) stint.Policy {
	return stint.Policy{MinUseful: minUseful, Safety: stint.ReadOnly, Retry: stint.Retry{Attempts: attempts, Base: time.Millisecond, Cap: time.Millisecond}}
}

// retries is a policy of several attempts at calls that must not be repeated.
func retries(attempts int) stint.Policy {
	return stint.Policy{Retry: stint.Retry{Attempts: attempts, Base: time.Millisecond, Cap: time.Millisecond}}
}

// service is grpc's test service made of functions, and counts the calls that
// reach a handler.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(ctx context.Context, n int, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	upload func(grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error
	duplex func(grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error

	mu   sync.Mutex
	seen []metadata.MD
	left []time.Duration
}

// Calls returns how many calls reached a handler.
func (s *service) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// Seen returns the metadata of the nth call, 0-based, and the time that it had.
func (s *service) Seen(n int) (metadata.MD, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[n], s.left[n]
}

func (s *service) arrive(ctx context.Context) (n int) {
	md, _ := metadata.FromIncomingContext(ctx)
	left, _ := stint.Remaining(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.left = append(s.seen, md), append(s.left, left)
	return len(s.seen)
}

func (s *service) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	n := s.arrive(ctx)
	if s.unary == nil {
		return &testpb.SimpleResponse{Username: "ok"}, nil
	}
	return s.unary(ctx, n, in)
}

func (s *service) StreamingInputCall(st grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	s.arrive(st.Context())
	return s.upload(st)
}

func (s *service) FullDuplexCall(st grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	s.arrive(st.Context())
	return s.duplex(st)
}

// answers makes a service whose unary calls always end with err.
func answers(err error) *service {
	return &service{unary: func(context.Context, int, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, err }}
}

// world is services on an in-memory network.
type world struct {
	t         testing.TB
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

func newWorld(t testing.TB) *world {
	return &world{t: t, listeners: make(map[string]*bufconn.Listener)}
}

// listen opens host on the network.
func (w *world) listen(host string) net.Listener {
	l := bufconn.Listen(1 << 16)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[host] = l
	return l
}

// serve runs a grpc server with s at host until the test ends.
func (w *world) serve(host string, s testpb.TestServiceServer, opts ...grpc.ServerOption) *grpc.Server {
	srv := grpc.NewServer(opts...)
	testpb.RegisterTestServiceServer(srv, s)
	l := w.listen(host)
	go srv.Serve(l)
	w.t.Cleanup(srv.Stop)
	return srv
}

func (w *world) dial(ctx context.Context, host string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[host]
	w.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Err: net.UnknownNetworkError("nobody listens at " + host)}
	}
	return l.DialContext(ctx)
}

// plain is a grpc client of host without stint.
func (w *world) plain(host string, opts ...grpc.DialOption) testpb.TestServiceClient {
	return testpb.NewTestServiceClient(w.connect("passthrough:///"+host, opts...))
}

func (w *world) connect(target string, opts ...grpc.DialOption) *grpc.ClientConn {
	opts = append([]grpc.DialOption{grpc.WithContextDialer(w.dial), grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// client calls host, a peer, under c.
func (w *world) client(host string, c *stint.Caller) testpb.TestServiceClient {
	return w.plain(host, stintgrpc.DialOptions(c, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint})...)
}

// call makes one unary call.
func call(ctx context.Context, c testpb.TestServiceClient) error {
	_, err := c.UnaryCall(ctx, &testpb.SimpleRequest{})
	return err
}

// bubbleGoroutines counts the goroutines of the synctest bubble once all of them
// wait: the runtime names the bubble in its dump.
func bubbleGoroutines() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "synctest bubble")
}
