package database

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintsql"
)

// The margin is for a machine that is busy with other tests.
var mariaDB = stintsql.Options{Dialect: stintsql.MariaDB, Margin: 25 * time.Millisecond}

// working waits until somebody, or nobody, works on what has that text.
func working(t testing.TB, admin *sql.DB, text string, want int) {
	t.Helper()
	until(t, func() bool {
		return number(t, admin, "select count(*) from information_schema.processlist where info like ? and id <> connection_id()", "%"+text+"%") == want
	})
}

// TestMariaDBWriteStops: an INSERT whose caller's time is up stops, and writes nothing. The driver alone hangs up, and
// the server finishes it.
func TestMariaDBWriteStops(t *testing.T) {
	name, admin := mariadb(t, testenv.SharedMariaDB(t))
	run(t, admin, "create table rows_ (n int)")
	dsn := testenv.SharedMariaDB(t).DSN(name)
	const deadline = 200 * time.Millisecond
	const insert = "insert into rows_ select sleep(2)"
	for _, x := range []struct {
		how  string
		args []any
		by   func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store)
		rows int
	}{
		{"stintsql", nil, func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store) {
			s := open(t, "mysql", dsn, 1, stint.Policy{}, mariaDB)
			return s.ExecContext, s
		}, 0},
		{"stintsql, with an argument", []any{2}, func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store) {
			s := open(t, "mysql", dsn, 1, stint.Policy{}, mariaDB)
			return s.ExecContext, s
		}, 0},
		{"stintsql, interpolated", []any{2}, func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store) {
			s := open(t, "mysql", dsn+"?interpolateParams=true", 1, stint.Policy{}, mariaDB)
			return s.ExecContext, s
		}, 0},
		{"stintsql, prepared", []any{2}, func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store) {
			s := open(t, "mysql", dsn, 1, stint.Policy{}, mariaDB)
			st, err := s.PrepareContext(within(t, patience), "insert into rows_ select sleep(?)")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.Close() })
			return func(ctx context.Context, _ string, args ...any) (sql.Result, error) {
				return st.ExecContext(ctx, args...)
			}, s
		}, 0},
		{"stintsql, in a transaction", nil, func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store) {
			s := open(t, "mysql", dsn, 1, stint.Policy{}, mariaDB)
			return func(ctx context.Context, query string, _ ...any) (sql.Result, error) {
				tx, err := s.BeginTx(ctx, nil)
				if err != nil {
					return nil, err
				}
				defer tx.Rollback()
				return tx.ExecContext(ctx, query)
			}, s
		}, 0},
		{"the driver alone", nil, func(t *testing.T) (func(context.Context, string, ...any) (sql.Result, error), *store) {
			return plain(t, "mysql", dsn).ExecContext, nil
		}, 1},
	} {
		t.Run(x.how, func(t *testing.T) {
			run(t, admin, "delete from rows_")
			query := insert
			if x.args != nil {
				query = strings.Replace(insert, "2", "?", 1)
			}
			exec, s := x.by(t)
			if s != nil { // warm
				s.PingContext(within(t, patience))
			}
			start := time.Now()
			_, err := exec(within(t, deadline), query, x.args...)
			back := time.Since(start)
			working(t, admin, "into rows", 0)
			stopped := time.Since(start)
			n := number(t, admin, "select count(*) from rows_")
			t.Logf("deadline %v, an INSERT of 2 s: caller back after %v, server idle after %v, %d rows", deadline, back, stopped, n)
			if !errors.Is(err, context.DeadlineExceeded) || n != x.rows {
				t.Errorf("error %v, %d rows, want a deadline and %d", err, n, x.rows)
			}
			if s == nil {
				return // shown, not judged
			}
			if errors.Is(err, stintsql.ErrOutcomeUnknown) { // where the machine stood still, the client's own limit came first
				t.Log("the server's answer did not come in time")
			}
			if most := time.Second; stopped > most { // the aim is 250ms; without a limit it is the work's 2 s
				t.Errorf("server idle after %v, want at most %v", stopped, most)
			}
			if e := s.rec.Events(stint.CallDone); e[len(e)-1].Outcome.Code != "deadline" {
				t.Errorf("reported as %v", e[len(e)-1].Outcome)
			}
		})
	}
}

// TestMariaDBReads: the same for what returns rows, whose columns MariaDB sends before it works on them.
func TestMariaDBReads(t *testing.T) {
	name, _ := mariadb(t, testenv.SharedMariaDB(t))
	s := open(t, "mysql", testenv.SharedMariaDB(t).DSN(name), 1, stint.Policy{}, mariaDB)
	var first, id int
	if err := s.QueryRowContext(within(t, patience), "select connection_id()").Scan(&first); err != nil {
		t.Fatal(err)
	}
	st, err := s.PrepareContext(within(t, patience), "select sleep(?)")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	const deadline = 100 * time.Millisecond
	for what, query := range map[string]func(context.Context) *sql.Row{
		"text":         func(ctx context.Context) *sql.Row { return s.QueryRowContext(ctx, "select sleep(2)") },
		"one argument": func(ctx context.Context) *sql.Row { return s.QueryRowContext(ctx, "select sleep(?)", 2) },
		"prepared":     func(ctx context.Context) *sql.Row { return st.QueryRowContext(ctx, 2) },
	} {
		start := time.Now()
		var n int
		err := query(within(t, deadline)).Scan(&n)
		t.Logf("%s: deadline %v: back after %v: %v", what, deadline, time.Since(start), err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want a deadline", what, err)
		}
		if err := query(within(t, patience)).Scan(&n); err != nil || n != 0 { // it has the time
			t.Errorf("%s with more time: %d, %v", what, n, err)
		}
	}
	if err := s.QueryRowContext(within(t, patience), "select connection_id()").Scan(&id); err != nil || id != first {
		t.Logf("the connection was not kept: %d, want %d, %v", id, first, err)
	}
}

// TestMariaDBCancelled: a caller who leaves costs the connection, and with Kill the server stops.
func TestMariaDBCancelled(t *testing.T) {
	name, admin := mariadb(t, testenv.SharedMariaDB(t))
	run(t, admin, "create table rows_ (n int)")
	for _, kill := range []bool{true, false} {
		run(t, admin, "delete from rows_")
		s := open(t, "mysql", testenv.SharedMariaDB(t).DSN(name), 1, stint.Policy{}, stintsql.Options{Dialect: stintsql.MariaDB, Kill: kill})
		s.PingContext(within(t, patience))
		ctx, cancel := context.WithCancel(within(t, 10*time.Second))
		done := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := s.ExecContext(ctx, "insert into rows_ select sleep(2)")
			done <- err
		}()
		working(t, admin, "into rows", 1)
		time.AfterFunc(200*time.Millisecond-time.Since(start), cancel)
		err := <-done
		back := time.Since(start)
		working(t, admin, "into rows", 0)
		stopped := time.Since(start)
		n := number(t, admin, "select count(*) from rows_")
		t.Logf("kill %v: cancelled after 200ms: caller back after %v, server idle after %v, %d rows: %v", kill, back, stopped, n, err)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("%v, want a cancel whose outcome is unknown", err)
		}
		if kill && (n != 0 || stopped > time.Second) { // the aim is 250ms
			t.Errorf("with Kill: %d rows, server idle after %v", n, stopped)
		}
		if err := s.PingContext(within(t, patience)); err != nil {
			t.Error(err)
		}
	}
}

// TestMariaDBB33: as PostgreSQL's.
func TestMariaDBB33(t *testing.T) {
	m := testenv.SharedMariaDB(t)
	name, admin := mariadb(t, m)
	run(t, admin, "create table calls (n int)")
	proxy := m.Proxy(t)
	s := open(t, "mysql", proxy.MariaDBDSN(name)+"?interpolateParams=true", 4, retrying(), mariaDB) // one trip, which is then cut
	b33(t, s, admin, proxy, "insert into calls values (?)")
}

// TestMariaDBRetries: the loser of a deadlock has had no effect, and a statement of its own is repeated.
func TestMariaDBRetries(t *testing.T) {
	name, admin := mariadb(t, testenv.SharedMariaDB(t))
	run(t, admin, "create table rows_ (n int primary key, v int)")
	run(t, admin, "insert into rows_ values (1, 0), (2, 0)")
	s := open(t, "mysql", testenv.SharedMariaDB(t).DSN(name)+"?innodb_lock_wait_timeout=1", 1, retrying(), mariaDB)
	lock, err := admin.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec("update rows_ set v = 9 where n = 1"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.ExecContext(within(t, patience), "update rows_ set v = v + 1 where n = 1")
		done <- err
	}()
	until(t, func() bool { // the first try has lost
		return slices.ContainsFunc(s.rec.Events(stint.AttemptDone), func(e stint.Event) bool { return e.Outcome.Code == "1205" })
	})
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("%v, want the second try to have done it", err)
	}
	if v := number(t, admin, "select v from rows_ where n = 1"); v != 1 {
		t.Errorf("v is %d, want 1", v)
	}
}

// TestMariaDBCommit: go-sql-driver runs COMMIT without a context; here it is bounded.
func TestMariaDBCommit(t *testing.T) {
	m := testenv.SharedMariaDB(t)
	name, admin := mariadb(t, m)
	run(t, admin, "create table rows_ (n int)")
	proxy := m.Proxy(t)
	const left, grace = 100 * time.Millisecond, 200 * time.Millisecond
	s := open(t, "mysql", proxy.MariaDBDSN(name), 1, stint.Policy{}, stintsql.Options{Dialect: stintsql.MariaDB, CommitGrace: grace})
	s.PingContext(within(t, patience))
	begin := func(d time.Duration) *sql.Tx {
		ctx := within(t, d)
		tx, err := s.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(ctx, "insert into rows_ values (1)"); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	if err := begin(patience).Commit(); err != nil {
		t.Fatal(err)
	}
	if err := begin(patience).Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, admin, "select count(*) from rows_"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	tx := begin(left)
	proxy.HoldReplies()
	start := time.Now()
	err := tx.Commit()
	took := time.Since(start)
	t.Logf("no answer to COMMIT, %v left, grace %v: back after %v: %v", left, grace, took, err)
	if !errors.Is(err, stintsql.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || took > left+grace+time.Second {
		t.Errorf("want ErrOutcomeUnknown and a deadline within %v", left+grace)
	}
	proxy.Thaw()
	until(t, func() bool { return number(t, admin, "select count(*) from rows_") == 2 }) // it had happened
}

// TestMariaDBIsNoMySQL: the wrong dialect is an error at once, and no statement without a limit.
func TestMariaDBIsNoMySQL(t *testing.T) {
	name, _ := mariadb(t, testenv.SharedMariaDB(t))
	s := open(t, "mysql", testenv.SharedMariaDB(t).DSN(name), 1, stint.Policy{}, stintsql.Options{Dialect: stintsql.MySQL})
	if err := s.PingContext(within(t, patience)); err == nil || !strings.Contains(err.Error(), "Dialect MySQL") {
		t.Errorf("%v, want an error that names the dialect", err)
	}
}
