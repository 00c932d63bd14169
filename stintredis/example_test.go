package stintredis_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintredis"
)

// A cache that is asked only if there is time, and never waited for.
func Example() {
	cache, err := stint.NewCaller("cache", stint.Policy{
		Timeout:   100 * time.Millisecond,
		MinUseful: 5 * time.Millisecond,
		Retry:     stint.Retry{Attempts: 2, AttemptTimeout: 40 * time.Millisecond, Base: time.Millisecond, Cap: 5 * time.Millisecond},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	options, changed := stintredis.Options(&redis.Options{Addr: "127.0.0.1:6379", PoolTimeout: 50 * time.Millisecond})
	for _, c := range changed {
		fmt.Println(c)
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := stintredis.Attach(client, cache); err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond) // as a request brings it
	defer cancel()
	price, err := client.Get(ctx, "price:42").Result()
	switch {
	case err == redis.Nil:
		fmt.Println("not in the cache")
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("no time:", err)
	default:
		fmt.Println(price, err)
	}
	// Output:
	// ContextTimeoutEnabled is true, was false: the deadline of a context bounds its command.
	// MaxRetries is -1, was 0: the Caller repeats, and only what may be repeated.
	// DialerRetries is 1, was 0: the Caller repeats.
	// DialTimeout is 1s, was 0s.
	// ReadTimeout is 3s, was 0s.
	// WriteTimeout is 3s, was 0s.
	// no time: stint: cache: refused before start: no_time
}

// A client that go-redis' own options made is refused, with what is wrong with it.
func ExampleAttach() {
	cache, err := stint.NewCaller("cache", stint.Policy{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	fmt.Println(stintredis.Attach(client, cache))
	// Output:
	// stintredis: the client of cache was not made with stintredis.Options: ContextTimeoutEnabled is false, so go-redis ignores deadlines: must be true
}
