package stintredis_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintredis"
)

func TestHiddenRetries(t *testing.T) {
	single, _ := stintredis.Options(&redis.Options{PoolSize: 7})
	many, _ := stintredis.Options(&redis.ClusterOptions{Addrs: []string{"x:1"}})
	strict, _ := stintredis.Options(&redis.ClusterOptions{Addrs: []string{"x:1"}, MaxRedirects: -1})
	caller, err := stint.NewCaller("redis", stint.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		want   []string // a part of each sentence
	}{
		{"by Options", redis.NewClient(single), []string{"After 7 failed dials"}},
		{"go-redis' defaults", redis.NewClient(&redis.Options{}), []string{"commands 3 times by itself, INCR as well", "dials 5 times by itself", "failed dials"}},
		{"a cluster's by Options", redis.NewClusterClient(many), []string{"MOVED, ASK), and tries again what a node refused to begin", "failed dials"}},
		{"a cluster's without redirects", redis.NewClusterClient(strict), []string{"failed dials"}},
		{"a cluster's defaults", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"x:1"}}), []string{"dials 5 times", "up to 3 times", "failed dials"}},
		{"a sentinel's by Options", redis.NewUniversalClient(&redis.UniversalOptions{MasterName: "m", Addrs: []string{"x:1"}, MaxRetries: -1, DialerRetries: 1}), []string{"failed dials"}},
		{"a ring", redis.NewRing(&redis.RingOptions{}), []string{"*redis.Ring"}},
	} {
		said := stintredis.HiddenRetries(c.client)
		ok := len(said) == len(c.want)
		for i := 0; ok && i < len(said); i++ {
			ok = strings.Contains(said[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
		// What Options switches off, Attach refuses, in the same words.
		err := stintredis.Attach(c.client, caller)
		for _, s := range said {
			if s, off, _ := strings.Cut(s, ". Nothing counts it."); off != "" && (err == nil || !strings.Contains(err.Error(), s)) {
				t.Errorf("%s: Attach says %v, and nothing of %q", c.name, err, s)
			}
		}
		c.client.Close()
	}
	if said := stintredis.HiddenRetries(nil); len(said) != 1 || !strings.Contains(said[0], "<nil>") {
		t.Errorf("of nil it says %q", said)
	}
}
