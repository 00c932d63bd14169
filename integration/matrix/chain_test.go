package matrix

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// patience bounds a test that hangs; nothing is measured with it.
const patience = 20 * time.Second

// A chain is an edge that calls a service, which does some work of its own and then
// asks its stores, one after the other.
type chain struct {
	url           string
	edge, service layer
	stores        []*store
}

// A layer is a handler's own work.
type layer struct {
	delay    atomic.Int64 // what it takes
	deaf     atomic.Bool  // it does not pass on its context
	entered  atomic.Int64 // so often
	handlers atomic.Int64 // at work now
}

// context is what the layer gives to all that it does.
func (l *layer) context(ctx context.Context) context.Context {
	if l.deaf.Load() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// work takes the layer's delay, or as long as ctx allows.
func (l *layer) work(ctx context.Context) error {
	l.entered.Add(1)
	timer := time.NewTimer(time.Duration(l.delay.Load()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A store is what stands behind the service.
type store struct {
	name  string
	delay atomic.Int64   // of its work
	proxy *testenv.Proxy // the network before it; nil: there is none
	// ask has it do work that takes so long.
	ask func(ctx context.Context, takes time.Duration) error
	// running is how much of it works for the service. Of a store that can't be
	// stopped it is nothing.
	running func() int
	// held is how many connections of the service's pool are in use.
	held func() int
	rec  stinttest.Recorder
}

// caller is the Caller of the service for this store. It has no breaker, as nothing but
// failures is wanted here.
func (s *store) caller(t *testing.T) *stint.Caller { return caller(t, "service", s.name, &s.rec) }

func caller(t *testing.T, service, dependency string, o stint.Observer) *stint.Caller {
	t.Helper()
	c, err := stint.NewCaller(dependency, stint.Policy{Timeout: time.Second, Breaker: stint.Breaker{Off: true}},
		&stint.CallerOptions{Service: service, Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func gate(t *testing.T, name string, trust stint.Trust) *stint.Gate {
	t.Helper()
	g, err := stint.NewGate(name, &stint.GateOptions{Trust: trust, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A hop connects the edge with the service: it serves the handler, and returns what
// calls it.
type hop struct {
	name    string
	connect func(t *testing.T, handler func(context.Context) error) (call func(context.Context) error)
}

var hops = []hop{{"HTTP", overHTTP}, {"gRPC", overGRPC}}

func newChain(t *testing.T, h hop, stores ...*store) *chain {
	t.Helper()
	c := &chain{stores: stores}
	call := h.connect(t, c.serve)
	c.url = serve(t, gate(t, "edge", stint.TrustDeadlineOnly), func(ctx context.Context) error {
		c.edge.handlers.Add(1)
		defer c.edge.handlers.Add(-1)
		ctx = c.edge.context(ctx)
		if err := c.edge.work(ctx); err != nil {
			return err
		}
		return call(ctx)
	})
	return c
}

// serve is the service's handler.
func (c *chain) serve(ctx context.Context) error {
	c.service.handlers.Add(1)
	defer c.service.handlers.Add(-1)
	ctx = c.service.context(ctx)
	if err := c.service.work(ctx); err != nil {
		return err
	}
	for _, s := range c.stores {
		if err := s.ask(ctx, time.Duration(s.delay.Load())); err != nil {
			return err
		}
	}
	return nil
}

// serve serves a handler over HTTP, behind g, until the test ends.
func serve(t *testing.T, g *stint.Gate, handler func(context.Context) error) (url string) {
	t.Helper()
	l := testenv.Listen(t)
	s := stinthttp.NewServer("", g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := handler(r.Context()); err != nil {
			stinthttp.WriteError(w, r, err)
		}
	}), nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

func overHTTP(t *testing.T, handler func(context.Context) error) func(context.Context) error {
	url := serve(t, gate(t, "service", stint.TrustPeers), handler)
	client := stinthttp.NewClient(caller(t, "edge", "service", nil), stinthttp.PeerStint)
	t.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return stinthttp.CheckStatus(resp)
	}
}

// rpc is grpc's own test service, with UnaryCall made of a function.
type rpc struct {
	testpb.UnimplementedTestServiceServer
	handler func(context.Context) error
}

func (s rpc) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{}, s.handler(ctx)
}

func overGRPC(t *testing.T, handler func(context.Context) error) func(context.Context) error {
	l := testenv.Listen(t)
	s := grpc.NewServer(stintgrpc.ServerOptions(gate(t, "service", stint.TrustPeers), nil)...)
	testpb.RegisterTestServiceServer(s, rpc{handler: handler})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	conn, err := grpc.NewClient(l.Addr().String(), append(
		stintgrpc.DialOptions(caller(t, "edge", "service", nil), &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := testpb.NewTestServiceClient(conn)
	return func(ctx context.Context) error {
		_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{})
		return err
	}
}

// get makes a request as a stranger does who can wait so long, and says so.
func (c *chain) get(t *testing.T, deadline time.Duration) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Deadline-Ms", strconv.FormatInt(deadline.Milliseconds(), 10))
	client := http.Client{Timeout: patience}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// running is how much works for requests, nobody waiting for them or not.
func (c *chain) running() (n int) {
	n = int(c.edge.handlers.Load() + c.service.handlers.Load())
	for _, s := range c.stores {
		n += s.running()
	}
	return n
}

// held is how many connections to stores are in use.
func (c *chain) held() (n int) {
	for _, s := range c.stores {
		n += s.held()
	}
	return n
}
