package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
	"github.com/stint-go/stint/stinttest"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// patience bounds a test that hangs; nothing is measured with it.
const patience = 20 * time.Second

var databases atomic.Int64

// database makes a new, empty database and returns its name and a connection to it that
// nothing limits.
func database(t testing.TB, pg *testenv.Postgres) (name string, admin *pgx.Conn) {
	t.Helper()
	name = fmt.Sprintf("test%d", databases.Add(1))
	first := connect(t, pg.DSN("postgres"))
	run(t, first, "create database "+name)
	first.Close(context.Background())
	return name, connect(t, pg.DSN(name))
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// run runs a statement on the admin's connection.
func run(t testing.TB, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// number runs a statement that returns one.
func number(t testing.TB, c *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// A store is a Pool, and what its Caller reports.
type store struct {
	*stintpgx.Pool
	rec stinttest.Recorder
}

// open makes a pool of so many connections; edit may change its configuration.
func open(t testing.TB, dsn string, conns int, p stint.Policy, o *stintpgx.Options, edit ...func(*pgxpool.Config)) *store {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = int32(conns)
	for _, e := range edit {
		e(config)
	}
	s := &store{}
	caller, err := stint.NewCaller("database", p, &stint.CallerOptions{Observer: &s.rec, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if s.Pool, err = stintpgx.New(context.Background(), config, caller, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(patience):
			t.Errorf("%d connections were not given back", s.Unwrap().Stat().AcquiredConns())
		}
	})
	return s
}

// within returns a context of so much time.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// pid returns the server process behind the pool's connection, which is warm then.
func (s *store) pid(t testing.TB) (pid int) {
	t.Helper()
	for range 2 { // the second time as every further time
		if err := s.QueryRow(within(t, patience), "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
	}
	return pid
}

// show returns a setting as the pool's next user sees it.
func (s *store) show(t testing.TB, setting string) (value string) {
	t.Helper()
	// Not by Pool: that sets a limit first.
	if err := s.Unwrap().QueryRow(within(t, patience), "select current_setting($1)", setting).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// idle waits until a server process does nothing, and returns since when.
func idle(t testing.TB, admin *pgx.Conn, pid int) (since time.Time) {
	t.Helper()
	until(t, func() bool {
		var active bool
		err := admin.QueryRow(context.Background(), "select state = 'active', state_change from pg_stat_activity where pid = $1", pid).Scan(&active, &since)
		if err == pgx.ErrNoRows { // it has ended
			since = time.Now()
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		return !active
	})
	return since
}

// active reports whether a server process is at work on a statement with that text.
func active(t testing.TB, admin *pgx.Conn, pid int, text string) bool {
	t.Helper()
	return number(t, admin, "select count(*) from pg_stat_activity where pid = $1 and state = 'active' and query like $2", pid, "%"+text+"%") == 1
}

// until asks the server until it says yes.
func until(t testing.TB, yes func() bool) {
	t.Helper()
	for start := time.Now(); !yes(); {
		if time.Since(start) > patience {
			t.Fatalf("not so within %v", patience)
		}
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}
