package matrix

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
	"github.com/stint-go/stint/stintredis"
	"github.com/stint-go/stint/stintsql"
)

// quiet keeps drivers from writing about connections that are lost on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
func (quiet) Print(...any)                           {}

func init() {
	redis.SetLogger(quiet{})
	mysql.SetLogger(quiet{})
}

var databases atomic.Int64

// postgres is a database of its own, by pgx.
func postgres(t *testing.T) *store {
	t.Helper()
	s, dsn := newPostgres(t, "postgres")
	config, err := pgxpool.ParseConfig(dsn)
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
	return s
}

// postgresSQL is the same through database/sql.
func postgresSQL(t *testing.T) *store {
	t.Helper()
	s, dsn := newPostgres(t, "postgres by database/sql")
	db := s.open(t, "pgx", dsn, stintsql.PostgreSQL)
	s.ask = func(ctx context.Context, takes time.Duration) error {
		_, err := db.ExecContext(ctx, "select pg_sleep($1)", takes.Seconds())
		return err
	}
	return s
}

// newPostgres makes a database behind a network.
func newPostgres(t *testing.T, title string) (s *store, dsn string) {
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
	s = &store{name: title, proxy: pg.Proxy(t)}
	s.running = func() (n int) {
		const sql = "select count(*) from pg_stat_activity where datname = $1 and state <> 'idle'"
		if err := admin.QueryRow(context.Background(), sql, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return s, s.proxy.DSN(name)
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

// mariadb is a database of its own.
func mariadb(t *testing.T) *store {
	t.Helper()
	m := testenv.SharedMariaDB(t)
	name := fmt.Sprintf("matrix%d", databases.Add(1))
	admin, err := sql.Open("mysql", m.DSN(""))
	if err == nil {
		_, err = admin.ExecContext(t.Context(), "create database "+name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })

	s := &store{name: "mariadb", proxy: m.Proxy(t)}
	db := s.open(t, "mysql", s.proxy.MariaDBDSN(name), stintsql.MariaDB)
	s.ask = func(ctx context.Context, takes time.Duration) error {
		var interrupted bool
		return db.QueryRowContext(ctx, fmt.Sprintf("select sleep(%g)", takes.Seconds())).Scan(&interrupted)
	}
	s.running = func() (n int) {
		const sql = "select count(*) from information_schema.processlist where db = ? and command <> 'Sleep'"
		if err := admin.QueryRowContext(context.Background(), sql, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return s
}

// sqlite is a file. It works in the service's process, so there is no network.
func sqlite(t *testing.T) *store {
	t.Helper()
	s := &store{name: "sqlite"}
	db := s.open(t, "sqlite", filepath.Join(t.TempDir(), "db"), stintsql.SQLite)
	s.ask = func(ctx context.Context, takes time.Duration) error {
		const rowsPerSecond = 100_000_000 // more than any machine has: what is to take so long takes longer
		var n int
		return db.QueryRowContext(ctx, "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?) select count(*) from n",
			int64(takes.Seconds()*rowsPerSecond)).Scan(&n)
	}
	s.running = s.held // a connection in use is a statement that runs
	return s
}

// open opens a database of database/sql under the service's Caller.
func (s *store) open(t *testing.T, driver, dsn string, d stintsql.Dialect) *sql.DB {
	t.Helper()
	db, err := stintsql.Open(driver, dsn, s.caller(t), &stintsql.Options{Dialect: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s.held = func() int { return db.Stats().InUse }
	return db
}
