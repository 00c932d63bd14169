package stintgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// raw posts an empty message as gRPC does, with any request header.
func (w *world) raw(t *testing.T, host string, header http.Header) (code string, trailer http.Header) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	base := &http.Transport{Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx, host) }}
	defer base.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+host+"/"+unaryCall, strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	resp, err := base.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if trailer = resp.Trailer; trailer.Get("Grpc-Status") == "" {
		trailer = resp.Header // trailers only
	}
	return trailer.Get("Grpc-Status"), trailer
}

// B02, inbound: no grpc-timeout wraps, enlarges, or is an expired one by accident.
func TestB02ReadsTimeouts(t *testing.T) {
	const most, unsaid = 3 * time.Second, 500 * time.Millisecond
	for _, c := range []struct {
		timeouts   []string
		deadlineMs string
		code       string        // zero: the handler ran
		left       time.Duration // and had so much
		notStarted string
		anomalies  int
	}{
		{timeouts: nil, left: unsaid},
		{timeouts: []string{"1S"}, left: time.Second},
		{timeouts: []string{"250m"}, left: 250 * time.Millisecond},
		{timeouts: []string{"99999999H"}, left: most, anomalies: 1},
		{timeouts: []string{"99999999S"}, left: most, anomalies: 1},
		{timeouts: []string{"0n"}, code: "4"},
		{timeouts: []string{"1n"}, code: "4", notStarted: "no_time"},
		{timeouts: []string{"999u"}, code: "4", notStarted: "no_time"},
		// grpc-go refuses what is malformed, and never runs it without a limit.
		{timeouts: []string{"-1S"}, code: "13"},
		{timeouts: []string{"1"}, code: "13"},
		{timeouts: []string{"1X"}, code: "13"},
		{timeouts: []string{"S"}, code: "13"},
		{timeouts: []string{"123456789m"}, code: "13"},
		// The last of several wins there; what it may be is the Gate's.
		{timeouts: []string{"5S", "1S"}, left: time.Second},
		{timeouts: []string{"1S", "5S"}, left: most},
		// Beside another name the smallest wins.
		{timeouts: []string{"2S"}, deadlineMs: "100", left: 100 * time.Millisecond},
		{timeouts: []string{"1S"}, deadlineMs: "2000", left: time.Second},
	} {
		t.Run(fmt.Sprint(c.timeouts, c.deadlineMs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &service{}
				var rec stinttest.Recorder
				srv := w.serve("s", s, stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{
					DefaultTimeout: unsaid, MaxTimeout: most, Reserve: stint.NoReserve, Observer: &rec}), nil)...)
				defer srv.Stop()
				h := http.Header{}
				for _, v := range c.timeouts {
					h.Add("Grpc-Timeout", v)
				}
				if c.deadlineMs != "" {
					h.Set("X-Deadline-Ms", c.deadlineMs)
				}
				code, trailer := w.raw(t, "s", h)
				if c.code != "" {
					if code != c.code || s.Calls() != 0 || trailer.Get("X-Not-Started") != c.notStarted {
						t.Errorf("grpc-status %s, %d calls, %v; want %s, none, and not started %q", code, s.Calls(), trailer, c.code, c.notStarted)
					}
					return
				}
				if code != "0" || s.Calls() != 1 {
					t.Fatalf("grpc-status %s, %d calls; want the handler to run", code, s.Calls())
				}
				if _, left := s.Seen(0); left != c.left {
					t.Errorf("the handler had %v, want %v", left, c.left)
				}
				if e := rec.Events(stint.GateEntered); e[0].Anomalies != c.anomalies {
					t.Errorf("%d anomalies, want %d", e[0].Anomalies, c.anomalies)
				}
			})
		})
	}
}

// B02, outbound: whatever the deadline, a peer gets 1 to 8 digits and a unit, never zero.
func TestB02WritesTimeouts(t *testing.T) {
	for _, left := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 27 * time.Hour, 28 * time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			var told []string
			srv := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				told = append(told, r.Header["Grpc-Timeout"]...)
				rw.Header().Set("Content-Type", "application/grpc")
				rw.Header().Set("Grpc-Status", "5")
			})}
			l := w.listen("s")
			go srv.Serve(l)
			defer srv.Close()
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			err := call(ctx, w.client("s", newCaller(t, "s", stint.Policy{}, stint.CallerOptions{})))
			if status.Code(err) != codes.NotFound || len(told) != 1 || len(told[0]) < 2 || len(told[0]) > 9 {
				t.Fatalf("%v: told %q, %v", left, told, err)
			}
			if h := stint.ParseHop(map[string][]string{"grpc-timeout": told}); h.Ignored != 0 || h.Remaining < left || h.Remaining >= left+time.Hour {
				t.Errorf("%v: told %q, which is %v", left, told, h.Remaining)
			}
		})
	}
}

// B06: the attempt's own limit is not the caller giving up, whether the peer
// stays silent, answers in time that its time is over, or keeps the contract.
func TestB06AttemptLimit(t *testing.T) {
	const ms = time.Millisecond
	hang := func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, gated := range []bool{false, true} {
		serve := func(t *testing.T, w *world, s *service) {
			var opts []grpc.ServerOption
			if gated {
				opts = stintgrpc.ServerOptions(newGate(t, "s", stint.GateOptions{Trust: stint.TrustPeers}), nil)
			}
			w.serve("s", s, opts...)
		}
		policy := func(timeout, useful time.Duration) stint.Policy {
			p := articlePolicy(3, useful)
			p.Timeout, p.Retry.AttemptTimeout = timeout, 100*ms
			return p
		}
		t.Run(fmt.Sprintf("gated=%v", gated), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &service{unary: func(ctx context.Context, n int, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					if n == 1 {
						return hang(ctx, n, in)
					}
					return &testpb.SimpleResponse{}, nil
				}}
				serve(t, w, s)
				start := time.Now()
				err := call(t.Context(), w.client("s", newCaller(t, "s", policy(time.Second, 0), stint.CallerOptions{})))
				if took := time.Since(start); err != nil || s.Calls() != 2 || took > 102*ms {
					t.Errorf("%d calls after %v, %v; want a success at the second", s.Calls(), took, err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &service{unary: hang}
				serve(t, w, s)
				start := time.Now()
				err := call(t.Context(), w.client("s", newCaller(t, "s", policy(150*ms, 60*ms), stint.CallerOptions{})))
				e, ok := errors.AsType[*stint.Error](err)
				if took := time.Since(start); !ok || s.Calls() != 1 || e.Reason != stint.NoTime || e.Last.Kind != stint.TimedOut || took < 90*ms || took > 100*ms {
					t.Errorf("%d calls after %v, %v; want one, and no time for another", s.Calls(), took, err)
				}
				if !gated && !errors.Is(err, stint.ErrAttemptTimeout) {
					t.Errorf("%v, want ErrAttemptTimeout in the chain", err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &service{unary: hang}
				serve(t, w, s)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(50*ms, cancel)
				start := time.Now()
				err := call(ctx, w.client("s", newCaller(t, "s", policy(time.Second, 0), stint.CallerOptions{})))
				if took := time.Since(start); s.Calls() != 1 || !errors.Is(err, context.Canceled) || status.Code(err) != codes.Canceled || took != 50*ms {
					t.Errorf("%d calls after %v, %v; want one, and the cancel", s.Calls(), took, err)
				}
			})
		})
	}
	// A peer that gives up early is not the attempt's limit.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := answers(status.Error(codes.DeadlineExceeded, "its own"))
		w.serve("s", s)
		p := articlePolicy(3, 0)
		p.Timeout, p.Retry.AttemptTimeout = time.Second, 100*ms
		if err := call(t.Context(), w.client("s", newCaller(t, "s", p, stint.CallerOptions{}))); s.Calls() != 1 {
			t.Errorf("%d calls, %v; want one", s.Calls(), err)
		}
	})
}

// B08: nobody tries again for a caller that has gone.
func TestB08CallerCancels(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		service *service
		base    time.Duration
		at      time.Duration
		want    int
	}{
		"within the attempt": {&service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, ms, 30 * ms, 1},
		"between attempts": {answers(unavailable), time.Second, 30 * ms, 1},
		"at entry":         {answers(unavailable), ms, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.serve("s", c.service)
				var rec stinttest.Recorder
				p := articlePolicy(7, 0)
				p.Retry.Base, p.Retry.Cap = c.base, c.base
				client := w.client("s", newCaller(t, "s", p, stint.CallerOptions{Observer: &rec}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.at == 0 {
					cancel()
				} else {
					time.AfterFunc(c.at, cancel)
				}
				start := time.Now()
				err := call(ctx, client)
				if took := time.Since(start); c.service.Calls() != c.want || took != c.at || !errors.Is(err, context.Canceled) {
					t.Errorf("%d calls, back after %v, %v; want %d after %v and context.Canceled", c.service.Calls(), took, err, c.want, c.at)
				}
				if refused := rec.Refused(); refused[stint.CallerGone] != 1 || len(refused) != 1 {
					t.Errorf("%v, want one call whose caller had gone", refused)
				}
			})
		})
	}
}

// B14: what must not be executed twice is not, unless a key makes it safe.
func TestB14AmbiguousFailure(t *testing.T) {
	effects := map[string]func(w *world, srv **grpc.Server) error{
		"answers UNAVAILABLE": func(*world, **grpc.Server) error { return unavailable },
		"loses the connection": func(w *world, srv **grpc.Server) error {
			go (*srv).Stop()
			return nil
		},
	}
	for name, effect := range effects {
		for _, key := range []string{"", "order-1"} {
			t.Run(name+",key="+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					var srv *grpc.Server
					s := &service{unary: func(ctx context.Context, n int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
						if n == 1 {
							err := effect(w, &srv)
							if err == nil {
								<-ctx.Done() // the connection goes
							}
							return nil, err
						}
						return &testpb.SimpleResponse{}, nil
					}}
					srv = w.serve("s", s)
					ctx := t.Context()
					if key != "" {
						ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
					}
					err := call(ctx, w.client("s", newCaller(t, "s", retries(3), stint.CallerOptions{})))
					e, ok := errors.AsType[*stint.Error](err)
					switch {
					case key == "" && (!ok || s.Calls() != 1 || e.Reason != stint.NotRepeatable || !strings.Contains(err.Error(), "may have been executed")):
						t.Errorf("%d calls, %v; want one that may have been executed", s.Calls(), err)
					case key != "" && name == "answers UNAVAILABLE" && (err != nil || s.Calls() != 2):
						t.Errorf("%d calls, %v; want a success at the second", s.Calls(), err)
					case key != "" && name == "loses the connection" && (!ok || e.Attempts != 3):
						t.Errorf("%v; want three attempts", err)
					}
					for n := range s.Calls() {
						if md, _ := s.Seen(n); key != "" && !slices.Equal(md["idempotency-key"], []string{key}) {
							t.Errorf("call %d has the key %q, want %q", n+1, md["idempotency-key"], key)
						}
					}
				})
			})
		}
	}
}

// B14: where nothing reached a server, anything may be sent again.
func TestB14NothingSent(t *testing.T) {
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := newCaller(t, "s", retries(3), stint.CallerOptions{})
			client := w.client("s", c) // nobody listens
			if !watched {
				client = w.plain("s", grpc.WithChainUnaryInterceptor(stintgrpc.UnaryClientInterceptor(c, nil)))
			}
			err := call(t.Context(), client)
			want, attempts := stint.AttemptsSpent, 3
			if !watched { // then it is not known
				want, attempts = stint.NotRepeatable, 1
			}
			if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != want || e.Attempts != attempts || e.Last.NotStarted != watched {
				t.Errorf("watched %v: %v; want Reason %v after %d attempts", watched, err, want, attempts)
			}
		})
	}
	// Waiting for a connection is no start either.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := retries(3)
		p.Timeout, p.Retry.AttemptTimeout = 10*time.Second, 100*time.Millisecond
		client := w.client("s", newCaller(t, "s", p, stint.CallerOptions{}))
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.WaitForReady(true))
		if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != stint.AttemptsSpent || e.Attempts != 3 || e.Last.Kind != stint.TimedOut {
			t.Errorf("%v, want three attempts that ran out of time", err)
		}
	})
}

// B17: the last answer is the caller's, with all that it says.
func TestB17LastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		st, _ := status.New(codes.ResourceExhausted, "quota of team seven").WithDetails(&errdetails.RetryInfo{}, &errdetails.ErrorInfo{Reason: "QUOTA"})
		s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			grpc.SetTrailer(ctx, metadata.Pairs("a", "1", "b", "2", "c", "3"))
			return nil, st.Err()
		}}
		w.serve("s", s)
		var trailer metadata.MD
		_, err := w.client("s", newCaller(t, "s", articlePolicy(3, 0), stint.CallerOptions{})).
			UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
		got, ok := status.FromError(err)
		if !ok || got.Code() != codes.ResourceExhausted || len(got.Details()) != 2 || !strings.Contains(got.Message(), "quota of team seven") || s.Calls() != 3 {
			t.Errorf("%d calls, %v, details %v", s.Calls(), err, got.Details())
		}
		for _, name := range []string{"a", "b", "c"} {
			if len(trailer[name]) != 1 {
				t.Errorf("trailer %v, want one %s", trailer, name)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var once sync.Once
		var srv *grpc.Server
		s := &service{unary: func(ctx context.Context, n int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if n == 3 {
				once.Do(func() { go srv.Stop() })
				<-ctx.Done()
			}
			return nil, withInfo(codes.ResourceExhausted, 0)
		}}
		srv = w.serve("s", s)
		err := call(t.Context(), w.client("s", newCaller(t, "s", articlePolicy(3, 0), stint.CallerOptions{})))
		e, ok := errors.AsType[*stint.Error](err)
		if !ok || status.Code(err) != codes.Unavailable || fmt.Sprint(e.Outcomes) != "[RESOURCE_EXHAUSTED RESOURCE_EXHAUSTED UNAVAILABLE]" {
			t.Errorf("%v, want the lost connection, and what was before", err)
		}
	})
}

// B20: the limit of an attempt and that of the call are two; to list
// DEADLINE_EXCEEDED gives no time back.
func TestB20TwoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &service{unary: func(ctx context.Context, _ int, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		w.serve("s", s)
		p := articlePolicy(9, 0)
		p.Timeout, p.Retry.AttemptTimeout, p.Retry.Codes = 12*time.Second, 2500*time.Millisecond, []string{"DEADLINE_EXCEEDED"}
		start := time.Now()
		err := call(t.Context(), w.client("s", newCaller(t, "s", p, stint.CallerOptions{})))
		took := time.Since(start)
		// Four whole attempts, 4 ms of waits, and a fifth that the call's limit ends.
		if s.Calls() != 5 || took != 12*time.Second || status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d calls after %v, %v; want 5, 12s and DEADLINE_EXCEEDED", s.Calls(), took, err)
		}
		for n := range s.Calls() {
			want := min(2500*time.Millisecond, 12*time.Second-time.Duration(n)*2501*time.Millisecond)
			if _, left := s.Seen(n); left != want {
				t.Errorf("attempt %d was told %v, want %v", n+1, left, want)
			}
		}
	})
}
