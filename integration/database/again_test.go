package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintsql"
)

// twice is a policy of two attempts, of which the first leaves time for the second. That all have the call's time is shown in
// virtual time, in package stintsql.
func twice(each time.Duration) stint.Policy {
	return stint.Policy{Timeout: patience, MinUseful: time.Millisecond, Breaker: stint.Breaker{Off: true}, Retry: stint.Retry{
		Attempts: 2, AttemptTimeout: each, Base: time.Millisecond, Cap: time.Millisecond, BudgetCeiling: 1000}}
}

var (
	mayRepeat = stintsql.WithOp(context.Background(), stint.Op{Safety: stint.Idempotent})
	readOnly  = stintsql.WithOp(context.Background(), stint.Op{Safety: stint.ReadOnly})
)

// locked takes a file's write lock, and returns what gives it back.
func locked(t *testing.T, db *sql.DB) (unlock func()) {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := c.ExecContext(context.Background(), "rollback"); err != nil {
			t.Error(err)
		}
	}
}

// attempts are the outcomes of a statement's attempts.
func (s *store) attempts(op string) (all []string) {
	for _, e := range s.rec.Events(stint.AttemptDone) {
		if e.Op == op {
			all = append(all, e.Outcome.Kind.String()+" "+e.Outcome.Code)
		}
	}
	return all
}

// TestSQLiteAgain: after an attempt that was interrupted there is another, on the same connection.
func TestSQLiteAgain(t *testing.T) {
	const each = 400 * time.Millisecond
	_, waiting := sqliteFile(t)
	admin := plain(t, "sqlite", waiting)
	run(t, admin, "create table rows (n int)")
	s := open(t, "sqlite", waiting, 1, twice(each), stintsql.Options{Dialect: stintsql.SQLite})
	for range 2 {
		unlock := locked(t, admin)
		s.rec.Reset()
		start := time.Now()
		_, err := s.ExecContext(mayRepeat, "insert into rows values (1)")
		took := time.Since(start)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrBadConn) {
			t.Errorf("locked out: error %v, want a deadline", err)
		}
		got := s.attempts("insert")
		t.Logf("two attempts of %v: %v: %q", each, took, got)
		if len(got) != 2 || got[0] != "timed_out attempt_timeout" || got[1] != got[0] || len(s.rec.Events(stint.Resent)) != 0 {
			t.Errorf("attempts %q, want two that ran", got)
		}
		unlock()
	}
	unlock := locked(t, admin)
	s.rec.Reset()
	done := make(chan error, 1)
	go func() {
		_, err := s.ExecContext(mayRepeat, "insert into rows values (2)")
		done <- err
	}()
	until(t, func() bool { return len(s.attempts("insert")) == 1 })
	unlock()
	if err := <-done; err != nil || number(t, admin, "select count(*) from rows where n = 2") != 1 {
		t.Errorf("the lock was gone for the second attempt: %v %q", err, s.attempts("insert"))
	}
}

// TestSQLiteInterruptedTransaction: SQLite rolls a transaction back whose write it interrupts. What comes after it
// must not be written outside of one.
func TestSQLiteInterruptedTransaction(t *testing.T) {
	_, file := sqliteFile(t)
	for _, dsn := range []string{":memory:", file} {
		s := open(t, "sqlite", dsn, 1, stint.Policy{}, stintsql.Options{Dialect: stintsql.SQLite})
		if _, err := s.ExecContext(within(t, patience), "create table rows (n int)"); err != nil {
			t.Fatal(err)
		}
		for _, commit := range []bool{false, true} {
			tx, err := s.BeginTx(within(t, patience), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(within(t, patience), "insert into rows values (1)"); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(within(t, 50*time.Millisecond), "insert into rows "+endless); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: error %v, want a deadline", dsn, err)
			}
			_, err = tx.ExecContext(within(t, patience), "insert into rows values (2)")
			t.Logf("%s: the next statement: %v", dsn, err)
			if err == nil {
				t.Errorf("%s: a statement of a transaction that is no more succeeded", dsn)
			}
			if commit {
				if err = tx.Commit(); err == nil {
					t.Errorf("%s: what is no more was committed", dsn)
				}
			} else {
				err = tx.Rollback()
			}
			t.Logf("%s: commit %v: %v", dsn, commit, err)
			var n int
			if err := s.QueryRowContext(within(t, patience), "select count(*) from rows").Scan(&n); err != nil || n != 0 {
				t.Errorf("%s, commit %v: %d rows, %v: want none", dsn, commit, n, err)
			}
		}
	}
}

// TestMariaDBDeadlockTransaction: the server has rolled back the transaction that lost. What comes after it must not
// be written outside of one.
func TestMariaDBDeadlockTransaction(t *testing.T) {
	m := testenv.SharedMariaDB(t)
	name, admin := mariadb(t, m)
	run(t, admin, "create table rows_ (n int primary key, v int)")
	run(t, admin, "insert into rows_ values (1, 0), (2, 0)")
	s := open(t, "mysql", m.DSN(name), 2, stint.Policy{Breaker: stint.Breaker{Off: true}}, mariaDB)
	begin := func(n int) *sql.Tx {
		tx, err := s.BeginTx(within(t, patience), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(within(t, patience), "update rows_ set v = 1 where n = ?", n); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	for _, commit := range []bool{false, true} {
		a, b := begin(1), begin(2)
		done := make(chan error, 1)
		go func() {
			_, err := a.ExecContext(within(t, patience), "update rows_ set v = 1 where n = 2")
			done <- err
		}()
		_, errB := b.ExecContext(within(t, patience), "update rows_ set v = 1 where n = 1")
		errA := <-done
		lost, won := a, b
		if errA == nil {
			lost, won = b, a
		}
		if (errA == nil) == (errB == nil) {
			t.Fatalf("%v, %v: want one that lost", errA, errB)
		}
		if _, err := lost.ExecContext(within(t, patience), "insert into rows_ values (3, 3)"); err == nil {
			t.Error("a statement of a transaction that is no more succeeded")
		}
		if commit {
			if err := lost.Commit(); err == nil {
				t.Error("what is no more was committed")
			}
		} else if err := lost.Rollback(); err != nil {
			t.Error(err)
		}
		if err := won.Rollback(); err != nil {
			t.Error(err)
		}
		if n := number(t, admin, "select count(*) from rows_"); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
		if _, err := s.ExecContext(within(t, patience), "update rows_ set v = 0"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestAgainElsewhere: an attempt whose time was up costs the connection where the network is silent. The next is on
// another one.
func TestAgainElsewhere(t *testing.T) {
	for _, x := range []struct {
		name  string
		start func(t *testing.T, p stint.Policy) (*store, *testenv.Proxy)
	}{
		{"PostgreSQL", func(t *testing.T, p stint.Policy) (*store, *testenv.Proxy) {
			pg := testenv.SharedPostgres(t)
			name, _ := postgres(t, pg)
			proxy := pg.Proxy(t)
			return open(t, "pgx", proxy.DSN(name)+" default_query_exec_mode=exec", 1, p, postgreSQL), proxy
		}},
		{"MariaDB", func(t *testing.T, p stint.Policy) (*store, *testenv.Proxy) {
			m := testenv.SharedMariaDB(t)
			name, _ := mariadb(t, m)
			proxy := m.Proxy(t)
			return open(t, "mysql", proxy.MariaDBDSN(name), 1, p, mariaDB), proxy
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, proxy := x.start(t, twice(time.Second))
			if _, err := s.ExecContext(within(t, patience), "create table rows_ (n int)"); err != nil {
				t.Fatal(err)
			}
			if err := s.PingContext(within(t, patience)); err != nil { // now the driver has no more to ask before a statement
				t.Fatal(err)
			}
			s.rec.Reset()
			proxy.HoldReplies()
			done := make(chan error, 1)
			var n int
			go func() { done <- s.QueryRowContext(readOnly, "select 7").Scan(&n) }()
			until(t, func() bool { return len(s.attempts("select")) >= 1 })
			proxy.Thaw()
			if err := <-done; err != nil || n != 7 {
				t.Errorf("%d, %v: want 7 from another connection", n, err)
			}
			got := s.attempts("select")
			if len(s.rec.Events(stint.Resent)) != 1 || len(got) != 3 || got[0] != "timed_out attempt_timeout" || got[2] != "ok " {
				t.Errorf("attempts %q, want one that ran out of time, one that found its connection gone, and one elsewhere", got)
			}
		})
	}
}
