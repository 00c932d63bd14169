package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinthttp"
)

// gatewayMux is a grpc-gateway for GET and POST /call. The handler is what
// protoc-gen-grpc-gateway writes.
func gatewayMux(t *testing.T, client testpb.TestServiceClient, opts ...runtime.ServeMuxOption) *runtime.ServeMux {
	mux := runtime.NewServeMux(opts...)
	call := func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		_, outbound := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(ctx, mux, r, "/grpc.testing.TestService/UnaryCall", runtime.WithHTTPPathPattern("/call"))
		if err != nil {
			runtime.HTTPError(ctx, mux, outbound, w, r, err)
			return
		}
		var md runtime.ServerMetadata
		resp, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, outbound, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, outbound, w, r, resp)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if err := mux.HandlePath(method, "/call", call); err != nil {
			t.Fatal(err)
		}
	}
	return mux
}

// A gatewayKind is how a grpc-gateway stands in the path.
type gatewayKind int

const (
	foreign    gatewayKind = iota // as its documentation has it, nothing of ours
	behindGate                    // the same behind a Handler
	layer                         // a layer that keeps the contract: Handler, DialOptions, WriteError
)

func (k gatewayKind) String() string { return [...]string{"foreign", "behind a gate", "a layer"}[k] }

// start starts a gateway in front of the server at addr. Its own calls may be
// repeated where nobody else does.
func (k gatewayKind) start(t *testing.T, addr string) (gateway string) {
	t.Helper()
	target := "passthrough:///" + addr
	var h http.Handler
	switch k {
	case layer:
		client := rpcClient(t, target, stintgrpc.DialOptions(newCaller(t, "s", upTo(3), stint.CallerOptions{Service: "gateway"}),
			&stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint})...)
		h = gatewayMux(t, client, runtime.WithErrorHandler(
			func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
				stinthttp.WriteError(w, r, err)
			}))
	default:
		h = gatewayMux(t, rpcClient(t, target))
	}
	if k != foreign {
		h = stinthttp.Handler(gate(t, "gateway", stint.GateOptions{MaxTimeout: time.Minute}), h)
	}
	return testenv.StartLeaf(t, h).Addr
}

// The deadline arrives behind a grpc-gateway if the gateway is told it in the
// one form that it reads, or stands behind a Gate.
func TestGatewayDeadline(t *testing.T) {
	const told, most = 40 * time.Second, time.Minute
	for _, c := range []struct {
		kind    gatewayKind
		also    []string
		arrives bool
	}{
		{foreign, nil, false},
		{foreign, []string{"grpc-timeout"}, true},
		{behindGate, nil, true},
		{behindGate, []string{"grpc-timeout"}, true},
		{layer, nil, true},
	} {
		t.Run(fmt.Sprint(c.kind, c.also), func(t *testing.T) {
			t.Parallel()
			s := &rpc{}
			addr := s.serveTCP(t, stintgrpc.ServerOptions(gate(t, "s", stint.GateOptions{DefaultTimeout: most, MaxTimeout: most}), nil)...)
			cl := http1.client(t, c.kind.start(t, addr), stint.Policy{Timeout: told}, stinthttp.PeerStint)
			cl.Transport.(*stinthttp.Transport).AlsoWrite = c.also
			cl.url += "/call"
			if a := cl.get(t.Context()); a.status != http.StatusOK || len(s.Calls()) != 1 {
				t.Fatalf("%d calls, %+v", len(s.Calls()), a)
			}
			if left := s.Calls()[0].left; left <= 0 || (left <= told) != c.arrives {
				t.Errorf("the server had %v; want at most %v: %t", left, told, c.arrives)
			}
		})
	}
}

// What a server's status becomes, and how often it is called by a client of
// three attempts: behind a gateway that is no layer of ours only the status
// comes through, behind one that is, also what was said with it.
func TestGatewayStatus(t *testing.T) {
	withInfo := func(c codes.Code, wait time.Duration) error {
		st, err := status.New(c, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, c := range []struct {
		name    string
		err     error
		never   bool // and its trailer says that nobody is to try again
		post    bool
		foreign int // the status behind one that is no layer of ours
		calls   int
		layer   int // and behind one that is
		reach   int
	}{
		{name: "OK", foreign: 200, calls: 1, layer: 200, reach: 1},
		{name: "UNAVAILABLE", err: status.Error(codes.Unavailable, "no"), foreign: 503, calls: 3, layer: 502, reach: 3},
		{name: "UNAVAILABLE to a POST", err: status.Error(codes.Unavailable, "no"), post: true, foreign: 503, calls: 1, layer: 502, reach: 3}, // the layer's method is safe
		{name: "UNAVAILABLE, never", err: status.Error(codes.Unavailable, "no"), never: true, foreign: 503, calls: 3, layer: 502, reach: 1},
		{name: "RESOURCE_EXHAUSTED", err: status.Error(codes.ResourceExhausted, "no"), foreign: 429, calls: 1, layer: 503, reach: 1}, // the layer's own quota
		{name: "RESOURCE_EXHAUSTED with a time", err: withInfo(codes.ResourceExhausted, time.Millisecond), foreign: 429, calls: 1, layer: 503, reach: 3},
		{name: "DEADLINE_EXCEEDED of its own", err: status.Error(codes.DeadlineExceeded, "no"), foreign: 504, calls: 3, layer: 504, reach: 1},
		{name: "INTERNAL", err: status.Error(codes.Internal, "no"), foreign: 500, calls: 1, layer: 502, reach: 1},
		{name: "NOT_FOUND", err: status.Error(codes.NotFound, "no"), foreign: 404, calls: 1, layer: 502, reach: 1},
		{name: "INVALID_ARGUMENT", err: status.Error(codes.InvalidArgument, "no"), foreign: 400, calls: 1, layer: 502, reach: 1},
	} {
		for kind, want := range map[gatewayKind][2]int{foreign: {c.foreign, c.calls}, layer: {c.layer, c.reach}} {
			t.Run(fmt.Sprint(c.name, " ", kind), func(t *testing.T) {
				t.Parallel()
				s := &rpc{answer: func(ctx context.Context, _ int) error {
					if c.never {
						grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "-1"))
					}
					return c.err
				}}
				addr := s.serveTCP(t, stintgrpc.ServerOptions(gate(t, "s", stint.GateOptions{}), nil)...)
				cl := http1.client(t, kind.start(t, addr), retrying(), stinthttp.PeerStint)
				cl.url += "/call"
				method := http.MethodGet
				if c.post {
					method = http.MethodPost
				}
				a := cl.do(t.Context(), method, "", "")
				if a.err != nil || a.status != want[0] || len(s.Calls()) != want[1] {
					t.Errorf("status %d after %d calls of the server, error %v; want %d after %d", a.status, len(s.Calls()), a.err, want[0], want[1])
				}
			})
		}
	}
}

// A refusal behind a gateway is no proof to anybody in front of it, and its time
// comes through a layer of ours.
func TestGatewayRefusal(t *testing.T) {
	for _, kind := range []gatewayKind{foreign, layer} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			g := gate(t, "s", stint.GateOptions{})
			g.Drain()
			s := &rpc{}
			cl := http1.client(t, kind.start(t, s.serveTCP(t, stintgrpc.ServerOptions(g, nil)...)), stint.Policy{}, stinthttp.PeerStint)
			cl.url += "/call"
			a := cl.do(t.Context(), http.MethodPost, "", "")
			want, wait := map[gatewayKind]int{foreign: 503, layer: 502}[kind], a.header.Get("Retry-After-Ms")
			if a.status != want || a.header["X-Not-Started"] != nil || (wait != "") != (kind == layer) || len(s.Calls()) != 0 {
				t.Errorf("%+v, and %d calls; want %d, no X-Not-Started, and Retry-After-Ms from a layer of ours only", a, len(s.Calls()), want)
			}
		})
	}
}

// Through a gateway that is a layer the path has one owner, which the server sees.
func TestGatewayKeepsTheOwner(t *testing.T) {
	s := &rpc{answer: func(context.Context, int) error { return status.Error(codes.Unavailable, "no") }}
	addr := s.serveTCP(t, stintgrpc.ServerOptions(gate(t, "s", stint.GateOptions{}), nil)...)
	cl := http1.client(t, layer.start(t, addr), retrying(), stinthttp.PeerStint)
	cl.url += "/call"
	cl.get(t.Context())
	calls := s.Calls()
	if len(calls) != 3 {
		t.Fatalf("%d calls, want 3", len(calls))
	}
	for i, c := range calls {
		if c.hop.Owner == "" || c.hop.Owner == "gateway" || c.hop.Attempt > 1 {
			t.Errorf("call %d: owner %q, attempt %d; want the client, and each time the gateway's first", i+1, c.hop.Owner, c.hop.Attempt)
		}
	}
}
