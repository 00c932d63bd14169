package stintgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// framePeer is an HTTP/2 server that does with each call what it is told, which
// no well-behaved one can be made to do.
type framePeer struct {
	mu      sync.Mutex
	count   int
	answers []string // one a call; the last goes on
}

func (p *framePeer) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go p.connection(c)
	}
}

func (p *framePeer) connection(c net.Conn) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	ok := map[uint32]bool{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				f.WritePing(true, frame.Data)
			}
		case *http2.HeadersFrame:
			p.mu.Lock()
			p.count++
			answer := p.answers[min(p.count, len(p.answers))-1]
			p.mu.Unlock()
			id := frame.StreamID
			switch answer {
			case "REFUSED_STREAM":
				f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			case "GOAWAY below":
				f.WriteGoAway(max(id, 2)-2, http2.ErrCodeNo, nil)
			case "GOAWAY at, closed":
				f.WriteGoAway(id, http2.ErrCodeNo, nil)
				return
			case "closed":
				return
			case "RST_STREAM internal":
				f.WriteRSTStream(id, http2.ErrCodeInternal)
			case "ok":
				ok[id] = true
			}
		case *http2.DataFrame:
			if id := frame.StreamID; frame.StreamEnded() && ok[id] { // the request is whole
				headers(f, id, false, ":status", "200", "content-type", "application/grpc")
				f.WriteData(id, false, make([]byte, 5))
				headers(f, id, true, "grpc-status", "0")
			}
		}
	}
}

func headers(f *http2.Framer, id uint32, end bool, pairs ...string) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
}

// B16: what the server did not look at is sent again, also what must not be
// executed twice, as an attempt like any other; what it may have done is not.
func TestB16HTTP2Refusals(t *testing.T) {
	for _, c := range []struct {
		answers []string
		safe    bool
		sent    int
		resent  int          // of them by grpc-go, which we can only count
		reason  stint.Reason // zero: it went well
		// A policy of one attempt leaves the first resend to grpc-go.
		attempts int
	}{
		{answers: []string{"REFUSED_STREAM", "ok"}, sent: 2, resent: 1},
		{answers: []string{"REFUSED_STREAM", "ok"}, safe: true, sent: 2, resent: 1},
		{answers: []string{"REFUSED_STREAM", "ok"}, attempts: 1, sent: 2, resent: 1},
		{answers: []string{"GOAWAY below", "ok"}, sent: 2, resent: 1},
		{answers: []string{"GOAWAY below", "ok"}, safe: true, sent: 2, resent: 1},
		// A server that refuses everything. grpc-go keeps to itself that the second was
		// refused, so what must not be repeated ends there.
		{answers: []string{"REFUSED_STREAM"}, sent: 2, resent: 1, reason: stint.NotRepeatable},
		{answers: []string{"REFUSED_STREAM"}, safe: true, sent: 3, resent: 1, reason: stint.AttemptsSpent},
		{answers: []string{"GOAWAY below"}, safe: true, sent: 3, resent: 1, reason: stint.AttemptsSpent},
		{answers: []string{"REFUSED_STREAM"}, attempts: 1, sent: 2, resent: 1, reason: stint.AttemptsSpent},
		// It may have been done.
		{answers: []string{"GOAWAY at, closed", "ok"}, sent: 1, reason: stint.NotRepeatable},
		{answers: []string{"GOAWAY at, closed", "ok"}, safe: true, sent: 2},
		{answers: []string{"closed", "ok"}, sent: 1, reason: stint.NotRepeatable},
		{answers: []string{"closed", "ok"}, safe: true, sent: 2},
		{answers: []string{"RST_STREAM internal", "ok"}, sent: 1, reason: stint.Final},
		// It was stopped on its way out, which proves that the one before was not processed.
		{answers: []string{"closed", "REFUSED_STREAM", "ok"}, safe: true, attempts: 2, sent: 2, reason: stint.AttemptsSpent},
		{answers: []string{"closed", "REFUSED_STREAM", "ok"}, safe: true, attempts: 3, sent: 3, resent: 1},
	} {
		name := strings.ReplaceAll(strings.Join(c.answers, ","), " ", "_")
		if c.safe {
			name += ",safe"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				peer := &framePeer{answers: c.answers}
				l := w.listen("s")
				go peer.serve(l)
				defer l.Close()
				attempts := c.attempts
				if attempts == 0 {
					attempts = 3
				}
				p := retries(attempts)
				if c.safe {
					p = articlePolicy(attempts, 0)
				}
				var rec stinttest.Recorder
				caller := newCaller(t, "s", p, stint.CallerOptions{Observer: &rec})
				err := call(t.Context(), w.client("s", caller))
				var reason stint.Reason
				if e, ok := errors.AsType[*stint.Error](err); ok {
					reason = e.Reason
				}
				if peer.count != c.sent || reason != c.reason || (err == nil) != (c.reason == 0) {
					t.Errorf("sent %d times, %v; want %d and Reason %q", peer.count, err, c.sent, c.reason)
				}
				if n := len(rec.Events(stint.Resent)); n != c.resent {
					t.Errorf("%d events Resent, want %d", n, c.resent)
				}
				if spent := 10 - caller.Budget().Balance(); err == nil && spent > float64(c.sent-1-c.resent) {
					t.Errorf("%v tokens spent, want at most one a retry of ours", spent)
				}
			})
		})
	}
}

// An attempt that was stopped because grpc-go would have sent it again is proof
// that it was not processed.
func TestStoppedResendIsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		peer := &framePeer{answers: []string{"closed", "REFUSED_STREAM", "ok"}}
		l := w.listen("s")
		go peer.serve(l)
		defer l.Close()
		var rec stinttest.Recorder
		err := call(t.Context(), w.client("s", newCaller(t, "s", articlePolicy(2, 0), stint.CallerOptions{Observer: &rec})))
		e, ok := errors.AsType[*stint.Error](err)
		if !ok || !e.Last.NotStarted || e.Last.Code != "not_processed" || status.Code(err) != codes.Unavailable || peer.count != 2 {
			t.Errorf("sent %d times, %v, %+v", peer.count, err, e.Last)
		}
	})
}

// An interceptor below that makes the call anew is stopped, too; that proves
// nothing of what it made before.
func TestStoppedBelowIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		peer := &framePeer{answers: []string{"closed"}}
		l := w.listen("s")
		go peer.serve(l)
		defer l.Close()
		caller := newCaller(t, "s", retries(2), stint.CallerOptions{})
		again := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
			for range 5 {
				if err = next(ctx, method, req, reply, cc, opts...); err == nil {
					break
				}
			}
			return err
		}
		opts := append(stintgrpc.DialOptions(caller, nil), grpc.WithChainUnaryInterceptor(again))
		err := call(t.Context(), w.plain("s", opts...))
		e, ok := errors.AsType[*stint.Error](err)
		if !ok || e.Last.NotStarted || e.Last.Code != "not_processed" || peer.count != 2 {
			t.Errorf("sent %d times, %v; want 2 and no proof that nothing was done", peer.count, err)
		}
	})
}

// What an interceptor below refuses without grpc-go, it may have done otherwise.
func TestRefusedBelowIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		refuse := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return unavailable
		}
		opts := append(stintgrpc.DialOptions(newCaller(t, "s", retries(2), stint.CallerOptions{}), nil), grpc.WithChainUnaryInterceptor(refuse))
		err := call(t.Context(), w.plain("s", opts...))
		if e, ok := errors.AsType[*stint.Error](err); !ok || e.Last.NotStarted || e.Attempts != 1 {
			t.Errorf("%v, want one attempt, and no proof that it was not started", err)
		}
	})
}

// A call that finds no room for its stream was not started, also where it must not
// be repeated; without DialOptions nobody says so.
func TestNoStreamIsProof(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := &service{duplex: echo}
			w.serve("s", s, grpc.MaxConcurrentStreams(1))
			p := retries(2)
			p.Retry.AttemptTimeout = 50 * time.Millisecond
			p.Operations = map[string]stint.Policy{duplex: {}}
			caller := newCaller(t, "s", p, stint.CallerOptions{})
			opts := stintgrpc.DialOptions(caller, nil)
			if alone {
				opts = []grpc.DialOption{grpc.WithUnaryInterceptor(stintgrpc.UnaryClientInterceptor(caller, nil))}
			}
			conn := w.connect("passthrough:///s", opts...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := testpb.NewTestServiceClient(conn).FullDuplexCall(ctx); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			err := call(t.Context(), testpb.NewTestServiceClient(conn))
			e, ok := errors.AsType[*stint.Error](err)
			if !ok || e.Last.NotStarted == alone || s.Calls() != 1 {
				t.Errorf("alone %v: %d calls, %v, %+v", alone, s.Calls(), err, e)
			}
		})
	}
}

// What grpc-go sends again of a stream is reported, too.
func TestStreamResent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		peer := &framePeer{answers: []string{"REFUSED_STREAM", "ok"}}
		l := w.listen("s")
		go peer.serve(l)
		defer l.Close()
		var rec stinttest.Recorder
		client := w.client("s", newCaller(t, "s", stint.Policy{}, stint.CallerOptions{Observer: &rec}))
		st, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.CloseSend()
		for err == nil {
			_, err = st.Recv()
		}
		if err != io.EOF || peer.count != 2 || len(rec.Events(stint.Resent)) != 1 {
			t.Errorf("sent %d times, %v, resent %v", peer.count, err, rec.Events(stint.Resent))
		}
	})
}

// With DialOptions grpc-go repeats nothing by policy, whatever a service config says.
func TestServiceConfigDoesNotRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := answers(unavailable)
		w.serve("s", s)
		config := grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.001s",
			"maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`)
		c := newCaller(t, "s", retries(3), stint.CallerOptions{})
		if err := call(t.Context(), w.plain("s", append(stintgrpc.DialOptions(c, nil), config)...)); s.Calls() != 1 {
			t.Errorf("%d calls, %v; want one, since it must not be repeated", s.Calls(), err)
		}
	})
}

// grpc-go says EOF where a stream that it sent again ended before the request was
// whole on it, however it ended. That is no answer.
func TestResendCutOff(t *testing.T) {
	for _, p := range []stint.Policy{retries(3), articlePolicy(3, 0)} {
		calls := 0
		intercept := stintgrpc.UnaryClientInterceptor(newCaller(t, "s", p, stint.CallerOptions{}), nil)
		err := intercept(t.Context(), "/"+unaryCall, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			calls++
			if calls == 1 {
				return io.EOF
			}
			return nil
		})
		safe := p.Safety == stint.ReadOnly
		if safe && (err != nil || calls != 2) || !safe && (status.Code(err) != codes.Unavailable || calls != 1) {
			t.Errorf("safe %v: %d calls, %v", safe, calls, err)
		}
	}
}
