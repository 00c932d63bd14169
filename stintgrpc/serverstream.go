package stintgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// serverStream is a stream that a Gate let in.
type serverStream struct {
	grpc.ServerStream
	ctx       context.Context
	admission stint.Admission
	bounded   bool // by grpc itself: the client's own deadline is the sooner
}

// Context returns the handler's context.
func (s *serverStream) Context() context.Context { return s.ctx }

var errStreamOver = status.Error(codes.DeadlineExceeded, stint.NoTime.String())

// SendMsg sends a message, unless the deadline has passed.
func (s *serverStream) SendMsg(m any) error {
	if !s.bounded && !time.Now().Before(s.admission.Deadline()) {
		return errStreamOver
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg receives a message, in no more time than the handler has. grpc-go
// offers no way to interrupt it, so where the client named no deadline it waits in
// a goroutine, which ends with the stream.
func (s *serverStream) RecvMsg(m any) error {
	if s.bounded {
		return s.ServerStream.RecvMsg(m)
	}
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-received:
		return err
	case <-s.ctx.Done():
		if s.ctx.Err() == context.Canceled {
			return status.Error(codes.Canceled, stint.CallerGone.String())
		}
		return errStreamOver
	}
}
