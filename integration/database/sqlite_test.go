package database

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

const endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"

// sqliteFile makes a database in a file, and returns how to open it: at once without a lock, and waiting for one.
func sqliteFile(t testing.TB) (quick, waiting string) {
	name := "file:" + filepath.Join(t.TempDir(), "test.db")
	return name + "?_pragma=busy_timeout(0)", name + "?_pragma=busy_timeout(20000)"
}

// TestSQLiteInterrupted: an endless query ends with its caller's time, and the next is served.
func TestSQLiteInterrupted(t *testing.T) {
	s := open(t, "sqlite", ":memory:", 1, stint.Policy{}, stintsql.Options{Dialect: stintsql.SQLite})
	if _, err := s.ExecContext(within(t, patience), "create table rows (n int)"); err != nil {
		t.Fatal(err)
	}
	const deadline = 100 * time.Millisecond
	start := time.Now()
	var n int
	err := s.QueryRowContext(within(t, deadline), endless).Scan(&n)
	t.Logf("deadline %v: back after %v: %v", deadline, time.Since(start), err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want a deadline", err)
	}
	if err := s.QueryRowContext(within(t, patience), "select count(*) from rows").Scan(&n); err != nil {
		t.Errorf("afterwards: %v, want the table in memory still there", err)
	}
	_, err = s.ExecContext(within(t, deadline), "insert into rows "+endless)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stintsql.ErrOutcomeUnknown) {
		t.Errorf("a write: error %v, want a deadline, and ErrOutcomeUnknown: the driver does not tell", err)
	}
}

// TestSQLiteTransaction: all that a transaction does works, and is reported.
func TestSQLiteTransaction(t *testing.T) {
	dsn, _ := sqliteFile(t)
	s := open(t, "sqlite", dsn, 2, stint.Policy{}, stintsql.Options{Dialect: stintsql.SQLite})
	ctx := within(t, patience)
	if _, err := s.ExecContext(ctx, "create table rows (n int)"); err != nil {
		t.Fatal(err)
	}
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := tx.ExecContext(ctx, "insert into rows values (?)", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	st, err := s.PrepareContext(ctx, "select n from rows where n > ? order by n")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rows, err := st.QueryContext(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("%v, %v: want 1 and 2", got, err)
	}
	var names []string
	for _, e := range s.rec.Events(stint.CallDone) {
		names = append(names, e.Op)
	}
	t.Log(names)
	if err := s.QueryRowContext(ctx, "select n from rows where n = 9").Scan(new(int)); err != sql.ErrNoRows {
		t.Errorf("%v, want ErrNoRows", err)
	}
}

// TestSQLiteBusy: a write that another's lock kept out had no effect, and is repeated; one of a transaction is not.
func TestSQLiteBusy(t *testing.T) {
	dsn, waiting := sqliteFile(t)
	p := retrying()
	p.Retry.Attempts = 1000 // until the lock is gone
	s := open(t, "sqlite", dsn, 1, p, stintsql.Options{Dialect: stintsql.SQLite})
	other := plain(t, "sqlite", waiting)
	run(t, other, "create table rows (n int)")
	c, err := other.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ExecContext(context.Background(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	tx, err := s.BeginTx(within(t, patience), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(within(t, patience), "insert into rows values (1)"); err == nil || errors.Is(err, stintsql.ErrOutcomeUnknown) {
		t.Errorf("in a transaction: %v, want SQLITE_BUSY", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.ExecContext(within(t, patience), "insert into rows values (2)")
		done <- err
	}()
	tries := func() (n int) {
		for _, e := range s.rec.Events(stint.AttemptDone) {
			if e.Outcome.Code == "busy" {
				n++
			}
		}
		return n
	}
	until(t, func() bool { return tries() >= 3 }) // the transaction's, and two
	if _, err := c.ExecContext(context.Background(), "commit"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("%v, want it done when the lock was gone", err)
	}
	if n := number(t, other, "select count(*) from rows"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// TestSQLiteCommitBusy: a COMMIT that a reader holds up, and that fails, is known, and the connection is of use.
func TestSQLiteCommitBusy(t *testing.T) {
	dsn, waiting := sqliteFile(t)
	s := open(t, "sqlite", dsn, 1, retrying(), stintsql.Options{Dialect: stintsql.SQLite})
	other := plain(t, "sqlite", waiting)
	run(t, other, "create table rows (n int)")
	run(t, other, "insert into rows values (1), (2)")
	tx, err := s.BeginTx(within(t, patience), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(within(t, patience), "insert into rows values (3)"); err != nil {
		t.Fatal(err)
	}
	rows, err := other.QueryContext(context.Background(), "select n from rows")
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() { // it holds a lock until it is closed
		t.Fatal(rows.Err())
	}
	if err := tx.Commit(); err == nil || errors.Is(err, stintsql.ErrOutcomeUnknown) {
		t.Errorf("%v, want SQLITE_BUSY", err)
	}
	rows.Close()
	if _, err := s.ExecContext(within(t, patience), "insert into rows values (4)"); err != nil {
		t.Error(err)
	}
	if n := number(t, other, "select count(*) from rows"); n != 3 {
		t.Errorf("%d rows, want 3: what was not committed is not there", n)
	}
}
