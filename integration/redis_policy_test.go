package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stintredis"
)

// What a policy file knows of Redis' errors is what stintredis makes of them.
func TestPolicyKnowsRedisAnswers(t *testing.T) {
	r := testenv.StartRedis(t)
	c := newRedis(t, steady(), &redis.Options{Addr: r.Addr})
	c.warm(t)
	for _, text := range strings.Split("LOADING x,READONLY x,CLUSTERDOWN x,TRYAGAIN x,MOVED 1 127.0.0.1:1,ASK 1 127.0.0.1:1,MASTERDOWN x,NOREPLICAS x,BUSY x,"+
		"OOM x,MISCONF x,NOAUTH x,WRONGPASS x,WRONGTYPE x,NOSCRIPT x,BUSYGROUP x,BUSYKEY x,NOGROUP x,NOPERM x,EXECABORT x,CROSSSLOT x,NOTBUSY x,"+
		"UNKILLABLE x,INPROG x,NOPROTO x,UNBLOCKED x,ERR max number of clients reached,ERR x,NEVERHEARD x,no word at all", ",") {
		c.rec.Reset()
		if err := c.Eval(t.Context(), "return redis.error_reply(ARGV[1])", nil, text).Err(); err == nil {
			t.Fatalf("%q is no error", text)
		}
		got := c.rec.Events(stint.AttemptDone)[0].Outcome
		if want, ok := policy.Redis.Outcome(policy.Code(got.Code)); !ok || got != want {
			t.Errorf("%q is %+v, and the policy has %+v for %s", text, got, want, got.Code)
		}
		if _, err := policy.Parse("f.yaml", []byte(fmt.Sprintf("service: a\ndependencies: {x: {kind: redis, retry: {retryable: [%s]}}}\n", got.Code))); err != nil {
			t.Errorf("%s is what stintredis says, and a file can't list it: %v", got.Code, err)
		}
		word, _, _ := strings.Cut(text, " ")
		if _, ok := policy.Redis.Outcome(policy.Code(word)); ok && word != got.Code && got.Code != "MAXCLIENTS" {
			t.Errorf("%q is %s, and the policy has an outcome for %s", text, got.Code, word)
		}
	}
}

// A file's numbers hold for Redis: its operations by the command, what they may
// repeat, and after which answers.
func TestPolicyFileOfRedis(t *testing.T) {
	f, err := policy.Parse("orders.yaml", []byte(`
service: orders
dependencies:
  cache:
    kind: redis
    timeout: 20s
    breaker: off
    retry: {maxAttempts: 3, backoff: {base: 1ms, cap: 1ms}, retryable: [OOM]}
    hiddenRetries: 0
    operations:
      get: {retry: {maxAttempts: 2}}
      eval: {safety: readOnly}
      evalsha: {retry: none}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := testenv.StartRedis(t)
	o, _ := stintredis.Options(&redis.Options{Addr: r.Addr})
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	c := &redisClient{Client: client}
	caller, err := f.Caller("cache", &stint.CallerOptions{Observer: &c.rec, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if err := stintredis.Attach(client, caller); err != nil {
		t.Fatal(err)
	}
	direct := server(t, r.Addr)
	setRedis(t, direct, "list", "x")
	if err := direct.Do(t.Context(), "config", "set", "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what     string
		run      func() error
		attempts int
	}{
		{"listed: a write that can't be, INCR", func() error { return c.Incr(t.Context(), "n").Err() }, 3}, // it was refused before it began
		{"an answer", func() error { return c.Get(t.Context(), "list").Err() }, 1},
		{"declared, and listed", func() error { return c.Eval(t.Context(), "return redis.error_reply('OOM x')", nil).Err() }, 3},
		{"declared, and not listed", func() error { return c.Eval(t.Context(), "return redis.error_reply('MISCONF x')", nil).Err() }, 1},
		{"none", func() error { return c.EvalSha(t.Context(), "no such", nil).Err() }, 1},
	} {
		c.rec.Reset()
		err := test.run()
		if got := len(c.rec.Events(stint.AttemptDone)); got != test.attempts {
			t.Errorf("%s: %d attempts, want %d: %v", test.what, got, test.attempts, err)
		}
	}
	r.Kill()
	c.rec.Reset()
	if err := c.Get(t.Context(), "list").Err(); err == nil {
		t.Fatal("no error from a server that is gone")
	} else if e, ok := errors.AsType[*stint.Error](err); !ok || e.Attempts != 2 {
		t.Errorf("the error is %v, want one of two attempts", err)
	}
}

// What a check holds to be done twice when it is repeated, stintredis does not repeat
// by itself, and the server flags as a write or as a message.
func TestPolicyKnowsCounters(t *testing.T) {
	infos, err := server(t, testenv.StartRedis(t).Addr).Command(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	twice := 0
	for name, info := range infos {
		if strings.Contains(name, "|") {
			continue
		}
		f, err := policy.Parse("f.yaml", fmt.Appendf(nil, "service: a\ndependencies: {x: {kind: redis, timeout: 1s, hiddenRetries: 3, operations: {%s: {timeout: 1s}}}}\n", name))
		if err != nil {
			t.Fatal(err)
		}
		g, err := policy.NewGraph(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range g.Check(nil) {
			if found.Code != "retry-not-safe" {
				continue
			}
			twice++
			if s := stintredis.Safety(name); s != stint.Unrepeatable {
				t.Errorf("%s is %s to stintredis, and a check says: %s", name, s, found.What)
			}
			if !slices.Contains(info.Flags, "write") && !strings.Contains(name, "publish") {
				t.Errorf("%s does not write, and a check says: %s", name, found.What)
			}
		}
	}
	if twice < 35 {
		t.Errorf("%d commands are done twice", twice)
	}
}
