package lab

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// overGRPC is gRPC, with one unary method that takes and returns nothing.
type overGRPC struct{}

const (
	grpcService = "stint.lab.Service"
	grpcMethod  = "/" + grpcService + "/Call"
)

// grpcDesc is what protoc would make.
var grpcDesc = grpc.ServiceDesc{
	ServiceName: grpcService,
	HandlerType: (*service)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call",
		Handler: func(srv any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
			in := new(emptypb.Empty)
			if err := decode(in); err != nil {
				return nil, err
			}
			return outer(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: grpcMethod}, func(ctx context.Context, in any) (any, error) {
				return in, srv.(service).answer(ctx)
			})
		}}},
}

func (overGRPC) serve(l net.Listener, s service, gate *stint.Gate, inside *atomic.Int64) running {
	opts := []grpc.ServerOption{
		// A handler's calls end when their connections do, and so does the handler.
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			inside.Add(1)
			defer inside.Add(-1)
			return next(ctx, in)
		}),
	}
	if gate != nil {
		opts = append(opts, stintgrpc.ServerOptions(gate, nil)...)
	}
	srv := grpc.NewServer(opts...)
	srv.RegisterService(&grpcDesc, s)
	go srv.Serve(l)
	return grpcServer{srv}
}

type grpcServer struct{ grpc *grpc.Server }

func (s grpcServer) shutdown(ctx context.Context) error {
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.grpc.GracefulStop()
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close begins what wait waits for: Stop itself waits for handlers, some of
// which end only when other servers are closed.
func (s grpcServer) close() { go s.grpc.Stop() }
func (s grpcServer) wait()  { s.grpc.Stop() }

func (overGRPC) dial(s spec, _ int, to []*server, c *stint.Caller) (client, func(), error) {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy()}
	if c != nil {
		opts = append(opts, stintgrpc.DialOptions(c, &stintgrpc.ClientOptions{Peer: stintgrpc.PeerStint,
			// No descriptor says that the method may be repeated, as a GET may.
			Op: func(context.Context, string) stint.Op { return stint.Op{Name: grpcMethod, Safety: stint.ReadOnly} }})...)
	}
	conn, err := grpc.NewClient(to[0].host, opts...)
	if err != nil {
		return nil, nil, err
	}
	return grpcClient{conn, s.hopTimeout}, func() { conn.Close() }, nil
}

type grpcClient struct {
	conn    *grpc.ClientConn
	timeout time.Duration // of each call; none, if zero
}

func (c grpcClient) send(ctx context.Context) (status int, wait time.Duration, err error) {
	if err := c.check(ctx); err != nil {
		return 0, 0, err
	}
	return http.StatusOK, 0, nil
}

func (c grpcClient) check(ctx context.Context) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	return c.conn.Invoke(ctx, grpcMethod, new(emptypb.Empty), new(emptypb.Empty))
}

// grpcCode returns the code of a gRPC answer that is an error; zero, OK, if err is
// something else.
func grpcCode(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return codes.OK
}
