package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stintredis"
	"github.com/stint-go/stint/stinttest"
)

// quiet keeps go-redis from writing about connections that are lost on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// A redisProxy stands before a Redis and holds its replies up, or cuts the
// connection instead of passing one on. What is said to a new connection it
// leaves alone.
type redisProxy struct {
	addr  string
	delay atomic.Int64 // of each reply
	cuts  atomic.Int64 // so many replies are not passed on
}

func startRedisProxy(t testing.TB, l net.Listener, to string) *redisProxy {
	t.Helper()
	p := &redisProxy{addr: l.Addr().String()}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
	}
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp4", to)
			if err != nil {
				client.Close()
				continue
			}
			keep(client)
			keep(server)
			greets := new(atomic.Bool)
			all.Go(func() {
				p.requests(client, server, greets)
				server.Close()
			})
			all.Go(func() {
				p.replies(client, server, greets)
				client.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *redisProxy) requests(client, server net.Conn, greets *atomic.Bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		said := strings.ToLower(string(buf[:n]))
		greets.Store(strings.Contains(said, "hello") || strings.Contains(said, "setinfo") || strings.Contains(said, "maint_notifications") ||
			strings.Contains(said, "readonly") || strings.Contains(said, "slots"))
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *redisProxy) replies(client, server net.Conn, greets *atomic.Bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if !greets.Load() {
			time.Sleep(time.Duration(p.delay.Load()))
			if p.cuts.Add(-1) >= 0 {
				return
			}
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A redisClient is a client under a Caller, and what the test sees of it.
type redisClient struct {
	*redis.Client
	rec stinttest.Recorder
}

func (c *redisClient) attempts() (codes []string) {
	for _, e := range c.rec.Events(stint.AttemptDone) {
		codes = append(codes, e.Outcome.String())
	}
	return codes
}

func (c *redisClient) reason() stint.Reason {
	done := c.rec.Events(stint.CallDone)
	if len(done) == 0 {
		return 0
	}
	return done[len(done)-1].Reason
}

func redisCaller(t testing.TB, p stint.Policy, o stint.Observer) *stint.Caller {
	t.Helper()
	c, err := stint.NewCaller("redis", p, &stint.CallerOptions{Observer: o, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newRedis(t testing.TB, p stint.Policy, o *redis.Options) *redisClient {
	t.Helper()
	o, _ = stintredis.Options(o)
	c := &redisClient{Client: redis.NewClient(o)}
	t.Cleanup(func() { c.Close() })
	if err := stintredis.Attach(c.Client, redisCaller(t, p, &c.rec)); err != nil {
		t.Fatal(err)
	}
	return c
}

// warm makes a connection, so that what follows is about a command alone.
func (c *redisClient) warm(t testing.TB) {
	t.Helper()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	c.rec.Reset()
}

// server is a client of nobody's, to look at what happened.
func server(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// steady is a policy without a breaker, for tests in which nothing but failing
// is wanted.
func steady() stint.Policy { return stint.Policy{Breaker: stint.Breaker{Off: true}} }

func setRedis(t testing.TB, c *redis.Client, pairs ...any) {
	t.Helper()
	if err := c.MSet(t.Context(), pairs...).Err(); err != nil {
		t.Fatal(err)
	}
}

func getRedis(t testing.TB, c *redis.Client, key string) string {
	t.Helper()
	v, err := c.Get(t.Context(), key).Result()
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return v
}

// median runs a call so often, each under a deadline of its own, and returns the
// median of how long they took.
func median(n int, call func(i int)) time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		call(i)
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2]
}

// busy is what a machine that does something else may add.
const busy = 100 * time.Millisecond

// between shows how long something took beside what it is to take, and judges it with
// what a busy machine may add: what it must not wait for is longer than that.
func between(t *testing.T, what string, d, least, most time.Duration) {
	t.Helper()
	t.Logf("%s: %v; the aim is %v to %v", what, d, least, most)
	if d < least || d > most+busy {
		t.Errorf("%s: %v, want from %v to %v", what, d, least, most+busy)
	}
}

func TestRedisDeadlineWhileServerIsPaused(t *testing.T) {
	r := testenv.StartRedis(t)
	c := newRedis(t, steady(), &redis.Options{Addr: r.Addr})
	c.warm(t)
	r.Freeze()
	took := median(20, func(int) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Get(ctx, "k").Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a deadline's", err)
		}
	})
	r.Thaw()
	between(t, "50 ms deadline, server paused, median of 20", took, 50*time.Millisecond, 70*time.Millisecond)
	if err := c.Get(t.Context(), "k").Err(); err != redis.Nil {
		t.Errorf("afterwards: %v, want redis.Nil", err)
	}
}

func TestRedisCancelInFlight(t *testing.T) {
	r := testenv.StartRedis(t)
	c := newRedis(t, steady(), &redis.Options{Addr: r.Addr, PoolSize: 1})
	setRedis(t, server(t, r.Addr), "k", "v")
	for _, how := range []struct {
		name string
		call func(context.Context) error
	}{
		{"command", func(ctx context.Context) error { return c.Get(ctx, "k").Err() }},
		{"blocking command", func(ctx context.Context) error { return c.BLPop(ctx, 0, "list").Err() }},
		{"pipeline", func(ctx context.Context) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
			return err
		}},
		{"transaction", func(ctx context.Context) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
			return err
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			c.warm(t)
			c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Ping(t.Context()); return nil })
			r.Freeze()
			took := median(5, func(int) {
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(20*time.Millisecond, cancel)
				defer timer.Stop()
				defer cancel()
				if err := how.call(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want a cancel's", err)
				}
			})
			r.Thaw()
			between(t, "cancelled after 20 ms, median of 5", took, 20*time.Millisecond, 40*time.Millisecond)
			if v := getRedis(t, c.Client, "k"); v != "v" {
				t.Errorf("afterwards: %q", v)
			}
		})
	}
}

// Replies that come later than go-redis waits for: it sends the INCR again by
// itself, four times in all, as the plain client shows. Under a Caller that may
// make three attempts it is sent once.
func TestRedisIncrementsOnce(t *testing.T) {
	r := testenv.StartRedis(t)
	p := startRedisProxy(t, testenv.Listen(t), r.Addr)
	p.delay.Store(int64(100 * time.Millisecond))
	o := &redis.Options{Addr: p.addr, ReadTimeout: 50 * time.Millisecond}
	plain := redis.NewClient(o)
	defer plain.Close()
	own := newRedis(t, retrying(), o)
	direct := server(t, r.Addr)

	plain.Incr(t.Context(), "plain")
	err := own.Incr(t.Context(), "own").Err()
	if e, ok := errors.AsType[*stint.Error](err); !ok || e.Reason != stint.NotRepeatable || e.Attempts != 1 {
		t.Errorf("INCR: %v, want not_repeatable after one attempt", err)
	}
	if n := getRedis(t, direct, "plain"); n == "1" {
		t.Error("go-redis alone counted once: the test shows nothing")
	}
	if n := getRedis(t, direct, "own"); n != "1" {
		t.Errorf("the counter is %s, want 1", n)
	}
}

// B34: a reply that takes 200 ms, and a deadline of 25 ms.
func TestB34RedisDeadlineInFlight(t *testing.T) {
	r := testenv.StartRedis(t)
	p := startRedisProxy(t, testenv.Listen(t), r.Addr)
	c := newRedis(t, steady(), &redis.Options{Addr: p.addr})
	direct := server(t, r.Addr)
	for i := range 20 {
		setRedis(t, direct, fmt.Sprint("k", i), i)
	}
	c.warm(t)
	p.delay.Store(int64(200 * time.Millisecond))
	took := median(20, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		if err := c.Get(ctx, fmt.Sprint("k", i)).Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a deadline's", err)
		}
	})
	between(t, "25 ms deadline, replies after 200 ms, median of 20", took, 25*time.Millisecond, 45*time.Millisecond)

	// No connection is used again on which the reply to another is still to come.
	p.delay.Store(0)
	for i := range 20 {
		if v := getRedis(t, c.Client, fmt.Sprint("k", i)); v != fmt.Sprint(i) {
			t.Errorf("k%d is %q: another's reply", i, v)
		}
	}

	plain := redis.NewClient(&redis.Options{Addr: p.addr})
	defer plain.Close()
	err := stintredis.Attach(plain, redisCaller(t, stint.Policy{}, nil))
	if err == nil || !strings.Contains(err.Error(), "ContextTimeoutEnabled") {
		t.Errorf("a client without the option: %v, want it to be refused", err)
	}
}

// A connection that is cut instead of a reply: what only reads, or may be done
// twice, is repeated; the rest is done once, and its error says so.
func TestRedisRepeatsWhatIsSafe(t *testing.T) {
	r := testenv.StartRedis(t)
	p := startRedisProxy(t, testenv.Listen(t), r.Addr)
	direct := server(t, r.Addr)
	for _, tt := range []struct {
		name     string
		call     func(ctx context.Context, c *redis.Client) error
		attempts int
		counter  string // "n" afterwards
	}{
		{"GET", func(ctx context.Context, c *redis.Client) error { return c.Get(ctx, "n").Err() }, 2, "0"},
		{"SET", func(ctx context.Context, c *redis.Client) error { return c.Set(ctx, "n", 7, 0).Err() }, 2, "7"},
		{"INCR", func(ctx context.Context, c *redis.Client) error { return c.Incr(ctx, "n").Err() }, 1, "1"},
		{"pipeline that reads", func(ctx context.Context, c *redis.Client) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "n"); p.Exists(ctx, "n"); return nil })
			return err
		}, 2, "0"},
		{"pipeline that counts", func(ctx context.Context, c *redis.Client) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "n"); p.Incr(ctx, "n"); return nil })
			return err
		}, 1, "1"},
		{"transaction that reads", func(ctx context.Context, c *redis.Client) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "n"); return nil })
			return err
		}, 2, "0"},
		{"transaction that sets", func(ctx context.Context, c *redis.Client) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "n", 7, 0); return nil })
			return err
		}, 1, "7"},
		{"script", func(ctx context.Context, c *redis.Client) error {
			return c.Eval(ctx, "return redis.call('incr', KEYS[1])", []string{"n"}).Err()
		}, 1, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.cuts.Store(0)
			setRedis(t, direct, "n", 0)
			c := newRedis(t, retrying(), &redis.Options{Addr: p.addr, PoolSize: 1, PipelinePoolSize: -1})
			c.warm(t)
			p.cuts.Store(1)
			err := tt.call(t.Context(), c.Client)
			if tt.attempts > 1 && err != nil {
				t.Errorf("error %v, want none", err)
			}
			if tt.attempts == 1 && c.reason() != stint.NotRepeatable {
				t.Errorf("error %v, want one that says not_repeatable", err)
			}
			if got := c.attempts(); len(got) != tt.attempts || got[0] != "reset" {
				t.Errorf("attempts %q, want %d", got, tt.attempts)
			}
			if n := getRedis(t, direct, "n"); n != tt.counter {
				t.Errorf("n is %s, want %s", n, tt.counter)
			}
		})
	}
}

// What never began is repeated, also an INCR: here nobody listens at first.
func TestRedisRepeatsWhatNeverBegan(t *testing.T) {
	c := newRedis(t, retrying(), &redis.Options{Addr: testenv.RefusingAddr(t)})
	err := c.Incr(t.Context(), "n").Err()
	if got := c.attempts(); !slices.Equal(got, []string{"connect", "connect", "connect"}) {
		t.Errorf("attempts %q, error %v; want three that could not connect", got, err)
	}
}

// A blocking command ends at the server before its call's deadline, and the
// connection lives.
func TestRedisBlockingCommandsEndInTime(t *testing.T) {
	r := testenv.StartRedis(t)
	c := newRedis(t, steady(), &redis.Options{Addr: r.Addr, PoolSize: 1})
	c.warm(t)
	for name, call := range map[string]func(context.Context) error{
		"BLPOP for ever": func(ctx context.Context) error { return c.BLPop(ctx, 0, "none").Err() },
		"BRPOP for 5 s":  func(ctx context.Context) error { return c.BRPop(ctx, 5*time.Second, "none").Err() },
		"BLMPOP":         func(ctx context.Context) error { return c.BLMPop(ctx, 0, "left", 1, "none").Err() },
		"BZPOPMIN":       func(ctx context.Context) error { return c.BZPopMin(ctx, 0, "none").Err() },
		"BLMOVE":         func(ctx context.Context) error { return c.BLMove(ctx, "none", "to", "left", "right", 0).Err() },
		"XREAD": func(ctx context.Context) error {
			return c.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: 0}).Err()
		},
		"XREAD for 5 s": func(ctx context.Context) error {
			return c.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: 5 * time.Second}).Err()
		},
		"WAIT":      func(ctx context.Context) error { return c.Wait(ctx, 1, 0).Err() },
		"Do of one": func(ctx context.Context) error { return c.Do(ctx, "BLPOP", "none", 0).Err() },
		"in a pipeline": func(ctx context.Context) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.BLPop(ctx, 0, "none"); return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for try := range 5 { // a machine that stands still for 150 ms is too late, a break always is
				id, start := c.ClientID(t.Context()).Val(), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
				err := call(ctx)
				cancel()
				took := time.Since(start)
				t.Logf("400 ms deadline: back after %v, %v", took, err)
				if kept := c.ClientID(t.Context()).Val() == id; kept && took > 200*time.Millisecond && (err == nil || err == redis.Nil) {
					return
				} else if try == 4 {
					t.Errorf("after %v, error %v, connection kept: %t; want 250 to 400 ms, none but redis.Nil, and the connection", took, err, kept)
				}
			}
		})
	}
}

// Callers that give up at any moment never make another read their reply.
func TestRedisRepliesAreNotMixedUp(t *testing.T) {
	r := testenv.StartRedis(t)
	direct := server(t, r.Addr)
	c := newRedis(t, steady(), &redis.Options{Addr: r.Addr, PoolSize: 4})
	var ended, cut atomic.Int64
	var all sync.WaitGroup
	for w := range 8 {
		key := fmt.Sprint("k", w)
		setRedis(t, direct, key, key)
		all.Go(func() {
			for i := range 250 {
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(time.Duration(i%50)*5*time.Microsecond, cancel)
				switch v, err := c.Get(ctx, key).Result(); {
				case err == nil && v == key:
					ended.Add(1)
				case errors.Is(err, context.Canceled):
					cut.Add(1)
				default:
					t.Errorf("%s: %q, %v", key, v, err)
				}
				timer.Stop()
				cancel()
			}
		})
	}
	all.Wait()
	t.Logf("%d answered, %d cancelled", ended.Load(), cut.Load())
	if ended.Load() == 0 || cut.Load() == 0 {
		t.Error("want some of both")
	}
}

// A place in the pool is waited for no longer than the call lasts.
func TestRedisPoolWaitIsBounded(t *testing.T) {
	r := testenv.StartRedis(t)
	c := newRedis(t, steady(), &redis.Options{Addr: r.Addr, PoolSize: 1, PoolTimeout: 100 * time.Millisecond})
	c.warm(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.BLPop(ctx, 0, "none").Err() }()
	direct := server(t, r.Addr)
	for !strings.Contains(direct.Info(t.Context(), "clients").Val(), "blocked_clients:1") {
		if t.Context().Err() != nil {
			t.Fatal("nobody blocks")
		}
	}
	took := median(5, func(int) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if err := c.Get(ctx, "k").Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a deadline's", err)
		}
	})
	between(t, "30 ms deadline, no connection free", took, 30*time.Millisecond, 50*time.Millisecond)
	err := c.Get(t.Context(), "k").Err()
	e, ok := errors.AsType[*stint.Error](err)
	if !ok || !errors.Is(err, redis.ErrPoolTimeout) || e.Last.Kind != stint.Refused || !e.Last.NotStarted {
		t.Errorf("error %v, want a refusal for want of a connection", err)
	}
	cancel()
	if err := await(t, "the command that blocks", done); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want a cancel's", err)
	}
}

func TestRedisAnswers(t *testing.T) {
	r := testenv.StartRedis(t)
	direct := server(t, r.Addr)
	c := newRedis(t, retrying(), &redis.Options{Addr: r.Addr})
	ctx := t.Context()
	setRedis(t, direct, "text", "x")

	if err := c.Get(ctx, "none").Err(); err != redis.Nil {
		t.Errorf("GET of nothing: %v, want redis.Nil itself", err)
	}
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "none"); p.Get(ctx, "text"); return nil }); err != redis.Nil {
		t.Errorf("a pipeline with one: %v, want redis.Nil itself", err)
	}
	if err := c.LPush(ctx, "text", 1).Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") || c.reason() != stint.Final {
		t.Errorf("LPUSH to a text: %v, want the server's own words", err)
	} else if _, ok := errors.AsType[*stint.Error](err); ok {
		t.Errorf("LPUSH to a text: %v, want no *stint.Error", err)
	}
	if v, err := redis.NewScript("return 7").Run(ctx, c, nil).Int(); v != 7 || err != nil {
		t.Errorf("a script that the server does not have yet: %d, %v", v, err)
	}
	err := c.Watch(ctx, func(tx *redis.Tx) error {
		setRedis(t, direct, "text", "y")
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "text", "z", 0); return nil })
		return err
	}, "text")
	if err != redis.TxFailedErr || getRedis(t, direct, "text") != "y" {
		t.Errorf("a watched key was changed: %v, want TxFailedErr", err)
	}

	c.rec.Reset()
	direct.ConfigSet(ctx, "maxmemory", "1")
	if err := c.Set(ctx, "text", 1, 0).Err(); !redis.IsOOMError(err) || !slices.Equal(c.attempts(), []string{"OOM"}) {
		t.Errorf("without memory: %v after %q, want one attempt", err, c.attempts())
	}
	direct.ConfigSet(ctx, "maxmemory", "0")

	c.rec.Reset()
	direct.ReplicaOf(ctx, "127.0.0.1", "1")
	if err := c.Incr(ctx, "n").Err(); !redis.IsReadOnlyError(err) || len(c.attempts()) != 3 {
		t.Errorf("at a replica: %v after %q, want three attempts, since none began", err, c.attempts())
	}
	direct.ReplicaOf(ctx, "no", "one")
	if n, err := c.Incr(ctx, "n").Result(); n != 1 || err != nil {
		t.Errorf("at a master again: %d, %v", n, err)
	}
}

// A server that is gone is asked as often as the policy allows.
func TestRedisServerDies(t *testing.T) {
	r := testenv.StartRedis(t)
	c := newRedis(t, retrying(), &redis.Options{Addr: r.Addr})
	c.warm(t)
	r.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := c.Get(ctx, "k").Err()
	e, ok := errors.AsType[*stint.Error](err)
	if !ok || e.Reason != stint.AttemptsSpent || e.Attempts != 3 {
		t.Errorf("error %v, want three attempts", err)
	}
}

// The table agrees with the flags of a real server.
func TestRedisCommandTable(t *testing.T) {
	r := testenv.StartRedis(t)
	direct := server(t, r.Addr)
	infos, err := direct.Command(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) < 200 {
		t.Fatalf("the server has %d commands", len(infos))
	}
	for name, info := range infos {
		if strings.Contains(name, "|") {
			continue
		}
		writes := slices.Contains(info.Flags, "write")
		reads := slices.Contains(info.Flags, "readonly")
		s, known := known(t, name)
		switch {
		case s == stint.ReadOnly && writes:
			t.Errorf("%s writes, and the table says that it only reads", name)
		case s != stint.ReadOnly && reads:
			t.Errorf("%s only reads, and the table does not say so", name)
		}
		if !known {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// known finds what the package makes of a command, by what a Caller is asked: a
// transaction is repeated only if it just reads.
func known(t testing.TB, name string) (s stint.Safety, known bool) {
	t.Helper()
	c := newRedis(t, retrying(), &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return refusing{}, nil }})
	c.Do(t.Context(), name, "x")
	done := c.rec.Events(stint.CallDone) // none for what greets a server
	known = len(done) == 0 || done[0].Op != "other"
	c.rec.Reset()
	c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { return p.Do(t.Context(), name, "x").Err() })
	if len(c.attempts()) > 1 {
		return stint.ReadOnly, known
	}
	return stint.Unrepeatable, known
}

// refusing is a connection that breaks at the first reply.
type refusing struct{ net.Conn }

func (refusing) Read([]byte) (int, error)         { return 0, io.EOF }
func (refusing) Write(p []byte) (int, error)      { return len(p), nil }
func (refusing) Close() error                     { return nil }
func (refusing) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (refusing) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (refusing) SetDeadline(time.Time) error      { return nil }
func (refusing) SetReadDeadline(time.Time) error  { return nil }
func (refusing) SetWriteDeadline(time.Time) error { return nil }

// A cluster client repeats by itself, whatever MaxRetries says. It must not see
// why a connection broke.
func TestRedisClusterIncrementsOnce(t *testing.T) {
	l := testenv.Listen(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	r := testenv.StartRedis(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port)
	p := startRedisProxy(t, l, r.Addr)
	direct := server(t, r.Addr)
	ctx := t.Context()
	if err := direct.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(direct.ClusterInfo(ctx).Val(), "cluster_state:ok") {
		if ctx.Err() != nil {
			t.Fatal("no cluster")
		}
	}
	plain := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}})
	defer plain.Close()
	o, _ := stintredis.Options(&redis.ClusterOptions{Addrs: []string{p.addr}})
	own := redis.NewClusterClient(o)
	defer own.Close()
	rec := &stinttest.Recorder{}
	if err := stintredis.Attach(own, redisCaller(t, retrying(), rec)); err != nil {
		t.Fatal(err)
	}
	counts := func(c *redis.ClusterClient, key string) {
		t.Helper()
		if err := c.Set(ctx, key, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
		p.cuts.Store(1)
		c.Incr(ctx, key)
		p.cuts.Store(0)
	}
	counts(plain, "plain")
	counts(own, "own")
	if n := getRedis(t, direct, "plain"); n == "1" {
		t.Error("go-redis alone counted once: the test shows nothing")
	}
	if n := getRedis(t, direct, "own"); n != "1" {
		t.Errorf("the counter is %s, want 1", n)
	}
	own.Pipelined(ctx, func(pp redis.Pipeliner) error { pp.Get(ctx, "own"); return nil }) // it has a pool of its own
	p.cuts.Store(1)
	if _, err := own.Pipelined(ctx, func(pp redis.Pipeliner) error { pp.Get(ctx, "own"); pp.Incr(ctx, "own"); return nil }); err == nil {
		t.Error("a pipeline that was cut: no error")
	}
	p.cuts.Store(0)
	if n := getRedis(t, direct, "own"); n != "2" {
		t.Errorf("after a pipeline the counter is %s, want 2", n)
	}

	if err := own.Get(ctx, "own").Err(); err != nil {
		t.Fatal(err)
	}
	r.Freeze()
	took := median(5, func(int) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := own.Get(ctx, "own").Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want a cancel's", err)
		}
	})
	r.Thaw()
	between(t, "cluster client cancelled after 20 ms, median of 5", took, 20*time.Millisecond, 40*time.Millisecond)
}

// The checklist's test for the layer Redis: 50 ms for the request, 200 ms in the
// way of the reply. 504, and not late.
func TestRedisDelayBehindAService(t *testing.T) {
	r := testenv.StartRedis(t)
	p := startRedisProxy(t, testenv.Listen(t), r.Addr)
	c := newRedis(t, steady(), &redis.Options{Addr: p.addr})
	c.warm(t)
	g, err := stint.NewGate("service", &stint.GateOptions{Trust: stint.TrustPeers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(stinthttp.Handler(g, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := c.Get(req.Context(), "price").Err(); err != nil {
			stinthttp.WriteError(w, req, err)
		}
	})))
	defer s.Close()
	p.delay.Store(int64(200 * time.Millisecond))
	var late atomic.Int64
	took := median(5, func(int) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		req.Header.Set("X-Deadline-Ms", "50")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout {
			late.Add(1)
			t.Errorf("status %d, want 504", resp.StatusCode)
		}
	})
	between(t, "50 ms request, Redis replies after 200 ms", took, 30*time.Millisecond, 80*time.Millisecond)
}
