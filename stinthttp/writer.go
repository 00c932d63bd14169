package stinthttp

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// states of a writer
const (
	open      = iota // nothing written
	committed        // the handler's header is out; only the handler writes now
	answered         // 504 was written in the handler's place
	aborted          // the handler's answer had begun, and is cut off
	hijacked
	left // the handler returned or panicked: the ResponseWriter is net/http's again
)

// writer stands between a handler and its ResponseWriter, so that exactly one
// of handler and timer writes the header. The handler gets a header map of its
// own until then: it may be changing it while the timer answers.
type writer struct {
	under     http.ResponseWriter
	admission stint.Admission
	watch     *watch // calls timeUp
	http1     bool
	http10    bool
	bodiless  bool // the answer has no body whatever its header says: HEAD
	returned  bool // the handler did not panic
	informed  bool // a 1xx answer has gone out

	mu       sync.Mutex
	state    int
	status   int
	cut      stint.Kind // what an aborted answer's outcome is
	header   http.Header
	declared int64        // length of the body by the handler's own word; negative: none given
	sent     atomic.Int64 // of the body, by the handler
	flushed  atomic.Bool  // and nothing written since

	// The watch's, under its lock.
	at         time.Time
	waits      bool
	prev, next *writer
}

// Header returns the handler's header map.
func (g *writer) Header() http.Header {
	if g.header == nil { // only the handler sets it
		g.header = make(http.Header)
		g.mu.Lock()
		if g.state == open || g.state == committed { // else under is not the handler's any more
			maps.Copy(g.header, g.under.Header())
		}
		g.mu.Unlock()
	}
	return g.header
}

// WriteHeader sends the handler's header. After a 504 in its place it does nothing.
func (g *writer) WriteHeader(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.refuses() != nil:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols && g.state == open:
		g.informed = true
		g.copyHeader()
		g.under.WriteHeader(status) // informational: the real one is still to come
	case g.state == open:
		g.commit(status)
	default:
		g.under.WriteHeader(status) // net/http complains about the second one
	}
}

// commit sends the header. g.mu is held and nothing has been written.
func (g *writer) commit(status int) {
	g.state, g.status, g.declared = committed, status, -1
	if g.bodiless || status == http.StatusNoContent || status == http.StatusNotModified {
		g.declared = 0
	} else if length := g.header.Get("Content-Length"); length != "" {
		if n, ok := number(length); ok {
			g.declared = n
		}
	}
	if g.header != nil { // else the handler set none, and net/http need not copy it
		delete(g.header, headerNotStarted) // only the Gate may say so
		g.copyHeader()
	}
	if g.admission.Never() && (status == http.StatusTooManyRequests || status >= 500) {
		g.under.Header().Set(headerRetry, retryNever)
	}
	if g.http1 && status == http.StatusRequestEntityTooLarge {
		// So does http.MaxBytesReader where it finds net/http's own
		// ResponseWriter: nobody wants the rest of the body.
		g.under.Header().Set("Connection", "close")
	}
	g.under.WriteHeader(status)
}

// complete reports whether the handler has written the whole body that it
// announced, and flushed it: net/http holds the last of it back. g.mu is held.
func (g *writer) complete() bool {
	return g.declared >= 0 && g.sent.Load() >= g.declared && g.flushed.Load()
}

func (g *writer) copyHeader() {
	if g.header != nil {
		h := g.under.Header()
		clear(h)
		maps.Copy(h, g.header)
	}
}

// trailers hands on what the handler put into its map after the header was out:
// net/http sends of it what is a trailer, and nothing else.
func (g *writer) trailers() {
	if g.header != nil {
		maps.Copy(g.under.Header(), g.header)
	}
}

// begin commits 200 if nothing has been written; the error says why the handler
// may not write.
func (g *writer) begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == open {
		g.commit(http.StatusOK)
	}
	return g.refuses()
}

// refuses says why the handler may not write, if so. g.mu is held.
func (g *writer) refuses() error {
	switch g.state {
	case answered, aborted, left:
		return http.ErrHandlerTimeout
	case hijacked:
		return http.ErrHijacked
	}
	return nil
}

// Write sends body bytes of the handler.
func (g *writer) Write(p []byte) (int, error) {
	if err := g.begin(); err != nil {
		return 0, err
	}
	g.flushed.Store(false)
	n, err := g.under.Write(p)
	g.sent.Add(int64(n))
	return n, err
}

// sniffed is how much of a body net/http looks at before it sends the header.
const sniffed = 512

// ReadFrom sends the handler's body by the server's own fast path, once its
// first bytes are there: until then nothing is written, as without the Gate.
func (g *writer) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.CopyN(struct{ io.Writer }{g}, r, sniffed)
	if err == io.EOF {
		return n, nil // that was all
	}
	if err != nil {
		return n, err
	}
	g.flushed.Store(false)
	rest, err := io.Copy(g.under, r)
	g.sent.Add(rest)
	return n + rest, err
}

// FlushError sends what is written so far.
func (g *writer) FlushError() error {
	if err := g.begin(); err != nil {
		return err
	}
	err := http.NewResponseController(g.under).Flush()
	g.flushed.Store(true) // if it failed: HTTP/2 has closed a stream that is complete
	return err
}

// Flush is FlushError for http.Flusher.
func (g *writer) Flush() { g.FlushError() }

// Hijack hands the connection to the handler.
func (g *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refuses(); err != nil {
		return nil, nil, err
	}
	c, rw, err := http.NewResponseController(g.under).Hijack()
	if err == nil {
		g.state = hijacked
	}
	return c, rw, err
}

// Unwrap lets http.ResponseController reach what the Gate does not touch:
// deadlines and full duplex.
func (g *writer) Unwrap() http.ResponseWriter { return g.under }

// endGrace is how long a handler may still take to end the stream of an answer
// in its place itself.
const endGrace = 5 * time.Millisecond

// timeUp is the timer's: halfway through the reserve and, if something of the
// answer would be left to go on, at the deadline.
func (g *writer) timeUp() {
	<-g.admission.Context().Done() // it is due: else an answer here, which makes net/http end the request's own, would come first
	g.mu.Lock()
	defer g.mu.Unlock()
	left := time.Until(g.admission.Deadline())
	switch {
	case g.state == open:
		g.answerInPlace()
		if !g.http1 { // net/http ends the stream only with the handler
			g.watch.add(g, time.Now().Add(max(left, endGrace)))
		}
	case g.state == committed && left > 0:
		g.watch.add(g, g.admission.Deadline())
	case g.state == committed && !g.complete():
		g.state, g.cut = aborted, stint.Expired
		g.cutOff()
	case g.state == answered:
		g.cutOff()
	}
}

// cutOff ends what the caller gets, so that it sees a broken body: the stream
// on HTTP/2, the connection on HTTP/1. Where that is not known, nothing more can
// be written to it, and it is closed when the handler returns. g.mu is held.
func (g *writer) cutOff() {
	if c, ok := g.admission.Context().Value(connKey{}).(net.Conn); ok && g.http1 {
		sever(c, g.http10)
		return
	}
	rc, past := http.NewResponseController(g.under), time.Unix(1, 0)
	rc.SetWriteDeadline(past)
	rc.SetReadDeadline(past)
}

// giveUp cuts off an answer that has begun and can't be ended well, and reports
// whether there is nothing more to say: it had begun, or is not the handler's.
func (g *writer) giveUp() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == committed && !g.complete() {
		g.state, g.cut = aborted, stint.Failed
		switch g.admission.Context().Err() {
		case context.Canceled:
			g.cut = stint.Canceled
		case context.DeadlineExceeded:
			g.cut = stint.Expired
		}
	}
	return g.state != open
}

// answerInPlace answers for a handler that has not. g.mu is held.
func (g *writer) answerInPlace() {
	if g.http1 {
		// The handler may hold the connection for long: the caller must not
		// send its next request into it.
		g.under.Header().Set("Connection", "close")
	}
	g.answer(http.StatusGatewayTimeout, stint.NoTime)
	rc := http.NewResponseController(g.under)
	rc.Flush()
	rc.SetReadDeadline(time.Now()) // or a slow upload would hold the handler, and its place
	g.admission.Abandon()
}

// answer answers in the handler's place. g.mu is held and nothing has been written.
func (g *writer) answer(status int, reason stint.Reason) {
	g.state, g.status = answered, status
	h := g.under.Header()
	if g.informed { // what went with the 1xx was for another answer
		connection := h.Get("Connection")
		clear(h)
		if connection != "" {
			h.Set("Connection", connection)
		}
	}
	if g.admission.Never() {
		h.Set(headerRetry, retryNever)
	}
	writeStatus(g.under, status, reason)
}
