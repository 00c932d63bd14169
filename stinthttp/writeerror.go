package stinthttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint"
)

// statusCallerLeft is what logs say of a request whose caller left (the number
// is nginx's). Nobody is there to read it.
const statusCallerLeft = 499

// WriteError answers r with the status that err calls for, with Retry-After
// where it is known:
//
//   - 504 for time that ran out or would not have been enough: Reason NoTime,
//     an attempt's or a call's timeout, context.DeadlineExceeded;
//   - 503 for what this service refused (breaker open, bulkhead full), for a
//     dependency that said 503 or 429, and for work that was cancelled;
//   - 502 for a dependency that failed in any other way;
//   - 499, which is no server error, if r's caller has left;
//   - 500 for everything else.
//
// The body names the status and the Reason, never err's text. Behind a Handler
// a failure that nobody may repeat is marked "X-Retry: never" by the Gate.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	status, wait, reason := errorStatus(err, r.Context().Err() == context.Canceled)
	setRetryAfter(w.Header(), wait)
	writeStatus(w, status, reason)
}

// errorStatus maps an error of ours or of a context.
func errorStatus(err error, callerLeft bool) (status int, wait time.Duration, reason stint.Reason) {
	var e *stint.Error
	ours := errors.As(err, &e)
	if ours {
		wait, reason = e.RetryAfter(), e.Reason
	}
	switch {
	case callerLeft && errors.Is(err, context.Canceled):
		return statusCallerLeft, 0, reason
	case ours && reason == stint.NoTime && e.Last.Hinted:
		return http.StatusServiceUnavailable, wait, reason // it asks for more time than there is
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, 0, reason
	case ours && reason == stint.CallerGone && e.Service != "":
		return statusCallerLeft, 0, reason
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, wait, reason
	case !ours:
		return http.StatusInternalServerError, 0, 0
	case e.Attempts == 0:
		return http.StatusServiceUnavailable, wait, reason
	}
	switch o := e.Last; {
	case o.Kind == stint.TimedOut, o.Kind == stint.Expired:
		return http.StatusGatewayTimeout, wait, reason
	case o.Kind == stint.Overloaded, o.Code == codes[http.StatusServiceUnavailable]:
		return http.StatusServiceUnavailable, wait, reason
	}
	return http.StatusBadGateway, wait, reason
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
