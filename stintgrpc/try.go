package stintgrpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/stint-go/stint"
)

// try is one attempt over gRPC, and its context. It watches grpc-go, which sends
// a call again by itself, also where retries are disabled: once if the server
// says that it has not processed it (REFUSED_STREAM, GOAWAY below the stream), and
// as often as it takes if it never got onto a connection. What was sent counts as
// an attempt while attempts are left and costs no token, and is reported as the
// event Resent; beyond them it is stopped.
type try struct {
	context.Context // the attempt's
	flight          *stint.Flight
	attempt         int
	told            time.Duration
	trailer         metadata.MD

	// A stream's.
	stream grpc.ClientStream
	parts  atomic.Int32 // two: it was handed to its caller, and it has ended

	// Under a Hedge, what the copy writes in the place of its caller's.
	reply  any
	header metadata.MD
	peer   peer.Peer

	watched atomic.Bool // by a stats handler
	sent    atomic.Bool // the header of the latest sending was handed to a connection
	taken   atomic.Bool // grpc-go was about to send it again, and was stopped
}

func (t *try) begin(ctx context.Context, hop stint.Hop, f *stint.Flight) {
	t.Context, t.flight, t.attempt, t.told = ctx, f, hop.Attempt, hop.Remaining
}

type tryKey struct{}

func (t *try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// unsent reports whether the attempt provably never reached a server: it got no
// connection, or grpc-go held what it had sent for unprocessed.
func (t *try) unsent() bool { return t.watched.Load() && !t.sent.Load() }

// part ends the call once both of its parts are done.
func (t *try) part() {
	if t.parts.Add(1) == 2 {
		t.flight.End()
	}
}

// watcher is the stats.Handler that lets a try see what grpc-go does with it.
type watcher struct{}

// TagRPC is called before each sending of a call, the first included.
func (watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	t, ok := ctx.Value(tryKey{}).(*try)
	if !ok || !t.watched.Swap(true) || !t.sent.Load() {
		return ctx // of the last one nothing was sent
	}
	if t.flight.MayResend(t, t.attempt) {
		return ctx
	}
	t.taken.Store(true)
	dead, cancel := context.WithDeadline(ctx, time.Unix(1, 0)) // grpc-go sends nothing without time left
	cancel()
	return dead
}

// HandleRPC takes note of what proves that a sending was, or was not, made.
func (watcher) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch event := event.(type) {
	case *stats.Begin:
		if !event.IsTransparentRetryAttempt {
			return
		}
		if t, ok := ctx.Value(tryKey{}).(*try); ok {
			t.sent.Store(false) // the one before was not processed
		}
	case *stats.OutHeader:
		if t, ok := ctx.Value(tryKey{}).(*try); ok {
			t.sent.Store(true)
		}
	}
}

func (watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (watcher) HandleConn(context.Context, stats.ConnStats)                       {}
