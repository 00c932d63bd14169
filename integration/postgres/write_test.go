package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
)

// retrying allows three attempts, at once.
func retrying() stint.Policy {
	return stint.Policy{Timeout: patience, Retry: stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond, BudgetCeiling: 1000},
		Breaker: stint.Breaker{Off: true}}
}

// oneTrip makes pgx send a statement in the round trip that runs it.
func oneTrip(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

// TestB33 cuts the connection in place of the answer to an INSERT, 100 times: no
// INSERT runs twice, and each says that nobody knows.
func TestB33(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (call int)")
	proxy := pg.Proxy(t)
	s := open(t, proxy.DSN(name), 4, retrying(), nil, oneTrip) // closing one takes longer than opening one
	const calls = 100
	cut := 0
	for i := range calls {
		s.pid(t) // a new connection
		proxy.CutReply()
		switch _, err := s.Exec(within(t, patience), "insert into rows values ($1)", i); {
		case errors.Is(err, stintpgx.ErrOutcomeUnknown):
			cut++
		case err != nil:
			t.Fatalf("call %d: error %v, want ErrOutcomeUnknown", i, err)
		}
	}
	if cut < calls/2 { // after a second's standstill the pool asks for a sign of life, and it was the answer to that which was cut
		t.Errorf("%d of %d answers were cut, want all but a few", cut, calls)
	}
	until(t, func() bool { // what was cut off ends by itself
		return number(t, admin, "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'") == 1
	})
	if n := number(t, admin, "select count(*) from rows"); n > calls {
		t.Errorf("%d rows of %d calls", n, calls)
	} else {
		t.Logf("%d rows of %d calls, of which %d said that they do not know", n, calls, cut)
	}
	if n := number(t, admin, "select count(*) from (select 1 from rows group by call having count(*) > 1) twice"); n != 0 {
		t.Errorf("%d calls ran twice", n)
	}
}

// TestReads: what is declared read only is repeated, and held to it.
func TestReads(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	run(t, admin, "create function writes() returns int language sql as 'insert into rows values (1) returning n'")
	proxy := pg.Proxy(t)
	s := open(t, proxy.DSN(name), 1, retrying(), nil, oneTrip)
	read := func() context.Context {
		return stintpgx.WithOp(within(t, patience), stint.Op{Name: "read", Safety: stint.ReadOnly})
	}
	s.pid(t)
	s.rec.Reset()
	proxy.CutReply()
	var n int
	if err := s.QueryRow(read(), "select 7").Scan(&n); err != nil || n != 7 {
		t.Errorf("declared, and cut off once: %d, %v, want 7", n, err)
	}
	if e := s.rec.Events(stint.CallDone)[0]; e.Attempt != 2 || e.Op != "read" {
		t.Errorf("%d attempts of %q, want 2 of read", e.Attempt, e.Op)
	}
	proxy.CutReply()
	if _, err := s.Query(within(t, patience), "select 7"); !errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("undeclared, and cut off: error %v, want ErrOutcomeUnknown", err)
	}
	err := s.QueryRow(read(), "select writes()").Scan(&n)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "25006" {
		t.Errorf("declared read only, and writes: error %v, want 25006", err)
	}
	if err := s.QueryRow(within(t, patience), "select writes()").Scan(&n); err != nil {
		t.Errorf("the next statement: %v", err)
	}
	if n := number(t, admin, "select count(*) from rows"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// slowCommit is a table whose rows make COMMIT take so long.
func slowCommit(t *testing.T, admin *pgx.Conn, seconds string) {
	t.Helper()
	run(t, admin, "create table rows (n int)")
	run(t, admin, "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep("+seconds+"); return null; end'")
	run(t, admin, "create constraint trigger slow after insert on rows deferrable initially deferred for each row execute function slow()")
}

// TestCommitIsNotCutOff: PostgreSQL does not bound COMMIT, so it is waited for.
func TestCommitIsNotCutOff(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	slowCommit(t, admin, "0.3")
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	s.pid(t)
	ctx := within(t, 150*time.Millisecond)
	err := pgx.BeginFunc(ctx, s, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into rows values (1)")
		return err
	})
	rows := number(t, admin, "select count(*) from rows")
	if err != nil || rows != 1 {
		t.Errorf("error %v, %d rows: want what it says to be so, and so nil and 1", err, rows)
	}
	if n := len(s.rec.Events(stint.WorkWasted)); n != 1 {
		t.Errorf("%d reports of work beyond the deadline, want 1", n)
	}
}

// TestCommitSilent: a COMMIT whose answer does not come is unknown, and says so.
func TestCommitSilent(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	proxy := pg.Proxy(t)
	const left, grace = 100 * time.Millisecond, 200 * time.Millisecond
	s := open(t, proxy.DSN(name), 1, stint.Policy{}, &stintpgx.Options{CommitGrace: grace})
	s.pid(t)
	tx, err := s.Begin(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(within(t, patience), "insert into rows values (1)"); err != nil {
		t.Fatal(err)
	}
	proxy.HoldReplies()
	start := time.Now()
	err = tx.Commit(within(t, left))
	if took := time.Since(start); took < left+grace || took > left+grace+time.Second {
		t.Errorf("back after %v, want %v", took, left+grace)
	}
	if !errors.Is(err, stintpgx.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want ErrOutcomeUnknown and a deadline", err)
	}
	proxy.Thaw()
	until(t, func() bool { return number(t, admin, "select count(*) from rows") == 1 }) // it had happened
	if err := tx.Rollback(within(t, patience)); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("rollback afterwards: %v, want pgx.ErrTxClosed", err)
	}
}

// TestCommitTooLate: with too little time left COMMIT is not begun.
func TestCommitTooLate(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	s := open(t, pg.DSN(name), 1, stint.Policy{MinUseful: 50 * time.Millisecond}, nil)
	pid := s.pid(t)
	tx, err := s.Begin(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(within(t, patience), "insert into rows values (1)"); err != nil {
		t.Fatal(err)
	}
	err = tx.Commit(within(t, 20*time.Millisecond))
	refused, ok := errors.AsType[*stint.Error](err)
	if !ok || refused.Attempts != 0 || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("error %v, want a refusal for want of time", err)
	}
	if n := number(t, admin, "select count(*) from rows"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	if now := s.pid(t); now != pid {
		t.Errorf("the connection was not kept: process %d, want %d", now, pid)
	}
}

// TestCommitFails: what the server says of a COMMIT is known.
func TestCommitFails(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int unique deferrable initially deferred)")
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	err := pgx.BeginFunc(within(t, patience), s, func(tx pgx.Tx) error {
		_, err := tx.Exec(within(t, patience), "insert into rows values (1), (1)")
		return err
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23505" || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("error %v, want 23505", err)
	}
	tx, err := s.Begin(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	tx.Exec(within(t, patience), "select 1/0")
	if err := tx.Commit(within(t, patience)); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("COMMIT of a failed transaction: %v, want pgx.ErrTxCommitRollback", err)
	}
}

// TestServerKilled: what can't have been sent may be repeated, whatever it is.
func TestServerKilled(t *testing.T) {
	pg := testenv.StartPostgres(t)
	name, admin := database(t, pg)
	s := open(t, pg.DSN(name), 1, retrying(), nil)
	pid := s.pid(t)
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(within(t, patience), "select pg_sleep(20)")
		done <- err
	}()
	until(t, func() bool { return active(t, admin, pid, "pg_sleep(20)") })
	pg.Kill()
	if err := <-done; !errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("killed while it worked: %v, want ErrOutcomeUnknown", err)
	}
	s.rec.Reset()
	_, err := s.Exec(within(t, patience), "insert into rows values (1)")
	stintErr, ok := errors.AsType[*stint.Error](err)
	if !ok || stintErr.Attempts != 3 || !stintErr.Outcome().NotStarted || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("no server: %v, want three attempts that never started", err)
	}
}

// TestPoolerKilled: the same, of a pooler in front of a server that lives.
func TestPoolerKilled(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	bouncer := testenv.StartPgbouncer(t, pg, 1)
	s := open(t, bouncer.DSN(name), 1, retrying(), &stintpgx.Options{Pooler: true})
	pid := s.pid(t)
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(within(t, patience), "select pg_sleep(20)")
		done <- err
	}()
	until(t, func() bool { return active(t, admin, pid, "pg_sleep(20)") })
	bouncer.Kill()
	if err := <-done; !errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("killed while it worked: %v, want ErrOutcomeUnknown", err)
	}
	run(t, admin, "select pg_terminate_backend($1)", pid) // it does not look for its client while it sleeps
	_, err := s.Exec(within(t, patience), "select 1")
	stintErr, ok := errors.AsType[*stint.Error](err)
	if !ok || stintErr.Attempts != 3 || !stintErr.Outcome().NotStarted || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("no pooler: %v, want three attempts that never started", err)
	}
}
