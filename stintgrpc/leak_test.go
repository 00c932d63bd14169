package stintgrpc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// Calls of every kind, and every end, leave no goroutine behind.
func TestNoGoroutineStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{unary: func(ctx context.Context, n int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			switch n % 3 {
			case 0:
				return nil, unavailable
			case 1:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &testpb.SimpleResponse{}, nil
		}, duplex: func(st duplexServer) error { st.Recv(); return nil }}
		g := newGate(t, "s", stint.GateOptions{Trust: stint.TrustPeers, Limit: 3, DefaultTimeout: 50 * time.Millisecond})
		w.serve("s", s, stintgrpc.ServerOptions(g, nil)...)
		p := articlePolicy(3, 0)
		p.Retry.AttemptTimeout, p.Breaker.Off, p.Hedge = 20*time.Millisecond, true, stint.Hedge{Copies: 1, Delay: 5 * time.Millisecond}
		client, plain := w.client("s", newCaller(t, "s", p, stint.CallerOptions{})), w.plain("s")
		call(t.Context(), client)
		call(t.Context(), plain)
		time.Sleep(time.Second) // virtual
		before := bubbleGoroutines()
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			time.AfterFunc(30*time.Millisecond, cancel)
			call(ctx, client)
			unread, end := context.WithCancel(t.Context())
			plain.FullDuplexCall(unread) // the Gate's deadline ends it there
			client.FullDuplexCall(ctx)
			time.Sleep(100 * time.Millisecond) // virtual
			if g.Running() != 0 {
				t.Errorf("%d calls run after their deadline", g.Running())
			}
			cancel()
			end() // a plain client's own goroutine needs that
		}
		time.Sleep(time.Second) // virtual
		if after := bubbleGoroutines(); after > before {
			t.Errorf("%d goroutines, before %d", after, before)
		}
	})
}

// A plain client is refused and bounded by our server, and our client bounds
// what it asks of a plain server: the deadline holds both ways.
func TestInterop(t *testing.T) {
	hang := func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ours, theirs := &service{unary: hang}, &service{unary: hang}
		w.serve("ours", ours, stintgrpc.ServerOptions(newGate(t, "ours", stint.GateOptions{}), nil)...)
		w.serve("theirs", theirs)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := call(ctx, w.plain("ours")); status.Code(err) != codes.DeadlineExceeded || time.Since(start) != 95*time.Millisecond {
			t.Errorf("%v after %v, want our server's DEADLINE_EXCEEDED within its reserve", err, time.Since(start))
		}
		start = time.Now()
		err := call(t.Context(), w.client("theirs", newCaller(t, "theirs", stint.Policy{Timeout: 80 * time.Millisecond}, stint.CallerOptions{})))
		if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != stint.NoTime || status.Code(err) != codes.DeadlineExceeded || time.Since(start) != 80*time.Millisecond {
			t.Errorf("%v after %v, want our own deadline", err, time.Since(start))
		}
		if _, left := theirs.Seen(0); left != 80*time.Millisecond {
			t.Errorf("the plain server had %v, want 80ms", left)
		}
	})
}
