package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// echo is the handler of the scenario "grpc".
type echo interface {
	echo(ctx context.Context, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error)
}

// same answers with what it was sent.
type same struct{}

func (same) echo(_ context.Context, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	return in, nil
}

const echoMethod = "/bench.Echo/Echo"

// echoDesc is what protoc would make of one unary method.
var echoDesc = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*echo)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo",
		Handler: func(srv any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			if outer == nil {
				return srv.(echo).echo(ctx, in)
			}
			return outer(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: echoMethod}, func(ctx context.Context, in any) (any, error) {
				return srv.(echo).echo(ctx, in.(*wrapperspb.BytesValue))
			})
		}}},
}

// failsafeInterceptor is failsafegrpc's timeout, retry with budget and breaker, outermost first.
func failsafeInterceptor() grpc.UnaryClientInterceptor {
	retry := retrypolicy.NewBuilder[any]().WithMaxAttempts(attempts).WithBudget(budget.New()).
		AbortOnErrors(circuitbreaker.ErrOpen).ReturnLastFailure().Build()
	breaker := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(.5, minCalls, window).WithDelay(openFor).Build()
	return failsafegrpc.NewUnaryClientInterceptor([]failsafe.Policy[any]{timeout.New[any](patience), retry, breaker}...)
}

// newRPC makes the scenario in which h is asked over gRPC.
func newRPC(h echo) (s *scenario, err error) {
	var closers []func()
	s = &scenario{
		name:  "grpc",
		title: "a unary call with 100 bytes each way over loopback, client and server in one process",
		close: func() {
			for _, c := range closers {
				c()
			}
		},
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// Every subject has a connection and a server of its own, and they are all made alike.
	subjectOf := func(name string, deadline time.Duration, server []grpc.ServerOption, client []grpc.DialOption) {
		if err != nil {
			return
		}
		l, lerr := net.Listen("tcp", "127.0.0.1:0")
		if lerr != nil {
			err = lerr
			return
		}
		srv := grpc.NewServer(server...)
		srv.RegisterService(&echoDesc, h)
		go srv.Serve(l)
		closers = append(closers, srv.Stop)
		conn, derr := grpc.NewClient(l.Addr().String(), append(client, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
		if derr != nil {
			err = derr
			return
		}
		closers = append(closers, func() { conn.Close() })
		in := wrapperspb.Bytes(hundred)
		ask := func(ctx context.Context) error {
			out := new(wrapperspb.BytesValue)
			err := conn.Invoke(ctx, echoMethod, in, out)
			if err == nil && len(out.Value) != size {
				err = fmt.Errorf("%d bytes; want %d", len(out.Value), size)
			}
			return err
		}
		call := func() error { return ask(context.Background()) }
		if deadline > 0 {
			call = func() error {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				defer cancel()
				return ask(ctx)
			}
		}
		s.others = append(s.others, subject{name, call})
	}

	p := policy()
	p.Timeout = patience
	caller, err := stint.NewCaller("s", p, nil)
	if err != nil {
		return s, err
	}
	gate, err := stint.NewGate("s", &stint.GateOptions{Trust: stint.TrustPeers, Logger: silent})
	if err != nil {
		return s, err
	}
	gated := stintgrpc.ServerOptions(gate, nil)
	stinted := func(op stint.Op) []grpc.DialOption {
		return stintgrpc.DialOptions(caller, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint,
			Op: func(context.Context, string) stint.Op { return op }})
	}

	subjectOf("plain grpc-go, with a deadline", patience, nil, nil)
	subjectOf("plain grpc-go, without", 0, nil, nil)
	subjectOf("stint: client", 0, nil, stinted(read))
	subjectOf("stint: server", patience, gated, nil)
	subjectOf("stint: client and server", 0, gated, stinted(read))
	subjectOf("stint: both, no owner", 0, gated, stinted(stint.Op{Name: "put"})) // as it must not be repeated
	subjectOf("failsafegrpc: client, 3 policies", 0, nil, []grpc.DialOption{grpc.WithUnaryInterceptor(failsafeInterceptor())})
	if err != nil {
		return s, err
	}
	s.yardstick, s.others = s.others[0], s.others[1:]
	return s, nil
}
