package stintgrpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
)

// try is one attempt over gRPC, and its context. It watches grpc-go, which sends
// a call again by itself, also where retries are disabled: once if the server
// says that it has not processed it (REFUSED_STREAM, GOAWAY below the stream), and
// as often as it takes if its connection closes before it is sent. What is sent
// again counts as an attempt while attempts are left and costs no token, and is
// reported as the event Resent; beyond them it is stopped.
type try struct {
	context.Context                 // the attempt's
	says            context.Context // the metadata that is sent; nil: what the attempt's has
	flight          *stint.Flight
	told            time.Duration
	trailer         metadata.MD // unset, until grpc-go has handed a header to a connection and is done
	apart           *apart      // under a Hedge
	attempt         int32
	seen            atomic.Uint32 // what grpc-go did with it
}

// What is seen of an attempt.
const (
	watched     uint32 = 1 << iota // the connection has the options that DialOptions installs
	asked                          // a sending was about to be made
	over                           // grpc-go was done with it
	taken                          // it was about to be sent again, and that was stopped
	unprocessed                    // it was grpc-go itself that was, so what had been sent was not processed
)

// unset is a trailer that no peer can have sent: a name has no blank.
var unset = metadata.MD{" ": nil}

func (t *try) saw(what uint32) bool { return t.seen.Load()&what != 0 }

func (t *try) begin(ctx context.Context, hop stint.Hop, f *stint.Flight, c *client) {
	t.Context, t.flight, t.attempt, t.told, t.trailer = ctx, f, int32(hop.Attempt), hop.Remaining, unset
	if c.watched {
		t.seen.Store(watched)
	}
	t.says = c.metadata(ctx, hop)
}

type tryKey struct{}

func (t *try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	if t.says != nil {
		if v := t.says.Value(key); v != nil {
			return v
		}
	}
	return t.Context.Value(key)
}

// options returns those of the attempt: its caller's, and what it watches by.
func (t *try) options(callers []grpc.CallOption) []grpc.CallOption {
	opts := make([]grpc.CallOption, len(callers), len(callers)+2)
	copy(opts, callers)
	return append(opts, grpc.Trailer(&t.trailer), grpc.OnFinish(func(error) { t.seen.Or(over) }))
}

// unsent reports whether the attempt provably never got onto a connection: grpc-go
// fills in the trailer of those whose header it handed to one.
func (t *try) unsent() bool {
	_, untouched := t.trailer[" "]
	return untouched && t.saw(watched) && t.saw(over)
}

// watcher lets a try see what grpc-go does with it, in the shape of credentials
// that add nothing: grpc-go asks them before each sending of a call. A
// stats.Handler would see more, for some 15 allocations a call.
type watcher struct{}

// GetRequestMetadata is called before each sending of a call, the first included.
func (watcher) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	t, ok := ctx.Value(tryKey{}).(*try)
	if !ok || t.seen.Or(asked)&asked == 0 || t.flight.MayResend(t, int(t.attempt)) {
		return nil, nil
	}
	t.seen.Or(taken)
	if !t.saw(over) { // else an interceptor below has begun anew
		t.seen.Or(unprocessed)
	}
	return nil, errTakenOver
}

// RequireTransportSecurity returns false: there is nothing to protect.
func (watcher) RequireTransportSecurity() bool { return false }
