package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
)

// TestLimitShrinks: the limit is each statement's, so it has to shrink with what the
// statements before have used up.
func TestLimitShrinks(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	const deadline = 300 * time.Millisecond
	sleep := "select pg_sleep(0.2)"
	for what, do := range map[string]func(ctx context.Context, s *store) error{
		"statements of a transaction": func(ctx context.Context, s *store) error {
			return pgx.BeginFunc(ctx, s, func(tx pgx.Tx) error {
				_, err1 := tx.Exec(ctx, sleep)
				_, err2 := tx.Exec(ctx, sleep)
				return errors.Join(err1, err2)
			})
		},
		"a batch": func(ctx context.Context, s *store) error {
			var b pgx.Batch
			b.Queue(sleep)
			b.Queue(sleep)
			return s.SendBatch(ctx, &b).Close()
		},
		"a batch in a transaction": func(ctx context.Context, s *store) error {
			return pgx.BeginFunc(ctx, s, func(tx pgx.Tx) error {
				var b pgx.Batch
				b.Queue(sleep)
				b.Queue(sleep)
				return tx.SendBatch(ctx, &b).Close()
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			// The margin is wide, so that nothing but the limit can be what ends it.
			s := open(t, pg.DSN(name), 1, stint.Policy{}, &stintpgx.Options{Margin: 50 * time.Millisecond})
			pid := s.pid(t)
			start := time.Now()
			err := do(within(t, deadline), s)
			took, stopped := time.Since(start), idle(t, admin, pid).Sub(start)
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			if !ok || pgErr.Code != "57014" || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want 57014 and a deadline", err)
			}
			if most := deadline + 100*time.Millisecond; took > most || stopped > most {
				t.Errorf("caller back after %v, backend idle after %v: want less than %v", took, stopped, most)
			}
			if now := s.pid(t); now != pid {
				t.Errorf("the connection was not kept: process %d, want %d", now, pid)
			}
		})
	}
}

// TestForeignLimit: a shorter limit of the session stays, and is no deadline of ours.
func TestForeignLimit(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "alter database "+name+" set statement_timeout = '60ms'")
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	for _, use := range []string{"first", "second"} {
		_, err := s.Exec(within(t, patience), "select pg_sleep(5)")
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pgErr.Code != "57014" || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s use: error %v, want 57014 and no deadline", use, err)
		}
	}
}

// TestPoolWait: who waited for a connection until too little time was left sends
// nothing.
func TestPoolWait(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	s := open(t, pg.DSN(name), 1, stint.Policy{MinUseful: 600 * time.Millisecond}, nil)
	pid := s.pid(t)
	tx, err := s.Begin(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	ctx, patient := within(t, 1200*time.Millisecond), within(t, patience) // a ROLLBACK that has no time of its own may cost the connection
	late, _ := ctx.Deadline()
	time.AfterFunc(time.Until(late)-300*time.Millisecond, func() { tx.Rollback(patient) })
	_, err = s.Exec(ctx, "insert into rows values (1)")
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("error %v, want a deadline", err)
	}
	if e := s.rec.Events(stint.AttemptDone); e[len(e)-1].Outcome.Code != "pool_wait" || !e[len(e)-1].Outcome.NotStarted {
		t.Errorf("reported as %+v, want pool_wait, not started", e[len(e)-1].Outcome)
	}
	if n := number(t, admin, "select count(*) from rows"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	if now := s.pid(t); now != pid {
		t.Errorf("the connection was not kept: process %d, want %d", now, pid)
	}
}

// TestTransactionsDoNotWaitForSlots: who waits for a connection has a bulkhead slot
// already; who has the connection must not wait for one.
func TestTransactionsDoNotWaitForSlots(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	s := open(t, pg.DSN(name), 1, stint.Policy{Bulkhead: 1}, nil)
	ctx := within(t, patience)
	tx, err := s.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if _, err := s.Exec(ctx, "insert into rows values (1)"); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, func() bool {
		return s.Unwrap().Stat().EmptyAcquireCount() > 1 || s.Unwrap().Stat().AcquiredConns() == 1
	})
	short := within(t, 2*time.Second)
	if _, err := tx.Exec(short, "insert into rows values (2)"); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(short); err != nil {
		t.Error(err)
	}
	waiting.Wait()
	if n := number(t, admin, "select count(*) from rows"); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
}

// TestAbandonedTransaction: the server ends one whose client is not heard of again.
func TestAbandonedTransaction(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	proxy := pg.Proxy(t)
	s := open(t, proxy.DSN(name), 1, stint.Policy{}, &stintpgx.Options{CommitGrace: 100 * time.Millisecond})
	pid := s.pid(t)
	tx, err := s.Begin(within(t, 200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Freeze()
	until(t, func() bool { return number(t, admin, "select count(*) from pg_stat_activity where pid = $1", pid) == 0 })
	proxy.Thaw()
	if _, err := tx.Exec(within(t, patience), "select 1"); err == nil || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("a statement after that: %v, want an error that is no riddle", err)
	}
	tx.Rollback(within(t, patience))
}

// TestIdleTransaction: the server lets one be idle for as long as its caller may use it, though the policy gives less
// to each of its statements.
func TestIdleTransaction(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	s := open(t, pg.DSN(name), 1, stint.Policy{Timeout: patience}, nil)
	tx, err := s.Begin(within(t, 10*patience))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(within(t, patience))
	var idle int // ms
	const ask = "select (extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::int"
	if err := tx.QueryRow(within(t, patience), ask).Scan(&idle); err != nil {
		t.Fatal(err)
	}
	if least := int(5 * patience / time.Millisecond); idle < least {
		t.Errorf("ended when idle for %d ms, want at least %d", idle, least)
	}
}

// TestAsPgx: what programs do with a pgxpool.Pool they do with a Pool.
func TestAsPgx(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			name, admin := database(t, pg)
			run(t, admin, "create table rows (n int primary key, name text)")
			s := open(t, pg.DSN(name), 2, stint.Policy{Bulkhead: 1}, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			ctx := within(t, patience)
			for range 3 { // a slot or a connection that is not given back holds the next round up
				asPgx(t, ctx, s)
				run(t, admin, "truncate rows")
			}
			if n := s.Unwrap().Stat().AcquiredConns(); n != 0 {
				t.Errorf("%d connections were not given back", n)
			}
		})
	}
}

func asPgx(t *testing.T, ctx context.Context, s *store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	names := func(db interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}) []string {
		t.Helper()
		rows, err := db.Query(ctx, "select name from rows order by n")
		must(err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(err)
		return names
	}
	want := func(have []string, want ...string) {
		t.Helper()
		if !slices.Equal(have, want) {
			t.Fatalf("rows %q, want %q", have, want)
		}
	}
	tag, err := s.Exec(ctx, "insert into rows values (@n, @name)", pgx.NamedArgs{"n": 1, "name": "a"})
	must(err)
	if tag.RowsAffected() != 1 || !tag.Insert() {
		t.Fatalf("tag %q, want INSERT 0 1", tag)
	}
	var n int
	must(s.QueryRow(ctx, "insert into rows values (2, 'b') returning n").Scan(&n))
	if err := s.QueryRow(ctx, "select n from rows where n = 99").Scan(&n); err != pgx.ErrNoRows {
		t.Fatalf("no row: %v, want pgx.ErrNoRows", err)
	}
	if err := s.QueryRow(ctx, "select n from nowhere").Scan(&n); err == nil {
		t.Fatal("no table: no error")
	}
	rows, err := s.Query(ctx, "select n from generate_series(1, 10000) n")
	must(err)
	rows.Next()
	rows.Close() // in the middle
	must(rows.Err())

	tx, err := s.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	must(err)
	_, err = tx.Exec(ctx, "insert into rows values (3, 'c')")
	must(err)
	inner, err := tx.Begin(ctx)
	must(err)
	if _, err = inner.Exec(ctx, "insert into rows values (3, 'twice')"); err == nil {
		t.Fatal("the same key twice: no error")
	}
	must(inner.Rollback(ctx)) // a failed transaction takes this, and no limit
	if err := inner.Commit(ctx); err != pgx.ErrTxClosed {
		t.Fatalf("commit of what is over: %v, want pgx.ErrTxClosed", err)
	}
	_, errExec := inner.Exec(ctx, "select 1")
	_, errQuery := inner.Query(ctx, "select 1")
	_, errBegin := inner.Begin(ctx)
	_, errCopy := inner.CopyFrom(ctx, pgx.Identifier{"rows"}, []string{"n"}, pgx.CopyFromRows(nil))
	for _, err := range []error{errExec, errQuery, errBegin, errCopy, inner.QueryRow(ctx, "select 1").Scan(&n), inner.SendBatch(ctx, &pgx.Batch{}).Close()} {
		if err != pgx.ErrTxClosed {
			t.Fatalf("a statement in what is over: %v, want pgx.ErrTxClosed", err)
		}
	}
	want(names(tx), "a", "b", "c")
	var b pgx.Batch
	b.Queue("insert into rows values ($1, $2)", 4, "d")
	b.Queue("select count(*) from rows").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	must(tx.SendBatch(ctx, &b).Close())
	if n != 4 {
		t.Fatalf("the batch counted %d, want 4", n)
	}
	must(tx.Commit(ctx))
	if err := tx.Rollback(ctx); err != pgx.ErrTxClosed {
		t.Fatalf("rollback of what is over: %v, want pgx.ErrTxClosed", err)
	}

	copied, err := s.CopyFrom(ctx, pgx.Identifier{"rows"}, []string{"n", "name"}, pgx.CopyFromRows([][]any{{int32(5), "e"}, {int32(6), "f"}}))
	must(err)
	if copied != 2 {
		t.Fatalf("copied %d, want 2", copied)
	}
	b = pgx.Batch{}
	b.Queue("delete from rows where n = $1", 6)
	b.Queue("select name from rows order by n")
	b.Queue("select n from rows where n = 5")
	results := s.SendBatch(ctx, &b)
	_, err = results.Exec()
	must(err)
	rows, err = results.Query()
	must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(err)
	want(all, "a", "b", "c", "d", "e")
	must(results.QueryRow().Scan(&n))
	must(results.Close())
	must(s.SendBatch(ctx, &pgx.Batch{}).Close())
	_, err = s.Exec(ctx, "vacuum rows")
	must(err)
	if v := s.show(t, "statement_timeout"); v != "0" {
		t.Fatalf("statement_timeout is %s after VACUUM, want 0", v)
	}
	must(s.Ping(ctx))
	want(names(s), "a", "b", "c", "d", "e")
}

// TestHedge: of two copies of a read one answers, and the other gives back what it has.
func TestHedge(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	s := open(t, pg.DSN(name), 2, stint.Policy{Hedge: stint.Hedge{Copies: 1, Delay: 20 * time.Millisecond}}, nil)
	ctx := stintpgx.WithOp(within(t, patience), stint.Op{Name: "report", Safety: stint.ReadOnly})
	for range 3 {
		rows, err := s.Query(ctx, "select n from generate_series(1, 3) n, pg_sleep(0.1)")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil || !slices.Equal(n, []int{1, 2, 3}) {
			t.Errorf("rows %v, error %v: want 1, 2, 3", n, err)
		}
		var slept *string
		if err := s.QueryRow(ctx, "select pg_sleep(0.1)::text").Scan(&slept); err != nil {
			t.Error(err)
		}
		if _, err := s.Exec(ctx, "select pg_sleep(0.1)"); err != nil {
			t.Error(err)
		}
		var b pgx.Batch
		b.Queue("select pg_sleep(0.1)")
		b.Queue("select 1")
		if err := s.SendBatch(ctx, &b).Close(); err != nil {
			t.Error(err)
		}
	}
	until(t, func() bool { return s.Unwrap().Stat().AcquiredConns() == 0 })
	copies := 0
	for _, e := range s.rec.Events(stint.AttemptDone) {
		copies += e.Copy
	}
	if copies == 0 {
		t.Error("no copy was sent")
	}
}
