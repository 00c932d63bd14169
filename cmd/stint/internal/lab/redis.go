package lab

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/stintredis"
)

func parseRedis(dsn string) error {
	if _, err := parseURL(dsn); err != nil {
		return err
	}
	_, err := redis.ParseURL(dsn)
	return err
}

// A redisStore is Redis, by go-redis as it comes or under a Caller.
type redisStore struct {
	client *redis.Client
	watch  *redis.Client // another one, which no row bounds
	run    string        // the name of its connections, and of the list
	wait   time.Duration
}

func openRedis(ctx context.Context, s spec, run string) (_ store, err error) {
	options, err := redis.ParseURL(s.dsn)
	if err != nil {
		return nil, err
	}
	watch := *options
	options.ClientName, options.PoolSize = run, s.calls
	// A naive service that passes its context on has also found the switch that
	// makes go-redis look at it.
	options.ContextTimeoutEnabled = s.passContext
	if s.mode == Stint {
		options, _ = stintredis.Options(options)
	}
	r := &redisStore{redis.NewClient(options), redis.NewClient(&watch), run, s.work}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if s.mode == Stint {
		c, err := storeCaller(s)
		if err != nil {
			return nil, err
		}
		if err := stintredis.Attach(r.client, c); err != nil {
			return nil, err
		}
	}
	return r, r.watch.Ping(ctx).Err()
}

func (r *redisStore) ask(ctx context.Context) error {
	err := r.client.BLPop(ctx, r.wait, r.run).Err()
	if err == redis.Nil {
		return errNothing
	}
	return err
}

// running names the connections of the run that are blocked in BLPOP.
func (r *redisStore) running(ctx context.Context) ([]string, error) {
	list, err := r.watch.ClientList(ctx).Result()
	var ids []string
	for line := range strings.Lines(list) {
		field := make(map[string]string)
		for pair := range strings.FieldsSeq(line) {
			k, v, _ := strings.Cut(pair, "=")
			field[k] = v
		}
		if field["name"] == r.run && field["cmd"] == "blpop" && strings.Contains(field["flags"], "b") {
			ids = append(ids, field["id"])
		}
	}
	return ids, err
}

// close ends what is blocked: Redis notices that its client has gone.
func (r *redisStore) close() error { return errors.Join(r.client.Close(), r.watch.Close()) }

// silent is a log that nobody reads: what go-redis writes into it goes to
// standard error otherwise.
type silent struct{}

func init() { redis.SetLogger(silent{}) }

func (silent) Printf(context.Context, string, ...any) {}
