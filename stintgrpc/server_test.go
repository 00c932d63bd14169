package stintgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// retryInfo returns how long a status asks to wait; negative: it does not.
func retryInfo(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

func only(md metadata.MD, name string) string {
	if v := md[name]; len(v) == 1 {
		return v[0]
	}
	return fmt.Sprint(md[name])
}

// A plain client sees why it was refused, and when to come back.
func TestRefusals(t *testing.T) {
	hold := func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		gate       stint.GateOptions
		before     func(t *testing.T, g *stint.Gate, c testpb.TestServiceClient)
		timeout    time.Duration
		code       codes.Code
		notStarted string
		least      time.Duration // to wait
		most       time.Duration
	}{
		"no time": {gate: stint.GateOptions{MinUseful: time.Second}, timeout: 100 * time.Millisecond,
			code: codes.DeadlineExceeded, notStarted: "no_time", least: -1, most: -1},
		"full": {gate: stint.GateOptions{Limit: 1}, timeout: time.Second, before: func(t *testing.T, g *stint.Gate, c testpb.TestServiceClient) {
			go call(t.Context(), c)
			synctest.Wait()
		}, code: codes.Unavailable, notStarted: "full", least: time.Second, most: 3 * time.Second},
		"draining": {timeout: time.Second, before: func(_ *testing.T, g *stint.Gate, _ testpb.TestServiceClient) { g.Drain() },
			code: codes.Unavailable, notStarted: "draining", least: time.Millisecond, most: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &service{unary: hold}
				g := newGate(t, "s", c.gate)
				w.serve("s", s, stintgrpc.ServerOptions(g, nil)...)
				client := w.plain("s")
				if c.before != nil {
					c.before(t, g, client)
				}
				before := s.Calls()
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				var md metadata.MD
				_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Trailer(&md))
				if status.Code(err) != c.code || only(md, "x-not-started") != c.notStarted || s.Calls() != before {
					t.Errorf("%v with %v, %d calls; want %v, not started: %s", err, md, s.Calls()-before, c.code, c.notStarted)
				}
				wait, pushback := retryInfo(err), -1*time.Millisecond
				if md["grpc-retry-pushback-ms"] != nil {
					pushback, _ = time.ParseDuration(only(md, "grpc-retry-pushback-ms") + "ms")
				}
				if wait < c.least || wait > c.most || c.least > 0 && (pushback < wait || pushback >= wait+time.Millisecond) || c.least < 0 && pushback >= 0 {
					t.Errorf("RetryInfo %v, pushback %v; want %v to %v", wait, pushback, c.least, c.most)
				}
			})
		})
	}
}

// A full service that mostly sees retries says never, and the client obeys.
func TestNeverUnderRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		w.serve("s", s, stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{Limit: 1, Trust: stint.TrustPeers}), nil)...)
		plain := w.plain("s")
		go call(t.Context(), plain)
		synctest.Wait()
		retry, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-attempt", "2"), time.Millisecond)
		defer cancel()
		for range 100 {
			call(retry, plain)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var md metadata.MD
		_, err := plain.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Trailer(&md))
		if only(md, "x-retry") != "never" || only(md, "grpc-retry-pushback-ms") != "-1" || retryInfo(err) >= 0 {
			t.Fatalf("%v with %v, want never", err, md)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = call(ctx, w.client("s", newCaller(t, "s", articlePolicy(3, 0), stint.CallerOptions{})))
		if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != stint.NeverRetry || e.Attempts != 1 || !e.Never() {
			t.Errorf("%v, want Reason NeverRetry", err)
		}
	})
}

// judged is an error of another carrier.
type judged struct{ o stint.Outcome }

func (judged) Error() string            { return "secret" }
func (e judged) Outcome() stint.Outcome { return e.o }

// What a handler's error is answered with.
func TestHandlerErrors(t *testing.T) {
	failed := func(reason stint.Reason, last stint.Outcome, err error) error {
		return fmt.Errorf("secret: %w", &stint.Error{Reason: reason, Dependency: "db", Attempts: 1, Last: last, Err: err})
	}
	dep := func(c codes.Code) error { return status.Error(c, "of the dependency") }
	for name, c := range map[string]struct {
		err   error
		code  codes.Code
		text  string
		never bool
		wait  time.Duration
	}{
		"a status":                    {err: status.Error(codes.NotFound, "no such"), code: codes.NotFound, text: "no such"},
		"any error":                   {err: errors.New("secret"), code: codes.Unknown, text: "secret"}, // as grpc-go has it
		"a context's deadline":        {err: fmt.Errorf("x: %w", context.DeadlineExceeded), code: codes.DeadlineExceeded, text: "no_time"},
		"a context's cancel":          {err: fmt.Errorf("x: %w", context.Canceled), code: codes.Unavailable, text: "canceled"},
		"refused for time":            {err: &stint.Error{Reason: stint.NoTime, Dependency: "db"}, code: codes.DeadlineExceeded, text: "no_time"},
		"refused: full":               {err: &stint.Error{Reason: stint.Full, Dependency: "db"}, code: codes.Unavailable, text: "full"},
		"refused: breaker":            {err: &stint.Error{Reason: stint.BreakerOpen, Dependency: "db"}, code: codes.Unavailable, text: "breaker_open"},
		"refused: draining":           {err: &stint.Error{Reason: stint.Draining, Service: "x"}, code: codes.Unavailable, text: "draining"},
		"a Gate's caller gone":        {err: &stint.Error{Reason: stint.CallerGone, Service: "x"}, code: codes.Canceled, text: "caller_gone"},
		"somebody cancelled":          {err: &stint.Error{Reason: stint.CallerGone, Dependency: "db"}, code: codes.Unavailable, text: "caller_gone"},
		"a dependency's UNAVAILABLE":  {err: failed(stint.NotOwner, stint.Outcome{Kind: stint.Transient}, unavailable), code: codes.Unavailable, text: "try later"},
		"and no time for another":     {err: failed(stint.NoTime, stint.Outcome{Kind: stint.Transient}, unavailable), code: codes.Unavailable, text: "try later"},
		"a dependency's NOT_FOUND":    {err: failed(stint.Final, stint.Outcome{Kind: stint.Rejected}, dep(codes.NotFound)), code: codes.NotFound, text: "of the dependency"},
		"a dependency's INTERNAL":     {err: failed(stint.Final, stint.Outcome{}, dep(codes.Internal)), code: codes.Internal, text: "of the dependency"},
		"a dependency's never":        {err: failed(stint.NeverRetry, stint.Outcome{Kind: stint.Transient, Never: true}, unavailable), code: codes.Unavailable, text: "try later", never: true},
		"a dependency's hint":         {err: failed(stint.NoTime, stint.Outcome{Kind: stint.Overloaded, Hinted: true, RetryAfter: 1500 * time.Microsecond}, dep(codes.ResourceExhausted)), code: codes.ResourceExhausted, text: "of the dependency"},
		"a dependency's RetryInfo":    {err: failed(stint.NoTime, stint.Outcome{Kind: stint.Transient, Hinted: true, RetryAfter: time.Minute}, withInfo(codes.Unavailable, time.Minute)), code: codes.Unavailable, text: "wait"},
		"a dependency's CANCELLED":    {err: failed(stint.Final, stint.Outcome{}, dep(codes.Canceled)), code: codes.Unavailable, text: "final"},
		"an attempt's limit":          {err: failed(stint.NotOwner, stint.Outcome{Kind: stint.TimedOut}, dep(codes.DeadlineExceeded)), code: codes.Unavailable, text: "not_owner"},
		"the call's limit":            {err: failed(stint.NoTime, stint.Outcome{Kind: stint.Expired}, dep(codes.DeadlineExceeded)), code: codes.DeadlineExceeded, text: "of the dependency"},
		"another carrier's 503":       {err: judged{stint.Outcome{Kind: stint.Transient, Code: "503"}}, code: codes.Unavailable, text: "503"},
		"another carrier's 500":       {err: judged{stint.Outcome{Code: "500"}}, code: codes.Unavailable, text: "500", never: true},
		"another carrier's 404":       {err: judged{stint.Outcome{Kind: stint.Rejected, Code: "404"}}, code: codes.Unavailable, text: "404", never: true},
		"another carrier's 504":       {err: judged{stint.Outcome{Kind: stint.TimedOut, Code: "504"}}, code: codes.Unavailable, text: "504"},
		"another carrier's time":      {err: judged{stint.Outcome{Kind: stint.Expired, Code: "deadline"}}, code: codes.DeadlineExceeded, text: "deadline"},
		"another carrier's 429":       {err: judged{stint.Outcome{Kind: stint.Overloaded, Code: "429"}}, code: codes.Unavailable, text: "429", never: true},
		"another carrier's 429, 1.5s": {err: judged{stint.Outcome{Kind: stint.Overloaded, Code: "429", Hinted: true, RetryAfter: 1500 * time.Millisecond}}, code: codes.Unavailable, text: "429", wait: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.serve("s", answers(c.err), stintgrpc.ServerOptions(newGate(t, "s", peers), nil)...)
				var md metadata.MD
				_, err := w.plain("s").UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&md))
				st := status.Convert(err)
				if st.Code() != c.code || st.Message() != c.text || md["x-not-started"] != nil {
					t.Errorf("%v with %v; want %v %q", err, md, c.code, c.text)
				}
				if n := len(st.Details()); n > 1 {
					t.Errorf("%d details, want one RetryInfo at most", n)
				}
				if never := only(md, "x-retry") == "never" && only(md, "grpc-retry-pushback-ms") == "-1"; never != c.never {
					t.Errorf("%v: never %v, want %v", md, never, c.never)
				}
				if c.wait > 0 && (retryInfo(err) != c.wait || only(md, "grpc-retry-pushback-ms") != fmt.Sprint(c.wait.Milliseconds())) {
					t.Errorf("RetryInfo %v, %v; want %v", retryInfo(err), md, c.wait)
				}
			})
		})
	}
}

// The mark that only a Gate may set does not pass through a handler that copies it.
func TestMarksDoNotPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			grpc.SetTrailer(ctx, metadata.Pairs("x-not-started", "full"))
			return nil, unavailable
		}, duplex: func(st grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
			st.SetTrailer(metadata.Pairs("x-not-started", "full"))
			return unavailable
		}}
		w.serve("s", s, stintgrpc.ServerOptions(newGate(t, "s", peers), nil)...)
		err := call(t.Context(), w.client("s", newCaller(t, "s", retries(3), stint.CallerOptions{})))
		if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != stint.NotRepeatable || s.Calls() != 1 {
			t.Errorf("%d calls, %v; want one that may have been executed", s.Calls(), err)
		}
		st, err := w.plain("s").FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = st.Recv(); len(st.Trailer()["x-not-started"]) != 2 {
			t.Errorf("%v, %v; want the mark taken back", err, st.Trailer())
		}
	})
}

// A handler that ignores its context is waited for, and what it did is wasted.
func TestLateHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var rec stinttest.Recorder
		w.serve("s", &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			time.Sleep(200 * time.Millisecond) // virtual
			return &testpb.SimpleResponse{}, nil
		}}, stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{DefaultTimeout: 50 * time.Millisecond, Observer: &rec}), nil)...)
		start := time.Now()
		err := call(t.Context(), w.plain("s")) // names no deadline, so nobody else ends it
		if took := time.Since(start); status.Code(err) != codes.DeadlineExceeded || took != 200*time.Millisecond {
			t.Errorf("%v after %v, want DEADLINE_EXCEEDED after 200ms", err, took)
		}
		wasted, left := rec.Events(stint.WorkWasted), rec.Events(stint.GateLeft)
		if len(wasted) != 1 || wasted[0].Elapsed != 150*time.Millisecond || left[0].Outcome.Kind != stint.Expired {
			t.Errorf("wasted %+v, left %+v", wasted, left)
		}
		// One that names it does not wait.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start = time.Now()
		if err = call(ctx, w.plain("s")); status.Code(err) != codes.DeadlineExceeded || time.Since(start) != 20*time.Millisecond {
			t.Errorf("%v after %v, want DEADLINE_EXCEEDED after 20ms", err, time.Since(start))
		}
		time.Sleep(time.Second)
	})
}

// A handler that answers within the reserve is in time.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve("s", &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			<-ctx.Done()
			if left, _ := stint.Remaining(ctx); left != 0 {
				t.Errorf("%v left in a context that is over", left)
			}
			return &testpb.SimpleResponse{Username: "short"}, nil
		}}, stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{}), nil)...)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		out, err := w.plain("s").UnaryCall(ctx, &testpb.SimpleRequest{})
		if took := time.Since(start); err != nil || out.GetUsername() != "short" || took != 45*time.Millisecond {
			t.Errorf("%v, %v after %v; want the answer after 45ms", out, err, took)
		}
	})
}

// A caller that leaves is no failure of the service, whatever its handler does then.
func TestCallerLeaves(t *testing.T) {
	for _, handler := range []string{"obeys", "answers", "calls on"} {
		t.Run(handler, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var rec stinttest.Recorder
				s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					<-ctx.Done()
					if handler == "answers" {
						return &testpb.SimpleResponse{}, nil
					}
					return nil, ctx.Err()
				}}
				opts := stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{Observer: &rec}), nil)
				if handler == "calls on" {
					w.serve("next", s)
					next := w.client("next", newCaller(t, "next", stint.Policy{}, stint.CallerOptions{}))
					s = &service{unary: func(ctx context.Context, _ int, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
						return next.UnaryCall(ctx, in)
					}}
				}
				w.serve("s", s, opts...)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*time.Millisecond, cancel)
				call(ctx, w.plain("s"))
				synctest.Wait()
				left := rec.Events(stint.GateLeft)
				if len(left) != 1 || left[0].Outcome.Kind != stint.Canceled || left[0].Outcome.Code != "CANCELLED" || left[0].Elapsed != 30*time.Millisecond {
					t.Errorf("%+v, want one that its caller left after 30ms", left)
				}
			})
		})
	}
}

// "Never" travels up by the Gate's own state, whatever status the handler makes of
// it, and not with an answer that no retry follows.
func TestNeverTravelsUp(t *testing.T) {
	for code, want := range map[codes.Code]string{codes.Unavailable: "never", codes.Internal: "never", codes.NotFound: "[]", codes.OK: "[]"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.serve("next", &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				grpc.SetTrailer(ctx, metadata.Pairs("x-retry", "never"))
				return nil, unavailable
			}})
			next := w.client("next", newCaller(t, "next", stint.Policy{}, stint.CallerOptions{}))
			w.serve("s", &service{unary: func(ctx context.Context, _ int, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				next.UnaryCall(ctx, in)
				return &testpb.SimpleResponse{}, status.Error(code, "")
			}}, stintgrpc.ServerOptions(newGate(t, "s", peers), nil)...)
			var md metadata.MD
			_, err := w.plain("s").UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&md))
			if status.Code(err) != code || only(md, "x-retry") != want {
				t.Errorf("%v with %v; want %v, and x-retry %s", err, md, code, want)
			}
		})
	}
}

// A panic passes through, and its place is free again.
func TestPanicGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		recovered := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
			defer func() {
				if p := recover(); p != nil {
					err = status.Error(codes.Internal, fmt.Sprint(p))
				}
			}()
			return h(ctx, req)
		}
		recoveredStream := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = status.Error(codes.Internal, fmt.Sprint(p))
				}
			}()
			return h(srv, ss)
		}
		g := newGate(t, "s", stint.GateOptions{Limit: 1})
		s := &service{unary: func(context.Context, int, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { panic("ours") },
			duplex: func(grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
				panic("ours")
			}}
		w.serve("s", s, append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(recovered), grpc.ChainStreamInterceptor(recoveredStream)}, stintgrpc.ServerOptions(g, nil)...)...)
		for range 3 {
			if err := call(t.Context(), w.plain("s")); status.Convert(err).Message() != "ours" {
				t.Errorf("%v, want the panic", err)
			}
			st, err := w.plain("s").FullDuplexCall(t.Context())
			if err == nil {
				_, err = st.Recv()
			}
			if status.Convert(err).Message() != "ours" {
				t.Errorf("%v, want the panic", err)
			}
		}
		if g.Running() != 0 {
			t.Errorf("%d run", g.Running())
		}
	})
}

// What strangers claim is neither believed nor seen.
func TestTrust(t *testing.T) {
	claims := []string{"x-retry-owner", "evil", "x-attempt", "9", "x-criticality", "critical-plus", "x-request-id", "r1", "x-deadline-ms", "5000", "x-mine", "1"}
	for _, trust := range []stint.Trust{stint.TrustDeadlineOnly, stint.TrustPeers} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var hop stint.Hop
			s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				hop = stint.HopFromContext(ctx)
				return &testpb.SimpleResponse{}, nil
			}}
			w.serve("s", s, stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{Trust: trust, Reserve: stint.NoReserve}), nil)...)
			if err := call(metadata.AppendToOutgoingContext(t.Context(), claims...), w.plain("s")); err != nil {
				t.Fatal(err)
			}
			md, left := s.Seen(0)
			if left != 5*time.Second || only(md, "x-mine") != "1" {
				t.Errorf("%v left, %v; want 5s, and what is no claim", left, md)
			}
			believed := trust == stint.TrustPeers
			if (hop.Owner == "evil") != believed || (hop.Class == stint.CriticalPlus) != believed || (hop.RequestID == "r1") != believed || hop.RequestID == "" {
				t.Errorf("%v: %+v", trust, hop)
			}
			for _, name := range []string{"x-retry-owner", "x-attempt", "x-criticality", "x-deadline-ms"} {
				if (md[name] != nil) != believed {
					t.Errorf("%v: the handler sees %s %q", trust, name, md[name])
				}
			}
			if only(md, "x-request-id") != hop.RequestID {
				t.Errorf("%v: the handler sees %v, want the Gate's %s", trust, md["x-request-id"], hop.RequestID)
			}
		})
	}
}

// Health is answered at any load, also by a Gate that drains; long-running
// methods have places and time of their own.
func TestViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate(t, "s", stint.GateOptions{Limit: 1, MaxTimeout: time.Second, LongTimeout: time.Minute, Reserve: stint.NoReserve})
		s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, duplex: func(st grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
			return nil
		}}
		srv := grpc.NewServer(stintgrpc.ServerOptions(g, &stintgrpc.MethodOptions{LongRunning: func(m string) bool { return m == "/"+duplex }})...)
		testpb.RegisterTestServiceServer(srv, s)
		healthpb.RegisterHealthServer(srv, health.NewServer())
		l := w.listen("s")
		go srv.Serve(l)
		defer srv.Stop()
		client, probe := w.plain("s"), healthpb.NewHealthClient(w.connect("passthrough:///s"))
		go call(t.Context(), client)
		synctest.Wait()
		if st, err := client.FullDuplexCall(t.Context()); err != nil {
			t.Error(err)
		} else if st.Recv(); s.Calls() != 2 {
			t.Errorf("%d calls, want the stream beside the call that has the one place", s.Calls())
		} else if _, left := s.Seen(1); left != time.Minute {
			t.Errorf("the stream had %v, want a minute", left)
		}
		g.Drain()
		if err := call(t.Context(), client); status.Code(err) != codes.Unavailable {
			t.Errorf("%v, want a refusal", err)
		}
		if _, err := probe.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health while it drains: %v", err)
		}
		start := time.Now()
		watch, err := probe.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		for err == nil {
			_, err = watch.Recv()
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("a watch lived for %v (%v), want a minute", took, err)
		}
	})
	_, err := stintgrpc.UnaryServerInterceptor(nil, nil)(t.Context(), nil, &grpc.UnaryServerInfo{}, nil)
	if status.Code(err) != codes.Internal {
		t.Errorf("without a Gate: %v", err)
	}
	_, err = stintgrpc.UnaryServerInterceptor(new(stint.Gate), nil)(t.Context(), nil, &grpc.UnaryServerInfo{}, nil)
	if status.Code(err) != codes.Internal {
		t.Errorf("with a Gate that NewGate did not make: %v", err)
	}
}
