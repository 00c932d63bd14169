package database

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintsql"
	"github.com/stint-go/stint/stinttest"
)

func TestMain(m *testing.M) {
	mysql.SetLogger(&mysql.NopLogger{}) // connections that are cut are what the tests are about
	os.Exit(testenv.Main(m))
}

// patience bounds a test that hangs; nothing is measured with it.
const patience = 20 * time.Second

// A store is a DB under a Caller, and what the Caller reports.
type store struct {
	*sql.DB
	rec stinttest.Recorder
}

// open opens a database of at most so many connections.
func open(t testing.TB, driverName, dsn string, conns int, p stint.Policy, o stintsql.Options) *store {
	t.Helper()
	s := &store{}
	caller, err := stint.NewCaller("database", p, &stint.CallerOptions{Observer: &s.rec, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if s.DB, err = stintsql.Open(driverName, dsn, caller, &o); err != nil {
		t.Fatal(err)
	}
	s.SetMaxOpenConns(conns)
	s.SetMaxIdleConns(conns)
	t.Cleanup(func() {
		until(t, func() bool { return s.Stats().InUse == 0 }) // what was given up gives its connection back by itself
		s.Close()
	})
	return s
}

// plain opens a database without stint.
func plain(t testing.TB, driverName, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

var databases atomic.Int64

// postgres makes a new, empty database, and returns its name and a way to it that nothing limits.
func postgres(t testing.TB, pg *testenv.Postgres) (name string, admin *sql.DB) {
	t.Helper()
	name = fmt.Sprintf("test%d", databases.Add(1))
	run(t, plain(t, "pgx", pg.DSN("postgres")), "create database "+name)
	return name, plain(t, "pgx", pg.DSN(name))
}

// mariadb does the same.
func mariadb(t testing.TB, m *testenv.MariaDB) (name string, admin *sql.DB) {
	t.Helper()
	name = fmt.Sprintf("test%d", databases.Add(1))
	run(t, plain(t, "mysql", m.DSN("")), "create database "+name)
	return name, plain(t, "mysql", m.DSN(name))
}

// run runs a statement that nothing limits.
func run(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// number runs a statement that returns one.
func number(t testing.TB, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// within returns a context of so much time.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// until asks until the answer is yes.
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
