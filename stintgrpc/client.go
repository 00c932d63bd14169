package stintgrpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// Peer says what the other side of a connection is.
type Peer uint8

const (
	// PeerExternal is anybody: it is told the deadline and the idempotency key
	// only, and its x-not-started is not believed, since a stranger could make us
	// repeat what must not be. Its RetryInfo, its grpc-retry-pushback-ms and its
	// "x-retry: never" are honoured. It is the zero value.
	PeerExternal Peer = iota
	// PeerStint is a service of the same organisation that keeps this contract:
	// it gets the whole wire, and its marks are believed.
	PeerStint
)

// ClientOptions are what the client's side needs besides its Caller. The zero
// value is usable.
type ClientOptions struct {
	// Peer says who is on the other side. Zero is PeerExternal.
	Peer Peer

	// Op names a call and says whether it may be repeated. fullMethod is
	// "/pkg.Service/Method". Nil means MethodOp.
	Op func(ctx context.Context, fullMethod string) stint.Op
}

// The client's keepalive; see DialOptions.
const (
	pingPeer     = 10 * time.Second // the least that grpc-go allows
	pongPeer     = 3 * time.Second
	pingExternal = 5 * time.Minute // a server that was told nothing allows no less
	pongExternal = 20 * time.Second
)

// DialOptions are what a grpc.ClientConn needs for c to own its calls; o may be
// nil. They install both interceptors, outside of those that later options chain;
// disable grpc-go's own retries, which would multiply; and watch, by
// per-call credentials that add nothing, what grpc-go sends again by itself all the same, and what it never
// sent at all: the proof that even a call which must not be repeated may be.
// They bring no credentials.
//
// A connection that is silent for 10 s is asked for a sign of life, in use or
// not, and closed if none comes in 3 s, nor data that was sent is acknowledged in
// that time (on Linux); ServerOptions has a server allow it. An external server,
// which may close connections that ask too often, is asked after 5 min, while calls
// are under way, and has 20 s.
//
// A hedge goes to another server where there are several and the balancer takes
// turns (round_robin). Under pick_first, grpc's default, it goes over the same
// connection.
func DialOptions(c *stint.Caller, o *ClientOptions) []grpc.DialOption {
	keep := keepalive.ClientParameters{Time: pingExternal, Timeout: pongExternal}
	if o != nil && o.Peer == PeerStint {
		keep = keepalive.ClientParameters{Time: pingPeer, Timeout: pongPeer, PermitWithoutStream: true}
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(unaryClient(c, o, true)),
		grpc.WithChainStreamInterceptor(streamClient(c, o, true)),
		grpc.WithPerRPCCredentials(watcher{}),
		grpc.WithDisableRetry(),
		grpc.WithKeepaliveParams(keep),
	}
}

var errNoCaller = status.Error(codes.Internal, "stintgrpc: the Caller is nil: make one with stint.NewCaller")

// client is what the calls of one interceptor share.
type client struct {
	peer    Peer
	op      func(ctx context.Context, fullMethod string) stint.Op
	watched bool // by a watcher
	said    atomic.Pointer[said]
}

func newClient(o *ClientOptions, watched bool) *client {
	own := &client{op: MethodOp, watched: watched}
	if o != nil {
		own.peer = o.Peer
		if o.Op != nil {
			own.op = o.Op
		}
	}
	return own
}

// UnaryClientInterceptor makes each unary call one logical call of c: bounded,
// guarded, repeated only where that helps. o may be nil. Alone, without the rest
// of DialOptions, it knows nothing of what grpc-go sends again or never sent.
//
// A call that fails returns an error that wraps an *stint.Error, and whose status
// (status.Code, status.FromError) is the last answer's, details included. Without
// an answer it is DEADLINE_EXCEEDED for time, CANCELLED for a caller that left, and
// UNAVAILABLE for any other refusal of this process.
//
// Under a Policy with a Hedge each copy works on a clone of the request and has a
// reply of its own; the winner's is copied into the caller's, and grpc.Header,
// grpc.Trailer and grpc.Peer are filled in only for a call that succeeds. A request
// that is no proto.Message is not cloned, and must not be changed afterwards.
func UnaryClientInterceptor(c *stint.Caller, o *ClientOptions) grpc.UnaryClientInterceptor {
	return unaryClient(c, o, false)
}

// unaryClient is UnaryClientInterceptor, alone or watched by a watcher.
func unaryClient(c *stint.Caller, o *ClientOptions, watched bool) grpc.UnaryClientInterceptor {
	own := newClient(o, watched)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if c == nil {
			return errNoCaller
		}
		if method == askMethod && answered(ctx, watched) {
			return nil
		}
		u := &unaryCall{client: own, method: method, req: req, reply: reply, cc: cc, invoker: invoker, opts: opts}
		hedges := c.Hedges()
		if hedges {
			u.req = cloned(req)
			u.first.apart = new(apart)
		}
		err := c.Send(ctx, own.op(ctx, method), u, &u.flight)
		if t, ok := u.flight.Result().(*try); ok {
			if hedges {
				u.deliver(t)
			}
			u.flight.End()
			return nil
		}
		return clientError(err)
	}
}

// unaryCall is the stint.Sender of a unary call, and with the first attempt all of
// its state: one allocation of the size class of 768 bytes.
type unaryCall struct {
	client     *client
	method     string
	req, reply any
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker
	opts       []grpc.CallOption
	flight     stint.Flight
	first      try
}

// Send makes one attempt.
func (u *unaryCall) Send(ctx context.Context, hop stint.Hop, _ int) (any, stint.Outcome, error) {
	t := &u.first
	if hop.Attempt > 1 {
		t = new(try) // the first may still be under way
		if u.first.apart != nil {
			t.apart = new(apart)
		}
	}
	t.begin(ctx, hop, &u.flight, u.client)
	opts, reply := t.options(u.opts), u.reply
	if t.apart != nil {
		reply = t.apart.from(u.reply, opts[:len(u.opts)])
	}
	if err := u.invoker(t, u.method, u.req, reply, u.cc, opts...); err != nil {
		o, err := t.outcome(err, u.client.peer)
		return nil, o, err
	}
	return t, stint.Outcome{Kind: stint.OK, Code: names[codes.OK]}, nil
}

// Drop has nothing to do: a reply is whole when it is there.
func (u *unaryCall) Drop(any, time.Duration) {}

// StreamClientInterceptor makes the start of each stream one logical call of c. o
// may be nil. A stream that can't be started is tried again where that helps; once
// it is there nothing is repeated, since messages may have been. A started stream
// counts as a success for c's breaker and budget, whatever becomes of it.
//
// The call's deadline, and Retry.AttemptTimeout, cover the stream to its end: a
// policy for methods with streams that last has a Timeout of its own
// (Policy.Operations). So does its place in the bulkhead, until grpc-go has finished
// it: read it to the end, or cancel its context.
func StreamClientInterceptor(c *stint.Caller, o *ClientOptions) grpc.StreamClientInterceptor {
	return streamClient(c, o, false)
}

func streamClient(c *stint.Caller, o *ClientOptions, watched bool) grpc.StreamClientInterceptor {
	own := newClient(o, watched)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if c == nil {
			return nil, errNoCaller
		}
		s := &streamCall{client: own, desc: desc, cc: cc, method: method, streamer: streamer, opts: opts}
		err := c.Send(ctx, own.op(ctx, method), s, &s.flight)
		if t, ok := s.flight.Result().(*streamTry); ok {
			t.part()
			return t.stream, nil
		}
		return nil, clientError(err)
	}
}

// streamCall is the stint.Sender of a stream's start.
type streamCall struct {
	client   *client
	desc     *grpc.StreamDesc
	cc       *grpc.ClientConn
	method   string
	streamer grpc.Streamer
	opts     []grpc.CallOption
	flight   stint.Flight
	first    streamTry
}

// streamTry is one attempt to start a stream.
type streamTry struct {
	try
	stream grpc.ClientStream
	parts  atomic.Int32 // of two: it was handed to its caller, and it has ended
}

// part ends the call once both parts are done.
func (t *streamTry) part() {
	if t.parts.Add(1) == 2 {
		t.flight.End()
	}
}

// Send makes one attempt.
func (s *streamCall) Send(ctx context.Context, hop stint.Hop, _ int) (any, stint.Outcome, error) {
	t := &s.first
	if hop.Attempt > 1 {
		t = new(streamTry)
	}
	t.begin(ctx, hop, &s.flight, s.client)
	opts := append(t.options(s.opts), grpc.OnFinish(func(error) { t.part() }))
	var err error
	if t.stream, err = s.streamer(&t.try, s.desc, s.cc, s.method, opts...); err != nil {
		o, err := t.outcome(err, s.client.peer)
		return nil, o, err
	}
	return t, stint.Outcome{Kind: stint.OK, Code: names[codes.OK]}, nil
}

// Drop has nothing to do: the stream ends with its attempt's context.
func (s *streamCall) Drop(any, time.Duration) {}
