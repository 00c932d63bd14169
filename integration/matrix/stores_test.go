package matrix

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
	"github.com/stint-go/stint/stintredis"
)

// quiet keeps go-redis from writing about connections that are lost on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

var databases atomic.Int64

// postgres is a database of its own.
func postgres(t *testing.T) *store {
	t.Helper()
	pg := testenv.SharedPostgres(t)
	name := fmt.Sprintf("matrix%d", databases.Add(1))
	admin, err := pgx.Connect(t.Context(), pg.DSN("postgres"))
	if err == nil {
		_, err = admin.Exec(t.Context(), "create database "+name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.Background()) })

	s := &store{name: "postgres", proxy: pg.Proxy(t)}
	config, err := pgxpool.ParseConfig(s.proxy.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := stintpgx.New(t.Context(), config, s.caller(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.ask = func(ctx context.Context, takes time.Duration) error {
		_, err := pool.Exec(ctx, "select pg_sleep($1)", takes.Seconds())
		return err
	}
	s.held = func() int { return int(pool.Unwrap().Stat().AcquiredConns()) }
	s.running = func() (n int) {
		const sql = "select count(*) from pg_stat_activity where datname = $1 and state <> 'idle'"
		if err := admin.QueryRow(context.Background(), sql, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return s
}

// redisStore is a Redis whose work is to sleep, all of it, as it has one thread.
func redisStore(t *testing.T) *store {
	t.Helper()
	r := testenv.StartRedis(t, "--enable-debug-command", "yes")
	s := &store{name: "redis", proxy: testenv.StartProxy(t, "tcp4", r.Addr)}
	o, _ := stintredis.Options(&redis.Options{Addr: s.proxy.Addr})
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	if err := stintredis.Attach(client, s.caller(t)); err != nil {
		t.Fatal(err)
	}
	s.ask = func(ctx context.Context, takes time.Duration) error {
		return client.Do(ctx, "debug", "sleep", takes.Seconds()).Err()
	}
	s.running = func() int { return 0 } // it can't be stopped, and answers nobody until it has slept
	s.held = func() int {
		stats := client.PoolStats()
		return int(stats.TotalConns - stats.IdleConns)
	}
	return s
}
