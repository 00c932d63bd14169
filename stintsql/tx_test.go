package stintsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

func begin(t *testing.T, s *store, ctx context.Context) *sql.Tx {
	t.Helper()
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestTxLimit: within a transaction the limit is the transaction's, is renewed when the rest shrank, and is
// gone afterwards.
func TestTxLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, _, query string) answer {
			if query == "select slow" {
				return answer{after: 40 * time.Millisecond}
			}
			return answer{}
		}}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		s.ExecContext(within(t, 105*time.Millisecond), "select 1")
		s.lines()
		ctx := within(t, 205*time.Millisecond)
		tx := begin(t, s, ctx)
		for _, q := range []string{"select 1", "select slow", "select 2", "rollback to a", "select 3"} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		s.ExecContext(within(t, 105*time.Millisecond), "select 1")
		s.same(t, "a transaction of 205 ms", "1 begin",
			"1 exec set local statement_timeout = 180; set local idle_in_transaction_session_timeout = 1205",
			"1 exec select 1", "1 exec select slow",
			"1 exec set local statement_timeout = 144", "1 exec select 2",
			"1 exec rollback to a", "1 exec set local statement_timeout = 144", "1 exec select 3", "1 commit",
			"1 exec set statement_timeout = 90", "1 exec select 1") // the rollback may have undone a SET
	})
}

// TestTxIdle: the server lets a transaction be idle for as long as its caller may use it, though the policy gives less
// to each of its statements.
func TestTxIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{Timeout: 105 * time.Millisecond}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		for _, x := range []struct {
			ctx  context.Context
			idle string
		}{{within(t, 10*time.Second), "11000"}, {context.Background(), "1105"}} {
			tx := begin(t, s, x.ctx)
			tx.Rollback()
			if asked := strings.Join(s.lines(), "\n"); !strings.Contains(asked, "idle_in_transaction_session_timeout = "+x.idle) {
				t.Errorf("asked %s, want an idle limit of %s ms", asked, x.idle)
			}
		}
	})
}

// TestTxPooler: behind a pooler nothing is set for a session.
func TestTxPooler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL, Pooler: true})
		ctx := within(t, 105*time.Millisecond)
		s.ExecContext(ctx, "select 1")
		tx := begin(t, s, ctx)
		tx.ExecContext(ctx, "insert")
		tx.Rollback()
		s.same(t, "a pooler", "1 connect", "1 exec select 1", "1 begin",
			"1 exec set local statement_timeout = 90; set local idle_in_transaction_session_timeout = 1105", "1 exec insert", "1 rollback")
	})
}

// TestTxFailed: PostgreSQL takes nothing in a transaction that has failed but its end, so no limit either.
func TestTxFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: failing(1, "exec", nil)}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		ctx := within(t, time.Second)
		tx := begin(t, s, ctx)
		s.lines()
		f.on = failing(1, "exec", state("23505"))
		if _, err := tx.ExecContext(ctx, "insert"); err == nil || errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("%v, want the server's error", err)
		}
		time.Sleep(500 * time.Millisecond)
		tx.ExecContext(ctx, "select")
		tx.ExecContext(ctx, "rollback to a")
		tx.ExecContext(ctx, "select")
		s.same(t, "a failed transaction", "1 exec insert", "1 exec select", "1 exec rollback to a", "1 exec set local statement_timeout = 445", "1 exec select")
		tx.Rollback()
	})
}

// TestTxReadOnly: what is declared read only is held to it.
func TestTxReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.MariaDB})
		tx := begin(t, s, stintsql.WithOp(within(t, time.Second), stint.Op{Name: "report", Safety: stint.ReadOnly}))
		tx.Rollback()
		s.same(t, "declared read only", "1 connect", "1 begin read only", "1 exec ROLLBACK")
	})
}

// TestTxWithout: a statement without a context has the transaction's deadline.
func TestTxWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer { return answer{silent: what == "exec"} }}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
		tx := begin(t, s, within(t, 100*time.Millisecond))
		start := time.Now()
		_, err := tx.Exec("insert")
		if took := time.Since(start); took != 100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("%v after %v, want a deadline after 100ms", err, took)
		}
		tx.Rollback()
	})
}

// TestCommitTooLate: with too little time left COMMIT is not begun.
func TestCommitTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{MinUseful: 50 * time.Millisecond}, stintsql.Options{Dialect: stintsql.None})
		tx := begin(t, s, within(t, 100*time.Millisecond))
		time.Sleep(60 * time.Millisecond)
		err := tx.Commit()
		refused, ok := errors.AsType[*stint.Error](err)
		if !ok || refused.Attempts != 0 || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("%v, want a refusal for want of time", err)
		}
		s.same(t, "too late", "1 connect", "1 begin", "1 rollback")
	})
}

// TestCommitWaited: a COMMIT that was sent is waited for beyond the deadline, and for no longer than the grace.
func TestCommitWaited(t *testing.T) {
	for _, x := range []struct {
		takes, back time.Duration
		dialect     stintsql.Dialect
		unknown     bool
	}{
		{300 * time.Millisecond, 300 * time.Millisecond, stintsql.PostgreSQL, false},
		{time.Hour, 600 * time.Millisecond, stintsql.PostgreSQL, true}, // pgx and lib/pq run it with the context of BeginTx
		{300 * time.Millisecond, 300 * time.Millisecond, stintsql.MariaDB, false},
		{time.Hour, 600 * time.Millisecond, stintsql.MariaDB, true}, // go-sql-driver runs it with none
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{plainTx: x.dialect == stintsql.MariaDB}
			f.on = func(_ *fake, _ int, what, query string) answer {
				if what == "commit" || query == "COMMIT" {
					return answer{after: x.takes}
				}
				return answer{}
			}
			s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: x.dialect, CommitGrace: 500 * time.Millisecond})
			tx := begin(t, s, within(t, 100*time.Millisecond))
			start := time.Now()
			err := tx.Commit()
			if took := time.Since(start); took != x.back || errors.Is(err, stintsql.ErrOutcomeUnknown) != x.unknown || (err != nil) != x.unknown {
				t.Errorf("%v: %v after %v, want unknown: %v after %v", x.dialect, err, took, x.unknown, x.back)
			}
			if x.unknown && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
				t.Errorf("%v: %v, want a deadline and no cancel", x.dialect, err)
			}
			if e := s.rec.Events(stint.WorkWasted); len(e) != 1 || e[0].Elapsed != x.back-100*time.Millisecond {
				t.Errorf("%v: %d reports of work beyond the deadline, want one", x.dialect, len(e))
			}
			if s.Stats().InUse != 0 {
				t.Error("the connection was not given back")
			}
		})
	}
}

// TestCommitFails: an answered COMMIT is known, a lost one is not, one that was not sent did not happen.
func TestCommitFails(t *testing.T) {
	for _, x := range []struct {
		err     error
		unknown bool
	}{
		{state("40001"), false}, {state("57P01"), true}, {io.ErrUnexpectedEOF, true}, {driver.ErrBadConn, true},
		{errors.New("commit unexpectedly resulted in rollback"), false}, // pgx
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, &fake{on: failing(1, "commit", x.err)}, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: stintsql.PostgreSQL})
			ctx := within(t, time.Second)
			err := begin(t, s, ctx).Commit()
			if err == nil || errors.Is(err, stintsql.ErrOutcomeUnknown) != x.unknown || errors.Is(err, driver.ErrBadConn) {
				t.Errorf("%v: %v, want unknown: %v", x.err, err, x.unknown)
			}
			readOnly, err := s.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			s.on = failing(1, "commit", x.err)
			if err := readOnly.Commit(); err == nil || errors.Is(err, stintsql.ErrOutcomeUnknown) {
				t.Errorf("%v, of a transaction that only reads: %v, want it known", x.err, err)
			}
		})
	}
}

// TestTxEndsWithContext: database/sql rolls back when the context ends, and the connection is kept.
func TestTxEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		ctx, cancel := context.WithCancel(context.Background())
		tx := begin(t, s, ctx)
		s.lines()
		cancel()
		synctest.Wait()
		s.same(t, "cancelled", "1 rollback")
		if err := tx.Commit(); err == nil {
			t.Error("COMMIT afterwards: want an error")
		}
		if err := s.PingContext(context.Background()); err != nil || s.conns != 1 {
			t.Errorf("%v, %d connections: want the one kept", err, s.conns)
		}
	})
}

// TestRawTransaction: a transaction that was begun by a statement is one as well: nothing in it is repeated.
func TestRawTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: stintsql.SQLite})
		ctx := within(t, time.Second)
		c, err := s.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f.lines()
		for _, q := range []string{"begin immediate", "insert", "rollback to a", "insert", "commit", "insert"} {
			f.on = nil
			if q == "insert" {
				f.on = failing(1, "exec", result(5))
			}
			c.ExecContext(ctx, q)
		}
		s.same(t, "by statements", "1 exec begin immediate", "1 exec insert", "1 exec rollback to a", "1 exec insert", "1 exec commit", "1 exec insert", "1 exec insert")
	})
}

// TestRawTransactionBusy: a BEGIN that fails begins nothing, so what follows may be repeated; a COMMIT of SQLite's that
// fails ends nothing.
func TestRawTransactionBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 2}}, stintsql.Options{Dialect: stintsql.SQLite})
		ctx := within(t, time.Second)
		c, err := s.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f.lines()
		for _, step := range []struct {
			query string
			busy  int // so many times
		}{{"begin immediate", 1}, {"insert", 1}, {"begin immediate", 0}, {"insert", 1}, {"commit", 1}, {"insert", 1}, {"commit", 0}, {"insert", 1}} {
			f.on = failing(step.busy, "exec", result(5))
			c.ExecContext(ctx, step.query)
		}
		s.same(t, "by statements", "1 exec begin immediate", "1 exec insert", "1 exec insert", "1 exec begin immediate", "1 exec insert",
			"1 exec commit", "1 exec insert", "1 exec commit", "1 exec insert", "1 exec insert")
	})
}

// TestRollbackBounded: a ROLLBACK without an answer does not hold its caller, nor the connection.
func TestRollbackBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer { return answer{silent: what == "rollback"} }}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
		tx := begin(t, s, within(t, 100*time.Millisecond))
		start := time.Now()
		if err := tx.Rollback(); err == nil || time.Since(start) > 100*time.Millisecond {
			t.Errorf("%v after %v, want an error after 100ms", err, time.Since(start))
		}
		f.on = nil
		if err := s.PingContext(within(t, time.Second)); err != nil || f.conns != 2 {
			t.Errorf("%v, %d connections: want a new one", err, f.conns)
		}
	})
}

// TestTxLimitGone: what a transaction set is gone with it, and what the session had is there again.
func TestTxLimitGone(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
			s.ExecContext(within(t, 205*time.Millisecond), "select 1")
			tx := begin(t, s, within(t, 105*time.Millisecond))
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			s.lines()
			s.ExecContext(within(t, 205*time.Millisecond), "select 1")
			s.same(t, "after the transaction", "1 exec select 1")
		})
	}
}

// TestRollbackFails: what could not be rolled back nobody gets.
func TestRollbackFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: failing(1, "rollback", state("XX000"))}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		if err := begin(t, s, within(t, time.Second)).Rollback(); err == nil {
			t.Error("want the server's error")
		}
		if err := s.PingContext(within(t, time.Second)); err != nil || f.conns != 2 {
			t.Errorf("%v, %d connections: want a new one", err, f.conns)
		}
	})
}
