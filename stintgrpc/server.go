package stintgrpc

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// MethodOptions say which methods of a server are not ordinary ones. The zero
// value is usable.
type MethodOptions struct {
	// LongRunning says which methods last, as streams do: they go through the
	// Gate's view LongRunning. fullMethod is "/pkg.Service/Method". Nil: none.
	LongRunning func(fullMethod string) bool

	// Exempt says which methods must be answered at any load, and cost next to
	// nothing: they go through the Gate's view Exempt, with the time of LongRunning
	// if they are streams. Nil means the methods of grpc.health.v1.Health.
	Exempt func(fullMethod string) bool
}

// A server's keepalive; see ServerOptions.
const (
	pingClients = 30 * time.Second
	pongClients = 5 * time.Second
	leastPing   = 5 * time.Second // half of what DialOptions asks for: a ping may be early
)

// ServerOptions are what a grpc.Server needs for its calls to pass through g; o
// may be nil. They install both interceptors, outside of those that later options
// chain, and keepalive: a client that is silent for 30 s is asked for a sign of
// life, and has 5 s; clients may ask every 5 s, in use or not.
func ServerOptions(g *stint.Gate, o *MethodOptions) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(g, o)),
		grpc.ChainStreamInterceptor(StreamServerInterceptor(g, o)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingClients, Timeout: pongClients}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
	}
}

// UnaryServerInterceptor puts unary handlers behind a Gate; o may be nil. Each
// call gets a deadline, the smaller of the Gate's and the client's, and is refused
// before its handler is entered if it can't be served: with DEADLINE_EXCEEDED
// for want of time; for load and while draining with UNAVAILABLE, and RetryInfo and
// grpc-retry-pushback-ms, which say when to come back, or never. A refusal, and
// only that, says x-not-started.
//
// The handler's context ends the Gate's reserve before the deadline. A handler
// that ignores it is waited for, its answer is DEADLINE_EXCEEDED if it comes after
// the deadline, and its overrun is reported as wasted work. The error of a handler
// is answered with the status that it calls for: an *stint.Error with what its
// dependency said, a context's error as time or as a caller that left. A panic
// passes through, with its place given back.
//
// grpc-go hides grpc-timeout, and where a request has several the last one wins.
// The Gate's MaxTimeout holds all the same.
//
// Behind a Gate that does not trust its callers, the handler does not see the
// metadata that an interceptor of ours would write, and x-request-id is the Gate's.
func UnaryServerInterceptor(g *stint.Gate, o *MethodOptions) grpc.UnaryServerInterceptor {
	s := newServer(g, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		var a stint.Admission
		inner, err := s.admit(ctx, info.FullMethod, false, &a)
		if err != nil {
			return nil, err
		}
		o := panicked
		defer func() { a.Finish(o) }()
		resp, err = handler(inner, req)
		if o, err = settle(ctx, &a, err); err != nil {
			return nil, err
		}
		return resp, nil
	}
}

// StreamServerInterceptor puts streams behind a Gate, as UnaryServerInterceptor
// does unary handlers. A stream is over at its deadline, also where its client
// named none: RecvMsg returns when the context of the stream ends, and SendMsg
// fails after the deadline. Streams that last belong behind
// MethodOptions.LongRunning.
func StreamServerInterceptor(g *stint.Gate, o *MethodOptions) grpc.StreamServerInterceptor {
	s := newServer(g, o)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		st := &serverStream{ServerStream: ss}
		a := &st.admission
		var err error
		if st.ctx, err = s.admit(ctx, info.FullMethod, true, a); err != nil {
			return err
		}
		own, bounded := ctx.Deadline()
		st.bounded = bounded && !own.After(a.Deadline())
		o := panicked
		defer func() { a.Finish(o) }()
		err = handler(srv, st)
		o, err = settle(ctx, a, err)
		return err
	}
}

// panicked is the outcome of a handler that did not return.
var panicked = stint.Outcome{Kind: stint.Failed, Code: "panic"}

// server is a Gate and the views of it that methods go through.
type server struct {
	gate, long, exempt, exemptLong *stint.Gate
	options                        MethodOptions
	edge                           bool // strangers call
}

func newServer(g *stint.Gate, o *MethodOptions) *server {
	s := &server{gate: g}
	if o != nil {
		s.options = *o
	}
	if s.options.Exempt == nil {
		s.options.Exempt = func(fullMethod string) bool { return strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/") }
	}
	if g != nil {
		s.long, s.exempt, s.exemptLong = g.LongRunning(), g.Exempt(), g.LongRunning().Exempt()
		s.edge = g.Options().Trust != stint.TrustPeers
	}
	return s
}

func (s *server) view(fullMethod string, stream bool) *stint.Gate {
	switch {
	case s.options.Exempt(fullMethod) && stream:
		return s.exemptLong
	case s.options.Exempt(fullMethod):
		return s.exempt
	case s.options.LongRunning != nil && s.options.LongRunning(fullMethod):
		return s.long
	}
	return s.gate
}

var errNoGate = status.Error(codes.Internal, "stintgrpc: the Gate is nil: make one with stint.NewGate")

// implausible is more than anybody means: somebody's clock, most likely.
const implausible = 24 * time.Hour

// admit lets a call in and returns its handler's context, or the refusal.
func (s *server) admit(ctx context.Context, fullMethod string, stream bool, a *stint.Admission) (context.Context, error) {
	if s.gate == nil {
		return nil, errNoGate
	}
	md := received(ctx)
	hop := stint.ParseHop(md)
	if ends, ok := ctx.Deadline(); ok { // grpc-timeout, from the moment that grpc-go has read it
		left := time.Until(ends)
		if left > implausible {
			hop.Anomalies++
		}
		if hop.Remaining == 0 { // else DefaultTimeout would hold; the Gate takes the smaller of both
			hop.Remaining = left
			if left <= 0 {
				hop.Remaining = -1
			}
		}
	}
	if err := s.view(fullMethod, stream).Admit(ctx, hop, a); err != nil {
		e, ok := errors.AsType[*stint.Error](err)
		if !ok {
			return nil, status.Error(codes.Internal, err.Error())
		}
		return nil, answerTo(err, false).send(ctx, e.Reason)
	}
	inner := a.Context()
	if s.edge {
		inner = disbelieving(inner, md)
	}
	return inner, nil
}

// settle is the end of a call that was let in: its outcome, and its answer.
func settle(ctx context.Context, a *stint.Admission, err error) (stint.Outcome, error) {
	ended := a.Context().Err()
	if err == nil {
		switch {
		case ended == context.Canceled:
			err = ended // nobody is there to read it
		case ended != nil && !time.Now().Before(a.Deadline()):
			err = ended
		default:
			return stint.Outcome{Kind: stint.OK, Code: names[codes.OK]}, nil
		}
	}
	say := answerTo(err, ended == context.Canceled)
	code := say.status.Code()
	o := stint.Outcome{Kind: kindOf(code), Code: nameOf(code)}
	switch {
	case code == codes.DeadlineExceeded && ended != nil:
		o.Kind = stint.Expired
	case code == codes.DeadlineExceeded:
		o.Kind = stint.TimedOut
	case code == codes.Canceled && ended == context.Canceled:
		o.Kind = stint.Canceled
	}
	switch o.Kind {
	case stint.OK: // an error of the code OK is none
		return o, nil
	case stint.Rejected, stint.Canceled:
	default:
		say.never = say.never || a.Never()
	}
	return o, say.send(ctx, 0)
}
