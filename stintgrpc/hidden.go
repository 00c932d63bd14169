package stintgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// HiddenRetries says what below a Caller sends the calls of cc again by itself, a
// sentence each, to be logged at start: who, when, why it stays on, and how it is
// counted. It is never empty, since what grpc-go does here has no switch.
//
// To find out how cc was made it goes through cc's unary interceptors, as the method
// "/stint.HiddenRetries/Ask" with an empty message: ours ends it there. Without ours
// grpc-go ends it, since its context has ended, and begins to connect.
func HiddenRetries(cc *grpc.ClientConn) []string {
	a := &ask{Context: context.Background()}
	ctx, cancel := context.WithCancel(a)
	cancel()
	cc.Invoke(ctx, askMethod, &emptypb.Empty{}, &emptypb.Empty{})
	const (
		itself = "grpc-go sends a call again by itself, once if the server says that it has not processed it (REFUSED_STREAM, GOAWAY), and as " +
			"often as its connection closes before the call is written: there is no switch. "
		configured = "grpc-go repeats by the retryPolicy of a service config, which the name's resolver may bring (5 attempts at most, or what " +
			"grpc.WithMaxCallAttempts says), unless the connection was made with grpc.WithDisableRetry, which can't be seen from here. "
		uncounted = "Nothing counts it. Make the connection with stintgrpc.DialOptions."
	)
	switch {
	case a.watched:
		return []string{itself + "It does so only while attempts are left (of one, once); it is reported as the event Resent, counts as " +
			"an attempt and costs no token. Retries by a service config are off."}
	case a.caller:
		return []string{itself + "With UnaryClientInterceptor alone nothing sees it. Make the connection with stintgrpc.DialOptions.", configured + uncounted}
	}
	return []string{itself + uncounted, configured + uncounted}
}

const askMethod = "/stint.HiddenRetries/Ask"

// An ask is the context of HiddenRetries' call.
type ask struct {
	context.Context
	caller, watched bool // the answer, which our interceptor writes
}

type askKey struct{}

func (a *ask) Value(key any) any {
	if key == (askKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// answered tells HiddenRetries, if the call is its own.
func answered(ctx context.Context, watched bool) bool {
	a, ok := ctx.Value(askKey{}).(*ask)
	if ok {
		a.caller, a.watched = true, watched
	}
	return ok
}
