package integration

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintredis"
)

// BenchmarkRedisGet makes the same call by go-redis alone and under a Caller, in
// turn, so that both see the same machine. go-redis keeps the deadline in both.
func BenchmarkRedisGet(b *testing.B) {
	r := testenv.StartRedis(b)
	setRedis(b, server(b, r.Addr), "k", "v")
	plain := redis.NewClient(&redis.Options{Addr: r.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	b.Cleanup(func() { plain.Close() })
	o, _ := stintredis.Options(&redis.Options{Addr: r.Addr})
	own := redis.NewClient(o)
	b.Cleanup(func() { own.Close() })
	if err := stintredis.Attach(own, redisCaller(b, stint.Policy{}, nil)); err != nil {
		b.Fatal(err)
	}
	var alone, under time.Duration
	get := func(c *redis.Client) time.Duration {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := c.Get(ctx, "k").Err(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	get(plain)
	get(own)
	n := 0
	for b.Loop() {
		if n++; n%2 == 0 {
			alone += get(plain)
			under += get(own)
		} else {
			under += get(own)
			alone += get(plain)
		}
	}
	b.ReportMetric(float64(alone.Nanoseconds())/float64(n), "plain-ns/op")
	b.ReportMetric(float64(under.Nanoseconds())/float64(n), "stint-ns/op")
}
