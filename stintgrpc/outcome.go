package stintgrpc

import (
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// names are gRPC's own names of its codes, as policies list them.
var names = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

func nameOf(c codes.Code) string {
	if int(c) < len(names) {
		return names[c]
	}
	return "other"
}

// kindOf judges a code (docs/wire.md has the table). Only UNAVAILABLE may be over
// at the next try by itself. DEADLINE_EXCEEDED and CANCELLED are a peer's
// last word: where they are our own limits or our caller's doing, the Caller
// knows it from its contexts.
func kindOf(c codes.Code) stint.Kind {
	switch c {
	case codes.OK:
		return stint.OK
	case codes.Unavailable:
		return stint.Transient
	case codes.ResourceExhausted:
		return stint.Overloaded
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.Aborted, codes.OutOfRange, codes.Unauthenticated:
		return stint.Rejected
	}
	return stint.Failed
}

// statusOf returns the status that err has or wraps, as the peer sent it, or nil.
func statusOf(err error) *status.Status {
	var has interface{ GRPCStatus() *status.Status }
	if errors.As(err, &has) {
		return has.GRPCStatus()
	}
	return nil
}

var (
	errTakenOver = status.Error(codes.Unavailable, "stintgrpc: grpc-go would have sent the call again by itself")
	errCutOff    = status.Error(codes.Unavailable, "stintgrpc: the call ended before it was sent again as a whole")
)

// outcome judges an attempt that failed.
func (t *try) outcome(err error, peer Peer) (stint.Outcome, error) {
	if t.saw(taken) {
		return stint.Outcome{Kind: stint.Transient, NotStarted: t.saw(unprocessed), Code: "not_processed"}, errTakenOver
	}
	if err == io.EOF { // so says grpc-go 1.85 where what it sent again was ended before it was whole
		err = errCutOff
	}
	var judged interface{ Outcome() stint.Outcome }
	if errors.As(err, &judged) { // an interceptor below that knows better
		return judged.Outcome(), err
	}
	st := statusOf(err)
	if st == nil {
		st = status.FromContextError(err)
	}
	o := stint.Outcome{Kind: kindOf(st.Code()), NotStarted: t.unsent(), Code: nameOf(st.Code())}
	if st.Code() == codes.DeadlineExceeded {
		o.Kind = t.overdue()
	}
	o.RetryAfter, o.Hinted, o.Never = hint(t.trailer, st)
	if why := t.trailer[mdNotStarted]; len(why) == 1 && why[0] != "" && peer == PeerStint {
		o.NotStarted = true
		switch {
		case why[0] == stint.NoTime.String():
			o.Kind = stint.Refused // there will not be more time at the next try
		case why[0] == stint.Full.String() && (o.Hinted || o.Never):
			o.Kind = stint.Overloaded // it is well, and busy: no reason to open a breaker, which would leave it idle
		}
	}
	return o, err
}

// overdue judges a peer's DEADLINE_EXCEEDED. With no more left of what it was told
// than a Gate keeps back for its answer, it is that time: the attempt's, where the
// call has more, or the call's. With more left it is a limit of the peer's own.
func (t *try) overdue() stint.Kind {
	ends, _ := t.Deadline() // an attempt always has one
	switch {
	case time.Until(ends) > t.told/4:
		return stint.Failed
	case ends.Before(t.flight.Deadline()):
		return stint.TimedOut
	}
	return stint.Expired
}

// hint reads what a failure says about trying again: the longest of the
// pushback and the RetryInfo, and whether never. A pushback that is negative, no
// number, or not alone means never (proposal A6).
func hint(trailer metadata.MD, st *status.Status) (wait time.Duration, hinted, never bool) {
	if said := trailer[mdPushback]; len(said) > 0 {
		ms, err := strconv.ParseInt(said[0], 10, 64)
		if len(said) > 1 || err != nil || ms < 0 {
			never = true
		} else {
			wait, hinted = time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond, true
		}
	}
	for _, said := range trailer[mdRetry] {
		never = never || strings.EqualFold(strings.TrimSpace(said), retryNever)
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait, hinted = max(wait, info.GetRetryDelay().AsDuration()), true
		}
	}
	return wait, hinted, never
}

// clientError is what an interceptor returns for a call that failed: err, which
// has the last attempt's status, or that of a refusal.
func clientError(err error) error {
	if statusOf(err) != nil {
		return err
	}
	e, ok := errors.AsType[*stint.Error](err)
	if !ok {
		return status.Error(codes.Internal, err.Error())
	}
	code := codes.Unavailable
	switch {
	case errors.Is(e, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(e, context.Canceled):
		code = codes.Canceled
	}
	return &refusedError{e, code}
}

// refusedError is a call that this process refused, for code that asks for its
// status.
type refusedError struct {
	err  *stint.Error
	code codes.Code
}

func (e *refusedError) Error() string              { return e.err.Error() }
func (e *refusedError) Unwrap() error              { return e.err }
func (e *refusedError) GRPCStatus() *status.Status { return status.New(e.code, e.err.Error()) }
