package stintgrpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stint-go/stint"
)

// try is one attempt over gRPC, and its context. It watches grpc-go, which sends
// a call again by itself, also where retries are disabled: once if the server
// says that it has not processed it (REFUSED_STREAM, GOAWAY below the stream), and
// as often as it takes if its connection closes before it is sent. What is sent
// again counts as an attempt while attempts are left and costs no token, and is
// reported as the event Resent; beyond them it is stopped.
type try struct {
	context.Context // the attempt's
	flight          *stint.Flight
	attempt         int
	told            time.Duration
	trailer         metadata.MD
	peer            peer.Peer

	// A stream's.
	stream grpc.ClientStream

	// Under a Hedge, what the copy writes in the place of its caller's.
	reply  any
	header metadata.MD

	watched bool          // the connection has the options that DialOptions installs
	seen    atomic.Uint32 // what grpc-go did with it
	parts   atomic.Int32  // of a stream, two: it was handed to its caller, and it has ended
}

// What is seen of an attempt.
const (
	asked       uint32 = 1 << iota // a sending was about to be made
	over                           // grpc-go was done with it
	taken                          // it was about to be sent again, and that was stopped
	unprocessed                    // it was grpc-go itself that was, so what had been sent was not processed
)

func (t *try) saw(what uint32) bool { return t.seen.Load()&what != 0 }

func (t *try) begin(ctx context.Context, hop stint.Hop, f *stint.Flight, watched bool) {
	t.Context, t.flight, t.attempt, t.told, t.watched = ctx, f, hop.Attempt, hop.Remaining, watched
}

type tryKey struct{}

func (t *try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// options returns those of the attempt: its caller's, and what it watches by.
func (t *try) options(callers []grpc.CallOption) []grpc.CallOption {
	opts := make([]grpc.CallOption, len(callers), len(callers)+3)
	copy(opts, callers)
	return append(opts, grpc.Trailer(&t.trailer), grpc.Peer(&t.peer), grpc.OnFinish(func(error) { t.seen.Or(over) }))
}

// unsent reports whether the attempt provably never got onto a connection: grpc-go
// fills in trailer and peer of those whose header it handed to one.
func (t *try) unsent() bool {
	return t.watched && t.saw(over) && t.trailer == nil && t.peer.Addr == nil
}

// part ends a stream's call once both of its parts are done.
func (t *try) part() {
	if t.parts.Add(1) == 2 {
		t.flight.End()
	}
}

// watcher lets a try see what grpc-go does with it, in the shape of credentials
// that add nothing: grpc-go asks them before each sending of a call. A
// stats.Handler would see more, for some 15 allocations a call.
type watcher struct{}

// GetRequestMetadata is called before each sending of a call, the first included.
func (watcher) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	t, ok := ctx.Value(tryKey{}).(*try)
	if !ok || t.seen.Or(asked)&asked == 0 || t.flight.MayResend(t, t.attempt) {
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
