package stintgrpc_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// The articles' chain: a client calls A, A calls B, B calls C; C answers UNAVAILABLE.

var unavailable = status.Error(codes.Unavailable, "try later")

// relay serves host: a service that calls next for each call and returns what
// comes back.
func (w *world) relay(host, next string, p stint.Policy) {
	client := w.client(next, newCaller(w.t, next, p, stint.CallerOptions{}))
	w.serve(host, &service{unary: func(ctx context.Context, _ int, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return client.UnaryCall(ctx, in)
	}}, stintgrpc.ServerOptions(newGate(w.t, host, peers), nil)...)
}

func TestNaiveChainMultiplies(t *testing.T) {
	for _, c := range []struct{ a, b, want int }{{1, 1, 1}, {1, 3, 3}, {3, 3, 9}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leaf := answers(unavailable)
			w.serve("c", leaf)
			relay := func(host, next string, attempts int) {
				client := w.plain(next)
				w.serve(host, &service{unary: func(ctx context.Context, _ int, in *testpb.SimpleRequest) (out *testpb.SimpleResponse, err error) {
					for range attempts {
						if out, err = client.UnaryCall(ctx, in); err == nil {
							return out, nil
						}
					}
					return nil, err
				}})
			}
			relay("b", "c", c.b)
			relay("a", "b", c.a)
			if err := call(t.Context(), w.plain("a")); leaf.Calls() != c.want || status.Code(err) != codes.Unavailable {
				t.Errorf("%d attempts at A and %d at B: %d requests at C, %v; want %d and UNAVAILABLE", c.a, c.b, leaf.Calls(), err, c.want)
			}
		})
	}
}

func TestOneOwnerRetries(t *testing.T) {
	for _, c := range []struct {
		a, b, want int
		took       time.Duration // waits of one virtual millisecond
	}{
		{1, 1, 1, 0},
		{1, 3, 3, 2 * time.Millisecond}, // A can't repeat, so B owns
		{3, 3, 3, 2 * time.Millisecond}, // A owns, B makes one try each
	} {
		t.Run(fmt.Sprintf("%dx%d", c.a, c.b), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				leaf := answers(unavailable)
				w.serve("c", leaf)
				w.relay("b", "c", articlePolicy(c.b, 0))
				w.relay("a", "b", articlePolicy(c.a, 0))
				client := w.client("a", newCaller(t, "a", stint.Policy{}, stint.CallerOptions{}))
				start := time.Now()
				err := call(t.Context(), client)
				if took := time.Since(start); leaf.Calls() != c.want || status.Code(err) != codes.Unavailable || took != c.took {
					t.Errorf("%d requests at C after %v, %v; want %d after %v and UNAVAILABLE", leaf.Calls(), took, err, c.want, c.took)
				}
			})
		})
	}
}

func TestDeadlineCutsTheThirdAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leaf := &service{unary: func(context.Context, int, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			time.Sleep(120 * time.Millisecond) // virtual
			return nil, unavailable
		}}
		w.serve("c", leaf)
		w.relay("b", "c", articlePolicy(3, 130*time.Millisecond))
		w.relay("a", "b", articlePolicy(3, 130*time.Millisecond))
		client := w.client("a", newCaller(t, "a", stint.Policy{}, stint.CallerOptions{}))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := call(ctx, client)
		// 120 ms, a wait of 1 ms, 120 ms; then 59 ms are left, below the guard.
		if took := time.Since(start); leaf.Calls() != 2 || err == nil || took != 241*time.Millisecond {
			t.Errorf("%d requests at C, back after %v, error %v; want 2, 241ms and an error", leaf.Calls(), took, err)
		}
		for i, want := range []time.Duration{300 * time.Millisecond, 179 * time.Millisecond} {
			if _, left := leaf.Seen(i); left != want {
				t.Errorf("request %d told C %v left, want %v", i+1, left, want)
			}
		}
	})
}
