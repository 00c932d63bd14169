package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// A Transport says what the services of a chain talk. The zero value is HTTP.
type Transport uint8

const (
	// HTTP is HTTP/1.1 on every hop.
	HTTP Transport = iota
	// GRPC is gRPC on every hop.
	GRPC
	// Mixed is gRPC on the last hop, HTTP on the one before it, and so on by turns.
	Mixed
)

var transports = [...]string{"http", "grpc", "mixed"}

// String returns the name: http, grpc or mixed.
func (t Transport) String() string {
	if int(t) < len(transports) {
		return transports[t]
	}
	return fmt.Sprintf("Transport(%d)", uint8(t))
}

// MarshalText returns the name.
func (t Transport) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a name.
func (t *Transport) UnmarshalText(text []byte) error {
	for i, name := range transports {
		if string(text) == name {
			*t = Transport(i)
			return nil
		}
	}
	return fmt.Errorf("unknown transport %q: want http, grpc or mixed", text)
}

// carrier returns what carries a hop with so many others below it.
func (t Transport) carrier(below int) carrier {
	if t == GRPC || t == Mixed && below%2 == 0 {
		return overGRPC{}
	}
	return overHTTP{}
}

// A carrier is what a hop goes over.
type carrier interface {
	// serve serves s at l, behind gate unless that is nil, and counts the
	// requests that are inside.
	serve(l net.Listener, s service, gate *stint.Gate, inside *atomic.Int64) running
	// dial returns a client of the first server for the caller i of the spec; the
	// other servers are its replicas. Each call of the client is one of c, unless that
	// is nil. leave closes the connections that nobody uses.
	dial(s spec, i int, to []*server, c *stint.Caller) (next client, leave func(), err error)
}

// A service answers requests, over whatever they come.
type service interface {
	http.Handler
	// answer is what ServeHTTP is, over gRPC.
	answer(ctx context.Context) error
}

// A running service can be ended.
type running interface {
	// shutdown waits until the last request is over.
	shutdown(ctx context.Context) error
	// close closes all connections, and wait waits until they are gone.
	close()
	wait()
}

// A client sends requests to one service.
type client interface {
	// send makes one call. The status is the answer's, 200 for gRPC's OK, and wait
	// the time that the answer asks for; over gRPC any other answer is an error.
	send(ctx context.Context) (status int, wait time.Duration, err error)
	// check makes the same call as a handler does: a bad answer is an error that
	// keeps what it said.
	check(ctx context.Context) error
}

// A server is one service of a chain.
type server struct {
	name   string
	host   string       // with its port
	inside atomic.Int64 // requests in its handler
	leave  func()       // closes the connections to it that nobody uses; nil before there are any
	running
}

func newServer(name string, over carrier, s service, gate *stint.Gate) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", name, err)
	}
	srv := &server{name: name, host: l.Addr().String()}
	srv.running = over.serve(l, s, gate, &srv.inside)
	return srv, nil
}

func (s *server) closeIdle() {
	if s.leave != nil {
		s.leave()
	}
}
