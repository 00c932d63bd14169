package stinthttp

import (
	"context"
	"net/http"
	"time"

	"github.com/stint-go/stint"
)

// Handler puts next behind a Gate. Each request gets a deadline, and is refused
// with 504 or 503 and X-Not-Started before next is entered if it can't be
// served. next's context ends the Gate's reserve before the deadline; if
// nothing has been written halfway through the reserve, the caller gets 504,
// also from a handler that ignores its context. What such a handler writes
// afterwards fails with http.ErrHandlerTimeout, and its overrun is reported as
// wasted work.
//
// Responses are not buffered: Flush, Hijack, http.ResponseController and
// io.ReaderFrom work as without the Gate. A panic passes through.
func Handler(g *stint.Gate, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gw := &writer{under: w, http1: r.ProtoMajor == 1}
		adm := &gw.admission
		if err := g.Admit(r.Context(), stint.ParseHop(r.Header), adm); err != nil {
			refuse(w, err)
			return
		}
		ends, _ := adm.Context().Deadline()
		gw.timer = time.AfterFunc(time.Until(ends.Add(adm.Deadline().Sub(ends)/2)), gw.answerInPlace)
		defer gw.finish()
		next.ServeHTTP(gw, r.WithContext(adm.Context()))
		gw.returned = true
	})
}

// refuse answers for a Gate that let a request not in: the only place that
// writes X-Not-Started.
func refuse(w http.ResponseWriter, err error) {
	status, wait, reason := errorStatus(err, false)
	h := w.Header()
	if reason != 0 {
		h.Set(headerNotStarted, reason.String())
	}
	setRetryAfter(h, wait)
	writeStatus(w, status, reason)
}

// NewServer returns an http.Server for addr with h behind g and every phase
// bounded: 5 s for the request's header, MaxTimeout more for its body, and for
// the answer MaxTimeout, the largest reserve and 5 s, so that the server never
// cuts off what the Gate still allows. Idle connections are kept for 2 minutes.
func NewServer(addr string, g *stint.Gate, h http.Handler) *http.Server {
	const head, slack = 5 * time.Second, 5 * time.Second
	longest := g.Options().MaxTimeout
	reserve := max(g.Options().Reserve, 0)
	return &http.Server{
		Addr:              addr,
		Handler:           Handler(g, h),
		ReadHeaderTimeout: head,
		ReadTimeout:       sum(head, longest),
		WriteTimeout:      sum(longest, reserve, slack),
		IdleTimeout:       2 * time.Minute,
	}
}

// finish ends the request when the handler has returned or panicked.
func (g *writer) finish() {
	g.timer.Stop()
	o := g.settle()
	g.admission.Finish(o)
}

// settle answers for a handler that wrote nothing, and says what became of the
// request.
func (g *writer) settle() stint.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() {
		if g.state == open {
			g.state = left // a timer that has fired already must not write any more
		}
	}()
	switch ended := g.admission.Context().Err(); {
	case g.state == answered:
		return stint.Outcome{Kind: stint.Expired, Code: code(http.StatusGatewayTimeout)}
	case !g.returned:
		return stint.Outcome{Kind: stint.Failed, Code: "panic"}
	case g.state == hijacked:
		return stint.Outcome{Kind: stint.OK, Code: "hijacked"}
	case g.state == open && ended == context.Canceled:
		// The caller has left, most likely, and nobody reads this; but the
		// server may be shutting down, and then it must not be a 200.
		g.answer(http.StatusServiceUnavailable, stint.CallerGone)
		return stint.Outcome{Kind: stint.Canceled, Code: codes[statusCallerLeft]}
	case g.state == open && ended != nil:
		g.answer(http.StatusGatewayTimeout, stint.NoTime)
		return stint.Outcome{Kind: stint.Expired, Code: code(http.StatusGatewayTimeout)}
	case g.state == open: // net/http will say 200
		g.commit(http.StatusOK)
	default:
		g.trailers()
	}
	o := stint.Outcome{Kind: statusKind(g.status), Code: code(g.status)}
	if g.status == statusCallerLeft {
		o.Kind = stint.Canceled
	}
	return o
}
