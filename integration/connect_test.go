package integration

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

const procedure = "/grpc.testing.TestService/UnaryCall"

// connectClient is a client of connect-go over c.
func connectClient(c *http.Client, addr string, opts ...connect.ClientOption) *connect.Client[testpb.SimpleRequest, testpb.SimpleResponse] {
	return connect.NewClient[testpb.SimpleRequest, testpb.SimpleResponse](c, "http://"+addr+procedure, opts...)
}

// connectHandler answers with what answer returns.
func connectHandler(answer func(ctx context.Context, header http.Header) error) http.Handler {
	return connect.NewUnaryHandler(procedure,
		func(ctx context.Context, r *connect.Request[testpb.SimpleRequest]) (*connect.Response[testpb.SimpleResponse], error) {
			if err := answer(ctx, r.Header()); err != nil {
				return nil, err
			}
			return connect.NewResponse(&testpb.SimpleResponse{Username: r.Msg.GetResponseStatus().GetMessage()}), nil
		}, connect.WithIdempotency(connect.IdempotencyNoSideEffects))
}

// connectRequest says something that the handler repeats.
func connectRequest() *connect.Request[testpb.SimpleRequest] {
	return connect.NewRequest(&testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Message: "ok"}})
}

// The deadline of connect-go arrives, with or without stint on either side, and a
// Caller lowers what connect-go has written.
func TestConnectDeadline(t *testing.T) {
	const long, short = 50 * time.Second, 40 * time.Second
	for _, c := range []struct {
		name   string
		client bool // ours, which allows a call less than its context does
		server bool // ours
		most   time.Duration
	}{
		{"plain both", false, false, long},
		{"plain client", false, true, long},
		{"plain server", true, false, short},
		{"ours both", true, true, short},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var left time.Duration
			var told http.Header
			h := connectHandler(func(ctx context.Context, header http.Header) error {
				left, _ = stint.Remaining(ctx)
				told = header
				return nil
			})
			if c.server {
				h = stinthttp.Handler(gate(t, "leaf", stint.GateOptions{DefaultTimeout: time.Minute, MaxTimeout: time.Minute}), h)
			}
			leaf := testenv.StartLeaf(t, h)
			hc := http1.client(t, leaf.Addr, stint.Policy{Timeout: short}, stinthttp.PeerStint).Client
			if !c.client {
				hc = &http.Client{Transport: new(http.Transport)}
				t.Cleanup(hc.CloseIdleConnections)
			}
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			resp, err := connectClient(hc, leaf.Addr).CallUnary(ctx, connectRequest())
			if err != nil || resp.Msg.Username != "ok" {
				t.Fatalf("%v, %v", resp, err)
			}
			ms, err := strconv.Atoi(told.Get("Connect-Timeout-Ms"))
			if said := time.Duration(ms) * time.Millisecond; err != nil || said > c.most || said <= 0 || left > said || left <= 0 {
				t.Errorf("told %v (%v), and the handler had %v; want at most %v, and no more than was told", said, err, left, c.most)
			}
			if got := told.Get("X-Deadline-Ms") != ""; got != c.client {
				t.Errorf("X-Deadline-Ms was told: %t, want %t", got, c.client)
			}
		})
	}
}

// What is repeated is what HTTP says of the request: a method without side
// effects as GET, any other with a key. The code is the last answer's.
func TestConnectRetries(t *testing.T) {
	fails := func(code connect.Code) func(context.Context, http.Header) error {
		return func(context.Context, http.Header) error { return connect.NewError(code, errors.New("no")) }
	}
	readOnly := []connect.ClientOption{connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithHTTPGet()}
	for _, c := range []struct {
		name   string
		code   connect.Code
		opts   []connect.ClientOption
		key    string
		want   int
		method string
	}{
		{"unavailable, GET", connect.CodeUnavailable, readOnly, "", 3, http.MethodGet},
		{"unavailable, POST", connect.CodeUnavailable, nil, "", 1, http.MethodPost},
		{"unavailable, POST with a key", connect.CodeUnavailable, nil, "k-1", 3, http.MethodPost},
		{"unavailable over gRPC-Web, in trailers", connect.CodeUnavailable, []connect.ClientOption{connect.WithGRPCWeb()}, "k-2", 1, http.MethodPost},
		{"internal", connect.CodeInternal, readOnly, "", 1, http.MethodGet},
		{"resource_exhausted without a time", connect.CodeResourceExhausted, readOnly, "", 1, http.MethodGet},
		{"not_found", connect.CodeNotFound, readOnly, "", 1, http.MethodGet},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := stinttest.NewDependency()
			h := connectHandler(fails(c.code))
			leaf := leaf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				again := *r
				again.Body = http.NoBody
				d.ServeHTTP(nothing{}, &again) // counts
				h.ServeHTTP(w, r)
			}))
			cl := http1.client(t, leaf.Addr, retrying(), stinthttp.PeerStint)
			req := connectRequest()
			if c.key != "" {
				req.Header().Set("Idempotency-Key", c.key)
			}
			_, err := connectClient(cl.Client, leaf.Addr, c.opts...).CallUnary(t.Context(), req)
			if connect.CodeOf(err) != c.code || d.Count() != c.want || d.Arrivals()[0].Method != c.method {
				t.Errorf("%d requests, %v; want %d %s and %v", d.Count(), err, c.want, c.method, c.code)
			}
			if got := headers(d, "Idempotency-Key"); !slices.Equal(got, slices.Repeat([]string{c.key}, c.want)) {
				t.Errorf("keys %q, want always %q", got, c.key)
			}
		})
	}
}

// nothing is an http.ResponseWriter that keeps nothing.
type nothing struct{}

func (nothing) Header() http.Header         { return http.Header{} }
func (nothing) Write(p []byte) (int, error) { return len(p), nil }
func (nothing) WriteHeader(int)             {}

// A refusal is "unavailable" to connect-go, whatever the reason: it reads the
// status, since the body is not its own. The proof that a call was not started
// is the Transport's to use, also for what must not be executed twice.
func TestConnectRefused(t *testing.T) {
	var rec stinttest.Recorder
	g := gate(t, "leaf", stint.GateOptions{Observer: &rec})
	g.Drain()
	leaf := testenv.StartLeaf(t, stinthttp.Handler(g, connectHandler(func(context.Context, http.Header) error {
		t.Error("the handler was entered")
		return nil
	})))
	cl := http1.client(t, leaf.Addr, retrying(), stinthttp.PeerStint)
	_, err := connectClient(cl.Client, leaf.Addr).CallUnary(t.Context(), connectRequest())
	refused := rec.Events(stint.GateEntered)
	if connect.CodeOf(err) != connect.CodeUnavailable || len(refused) != 3 || refused[0].Reason != stint.Draining {
		t.Errorf("refused %+v, %v; want 3 times for draining, and unavailable", refused, err)
	}
}

// connect-go has one reader for all bodies of a request: so a hedged call has no
// copies, and arrives whole.
func TestConnectHedge(t *testing.T) {
	const calls, large = 5, 3 << 20
	var whole atomic.Int64
	leaf := testenv.StartLeaf(t, connect.NewUnaryHandler(procedure,
		func(_ context.Context, r *connect.Request[testpb.SimpleRequest]) (*connect.Response[testpb.SimpleResponse], error) {
			if len(r.Msg.GetPayload().GetBody()) == large {
				whole.Add(1)
			}
			return connect.NewResponse(&testpb.SimpleResponse{Username: "ok"}), nil
		}))
	cl := http1.client(t, leaf.Addr, stint.Policy{Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}, stinthttp.PeerStint)
	for range calls {
		req := connect.NewRequest(&testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, large)}})
		req.Header().Set("Idempotency-Key", "k-3")
		if resp, err := connectClient(cl.Client, leaf.Addr).CallUnary(t.Context(), req); err != nil || resp.Msg.Username != "ok" {
			t.Errorf("%v, %v", resp, err)
		}
	}
	if whole.Load() != calls {
		t.Errorf("%d whole requests at the server, want %d", whole.Load(), calls)
	}
}
