package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
)

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// TestLimitInEachMode: however pgx sends statements, the limit is there and then gone, and
// neither gets what is the other's.
func TestLimitInEachMode(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			s := open(t, pg.DSN(name), 1, stint.Policy{}, &stintpgx.Options{Margin: time.Second},
				func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			readOnly := stintpgx.WithOp(within(t, patience), stint.Op{Safety: stint.ReadOnly})
			for i := range 3 {
				for _, ctx := range []context.Context{within(t, patience), readOnly} {
					var limit string
					var n int
					if err := s.QueryRow(ctx, "select current_setting('statement_timeout'), $1::int", i).Scan(&limit, &n); err != nil || n != i {
						t.Fatalf("%d, %v: want %d", n, err, i)
					}
					if limit == "0" {
						t.Error("the statement ran without a limit")
					}
				}
				if v := s.show(t, "statement_timeout"); v != "0" {
					t.Errorf("statement_timeout is %s afterwards, want 0", v)
				}
			}
			pid := s.pid(t)
			_, err := s.Exec(within(t, 2500*time.Millisecond), "select pg_sleep(20)")
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "57014" || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want 57014 and a deadline", err)
			}
			if now := s.pid(t); now != pid {
				t.Errorf("the connection was not kept: process %d, want %d", now, pid)
			}
			// Several statements at once, which pgx's Exec takes.
			if tag, err := s.Exec(within(t, patience), "insert into rows values (1); insert into rows values (2), (3)"); err != nil || tag.RowsAffected() == 0 {
				t.Errorf("two statements: %q, %v", tag, err)
			}
			err = pgx.BeginFunc(within(t, patience), s, func(tx pgx.Tx) error {
				if _, err := tx.Prepare(within(t, patience), "mine", "select n from rows where n = $1"); err != nil {
					return err
				}
				var n int
				if err := tx.QueryRow(within(t, patience), "mine", 3).Scan(&n); err != nil {
					return err
				}
				_, err := tx.Exec(within(t, patience), "insert into rows values (4); insert into rows values (5);")
				return err
			})
			if err != nil {
				t.Errorf("a statement that the program prepared, and two at once: %v", err)
			}
			if n := number(t, admin, "select count(*) from rows"); n != 5 {
				t.Errorf("%d rows, want 5", n)
			}
			run(t, admin, "truncate rows")
		})
	}
}

// TestHugeDeadline: PostgreSQL knows no limit of more than 2^31-1 ms.
func TestHugeDeadline(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	for _, d := range []time.Duration{60 * 24 * time.Hour, 1<<63 - 1} {
		s := open(t, pg.DSN(name), 1, stint.Policy{}, &stintpgx.Options{CommitGrace: 1<<63 - 1})
		ctx := within(t, d)
		if _, err := s.Exec(ctx, "insert into rows values (1)"); err != nil {
			t.Errorf("%v, a statement: %v", d, err)
		}
		var b pgx.Batch
		b.Queue("select 1")
		b.Queue("select 2")
		if err := s.SendBatch(ctx, &b).Close(); err != nil {
			t.Errorf("%v, a batch: %v", d, err)
		}
		err := pgx.BeginFunc(ctx, s, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into rows values (2)")
			return errors.Join(err, tx.SendBatch(ctx, &b).Close())
		})
		if err != nil {
			t.Errorf("%v, a transaction: %v", d, err)
		}
		if _, err := s.CopyFrom(ctx, pgx.Identifier{"rows"}, []string{"n"}, pgx.CopyFromRows([][]any{{int32(3)}})); err != nil {
			t.Errorf("%v, CopyFrom: %v", d, err)
		}
	}
}

// TestForgotten: who makes the server forget what was prepared does not make statements fail.
func TestForgotten(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	readOnly := stintpgx.WithOp(within(t, patience), stint.Op{Safety: stint.ReadOnly})
	for _, forget := range []func(context.Context, *pgx.Conn) error{
		func(ctx context.Context, c *pgx.Conn) error { return c.DeallocateAll(ctx) },
		func(ctx context.Context, c *pgx.Conn) error { // what a pooler may pass on
			_, err := c.Exec(ctx, "deallocate all; prepare stint_limit as select 1")
			return errors.Join(err, c.DeallocateAll(ctx))
		},
	} {
		for range 2 {
			for _, ctx := range []context.Context{within(t, patience), readOnly} {
				if _, err := s.Exec(ctx, "select 1"); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Unwrap().AcquireFunc(within(t, patience), func(c *pgxpool.Conn) error { return forget(within(t, patience), c.Conn()) }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestChangedTable: a plan that a changed table made useless has run nothing, so it may be
// repeated whatever it is.
func TestChangedTable(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	s := open(t, pg.DSN(name), 1, retrying(), nil)
	insert := func() error {
		return s.QueryRow(within(t, patience), "insert into rows values (1) returning *").Scan(nil)
	}
	for range 2 {
		if err := insert(); err != nil {
			t.Fatal(err)
		}
	}
	run(t, admin, "alter table rows alter n type bigint")
	if err := insert(); err != nil {
		t.Errorf("after the change: %v", err)
	}
	if n := number(t, admin, "select count(*) from rows"); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// TestCancelAnywhere: whenever the caller leaves, the next one gets its own answer.
func TestCancelAnywhere(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		s := open(t, pg.DSN(name), 4, stint.Policy{Breaker: stint.Breaker{Off: true}}, nil,
			func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		const tries = 50
		left := 0
		for i := range tries {
			ctx, cancel := context.WithCancel(within(t, patience))
			timer := time.AfterFunc(time.Duration(i*50)*time.Microsecond, cancel)
			var n int
			err := s.QueryRow(ctx, "select $1::int from generate_series(1, 1000)", i).Scan(&n)
			timer.Stop()
			cancel()
			switch {
			case err == nil && n != i:
				t.Fatalf("%v: asked for %d, got %d", mode, i, n)
			case err != nil && !errors.Is(err, context.Canceled):
				t.Fatalf("%v: %v, want a cancel", mode, err)
			case err != nil:
				left++
			}
			if err := s.QueryRow(within(t, patience), "select $1::int", -i).Scan(&n); err != nil || n != -i {
				t.Fatalf("%v: the next: %d, %v, want %d", mode, n, err, -i)
			}
		}
		t.Logf("%v: %d of %d left before the end", mode, left, tries)
	}
}

// A cutter is a connection that ends after so many further bytes of what the server says.
type cutter struct {
	net.Conn
	left *atomic.Int64 // negative: it does not end
}

func (c cutter) Read(p []byte) (int, error) {
	left := c.left.Load()
	if left == 0 {
		c.Conn.Close()
		return 0, io.EOF
	}
	if left > 0 && int64(len(p)) > left {
		p = p[:left]
	}
	n, err := c.Conn.Read(p)
	if left > 0 {
		c.left.Add(-int64(n))
	}
	return n, err
}

// TestCutAnywhere: a connection that ends within the answer to a write leaves its outcome unknown,
// wherever it is cut.
func TestCutAnywhere(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		var left atomic.Int64
		left.Store(-1)
		s := open(t, pg.DSN(name), 4, stint.Policy{Breaker: stint.Breaker{Off: true}}, nil, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = mode
			c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil || left.Load() >= 0 { // pgx's cancel of what was cut
					return conn, err
				}
				return cutter{conn, &left}, nil
			}
		})
		unknown, n := 0, 0
		for ; n < 200; n += 5 {
			insert := func() error {
				var have int
				return s.QueryRow(within(t, patience), "insert into rows values ($1) returning n", n).Scan(&have)
			}
			left.Store(-1)
			if err := insert(); err != nil { // so that everything is prepared
				t.Fatal(err)
			}
			left.Store(int64(n))
			err := insert()
			left.Store(-1)
			if err == nil {
				break // it was not cut
			}
			if !errors.Is(err, stintpgx.ErrOutcomeUnknown) {
				t.Fatalf("%v, cut after %d bytes: %v, want ErrOutcomeUnknown", mode, n, err)
			}
			unknown++
		}
		t.Logf("%v: an answer of some %d bytes, cut at every fifth: %d unknown", mode, n, unknown)
		if unknown == 0 || n >= 200 {
			t.Errorf("%v: %d unknown, %d bytes", mode, unknown, n)
		}
	}
}

// TestCopyFails: a copy that fails midway leaves nothing, and its connection is as it was.
func TestCopyFails(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int unique)")
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	pid := s.pid(t)
	for what, source := range map[string]pgx.CopyFromSource{
		"the source": pgx.CopyFromFunc(func() func() ([]any, error) {
			n := int32(0)
			return func() ([]any, error) {
				if n++; n > 2000 {
					return nil, errors.New("broken")
				}
				return []any{n}, nil
			}
		}()),
		"the server":  pgx.CopyFromRows([][]any{{int32(1)}, {int32(1)}}),
		"an argument": pgx.CopyFromRows([][]any{{int32(1)}, {struct{}{}}}),
	} {
		n, err := s.CopyFrom(within(t, patience), pgx.Identifier{"rows"}, []string{"n"}, source)
		if err == nil || n != 0 || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
			t.Errorf("%s: copied %d, %v: want an error that is known", what, n, err)
		}
		for _, e := range s.rec.Events(stint.CallDone) {
			if e.Op == "copy" && e.Outcome.Kind != stint.Rejected {
				t.Errorf("%s: reported as %+v: want what says nothing about the server", what, e.Outcome)
			}
		}
		if now := s.pid(t); now != pid {
			t.Errorf("%s: the connection was not kept", what)
		}
	}
	if n, err := s.CopyFrom(within(t, patience), pgx.Identifier{"rows"}, []string{"n"}, nil); err == nil || n != 0 {
		t.Errorf("no source: copied %d, %v: want an error", n, err)
	}
	if err := s.SendBatch(within(t, patience), nil).Close(); err == nil {
		t.Error("no batch: want an error")
	}
	if n := number(t, admin, "select count(*) from rows"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

// TestRowsLeftOpen: who does not close rows holds a connection, until the caller's time is up and no
// longer if they are then looked at.
func TestRowsLeftOpen(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	ctx, cancel := context.WithCancel(within(t, patience))
	rows, err := s.Query(ctx, "select n from generate_series(1, 1000000) n")
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	cancel()
	for rows.Next() {
	}
	if err := rows.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want a cancel", err)
	}
	var n int
	if err := s.QueryRow(within(t, patience), "select 7").Scan(&n); err != nil || n != 7 {
		t.Errorf("the next: %d, %v, want 7", n, err)
	}
}

// TestNotifications: what a server says unasked stays where it was in what it says.
func TestNotifications(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	var heard atomic.Int64
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { heard.Add(1) }
	})
	if _, err := s.Exec(within(t, patience), "listen news"); err != nil {
		t.Fatal(err)
	}
	const news = 200
	for i := range news {
		run(t, admin, fmt.Sprintf("notify news, '%d'", i))
		var n int
		if err := s.QueryRow(within(t, patience), "select $1::int", i).Scan(&n); err != nil || n != i {
			t.Fatalf("%d, %v, want %d", n, err, i)
		}
	}
	until(t, func() bool { return s.Ping(within(t, patience)) != nil || heard.Load() == news })
}

// TestShorterSessionLimit: nothing is sent where the session's own limit is shorter.
func TestShorterSessionLimit(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	s := open(t, pg.DSN(name)+" statement_timeout=5s", 1, stint.Policy{}, nil)
	limits := func(ctx context.Context) (n int, limit string) {
		t.Helper()
		const sql = "select count(*), current_setting('statement_timeout') from pg_prepared_statements where name like 'stint_limit%'"
		if err := s.QueryRow(ctx, sql).Scan(&n, &limit); err != nil {
			t.Fatal(err)
		}
		return n, limit
	}
	if n, limit := limits(within(t, patience)); n != 0 || limit != "5s" {
		t.Errorf("a longer deadline: %d limits prepared, %s: want none, the session's 5s", n, limit)
	}
	if n, limit := limits(within(t, 4*time.Second)); n != 1 || limit == "5s" {
		t.Errorf("a shorter deadline: %d limits prepared, %s: want 1, less than 5s", n, limit)
	}
}

// TestBusy: who sends a statement while rows of another are open is told so, and the database is not
// blamed.
func TestBusy(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	ctx := within(t, patience)
	tx, err := s.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(ctx, "select n from generate_series(1, 3000) n")
	if err != nil {
		t.Fatal(err)
	}
	s.rec.Reset()
	if _, err := tx.Exec(ctx, "select 1"); err == nil || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		t.Errorf("a statement while rows are open: %v, want an error that is known", err)
	}
	if e := s.rec.Events(stint.CallDone)[0]; e.Outcome.Kind != stint.Rejected || !e.Outcome.NotStarted {
		t.Errorf("reported as %+v: want what says nothing about the server", e.Outcome)
	}
	if n, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil || len(n) != 3000 {
		t.Errorf("%d rows, %v: want 3000", len(n), err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Error(err)
	}
}

// TestCommitOfALostTransaction: a COMMIT that can't be sent is no riddle.
func TestCommitOfALostTransaction(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	for how, lose := range map[string]func(tx pgx.Tx, pid int){
		"by a cancel": func(tx pgx.Tx, _ int) {
			ctx, cancel := context.WithCancel(within(t, patience))
			time.AfterFunc(50*time.Millisecond, cancel)
			if _, err := tx.Exec(ctx, "select pg_sleep(20)"); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want a cancel", err)
			}
		},
		"by the server, noticed": func(tx pgx.Tx, pid int) {
			run(t, admin, "select pg_terminate_backend($1)", pid)
			if _, err := tx.Exec(within(t, patience), "insert into rows values (2)"); err == nil || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
				t.Errorf("%v, want an error that is known", err)
			}
		},
	} {
		s := open(t, pg.DSN(name), 1, stint.Policy{Breaker: stint.Breaker{Off: true}}, nil)
		pid := s.pid(t)
		tx, err := s.Begin(within(t, patience))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(within(t, patience), "insert into rows values (1)"); err != nil {
			t.Fatal(err)
		}
		lose(tx, pid)
		if err := tx.Commit(within(t, patience)); err == nil || errors.Is(err, stintpgx.ErrOutcomeUnknown) {
			t.Errorf("lost %s: commit: %v, want an error that is known", how, err)
		}
		if err := tx.Commit(within(t, patience)); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("lost %s: once more: %v, want pgx.ErrTxClosed", how, err)
		}
		if err := s.Ping(within(t, patience)); err != nil {
			t.Errorf("lost %s: the next: %v", how, err)
		}
	}
	if n := number(t, admin, "select count(*) from rows"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}
