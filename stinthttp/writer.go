package stinthttp

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// states of a writer
const (
	open      = iota // nothing written
	committed        // the handler's header is out; only the handler writes now
	answered         // 504 was written in the handler's place
	hijacked
	left // the handler returned or panicked without an answer, and gets none
)

// writer stands between a handler and its ResponseWriter, so that exactly one
// of handler and timer writes the header. The handler gets a header map of its
// own until then: it may be changing it while the timer answers.
type writer struct {
	under     http.ResponseWriter
	admission stint.Admission
	timer     *time.Timer
	http1     bool
	returned  bool // the handler did not panic
	informed  bool // a 1xx answer has gone out

	mu     sync.Mutex
	state  int
	status int
	header http.Header
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
	g.state, g.status = committed, status
	if g.header != nil { // else the handler set none, and net/http need not copy it
		delete(g.header, headerNotStarted) // only the Gate may say so
		g.copyHeader()
	}
	if g.admission.Never() && (status == http.StatusTooManyRequests || status >= 500) {
		g.under.Header().Set(headerRetry, retryNever)
	}
	g.under.WriteHeader(status)
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
	case answered, left:
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
	return g.under.Write(p)
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
	rest, err := io.Copy(g.under, r)
	return n + rest, err
}

// FlushError sends what is written so far.
func (g *writer) FlushError() error {
	if err := g.begin(); err != nil {
		return err
	}
	return http.NewResponseController(g.under).Flush()
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

// answerInPlace is the timer's: time is up, and the handler has not answered.
func (g *writer) answerInPlace() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != open {
		return
	}
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
