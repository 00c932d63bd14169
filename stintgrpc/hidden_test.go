package stintgrpc_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// What is said at start, held against the calls that a server sees under a service
// config that repeats: of the Caller's single attempt.
func TestHiddenRetries(t *testing.T) {
	config := grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.001s",
		"maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`)
	none := func(*stint.Caller) []grpc.DialOption { return nil }
	alone := func(c *stint.Caller) []grpc.DialOption {
		return []grpc.DialOption{grpc.WithUnaryInterceptor(stintgrpc.UnaryClientInterceptor(c, nil))}
	}
	all := func(c *stint.Caller) []grpc.DialOption { return stintgrpc.DialOptions(c, nil) }
	for _, c := range []struct {
		name  string
		opts  func(*stint.Caller) []grpc.DialOption
		calls int
		want  []string // a part of each sentence
	}{
		{"DialOptions", all, 1, []string{"event Resent"}},
		{"the interceptor alone", alone, 4, []string{"UnaryClientInterceptor alone", "retryPolicy of a service config"}},
		{"nothing of ours", none, 4, []string{"Nothing counts it", "retryPolicy of a service config"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := answers(unavailable)
				w.serve("s", s)
				var rec stinttest.Recorder
				conn := w.connect("passthrough:///s", append(c.opts(newCaller(t, "s", stint.Policy{}, stint.CallerOptions{Observer: &rec})), config)...)
				for _, when := range []string{"at start", "connected", "closed"} {
					said := stintgrpc.HiddenRetries(conn)
					ok := len(said) == len(c.want)
					for i := 0; ok && i < len(said); i++ {
						ok = strings.Contains(said[i], c.want[i])
					}
					if !ok {
						t.Errorf("%s: %q, want %q", when, said, c.want)
					}
					switch when {
					case "at start":
						if len(rec.Events(stint.CallDone)) > 0 || s.Calls() > 0 {
							t.Error("the question was taken for a call")
						}
						if call(t.Context(), testpb.NewTestServiceClient(conn)); s.Calls() != c.calls {
							t.Errorf("%d calls at the server, want %d", s.Calls(), c.calls)
						}
					case "connected":
						if synctest.Wait(); s.Calls() != c.calls {
							t.Error("the question reached the server")
						}
						conn.Close()
					}
				}
			})
		})
	}
}

// The question does no harm to interceptors around ours, and with ours none is
// asked of the network.
func TestHiddenRetriesAsksInside(t *testing.T) {
	var dialled atomic.Bool
	around := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		proto.Size(req.(proto.Message)) // as one that validates does
		err := invoker(ctx, method, req, reply, cc, opts...)
		if err != nil {
			t.Errorf("an interceptor around ours sees %v: it would count a failed call", err)
		}
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		conn := w.connect("passthrough:///s", append(stintgrpc.DialOptions(newCaller(t, "s", stint.Policy{}, stint.CallerOptions{}), nil),
			grpc.WithUnaryInterceptor(around),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { dialled.Store(true); return nil, net.ErrClosed }))...)
		said := stintgrpc.HiddenRetries(conn)
		if synctest.Wait(); len(said) != 1 || dialled.Load() {
			t.Errorf("%q, dialled %v", said, dialled.Load())
		}
	})
}
