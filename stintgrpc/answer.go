package stintgrpc

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
)

// answer is what a failure is answered with.
type answer struct {
	status *status.Status
	wait   time.Duration // before trying again is of any use; zero: not known
	never  bool          // nobody is to try again
}

// answerTo returns the answer that a handler's error calls for:
//
//   - CANCELLED where its caller has left;
//   - a dependency's own status, details included, but for an attempt that ran
//     into its own limit: that is UNAVAILABLE, since whoever owns the retries may
//     have time for another;
//   - DEADLINE_EXCEEDED for time that ran out or would not have been enough;
//   - UNAVAILABLE for what this service refused, for a dependency without a gRPC
//     status, and for work that was cancelled; never to be repeated if the
//     dependency's answer was final;
//   - any other error as grpc has it.
//
// A message of ours has the Reason and never the error's text.
func answerTo(err error, callerLeft bool) answer {
	var judged interface{ Outcome() stint.Outcome }
	if !errors.As(err, &judged) {
		st, ok := status.FromError(err)
		switch {
		case ok:
		case errors.Is(err, context.DeadlineExceeded):
			st = status.New(codes.DeadlineExceeded, stint.NoTime.String())
		case errors.Is(err, context.Canceled) && callerLeft:
			st = status.New(codes.Canceled, stint.CallerGone.String())
		case errors.Is(err, context.Canceled):
			st = status.New(codes.Unavailable, stint.Canceled.String())
		}
		return answer{status: st}
	}
	o := judged.Outcome()
	a := answer{never: o.Never}
	var reason stint.Reason
	e, ours := errors.AsType[*stint.Error](err)
	if ours {
		reason, a.wait = e.Reason, e.RetryAfter()
	}
	if a.wait == 0 && o.Hinted {
		a.wait = o.RetryAfter
	}
	code, said := codes.Unavailable, statusOf(err)
	switch {
	case errors.Is(err, context.Canceled) && (callerLeft || ours && e.Service != ""):
		code = codes.Canceled
	case o.Kind == stint.TimedOut && reason != stint.NoTime, said != nil && said.Code() == codes.Canceled:
	case said != nil:
		a.status = said
		return a
	case o.Kind == stint.TimedOut, o.Kind == stint.Expired, reason == stint.NoTime && !o.Hinted:
		code = codes.DeadlineExceeded
	case o.Kind == stint.Failed, o.Kind == stint.Rejected, o.Kind == stint.Overloaded && !o.Hinted:
		a.never = true
	}
	text := reason.String()
	if text == "" {
		text = o.String()
	}
	a.status = status.New(code, text)
	return a
}

// send makes the error of an answer and sets what goes with it as trailers of
// ctx's call. notStarted is a Gate's reason; zero: the handler was entered.
func (a answer) send(ctx context.Context, notStarted stint.Reason) error {
	md := make(metadata.MD, 3)
	switch {
	case notStarted != 0:
		md[mdNotStarted] = []string{notStarted.String()}
	case claimed(ctx):
		md[mdNotStarted] = []string{entered} // two values say nothing
	}
	switch {
	case a.never:
		md[mdRetry], md[mdPushback] = []string{retryNever}, []string{"-1"}
	case a.wait > 0:
		ms := min((a.wait-1)/time.Millisecond+1, math.MaxInt32) // rounded up
		md[mdPushback] = []string{strconv.FormatInt(int64(ms), 10)}
		if _, hinted, _ := hint(nil, a.status); !hinted {
			if with, err := a.status.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(a.wait)}); err == nil {
				a.status = with
			}
		}
	}
	if len(md) > 0 {
		grpc.SetTrailer(ctx, md) // fails only where nobody is there to read it
	}
	return a.status.Err()
}

// claimed reports whether the handler itself has set a mark that is only a
// Gate's to set: copied from a dependency's answer, most likely. It can't be taken
// out of grpc-go's trailers any more.
func claimed(ctx context.Context) bool {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ Trailer() metadata.MD })
	return ok && s.Trailer()[mdNotStarted] != nil
}
