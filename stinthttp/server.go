package stinthttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

const (
	defaultReadHeader = 5 * time.Second
	defaultIdle       = 2 * time.Minute
	defaultPing       = 30 * time.Second
	defaultStall      = 10 * time.Second

	answerSlack = 5 * time.Second // for an answer's last bytes, above what the Gate allows
)

// ServerOptions bound the phases of a connection to a Server, and of its end.
// Zero means the default, and so does a negative value; there is no "unlimited".
// Read and Write do not hold for requests of the Gate's view LongRunning where its
// deadline lies beyond them.
type ServerOptions struct {
	// ReadHeader bounds the reading of a request's header, from its first byte,
	// or the connection's start, on. Zero means 5 s.
	ReadHeader time.Duration
	// Read bounds the reading of a whole request, header included. Zero means
	// ReadHeader and the Gate's MaxTimeout.
	Read time.Duration
	// Write bounds a request from the end of its header to the last byte of its
	// answer. Zero means the Gate's MaxTimeout, its Reserve and 5 s, so that the
	// server never cuts off what the Gate still allows; less than that does.
	Write time.Duration
	// Idle is how long a connection without a request is kept. Zero means 2 min.
	Idle time.Duration

	// Ping is how long an HTTP/2 connection may be silent before the peer is
	// asked whether it is still there. Zero means 30 s.
	Ping time.Duration
	// Stall closes an HTTP/2 connection that took no byte for so long, or left a
	// ping without an answer. Zero means 10 s.
	Stall time.Duration

	// DrainDelay is the time from Shutdown's start, when Ready begins to say
	// 503, until new requests are refused: load balancers have to notice in it,
	// so set it a little above the interval at which they ask, times the failures
	// that they want to see. Zero means none, for a service that nobody asks
	// whether it is ready.
	DrainDelay time.Duration

	// H2C accepts HTTP/2 without TLS as well, from clients that know beforehand.
	H2C bool
}

// A Server is an http.Server behind a Gate, with every phase bounded and an
// orderly end. NewServer makes one; the http.Server's fields may be changed
// before it serves. Handler is the guarded one: to serve probes, streams or routes
// with another Trust beside it, put a mux of your own there, whose routes each have
// their Handler, and none twice (see the example).
type Server struct {
	*http.Server

	gate     *stint.Gate
	delay    time.Duration
	longest  time.Duration // that accepted work can take
	stopping atomic.Bool
}

// NewServer returns a Server for addr with h behind g; o may be nil. g is the Gate
// of the ordinary requests, by whose MaxTimeout the server's phases and its end are
// bounded: requests that last have routes of their own, behind g.LongRunning(). It is
// the MaxTimeout of now: where a Gate.With or a later SetOptions allows more, Read and
// Write have to be set.
func NewServer(addr string, g *stint.Gate, h http.Handler, o *ServerOptions) *Server {
	if o == nil {
		o = &ServerOptions{}
	}
	longest := sum(g.Options().MaxTimeout, max(g.Options().Reserve, 0), answerSlack)
	head, stall := positive(o.ReadHeader, defaultReadHeader), positive(o.Stall, defaultStall)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(o.H2C)
	return &Server{
		Server: &http.Server{
			Addr:              addr,
			Handler:           Handler(g, h),
			ReadHeaderTimeout: head,
			ReadTimeout:       positive(o.Read, sum(head, g.Options().MaxTimeout)),
			WriteTimeout:      positive(o.Write, longest),
			IdleTimeout:       positive(o.Idle, defaultIdle),
			ConnContext:       ConnContext,
			HTTP2:             &http.HTTP2Config{SendPingTimeout: positive(o.Ping, defaultPing), PingTimeout: stall, WriteByteTimeout: stall},
			Protocols:         protocols,
		},
		gate:    g,
		delay:   max(o.DrainDelay, 0),
		longest: longest,
	}
}

// Ready answers the question whether this server is to get requests: 200, and
// 503 from Shutdown's start on. Mount it beside the guarded handler, or on a
// server of its own, and not behind the Gate: a full service is not to be taken
// out of service, or the rest get what it no longer takes, and are full next.
// Whether the process is alive is another question, which any handler answers with
// 200 to the end, beside the Gate or, for a deadline and events, behind its view
// Exempt. An orchestrator that asks a guarded handler restarts what is only busy.
func (s *Server) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if s.stopping.Load() {
			writeStatus(w, http.StatusServiceUnavailable, stint.Draining)
			return
		}
		writeStatus(w, http.StatusOK, 0)
	})
}

// Shutdown ends the server in order: Ready says 503; after DrainDelay the Gate
// drains, so that new requests get 503 with "X-Not-Started: draining" and a
// closed connection, while those inside finish within their deadlines; when
// nobody is inside any more, listeners and connections are closed. The Gate
// drains for all its views, so a service with several servers calls Shutdown of
// all of them at the same time.
//
// It takes no longer than ctx allows, and never longer than DrainDelay, what
// NewServer's Gate allows accepted work, and 5 s. What is not done then is cut off,
// and the error says so. A hijacked connection is waited for as long as its handler
// runs, and is never closed. Serve returns http.ErrServerClosed before Shutdown is
// done: wait for Shutdown.
//
// So long-running requests get as much time to end as ordinary ones, whatever
// LongTimeout is, and a stream that nobody ends takes all of it. Have the handlers
// of streams watch a context that ends just before Shutdown is called, as in the
// example: http.Server.RegisterOnShutdown calls only when nobody is inside any
// more. Of a server all of whose requests are long-running (NewServer with that
// view) the longest is LongTimeout: its ctx should end sooner.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sum(s.delay, s.longest))
	defer cancel()
	s.stopping.Store(true)
	notice := time.NewTimer(s.delay)
	defer notice.Stop()
	select {
	case <-notice.C:
	case <-ctx.Done():
	}
	empty := s.gate.Drain()
	var late error
	select {
	case <-empty:
	case <-ctx.Done():
		late = ctx.Err()
	}
	err := s.Server.Shutdown(ctx)
	if err == nil {
		err = late
	}
	if err != nil {
		s.Close()
		return fmt.Errorf("stinthttp: server closed before its work was done: %w", err)
	}
	return nil
}

// outlast moves the end that r's server has set for reading and writing behind the
// request's deadline, if it comes before. net/http sets both anew for the next request.
func outlast(w http.ResponseWriter, r *http.Request, deadline time.Time) {
	s, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if s == nil {
		return
	}
	rc, longest := http.NewResponseController(w), sum(time.Until(deadline), answerSlack)
	if s.WriteTimeout > 0 && s.WriteTimeout < longest {
		rc.SetWriteDeadline(deadline.Add(answerSlack))
	}
	// Without a body net/http reads on, without an end, to see whether the caller leaves.
	if s.ReadTimeout > 0 && s.ReadTimeout < longest && r.Body != http.NoBody {
		rc.SetReadDeadline(deadline)
	}
}

type connKey struct{}

// ConnContext tells a Handler the connection of its requests, so that an answer
// over HTTP/1 can be cut off at the deadline while its handler is still at work.
// NewServer sets it; it is for the ConnContext of an http.Server of your own.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// sever closes a connection without a goodbye. Of an answer over HTTP/1.0 the
// end of the connection may be the end of the body, so that one is reset.
func sever(c net.Conn, http10 bool) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS would say that all was sent
		c = t.NetConn()
	}
	if l, ok := c.(interface{ SetLinger(int) error }); ok && http10 {
		l.SetLinger(0)
	}
	c.Close()
}
