package stintgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// withInfo is a status that asks to wait.
func withInfo(code codes.Code, wait time.Duration) error {
	st, err := status.New(code, "wait").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// What a plain server's answer makes of a call with three attempts.
func TestOutcomes(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		err     error
		trailer metadata.MD
		safe    bool
		peer    stintgrpc.Peer
		want    int
		reason  stint.Reason
		took    time.Duration // the waits: one virtual millisecond, and what the server asks for
	}{
		{err: unavailable, want: 1, reason: stint.NotRepeatable},
		{err: unavailable, safe: true, want: 3, reason: stint.AttemptsSpent, took: 2 * ms},
		{err: status.Error(codes.ResourceExhausted, ""), safe: true, want: 1, reason: stint.Final},
		{err: withInfo(codes.ResourceExhausted, 20*ms), safe: true, want: 3, reason: stint.AttemptsSpent, took: 42 * ms},
		{err: withInfo(codes.ResourceExhausted, 20*ms), want: 1, reason: stint.NotRepeatable},
		{err: status.Error(codes.ResourceExhausted, ""), trailer: metadata.Pairs("grpc-retry-pushback-ms", "30"), safe: true, want: 3, reason: stint.AttemptsSpent, took: 62 * ms},
		{err: withInfo(codes.Unavailable, 20*ms), trailer: metadata.Pairs("grpc-retry-pushback-ms", "30"), safe: true, want: 3, reason: stint.AttemptsSpent, took: 62 * ms},
		{err: withInfo(codes.Unavailable, time.Hour), safe: true, want: 1, reason: stint.NoTime},
		{err: unavailable, trailer: metadata.Pairs("grpc-retry-pushback-ms", "9223372036854775807"), safe: true, want: 1, reason: stint.NoTime},
		{err: unavailable, trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1"), safe: true, want: 1, reason: stint.NeverRetry},
		{err: unavailable, trailer: metadata.Pairs("grpc-retry-pushback-ms", "soon"), safe: true, want: 1, reason: stint.NeverRetry},
		{err: unavailable, trailer: metadata.Pairs("grpc-retry-pushback-ms", "5", "grpc-retry-pushback-ms", "5"), safe: true, want: 1, reason: stint.NeverRetry},
		{err: unavailable, trailer: metadata.Pairs("x-retry", "never"), safe: true, want: 1, reason: stint.NeverRetry},
		{err: unavailable, trailer: metadata.Pairs("x-not-started", "full"), want: 1, reason: stint.NotRepeatable},
		{err: unavailable, trailer: metadata.Pairs("x-not-started", "full"), peer: stintgrpc.PeerStint, want: 3, reason: stint.AttemptsSpent, took: 2 * ms},
		{err: unavailable, trailer: metadata.Pairs("x-not-started", "full", "x-not-started", "entered"), peer: stintgrpc.PeerStint, want: 1, reason: stint.NotRepeatable},
		{err: status.Error(codes.DeadlineExceeded, ""), trailer: metadata.Pairs("x-not-started", "no_time"), peer: stintgrpc.PeerStint, safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.DeadlineExceeded, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.Canceled, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.Aborted, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.Internal, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.Unknown, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.DataLoss, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.OutOfRange, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.NotFound, ""), safe: true, want: 1, reason: stint.Final},
		{err: status.Error(codes.Unimplemented, ""), safe: true, want: 1, reason: stint.Final},
	} {
		t.Run(fmt.Sprintf("%v,%v,safe=%v,peer=%v", status.Code(c.err), c.trailer, c.safe, c.peer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					grpc.SetTrailer(ctx, c.trailer)
					return nil, c.err
				}}
				w.serve("s", s)
				p := retries(3)
				if c.safe {
					p = articlePolicy(3, 0)
				}
				client := w.plain("s", stintgrpc.DialOptions(newCaller(t, "s", p, stint.CallerOptions{}), &stintgrpc.ClientOptions{Peer: c.peer})...)
				start := time.Now()
				err := call(t.Context(), client)
				e, ok := errors.AsType[*stint.Error](err)
				if took := time.Since(start); !ok || s.Calls() != c.want || e.Reason != c.reason || took != c.took {
					t.Fatalf("%d calls after %v, %v; want %d after %v and Reason %v", s.Calls(), took, err, c.want, c.took, c.reason)
				}
				if status.Code(err) != status.Code(c.err) {
					t.Errorf("status %v, want the server's %v", status.Code(err), status.Code(c.err))
				}
				if last := e.Outcomes[len(e.Outcomes)-1]; last != strings.ToUpper(last) {
					t.Errorf("outcome %q, want gRPC's own name", last)
				}
			})
		})
	}
}

// A code that the policy lists is repeated, in gRPC's own spelling.
func TestListedCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := answers(status.Error(codes.Canceled, ""))
		w.serve("s", s)
		p := articlePolicy(3, 0)
		p.Retry.Codes = []string{"CANCELLED"}
		if err := call(t.Context(), w.client("s", newCaller(t, "s", p, stint.CallerOptions{}))); s.Calls() != 3 {
			t.Errorf("%d calls, %v; want 3", s.Calls(), err)
		}
	})
}

// What a refusal of this process looks like to code that asks for a status.
func TestRefusalsHaveAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := answers(unavailable)
		w.serve("s", s)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		open := newCaller(t, "s", stint.Policy{Breaker: stint.Breaker{MinCalls: 1}}, stint.CallerOptions{})
		if err := call(t.Context(), w.client("s", open)); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		for _, c := range []struct {
			ctx    context.Context
			caller *stint.Caller
			want   codes.Code
			is     error
			reason stint.Reason
		}{
			{short, newCaller(t, "s", stint.Policy{MinUseful: time.Second}, stint.CallerOptions{}), codes.DeadlineExceeded, context.DeadlineExceeded, stint.NoTime},
			{canceled, newCaller(t, "s", stint.Policy{}, stint.CallerOptions{}), codes.Canceled, context.Canceled, stint.CallerGone},
			{t.Context(), open, codes.Unavailable, nil, stint.BreakerOpen},
		} {
			err := call(c.ctx, w.client("s", c.caller))
			e, ok := errors.AsType[*stint.Error](err)
			if !ok || e.Reason != c.reason || status.Code(err) != c.want || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v (status %v), want Reason %v as %v", err, status.Code(err), c.reason, c.want)
			}
		}
		if s.Calls() != 1 {
			t.Errorf("%d calls, want the breaker's one", s.Calls())
		}
	})
	err := stintgrpc.UnaryClientInterceptor(nil, nil)(t.Context(), "/m", nil, nil, nil, nil)
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "stint.NewCaller") {
		t.Errorf("without a Caller: %v", err)
	}
	if _, err = stintgrpc.StreamClientInterceptor(new(stint.Caller), nil)(t.Context(), nil, nil, "/m", nil); status.Code(err) != codes.Internal {
		t.Errorf("with a Caller that NewCaller did not make: %v", err)
	}
}

// What a peer is told, and what an external party is.
func TestWhatIsTold(t *testing.T) {
	for _, peer := range []stintgrpc.Peer{stintgrpc.PeerExternal, stintgrpc.PeerStint} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := answers(unavailable)
			w.serve("s", s)
			g := newGate(t, "shop", peers)
			var a stint.Admission
			if err := g.Admit(t.Context(), stint.Hop{RequestID: "r1", Class: stint.Sheddable, Attempt: 4}, &a); err != nil {
				t.Fatal(err)
			}
			defer a.Finish(stint.Outcome{})
			ctx := metadata.AppendToOutgoingContext(a.Context(), "Idempotency-Key", `"k1"`, "x-attempt", "7", "X-Retry-Owner", "copied",
				"x-deadline-ms", "99999", "grpc-timeout", "9H", "x-mine", "1")
			client := w.plain("s", stintgrpc.DialOptions(newCaller(t, "s", retries(2), stint.CallerOptions{}), &stintgrpc.ClientOptions{Peer: peer})...)
			if err := call(ctx, client); s.Calls() != 2 {
				t.Fatalf("%d calls, %v; want 2, since it has a key", s.Calls(), err)
			}
			for n, attempt := range []string{"", "2"} {
				want := map[string]string{"idempotency-key": `"k1"`, "x-mine": "1", "x-deadline-ms": "", "grpc-timeout": "",
					"x-attempt": "", "x-retry-owner": "", "x-criticality": "", "x-request-id": ""}
				if peer == stintgrpc.PeerStint {
					want["x-attempt"], want["x-retry-owner"], want["x-criticality"], want["x-request-id"] = attempt, "shop", "sheddable", "r1"
				}
				md, left := s.Seen(n)
				for name, value := range want {
					if got := strings.Join(md[name], ","); got != value {
						t.Errorf("peer %v, attempt %d: %s is %q, want %q", peer, n+1, name, got, value)
					}
				}
				if left > 10*time.Second || left < 9*time.Second {
					t.Errorf("peer %v, attempt %d was told %v, want the Gate's 10s less the wait", peer, n+1, left)
				}
			}
		})
	}
}

// Calls that say the same share its metadata, and no others.
func TestEachCallSaysItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{}
		w.serve("s", s)
		type opKey struct{}
		client := w.plain("s", stintgrpc.DialOptions(newCaller(t, "s", retries(2), stint.CallerOptions{}), &stintgrpc.ClientOptions{
			Peer: stintgrpc.PeerStint, Op: func(ctx context.Context, _ string) stint.Op { return ctx.Value(opKey{}).(stint.Op) }})...)
		gate := newGate(t, "shop", stint.GateOptions{Trust: stint.TrustPeers, Limit: stint.NoLimit})
		want, wg := map[string]int{}, sync.WaitGroup{}
		for n := range 48 {
			var op stint.Op
			class, owner, mine, id := "", "", "", ""
			if n%2 == 0 { // else it can't be repeated, and so owns nothing
				op.Safety, owner = stint.ReadOnly, "client"
			}
			if n%3 > 0 {
				op.Class = stint.Class(n % 3)
				class = op.Class.String()
			}
			ctx := context.WithValue(t.Context(), opKey{}, op)
			if n%4 > 1 {
				mine = fmt.Sprint(n % 4)
				ctx = metadata.AppendToOutgoingContext(ctx, "x-mine", mine)
			}
			if n >= 24 {
				id = fmt.Sprint(n)
				var a stint.Admission
				if err := gate.Admit(ctx, stint.Hop{RequestID: id, Owner: owner}, &a); err != nil {
					t.Fatal(err)
				}
				defer a.Finish(stint.Outcome{})
				ctx = a.Context()
			}
			want[strings.Join([]string{owner, class, mine, id}, "/")]++
			wg.Go(func() {
				if err := call(ctx, client); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		said := map[string]int{}
		for n := range s.Calls() {
			md, _ := s.Seen(n)
			var values []string
			for _, name := range []string{"x-retry-owner", "x-criticality", "x-mine", "x-request-id"} {
				values = append(values, strings.Join(md[name], ","))
			}
			said[strings.Join(values, "/")]++
		}
		if !maps.Equal(said, want) {
			t.Errorf("said %v, want %v", said, want)
		}
	})
}

// Each call is one event of its attempts and one of itself.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{unary: func(_ context.Context, n int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if n < 3 {
				return nil, unavailable
			}
			return &testpb.SimpleResponse{}, nil
		}}
		w.serve("s", s)
		var rec stinttest.Recorder
		c := newCaller(t, "s", articlePolicy(3, 0), stint.CallerOptions{Observer: &rec})
		if err := call(t.Context(), w.client("s", c)); err != nil {
			t.Fatal(err)
		}
		var codes []string
		for _, e := range rec.Events(stint.AttemptDone) {
			codes = append(codes, e.Outcome.String())
			if e.Op != unaryCall {
				t.Errorf("operation %q, want %q", e.Op, unaryCall)
			}
		}
		if got := strings.Join(codes, " "); got != "UNAVAILABLE UNAVAILABLE OK" || len(rec.Events(stint.CallDone)) != 1 || len(rec.Events(stint.Resent)) != 0 {
			t.Errorf("attempts %s, calls %v, resent %v", got, rec.Events(stint.CallDone), rec.Events(stint.Resent))
		}
	})
}
