package stinthttp

import (
	"context"
	"errors"
	"maps"
	"net/http"

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
// An answer that has begun and is not complete at the deadline is cut off, an
// event stream like any other: the handler's writes fail with
// http.ErrHandlerTimeout, and the caller sees a reset stream (HTTP/2) or a closed
// connection (HTTP/1), never an end that looks whole. Without ConnContext, which
// NewServer sets, an HTTP/1 connection is closed only when the handler returns.
// Handler then panics with http.ErrAbortHandler, as net/http has it. It does so
// too for a handler that called WriteError in the middle of its answer. A handler
// that stops there and just returns has ended its answer. A hijacked connection
// is the handler's own; its context and its place in the Gate are as before.
//
// The Gate's view LongRunning is for routes whose requests last: streams, long
// polls, uploads, WebSockets. Where its deadline lies beyond the http.Server's
// ReadTimeout and WriteTimeout, they are moved for this request, so that one server
// can bound its ordinary requests and have such routes as well.
//
// Responses are not buffered: Flush, Hijack, http.ResponseController and
// io.ReaderFrom work as without the Gate. A panic passes through.
//
// Behind a Gate that does not trust its callers, next does not see the request
// fields that a Transport would replace (docs/wire.md), and X-Request-Id is the
// Gate's: a reverse proxy can't pass on what was not believed.
func Handler(g *stint.Gate, next http.Handler) http.Handler {
	ws := new(watches)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gw := &writer{under: w, http1: r.ProtoMajor == 1, http10: r.ProtoMajor == 1 && r.ProtoMinor == 0, bodiless: r.Method == http.MethodHead}
		adm := &gw.admission
		if err := g.Admit(r.Context(), stint.ParseHop(r.Header), adm); err != nil {
			refuse(w, err)
			return
		}
		ends, _ := adm.Context().Deadline()
		gw.watch = ws.of(r)
		gw.watch.add(gw, ends.Add(adm.Deadline().Sub(ends)/2))
		defer gw.finish()
		if g.IsLongRunning() {
			outlast(w, r, adm.Deadline())
		}
		r = r.WithContext(adm.Context())
		if adm.Trust() != stint.TrustPeers {
			r.Header = believed(r)
		}
		next.ServeHTTP(gw, r)
		gw.returned = true
	})
}

// believed returns r's header without what a stranger claims there; what the
// Gate took from it is in the context. The header itself is others' as well.
func believed(r *http.Request) http.Header {
	h := r.Header
	claims := h[headerRequestID] != nil
	for _, name := range owned {
		claims = claims || h[name] != nil
	}
	if !claims {
		return h
	}
	h = maps.Clone(h)
	for _, name := range owned {
		delete(h, name)
	}
	if h[headerRequestID] != nil {
		h[headerRequestID] = []string{stint.HopFromContext(r.Context()).RequestID}
	}
	return h
}

// refuse answers for a Gate that let a request not in: the only place that
// writes X-Not-Started.
func refuse(w http.ResponseWriter, err error) {
	status, wait, reason := errorStatus(err, false)
	h := w.Header()
	if reason != 0 {
		h.Set(headerNotStarted, reason.String())
	}
	if e, ok := errors.AsType[*stint.Error](err); ok && e.Never() {
		h.Set(headerRetry, retryNever)
	}
	setRetryAfter(h, wait)
	if reason == stint.Draining {
		h.Set("Connection", "close") // on HTTP/2 it makes net/http send GOAWAY
	}
	writeStatus(w, status, reason)
}

// finish ends the request when the handler has returned or panicked.
func (g *writer) finish() {
	o := g.settle()
	g.watch.remove(g)
	g.admission.Finish(o)
	if o.Code == codeAborted && g.returned {
		panic(http.ErrAbortHandler) // else net/http would end the body as if it were whole
	}
}

// codeAborted is the outcome of an answer that was cut off.
const codeAborted = "aborted"

// settle answers for a handler that wrote nothing, and says what became of the
// request.
func (g *writer) settle() stint.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() {
		if g.state != hijacked {
			g.state = left // a timer that has fired already must not touch it any more
		}
	}()
	switch ended := g.admission.Context().Err(); {
	case g.state == answered:
		return stint.Outcome{Kind: stint.Expired, Code: code(http.StatusGatewayTimeout)}
	case g.state == aborted:
		return stint.Outcome{Kind: g.cut, Code: codeAborted}
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
