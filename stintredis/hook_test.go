package stintredis_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintredis"
)

func retrying() stint.Policy {
	return stint.Policy{Retry: stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond}}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func silent([]string) string { return "" }

func TestDeadlineAndCancelInFlight(t *testing.T) {
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		opts redis.Options
		want error
		code string
		took time.Duration
	}{
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		}, redis.Options{}, context.DeadlineExceeded, "deadline", 50 * time.Millisecond},
		{"cancel, long before the deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		}, redis.Options{}, context.Canceled, "canceled", 20 * time.Millisecond},
		{"neither: the client's own limit", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		}, redis.Options{ReadTimeout: 1600 * time.Millisecond}, nil, "timeout", 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, silent)
				c, rec := f.client(t, stint.Policy{}, tt.opts)
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				start := time.Now()
				err := c.Get(ctx, "k").Err()
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if _, ok := errors.AsType[*stint.Error](err); !ok || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("error %v, want an *stint.Error that is %v", err, tt.want)
				}
				if got := codes(rec); !slices.Equal(got, []string{tt.code}) {
					t.Errorf("attempts %q, want %q", got, tt.code)
				}
				synctest.Wait()
				if n := c.PoolStats().TotalConns; n != 0 {
					t.Errorf("%d connections in the pool, want none: a reply is still to come", n)
				}
			})
		})
	}
}

func TestTooLittleTimeSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, silent)
		c, rec := f.client(t, stint.Policy{MinUseful: 20 * time.Millisecond}, redis.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 19*time.Millisecond)
		defer cancel()
		get := c.Get(ctx, "k")
		if !errors.Is(get.Err(), context.DeadlineExceeded) {
			t.Errorf("error %v, want a deadline's", get.Err())
		}
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "a"); p.Get(ctx, "b"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || len(cmds) != 2 {
			t.Fatalf("%d commands, error %v; want two and a deadline's", len(cmds), err)
		}
		for _, cmd := range cmds {
			if cmd.Err() != err {
				t.Errorf("%v: error %v, want the pipeline's", cmd, cmd.Err())
			}
		}
		if n := f.network.Dials("redis"); n != 0 || len(f.got()) != 0 {
			t.Errorf("%d connections, %q; want nothing", n, f.got())
		}
		if got := rec.Refused()[stint.NoTime]; got != 2 {
			t.Errorf("%d refused, want 2", got)
		}
	})
}

// What go-redis says to a new connection is part of the call, not a call.
func TestOneCallForEachCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func(args []string) string { return bulk("v") })
		c, rec := f.client(t, stint.Policy{}, redis.Options{OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			return cn.Get(ctx, "on connect").Err()
		}})
		if v, err := c.Get(t.Context(), "k").Result(); v != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if got := f.got(); !slices.Equal(got, []string{"get on connect", "get k"}) {
			t.Errorf("the server got %q", got)
		}
		calls := rec.Events(stint.CallDone)
		if len(calls) != 1 || calls[0].Op != "get" || calls[0].Outcome.Kind != stint.OK {
			t.Errorf("calls %+v, want one", calls)
		}
	})
}

// The errors of an attempt that was followed by another are not left in the
// commands, and the errors of the last are the call's.
func TestErrorsOfCommandsInAPipeline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cuts := 1
		f := serve(t, func(args []string) string {
			if args[0] == "exec" && cuts > 0 {
				cuts--
				return "cut"
			}
			switch args[0] {
			case "exec":
				return "*2\r\n" + bulk("1") + "$-1\r\n"
			case "get":
				return "+QUEUED\r\n"
			}
			return "cut"
		})
		c, rec := f.client(t, retrying(), redis.Options{})
		cmds, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "a"); p.Get(t.Context(), "b"); return nil })
		if err != redis.Nil || cmds[0].Err() != nil || cmds[1].Err() != redis.Nil {
			t.Errorf("transaction: %v, commands %v; want redis.Nil for the second", err, cmds)
		}
		if got := codes(rec); !slices.Equal(got, []string{"reset", "ok"}) {
			t.Errorf("attempts %q", got)
		}

		cmds, err = c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Incr(t.Context(), "a"); p.Incr(t.Context(), "b"); return nil })
		e, ok := errors.AsType[*stint.Error](err)
		if !ok || e.Reason != stint.NotRepeatable {
			t.Errorf("pipeline: %v, want not_repeatable", err)
		}
		for _, cmd := range cmds {
			if cmd.Err() != err {
				t.Errorf("%v: want the pipeline's error", cmd)
			}
		}
	})
}

// A refusal of one command of a pipeline is no proof that nothing began.
func TestRefusals(t *testing.T) {
	loading := "-LOADING Redis is loading the dataset in memory\r\n"
	for _, tt := range []struct {
		name  string
		reply func(n int, args []string) string
		call  func(ctx context.Context, c *redis.Client) error
		want  string // the commands that the server got
	}{
		{"one command is repeated, since it never began", func(n int, args []string) string {
			if n == 1 {
				return loading
			}
			return ":1\r\n"
		}, func(ctx context.Context, c *redis.Client) error { return c.Incr(ctx, "n").Err() }, "incr n, incr n"},
		{"a pipeline is not", func(n int, args []string) string {
			if n == 1 {
				return ":1\r\n"
			}
			return loading
		}, func(ctx context.Context, c *redis.Client) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Incr(ctx, "n"); p.Incr(ctx, "m"); return nil })
			return err
		}, "incr n, incr m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := 0
				f := serve(t, func(args []string) string { n++; return tt.reply(n, args) })
				c, _ := f.client(t, retrying(), redis.Options{})
				err := tt.call(t.Context(), c)
				if repeated := strings.Contains(tt.name, "is repeated"); repeated != (err == nil) {
					t.Errorf("error %v", err)
				}
				if got := strings.Join(f.got(), ", "); got != tt.want {
					t.Errorf("the server got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// An answer to one command of a pipeline does not hide that another was refused.
func TestPipelineIsJudgedByTheWorst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		f := serve(t, func(args []string) string {
			if n++; n == 2 {
				return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
			}
			return "$-1\r\n"
		})
		c, rec := f.client(t, retrying(), redis.Options{})
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "a"); p.Get(t.Context(), "b"); return nil })
		if got := codes(rec); err != redis.Nil || !slices.Equal(got, []string{"TRYAGAIN", "ok"}) {
			t.Errorf("%v after %q, want redis.Nil at the second attempt", err, got)
		}
		n = 0
		_, err = c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "a"); p.Incr(t.Context(), "b"); return nil })
		if !redis.IsTryAgainError(err) {
			t.Errorf("%v, want the refusal, though the first error is redis.Nil", err)
		}
	})
}

// A cluster client may have asked several nodes: that one could not be reached is
// no proof.
func TestClusterProvesNothing(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	o, _ := stintredis.Options(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, refused }})
	c := redis.NewClusterClient(o)
	defer c.Close()
	caller, err := stint.NewCaller("redis", retrying(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := stintredis.Attach(c, caller); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err      error
		attempts int
	}{
		{c.Incr(t.Context(), "n").Err(), 1},
		{c.Get(t.Context(), "n").Err(), 3},
	} {
		if e, ok := errors.AsType[*stint.Error](tt.err); !ok || e.Attempts != tt.attempts {
			t.Errorf("%v, want %d attempts", tt.err, tt.attempts)
		}
	}
}

// A policy knows better than the table, by the command's name.
func TestPolicyRaisesSafety(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func([]string) string { return "cut" })
		p := retrying()
		raised := retrying()
		raised.Safety = stint.Idempotent
		p.Operations = map[string]stint.Policy{"eval": raised}
		c, _ := f.client(t, p, redis.Options{})
		c.Eval(t.Context(), "return 1", nil)
		c.EvalSha(t.Context(), "abc", nil)
		if got := f.got(); len(got) != 4 {
			t.Errorf("the server got %q, want EVAL three times and EVALSHA once", got)
		}
	})
}

// A command that waits gets its arguments back, and is cut anew at each attempt.
func TestBlockingArgumentsComeBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func([]string) string { return "-LOADING wait\r\n" })
		c, _ := f.client(t, retrying(), redis.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		args := []any{"blpop", "list", 0}
		c.Do(ctx, args...)
		if args[2] != 0 {
			t.Errorf("arguments %v, want them as they were", args)
		}
		if got := f.got(); len(got) != 3 || got[0] != "blpop list 0.850" {
			t.Errorf("the server got %q, want three commands, the first to wait 0.85 s", got)
		}
	})
}

// A command that waits may wait longer than the client does for others.
func TestBlockingOutlastsTheReadTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func(args []string) string {
			time.Sleep(500 * time.Millisecond)
			return "*2\r\n" + bulk("list") + bulk("v")
		})
		c, _ := f.client(t, stint.Policy{}, redis.Options{ReadTimeout: 100 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if v, err := c.BLPop(ctx, time.Second, "list").Result(); err != nil || v[1] != "v" {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// A connection that was cancelled is not taken by another, and one cancelled call
// does not harm the next on a connection that goes on.
func TestCancelAfterTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func(args []string) string { return bulk(args[1]) })
		c, _ := f.client(t, stint.Policy{}, redis.Options{PoolSize: 1})
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			if v, err := c.Get(ctx, "a").Result(); v != "a" || err != nil {
				t.Fatalf("%q, %v", v, err)
			}
			go cancel()
			if v, err := c.Get(t.Context(), "b").Result(); v != "b" || err != nil {
				t.Fatalf("%q, %v", v, err)
			}
		}
		if n := f.network.Dials("redis"); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// Pub/Sub is not under the Caller, and goes on when nothing comes for a while.
func TestPubSubIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func(args []string) string {
			if args[0] == "subscribe" {
				return "*3\r\n" + bulk("subscribe") + bulk(args[1]) + ":1\r\n"
			}
			return "+PONG\r\n"
		})
		c, rec := f.client(t, stint.Policy{}, redis.Options{})
		ps := c.Subscribe(t.Context(), "news")
		defer ps.Close()
		if _, err := ps.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := ps.ReceiveTimeout(t.Context(), time.Second); err == nil {
				t.Fatal("a message from nobody")
			}
		}
		if n := f.network.Dials("redis"); n != 1 || len(rec.Events(stint.CallDone)) != 0 {
			t.Errorf("%d connections, %d calls; want one and none", n, len(rec.Events(stint.CallDone)))
		}
	})
}

// A value that panics while it is written passes the panic on, and takes nothing with it.
func TestPanicPassesThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, func([]string) string { return "+OK\r\n" })
		c, _ := f.client(t, stint.Policy{Bulkhead: 1}, redis.Options{PoolSize: 1})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			c.Set(t.Context(), "k", bomb{}, 0)
		}()
		if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

type bomb struct{}

func (bomb) MarshalBinary() ([]byte, error) { panic("bomb") }

func TestAttachRefuses(t *testing.T) {
	caller, err := stint.NewCaller("redis", stint.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sound, _ := stintredis.Options[redis.Options](nil)
	without := func(change func(*redis.Options)) *redis.Client {
		o := *sound
		change(&o)
		return redis.NewClient(&o)
	}
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		caller *stint.Caller
		want   []string // in the error; nil: none
	}{
		{"sound", without(func(*redis.Options) {}), caller, nil},
		{"go-redis' defaults", redis.NewClient(&redis.Options{}), caller, []string{"ContextTimeoutEnabled", "MaxRetries", "DialerRetries", "redis"}},
		{"a cluster's", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"x:1"}}), caller, []string{"ContextTimeoutEnabled", "DialerRetries"}},
		{"deadlines are ignored", without(func(o *redis.Options) { o.ContextTimeoutEnabled = false }), caller, []string{"ContextTimeoutEnabled"}},
		{"a second owner", without(func(o *redis.Options) { o.MaxRetries = 1 }), caller, []string{"MaxRetries"}},
		{"no limit", without(func(o *redis.Options) { o.ReadTimeout = -1 }), caller, []string{"ReadTimeout"}},
		{"a ring", redis.NewRing(&redis.RingOptions{}), caller, []string{"*redis.Ring"}},
		{"nobody", nil, caller, []string{"<nil>"}},
		{"a client that is nil", (*redis.Client)(nil), caller, []string{"is nil"}},
		{"a cluster client that is nil", (*redis.ClusterClient)(nil), caller, []string{"is nil"}},
		{"no Caller", redis.NewClient(&redis.Options{}), nil, []string{"NewCaller"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v := reflect.ValueOf(tt.client); v.IsValid() && !v.IsNil() {
				defer tt.client.Close()
			}
			err := stintredis.Attach(tt.client, tt.caller)
			if (err != nil) != (tt.want != nil) {
				t.Fatalf("error %v, want one: %v", err, tt.want != nil)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not name %s", err, w)
				}
			}
		})
	}
}

func TestOptions(t *testing.T) {
	given := &redis.Options{Addr: "a:1", PoolSize: 7, ReadTimeout: time.Second, WriteTimeout: -1}
	o, changes := stintredis.Options(given)
	if given.ContextTimeoutEnabled || given.MaxRetries != 0 || given.Dialer != nil {
		t.Error("the options given were changed")
	}
	if o.Addr != "a:1" || o.PoolSize != 7 || o.ReadTimeout != time.Second {
		t.Errorf("what was said is lost: %+v", o)
	}
	if !o.ContextTimeoutEnabled || o.MaxRetries != -1 || o.DialerRetries != 1 || o.WriteTimeout != 3*time.Second ||
		o.DialTimeout != time.Second || o.PoolTimeout != time.Second || o.Dialer == nil {
		t.Errorf("not as documented: %+v", o)
	}
	for i, name := range []string{"ContextTimeoutEnabled", "MaxRetries", "DialerRetries", "DialTimeout", "PoolTimeout", "WriteTimeout"} {
		if i >= len(changes) || !strings.HasPrefix(changes[i], name) {
			t.Errorf("changes %q: want one of %s at %d", changes, name, i)
		}
	}
	if _, changes = stintredis.Options(o); len(changes) != 0 {
		t.Errorf("a second time: %q, want no change", changes)
	}

	cluster, _ := stintredis.Options(&redis.ClusterOptions{Addrs: []string{"a:1"}})
	failover, _ := stintredis.Options(&redis.FailoverOptions{MasterName: "m"})
	universal, _ := stintredis.Options(&redis.UniversalOptions{})
	for name, on := range map[string]bool{
		"cluster":   cluster.ContextTimeoutEnabled && cluster.MaxRetries == -1 && cluster.Dialer != nil,
		"failover":  failover.ContextTimeoutEnabled && failover.MaxRetries == -1 && failover.Dialer != nil,
		"universal": universal.ContextTimeoutEnabled && universal.MaxRetries == -1 && universal.Dialer != nil,
	} {
		if !on {
			t.Errorf("%s: not as documented", name)
		}
	}
}
