package stintgrpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

type (
	duplexServer = grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]
	uploadServer = grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]
)

// echo answers each message until there are no more.
func echo(st duplexServer) error {
	for {
		if _, err := st.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := st.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// A stream holds its place in the bulkhead until it has ended, however that is.
func TestStreamHoldsItsSlot(t *testing.T) {
	read := func(st grpc.ClientStream, _ func()) { // to the end
		st.CloseSend()
		for st.RecvMsg(new(testpb.StreamingOutputCallResponse)) == nil {
		}
	}
	for name, c := range map[string]struct {
		serve func(duplexServer) error
		end   func(st grpc.ClientStream, cancel func())
	}{
		"read to its end":  {echo, read},
		"the server fails": {func(duplexServer) error { return unavailable }, read},
		"cancelled":        {echo, func(_ grpc.ClientStream, cancel func()) { cancel() }},
		"a message too large": {echo, func(st grpc.ClientStream, _ func()) {
			if err := st.SendMsg(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: make([]byte, 2000)}}); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.serve("s", &service{duplex: c.serve})
				client := w.client("s", newCaller(t, "s", stint.Policy{Bulkhead: 1}, stint.CallerOptions{}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				st, err := client.FullDuplexCall(ctx, grpc.MaxCallSendMsgSize(1000))
				if err != nil {
					t.Fatal(err)
				}
				short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer stop()
				err = call(short, client)
				if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != stint.Full || status.Code(err) != codes.Unavailable {
					t.Errorf("%v, want Reason Full beside the stream", err)
				}
				c.end(st, cancel)
				synctest.Wait()
				if err = call(t.Context(), client); err != nil {
					t.Errorf("%v after the stream", err)
				}
			})
		})
	}
}

// A unary call gives its place back when it returns.
func TestUnaryGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve("s", &service{})
		client, start := w.client("s", newCaller(t, "s", stint.Policy{Bulkhead: 1}, stint.CallerOptions{})), time.Now()
		for range 3 {
			if err := call(t.Context(), client); err != nil || time.Since(start) != 0 {
				t.Fatalf("%v after %v", err, time.Since(start))
			}
		}
	})
}

func TestUploadHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve("s", &service{upload: func(st uploadServer) error {
			for {
				if _, err := st.Recv(); err != nil {
					return st.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: 7})
				}
			}
		}})
		client := w.client("s", newCaller(t, "s", stint.Policy{Bulkhead: 1}, stint.CallerOptions{}))
		for range 3 {
			st, err := client.StreamingInputCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			st.Send(&testpb.StreamingInputCallRequest{})
			if out, err := st.CloseAndRecv(); err != nil || out.AggregatedPayloadSize != 7 {
				t.Errorf("%v, %v", out, err)
			}
		}
	})
}

// The start is tried again, what has started is not.
func TestStreamRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.client("s", newCaller(t, "s", retries(3), stint.CallerOptions{})).FullDuplexCall(t.Context()) // nobody listens
		if e, ok := errors.AsType[*stint.Error](err); !ok || e.Attempts != 3 || e.Reason != stint.AttemptsSpent {
			t.Errorf("%v, want three attempts that never started", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{duplex: func(duplexServer) error { return unavailable }}
		w.serve("s", s)
		st, err := w.client("s", newCaller(t, "s", articlePolicy(3, 0), stint.CallerOptions{})).FullDuplexCall(t.Context())
		if err == nil {
			_, err = st.Recv()
		}
		if status.Code(err) != codes.Unavailable || s.Calls() != 1 {
			t.Errorf("%d calls, %v; want one", s.Calls(), err)
		}
	})
}

// The call's deadline covers the stream, and the server is told it.
func TestStreamDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{duplex: echo}
		w.serve("s", s, stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{Reserve: stint.NoReserve}), nil)...)
		start := time.Now()
		st, err := w.client("s", newCaller(t, "s", stint.Policy{Timeout: 100 * time.Millisecond}, stint.CallerOptions{})).FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Send(&testpb.StreamingOutputCallRequest{})
		for err == nil {
			_, err = st.Recv()
		}
		if took := time.Since(start); status.Code(err) != codes.DeadlineExceeded || took != 100*time.Millisecond {
			t.Errorf("%v after %v, want DEADLINE_EXCEEDED after 100ms", err, took)
		}
		synctest.Wait()
		if _, left := s.Seen(0); left != 100*time.Millisecond {
			t.Errorf("the server had %v", left)
		}
	})
}

// A stream whose client names no deadline ends at the Gate's.
func TestServerBoundsStreams(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(t *testing.T, st duplexServer) error
		took  time.Duration
		kind  stint.Kind
	}{
		"waits for a message": {func(t *testing.T, st duplexServer) error {
			_, err := st.Recv()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("Recv: %v", err)
			}
			return err
		}, 45 * time.Millisecond, stint.Expired},
		"sends without end": {func(t *testing.T, st duplexServer) error {
			for {
				if err := st.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond) // virtual
			}
		}, 50 * time.Millisecond, stint.Expired},
		"obeys its context": {func(t *testing.T, st duplexServer) error {
			<-st.Context().Done()
			return st.Context().Err()
		}, 45 * time.Millisecond, stint.Expired},
		"ends in time": {func(t *testing.T, st duplexServer) error {
			_, err := st.Recv()
			return err
		}, 0, stint.OK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var rec stinttest.Recorder
				g := newGate(t, "s", stint.GateOptions{DefaultTimeout: 50 * time.Millisecond, Observer: &rec})
				w.serve("s", &service{duplex: func(st duplexServer) error {
					if hop := stint.HopFromContext(st.Context()); hop.RequestID == "" || hop.Remaining != 45*time.Millisecond {
						t.Errorf("the handler's context: %+v", hop)
					}
					return c.serve(t, st)
				}}, stintgrpc.ServerOptions(g, nil)...)
				st, err := w.plain("s").FullDuplexCall(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if c.kind == stint.OK {
					st.Send(&testpb.StreamingOutputCallRequest{})
				}
				for err == nil {
					_, err = st.Recv()
				}
				want := codes.DeadlineExceeded
				if c.kind == stint.OK {
					want = codes.OK
				}
				if took := time.Since(start); took != c.took || err != io.EOF && status.Code(err) != want {
					t.Errorf("%v after %v, want %v after %v", err, took, want, c.took)
				}
				synctest.Wait()
				if left := rec.Events(stint.GateLeft); len(left) != 1 || left[0].Outcome.Kind != c.kind || g.Running() != 0 {
					t.Errorf("left %+v, %d run", left, g.Running())
				}
			})
		})
	}
	// A client that leaves ends a Recv, too.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var got error
		w.serve("s", &service{duplex: func(st duplexServer) error { _, got = st.Recv(); return got }},
			stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{}), nil)...)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := w.plain("s").FullDuplexCall(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if status.Code(got) != codes.Canceled {
			t.Errorf("Recv: %v, want CANCELLED", got)
		}
	})
}

// A refused stream says so.
func TestStreamRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate(t, "s", stint.GateOptions{})
		s := &service{duplex: echo}
		w.serve("s", s, stintgrpc.ServerOptions(g, nil)...)
		g.Drain()
		st, err := w.plain("s").FullDuplexCall(t.Context())
		if err == nil {
			_, err = st.Recv()
		}
		if status.Code(err) != codes.Unavailable || only(st.Trailer(), "x-not-started") != "draining" || s.Calls() != 0 {
			t.Errorf("%v, %v, %d calls", err, st.Trailer(), s.Calls())
		}
	})
}
