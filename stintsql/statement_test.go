package stintsql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

func TestNewRefuses(t *testing.T) {
	c, err := stint.NewCaller("database", stint.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	hedging, err := stint.NewCaller("database", stint.Policy{Timeout: time.Second, Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		base   driver.Connector
		caller *stint.Caller
		o      *stintsql.Options
		want   string
	}{
		{"no driver", nil, c, &stintsql.Options{Dialect: stintsql.None}, "Connector is nil"},
		{"no Caller", &fake{}, nil, &stintsql.Options{Dialect: stintsql.None}, "NewCaller"},
		{"no options", &fake{}, c, nil, "Dialect is not set"},
		{"no dialect", &fake{}, c, &stintsql.Options{}, "PostgreSQL, MariaDB, MySQL, SQLite, or None"},
		{"a dialect that is none", &fake{}, c, &stintsql.Options{Dialect: 99}, "Dialect is 99"},
		{"a negative margin", &fake{}, c, &stintsql.Options{Dialect: stintsql.None, Margin: -1}, "Margin is -1ns"},
		{"a negative grace", &fake{}, c, &stintsql.Options{Dialect: stintsql.None, CommitGrace: -1}, "CommitGrace is -1ns"},
		{"a kill of nobody", &fake{}, c, &stintsql.Options{Dialect: stintsql.SQLite, Kill: true}, "only MySQL and MariaDB"},
		{"a kill of others", &fake{}, c, &stintsql.Options{Dialect: stintsql.MySQL, Kill: true, Pooler: true}, "work of others"},
		{"a hedge", &fake{}, hedging, &stintsql.Options{Dialect: stintsql.None}, "hedge"},
	} {
		if _, err := stintsql.NewConnector(x.base, x.caller, x.o); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want an error with %q", x.name, err, x.want)
		}
	}
	if _, err := stintsql.Open("no such driver", "", c, &stintsql.Options{Dialect: stintsql.None}); err == nil {
		t.Error("Open with a driver that nobody registered: want an error")
	}
}

// TestLimit: the server is told the time left, less the margin.
func TestLimit(t *testing.T) {
	for _, x := range []struct {
		dialect stintsql.Dialect
		query   string
		want    string
	}{
		{stintsql.None, "select 1", "1 exec select 1"},
		{stintsql.SQLite, "select 1", "1 exec select 1"},
		{stintsql.PostgreSQL, "insert into rows", "1 exec set statement_timeout = 85, 1 exec insert into rows"}, // nine tenths of 95
		{stintsql.MariaDB, "insert into rows", "1 exec SET STATEMENT max_statement_time=0.095 FOR insert into rows"},
		{stintsql.MariaDB, "/* who */ select 1", "1 exec SET STATEMENT max_statement_time=0.095 FOR /* who */ select 1"},
		{stintsql.MariaDB, "call p()", "1 exec call p()"},
		{stintsql.MySQL, "SELECT 1", "1 exec SELECT /*+ MAX_EXECUTION_TIME(95) */ 1"},
		{stintsql.MySQL, "-- who\n select(1)", "1 exec -- who\n select /*+ MAX_EXECUTION_TIME(95) */(1)"},
		{stintsql.MySQL, "select /*+ NO_ICP(t) */ 1", "1 exec select /*+ MAX_EXECUTION_TIME(95)  NO_ICP(t) */ 1"},
		{stintsql.MySQL, "insert into rows select 1", "1 exec insert into rows select 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: x.dialect})
			if err := s.PingContext(within(t, time.Second)); err != nil {
				t.Fatal(err)
			}
			s.lines()
			if _, err := s.ExecContext(within(t, 100*time.Millisecond), x.query); err != nil {
				t.Fatal(err)
			}
			s.same(t, x.dialect.String(), strings.Split(x.want, ", ")...)
		})
	}
}

// TestB03: less than a unit of the server's is never rounded to none, which would mean
// no limit.
func TestB03(t *testing.T) {
	for d, want := range map[stintsql.Dialect]string{
		stintsql.PostgreSQL: "1 exec set statement_timeout = 1",
		stintsql.MariaDB:    "1 exec SET STATEMENT max_statement_time=0.001 FOR select 1",
		stintsql.MySQL:      "1 exec select /*+ MAX_EXECUTION_TIME(1) */ 1",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: d})
			s.PingContext(within(t, time.Second))
			s.lines()
			if _, err := s.ExecContext(within(t, 1100*time.Microsecond), "select 1"); err != nil {
				t.Error(err)
			}
			if got := s.lines(); len(got) == 0 || got[0] != want {
				t.Errorf("with 1.1 ms left: %q, want %q", got, want)
			}
			if _, err := s.ExecContext(within(t, 400*time.Microsecond), "select 1"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with 0.4 ms left: %v, want a refusal", err)
			}
			s.same(t, "with 0.4 ms left")
		})
	}
}

// TestLadder: a session's limit is set again only when it would be too long, or too short by
// more than a fifth.
func TestLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		for _, x := range []struct {
			left time.Duration
			set  string
		}{
			{105 * time.Millisecond, "90"}, // of 100
			{105 * time.Millisecond, ""},
			{95 * time.Millisecond, ""},   // 90: all of it
			{94 * time.Millisecond, "80"}, // 90 would be later than 89
			{105 * time.Millisecond, ""},  // eight tenths
			{106 * time.Millisecond, "90"},
			{10 * time.Second, "8995"},
			{105 * time.Millisecond, "90"},
		} {
			s.PingContext(within(t, time.Second))
			s.lines()
			want := []string{"1 exec select 1"}
			if x.set != "" {
				want = []string{"1 exec set statement_timeout = " + x.set, "1 exec select 1"}
			}
			if _, err := s.ExecContext(within(t, x.left), "select 1"); err != nil {
				t.Fatal(err)
			}
			s.same(t, x.left.String(), want...)
		}
		do := func(query string) {
			if _, err := s.ExecContext(within(t, 105*time.Millisecond), query); err != nil {
				t.Fatal(err)
			}
		}
		s.lines()
		do("set statement_timeout = 0")
		do("select 1")
		s.same(t, "after somebody's SET", "1 exec set statement_timeout = 0", "1 exec set statement_timeout = 90", "1 exec select 1")
	})
}

// TestOwnLimit: a session's own limit is not exceeded, and stops what it stops by its own right.
func TestOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{own: "50"}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		s.PingContext(within(t, time.Second))
		s.lines()
		f.on = func(_ *fake, _ int, what, query string) answer {
			if query == "select 1" {
				return answer{after: 50 * time.Millisecond, err: state("57014")}
			}
			return answer{}
		}
		_, err := s.ExecContext(within(t, time.Second), "select 1")
		s.same(t, "with a second left", "1 exec select 1")
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped by the session's own limit: %v, want an error that is no deadline", err)
		}
	})
}

// TestTinyOwnLimit: one of less than a millisecond does not become zero, which is none.
func TestTinyOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{own: "0.0001"}, stint.Policy{}, stintsql.Options{Dialect: stintsql.MariaDB})
		s.ExecContext(within(t, time.Second), "insert into rows")
		s.same(t, "a session of 100 us", "1 connect", "1 exec SET STATEMENT max_statement_time=0.0001 FOR insert into rows")
	})
}

// TestServerStops: what the server stopped at our limit is the caller's deadline, and the
// connection is kept.
func TestServerStops(t *testing.T) {
	for d, err := range map[stintsql.Dialect]error{
		stintsql.PostgreSQL: state("57014"), stintsql.MariaDB: &numbered{1969}, stintsql.MySQL: &numbered{3024},
	} {
		for _, inRows := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: d})
				s.PingContext(within(t, time.Second))
				f.on = func(_ *fake, _ int, _, query string) answer {
					switch {
					case !strings.Contains(query, "select"):
						return answer{}
					case inRows: // MariaDB sends the columns first
						return answer{after: 95 * time.Millisecond, late: err}
					}
					return answer{after: 95 * time.Millisecond, err: err}
				}
				_, got := s.QueryContext(within(t, 100*time.Millisecond), "select sleep(3)")
				if !errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, err) {
					t.Errorf("%v: %v, want a deadline, and the server's word", d, got)
				}
				if e := s.rec.Events(stint.CallDone); e[len(e)-1].Outcome.Kind != stint.Expired || e[len(e)-1].Reason != stint.NoTime {
					t.Errorf("%v: reported as %v", d, e[len(e)-1])
				}
				f.on = nil
				if err := s.PingContext(within(t, time.Second)); err != nil || f.conns != 1 {
					t.Errorf("%v: afterwards %v, %d connections: want the one", d, err, f.conns)
				}
			})
		}
	}
}

// TestGuard: with too little time left nothing is sent, in a transaction and outside.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{MinUseful: 50 * time.Millisecond}, stintsql.Options{Dialect: stintsql.None})
		s.PingContext(within(t, time.Second))
		s.lines()
		short := within(t, 20*time.Millisecond)
		_, errExec := s.ExecContext(short, "insert")
		_, errQuery := s.QueryContext(short, "select")
		_, errPrepare := s.PrepareContext(short, "select")
		_, errBegin := s.BeginTx(short, nil)
		for what, err := range map[string]error{"Exec": errExec, "Query": errQuery, "Prepare": errPrepare, "BeginTx": errBegin, "Ping": s.PingContext(short)} {
			refused, ok := errors.AsType[*stint.Error](err)
			if !ok || refused.Attempts != 0 || refused.Reason != stint.NoTime || errors.Is(err, stintsql.ErrOutcomeUnknown) {
				t.Errorf("%s: %v, want a refusal for want of time", what, err)
			}
		}
		s.same(t, "with 20 ms left")
	})
}

// TestPoolWait: MinUseful is asked for when the connection is there.
func TestPoolWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, _, query string) answer {
			if query == "slow" {
				return answer{after: 80 * time.Millisecond}
			}
			return answer{}
		}}
		s := open(t, f, stint.Policy{MinUseful: 50 * time.Millisecond}, stintsql.Options{Dialect: stintsql.None})
		go exec(s, within(t, time.Second), "slow")
		synctest.Wait()
		err := exec(s, within(t, 100*time.Millisecond), "insert")
		if refused, ok := errors.AsType[*stint.Error](err); !ok || refused.Reason != stint.NoTime || refused.Attempts != 0 {
			t.Errorf("20 ms left after the wait: %v, want a refusal", err)
		}
		s.same(t, "after the wait", "1 connect", "1 exec slow")
	})
}

// TestNames: an operation is named by its declaration, or by the statement.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.None,
			Op: func(_ context.Context, query string) stint.Op {
				if query == "select price" {
					return stint.Op{Name: "price", Safety: stint.ReadOnly}
				}
				return stint.Op{}
			}})
		ctx := within(t, time.Second)
		for _, err := range []error{
			exec(s, ctx, "select price"), exec(s, ctx, " Insert into rows"), exec(s, ctx, "magic"),
			exec(s, stintsql.WithOp(ctx, stint.Op{Name: "report"}), "select price"),
			exec(s, stintsql.WithOp(ctx, stint.Op{Safety: stint.Idempotent}), "-- who\nupdate rows"),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		want := []string{"connect ok ", "price ok ", "insert ok ", "other ok ", "report ok ", "update ok "}
		if got := s.outcomes(stint.CallDone); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func exec(s *store, ctx context.Context, query string) error {
	_, err := s.ExecContext(ctx, query)
	return err
}

// TestWriteUnknown: a write without an answer is not repeated by anybody, and says so.
func TestWriteUnknown(t *testing.T) {
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn} { // the last is what a driver must not say
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: failing(9, "exec", cut)}
			s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: stintsql.None})
			_, err := s.ExecContext(within(t, time.Second), "insert")
			if !errors.Is(err, stintsql.ErrOutcomeUnknown) || errors.Is(err, driver.ErrBadConn) {
				t.Errorf("%v: %v, want ErrOutcomeUnknown, and no driver.ErrBadConn", cut, err)
			}
			s.same(t, cut.Error(), "1 connect", "1 exec insert", "1 close")
			if n := len(s.rec.Events(stint.Resent)); n != 0 {
				t.Errorf("%d events of a resend, want none", n)
			}
		})
	}
}

// TestResent: what was not sent database/sql gives to another connection, twice, and each is reported.
func TestResent(t *testing.T) {
	stintsql.Honest(t, thisPackage)
	for _, x := range []struct{ bad, sends int }{{0, 1}, {1, 2}, {2, 3}, {3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: failing(x.bad, "exec", driver.ErrBadConn)}
			s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: stintsql.None})
			s.PingContext(within(t, time.Second))
			_, err := s.ExecContext(within(t, time.Second), "insert")
			sends := strings.Count(strings.Join(s.lines(), "\n"), "exec insert")
			if failed := x.bad == 3; sends != x.sends || failed != (err != nil) || errors.Is(err, stintsql.ErrOutcomeUnknown) {
				t.Errorf("%d dead connections: %d sends, %v: want %d", x.bad, sends, err, x.sends)
			}
			if n := len(s.rec.Events(stint.Resent)); n != x.bad {
				t.Errorf("%d dead connections: %d events of a resend", x.bad, n)
			}
			var kinds []stint.Kind
			for _, e := range s.rec.Events(stint.CallDone) {
				if e.Op == "insert" {
					kinds = append(kinds, e.Outcome.Kind)
				}
			}
			// That a connection was kept for too long is no failure of the database; that a new one is dead is.
			if want := []stint.Kind{stint.Refused, stint.Failed, stint.Failed}[:x.bad]; !slices.Equal(kinds[:x.bad], want) {
				t.Errorf("%d dead connections: %v, want %v", x.bad, kinds, want)
			}
		})
	}
}

// TestReadRepeated: a declared read that was cut off is repeated if the policy says so, on another connection.
func TestReadRepeated(t *testing.T) {
	for _, x := range []struct{ attempts, sends int }{{1, 1}, {3, 2}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: failing(1, "exec", io.ErrUnexpectedEOF)}
			s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: x.attempts}}, stintsql.Options{Dialect: stintsql.None})
			_, err := s.ExecContext(stintsql.WithOp(within(t, time.Second), stint.Op{Safety: stint.ReadOnly}), "select")
			sends := strings.Count(strings.Join(s.lines(), "\n"), "exec select")
			if sends != x.sends || (err == nil) != (x.sends == 2) || errors.Is(err, stintsql.ErrOutcomeUnknown) {
				t.Errorf("%d attempts: %d sends, %v", x.attempts, sends, err)
			}
			if e := s.rec.Events(stint.CallDone)[1]; e.Op != "select" || e.Outcome.Kind == stint.Refused { // the breaker has to see it
				t.Errorf("%d attempts: the first call is reported as %v", x.attempts, e.Outcome)
			}
			if f.conns != x.sends {
				t.Errorf("%d attempts: %d connections, want %d", x.attempts, f.conns, x.sends)
			}
		})
	}
}

// TestRepeated: what the server says had no effect is repeated on the same connection, if it is one
// statement, outside of a transaction.
func TestRepeated(t *testing.T) {
	for _, x := range []struct {
		dialect stintsql.Dialect
		err     error
		query   string
		sends   int
	}{
		{stintsql.PostgreSQL, state("40001"), "insert", 2},
		{stintsql.PostgreSQL, state("40P01"), "insert", 2},
		{stintsql.PostgreSQL, state("23505"), "insert", 1},
		{stintsql.PostgreSQL, state("57P01"), "insert", 1}, // perhaps after the work
		{stintsql.MariaDB, &numbered{1213}, "insert", 2},
		{stintsql.MariaDB, &numbered{1205}, "update", 2},
		{stintsql.MariaDB, &numbered{1213}, "insert; insert", 1}, // the first may have happened
		{stintsql.MariaDB, &numbered{1213}, "call p()", 1},
		{stintsql.MariaDB, &numbered{1062}, "insert", 1},
		{stintsql.MySQL, errors.Join(errors.New("wrapped"), &numbered{1213}), "insert;", 2},
		{stintsql.SQLite, result(5), "insert", 2},
		{stintsql.SQLite, result(5 | 2<<8), "insert", 2},
		{stintsql.SQLite, result(19), "insert", 1},
		{stintsql.None, state("40001"), "insert", 2},
		{stintsql.None, errors.New("no code"), "insert", 1},
	} {
		for _, inTx := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				fail := 1
				f := &fake{}
				f.on = func(f *fake, _ int, what, query string) answer {
					if what == "exec" && fail > 0 && strings.Contains(query, x.query) {
						fail--
						return answer{err: x.err}
					}
					return answer{}
				}
				s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: x.dialect})
				ctx := within(t, time.Second)
				exec, want := s.ExecContext, x.sends
				if inTx {
					tx, err := s.BeginTx(ctx, nil)
					if err != nil {
						t.Fatal(err)
					}
					defer tx.Rollback()
					exec, want = tx.ExecContext, 1
				}
				_, err := exec(ctx, x.query)
				sends := 0
				for _, l := range s.lines() {
					if strings.Contains(l, x.query) {
						sends++
					}
				}
				if sends != want || (err == nil) != (want == 2) {
					t.Errorf("%v, %v of %q, in a transaction: %v: %d sends, %v: want %d", x.dialect, x.err, x.query, inTx, sends, err, want)
				}
				if unknown := x.err == state("57P01") && !inTx; errors.Is(err, stintsql.ErrOutcomeUnknown) != unknown {
					t.Errorf("%v: %v", x.err, err)
				}
			})
		}
	}
}

// TestLookedAt: the look at a connection before it is used again is bounded, whoever comes, and one that does not answer
// is of no use.
func TestLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{deaf: 1}, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
		if err := exec(s, context.Background(), "insert"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := exec(s, context.Background(), "insert")
		if took := time.Since(start); err != nil || took != 250*time.Millisecond {
			t.Errorf("%v after %v, want it done on another connection after 250ms", err, took)
		}
		s.same(t, "a look without an answer", "1 connect", "1 exec insert", "1 close", "2 connect", "2 exec insert")
	})
}

// TestSilent: a driver that waits for its context is called off at the deadline.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer { return answer{silent: what == "exec" || what == "query"} }}
		s := open(t, f, stint.Policy{Timeout: 300 * time.Millisecond}, stintsql.Options{Dialect: stintsql.None})
		for _, x := range []struct {
			ctx     context.Context
			after   time.Duration
			unknown bool
		}{
			{within(t, 100*time.Millisecond), 100 * time.Millisecond, true},
			{context.Background(), 300 * time.Millisecond, true}, // db.Exec, too
			{stintsql.WithOp(context.Background(), stint.Op{Safety: stint.ReadOnly}), 300 * time.Millisecond, false},
		} {
			start := time.Now()
			_, err := s.ExecContext(x.ctx, "insert")
			if took := time.Since(start); took != x.after || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stintsql.ErrOutcomeUnknown) != x.unknown {
				t.Errorf("%v after %v, want a deadline after %v, unknown: %v", err, took, x.after, x.unknown)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := s.ExecContext(ctx, "insert"); !errors.Is(err, context.Canceled) || !errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("cancelled: %v", err)
		}
		if n := s.Stats().InUse; n != 0 {
			t.Errorf("%d connections in use", n)
		}
	})
}
