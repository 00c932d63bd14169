package stinthttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint"
)

// statusCallerLeft is what logs say of a request whose caller left (the number
// is nginx's). Nobody is there to read it.
const statusCallerLeft = 499

// lateOverGRPC is the Code of a dependency's answer over gRPC that says what 504 says.
const lateOverGRPC = "DEADLINE_EXCEEDED"

// CheckStatus returns nil for a response below 400, and for any other an error
// that keeps what the response said: return it from a handler's work and give
// it to WriteError, so that the layer above sees a dependency's failure for what
// it is and not as a 500 of yours, which nobody would repeat. It does not touch
// the body.
func CheckStatus(r *http.Response) error {
	if r.StatusCode < 400 {
		return nil
	}
	return &responseError{r.StatusCode, responseOutcome(r, PeerExternal)}
}

type responseError struct {
	status  int
	outcome stint.Outcome
}

func (e *responseError) Error() string {
	return fmt.Sprintf("dependency answered %d %s", e.status, http.StatusText(e.status))
}

// Outcome lets a Caller and WriteError read the verdict.
func (e *responseError) Outcome() stint.Outcome { return e.outcome }

// WriteError answers r with the status that err calls for, with Retry-After
// where it is known:
//
//   - 504 for time that ran out or would not have been enough: Reason NoTime,
//     an attempt's or a call's timeout, a dependency's 504 or DEADLINE_EXCEEDED,
//     context.DeadlineExceeded;
//   - 503 for what this service refused (breaker open, bulkhead full, draining), for a
//     dependency that said 503 or 429, and for work that was cancelled; with
//     "X-Retry: never" for a 429 that named no time, which nobody repeats;
//   - 502 for a dependency that failed in any other way, with "X-Retry: never"
//     if its answer was final (a 500, a 404 to us, a bad certificate): a 502 is
//     repeated, and must not make of it what it was not; and so with the 504 of a
//     DEADLINE_EXCEEDED that was final. (A dependency's own "never" is passed on
//     with any of these.) To pass a dependency's 4xx on to your caller is your
//     decision: answer it yourself;
//   - 499, which is no server error, if r's caller has left;
//   - 500 for everything else.
//
// The body names the status and the Reason, never err's text. Behind a Handler
// a failure that nobody may repeat is marked "X-Retry: never" by the Gate, and an
// answer that has begun already is cut off when the handler returns, so that
// its caller does not take it for whole: return at once.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if g := guard(w); g != nil && g.giveUp() {
		return
	}
	status, wait, reason := errorStatus(err, r.Context().Err() == context.Canceled)
	setRetryAfter(w.Header(), wait)
	if o, ok := judgedOutcome(err); ok && status >= 500 && (o.Never || quota(o) || final(o) && (status == http.StatusBadGateway || o.Code == lateOverGRPC)) {
		w.Header().Set(headerRetry, retryNever)
	}
	writeStatus(w, status, reason)
}

// guard returns the Handler's writer that w is or wraps, or nil.
func guard(w http.ResponseWriter) *writer {
	for {
		switch v := w.(type) {
		case *writer:
			return v
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// judgedOutcome returns the verdict of an error that has one.
func judgedOutcome(err error) (o stint.Outcome, ok bool) {
	var judged interface{ Outcome() stint.Outcome }
	if ok = errors.As(err, &judged); ok {
		o = judged.Outcome()
	}
	return o, ok
}

// final reports whether o is a dependency's last word.
func final(o stint.Outcome) bool { return o.Kind == stint.Failed || o.Kind == stint.Rejected }

// quota reports whether o is a refusal for our caller's share that says no time
// after which there is more.
func quota(o stint.Outcome) bool { return o.Kind == stint.Overloaded && !o.Hinted }

// errorStatus maps an error of ours or of a context.
func errorStatus(err error, callerLeft bool) (status int, wait time.Duration, reason stint.Reason) {
	var e *stint.Error
	if errors.As(err, &e) {
		wait, reason = e.RetryAfter(), e.Reason
	}
	if errors.Is(err, context.Canceled) && (callerLeft || e != nil && e.Service != "") {
		return statusCallerLeft, 0, reason
	}
	if o, ok := judgedOutcome(err); ok && o.Kind != stint.Refused && o.Kind != stint.Canceled {
		if wait == 0 && o.Hinted {
			wait = o.RetryAfter
		}
		return outcomeStatus(o, reason), wait, reason
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, 0, reason
	case e != nil, errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, wait, reason
	}
	return http.StatusInternalServerError, 0, 0
}

// outcomeStatus is the answer for a dependency's failure.
func outcomeStatus(o stint.Outcome, reason stint.Reason) int {
	switch {
	case o.Kind == stint.TimedOut, o.Kind == stint.Expired, o.Code == codes[http.StatusGatewayTimeout], o.Code == lateOverGRPC,
		reason == stint.NoTime && !o.Hinted: // with a hint, the wait it asks for was too long
		return http.StatusGatewayTimeout
	case o.Kind == stint.Overloaded, o.NotStarted && (reason == stint.Full || reason == stint.Draining), o.Code == codes[http.StatusServiceUnavailable]:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// writeStatus writes a short text answer.
func writeStatus(w http.ResponseWriter, status int, reason stint.Reason) {
	text := http.StatusText(status)
	if status == statusCallerLeft {
		text = "Caller Left"
	}
	if reason != 0 {
		text += ": " + reason.String()
	}
	text += "\n"
	h := w.Header()
	h.Del("Content-Encoding")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	io.WriteString(w, text)
}
