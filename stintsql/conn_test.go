package stintsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

// TestCancelledAnywhere: wherever its caller leaves, nothing panics, nothing stays in use, and the next caller is served.
func TestCancelledAnywhere(t *testing.T) {
	for _, d := range []stintsql.Dialect{stintsql.None, stintsql.PostgreSQL, stintsql.MariaDB} {
		for _, direct := range []bool{true, false} {
			for point := 0; ; point++ {
				reached := false
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(context.Background())
					n := 0
					f := &fake{noDirect: !direct}
					f.on = func(f *fake, _ int, what, _ string) answer {
						f.mu.Lock()
						defer f.mu.Unlock()
						if n++; n-1 == point {
							reached = true
							if strings.HasPrefix(what, "close") { // has no context
								cancel()
								return answer{}
							}
							time.AfterFunc(time.Millisecond, cancel)
							return answer{after: time.Second}
						}
						return answer{rows: [][]driver.Value{{int64(1)}, {int64(2)}}}
					}
					s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: d})
					everything(ctx, s.DB)
					cancel()
					synctest.Wait()
					time.Sleep(2 * time.Second) // what was given up ends
					if u := s.Stats().InUse; u != 0 {
						t.Errorf("%v, point %d: %d connections in use", d, point, u)
					}
					f.on = nil
					if _, err := s.ExecContext(context.Background(), "insert"); err != nil {
						t.Errorf("%v, point %d: the next caller: %v", d, point, err)
					}
				})
				if !reached {
					if point < 15 {
						t.Fatalf("%v: only %d points", d, point)
					}
					break
				}
			}
		}
	}
}

// everything does what can be done with a DB.
func everything(ctx context.Context, db *sql.DB) {
	db.PingContext(ctx)
	db.ExecContext(ctx, "insert ?", 1)
	if rows, err := db.QueryContext(ctx, "select ?", 1); err == nil {
		rows.Next()
		rows.Close()
	}
	if st, err := db.PrepareContext(ctx, "select ?"); err == nil {
		st.ExecContext(ctx, 1)
		st.QueryRowContext(ctx, 1).Scan(new(int))
		st.Close()
	}
	for _, commit := range []bool{true, false} {
		if tx, err := db.BeginTx(ctx, nil); err == nil {
			tx.ExecContext(ctx, "insert")
			if rows, err := tx.QueryContext(ctx, "select"); err == nil {
				rows.Next()
				rows.Close()
			}
			if commit {
				tx.Commit()
			}
			tx.Rollback()
		}
	}
	if c, err := db.Conn(ctx); err == nil {
		c.ExecContext(ctx, "begin")
		c.ExecContext(ctx, "commit")
		c.Close()
	}
}

// TestClosed: a DB that is closed, and a context that has ended, are errors.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		everything(ctx, s.DB)
		s.same(t, "with a context that has ended")
		s.DB.Close()
		everything(context.Background(), s.DB)
		s.same(t, "closed")
	})
}

// TestNoDirect: what the driver can only prepare is one call all the same, and its statement is closed.
func TestNoDirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{noDirect: true, on: func(*fake, int, string, string) answer { return answer{rows: [][]driver.Value{{int64(7)}}} }}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.MariaDB})
		ctx := within(t, 105*time.Millisecond)
		var n int
		if err := s.QueryRowContext(ctx, "select ?", 1).Scan(&n); err != nil || n != 7 {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := s.ExecContext(ctx, "insert ?", 2); err != nil {
			t.Error(err)
		}
		if _, err := s.ExecContext(ctx, "insert ?", 2, 3); err == nil || !strings.Contains(err.Error(), "expected 1 arguments, got 2") {
			t.Errorf("%v, want the number of arguments", err)
		}
		const limited = "SET STATEMENT max_statement_time=0.1 FOR "
		s.same(t, "with arguments", "1 connect",
			"1 prepare "+limited+"select ?", "1 querystmt "+limited+"select ? [1]", "1 closestmt",
			"1 prepare "+limited+"insert ?", "1 execstmt "+limited+"insert ? [2]", "1 closestmt",
			"1 prepare "+limited+"insert ?", "1 closestmt")
		if got, want := s.outcomes(stint.CallDone), []string{"connect ok ", "select ok ", "insert ok ", "insert rejected client"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestPrepared: the limit of MariaDB's prepared statement is its first argument, which its user does not see.
func TestPrepared(t *testing.T) {
	for d, x := range map[stintsql.Dialect]struct{ text, args string }{
		stintsql.None:       {"select ?", "[7]"},
		stintsql.MySQL:      {"select ?", "[7]"},
		stintsql.MariaDB:    {"SET STATEMENT max_statement_time=cast(? as double) FOR select ?", "[0.1 7]"},
		stintsql.PostgreSQL: {"select ?", "[7]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: func(*fake, int, string, string) answer { return answer{rows: [][]driver.Value{{int64(1)}}} }}
			s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: d})
			st, err := s.PrepareContext(within(t, time.Second), "select ?")
			if err != nil {
				t.Fatal(err)
			}
			var n int
			if err := st.QueryRowContext(within(t, 105*time.Millisecond), 7).Scan(&n); err != nil || n != 1 {
				t.Errorf("%v: %d, %v", d, n, err)
			}
			if _, err := st.ExecContext(within(t, 105*time.Millisecond), 7); err != nil {
				t.Errorf("%v: %v", d, err)
			}
			st.Close()
			want := []string{"1 connect", "1 prepare " + x.text}
			if d == stintsql.PostgreSQL {
				want = append(want, "1 exec set statement_timeout = 90")
			}
			s.same(t, d.String(), append(want, "1 querystmt "+x.text+" "+x.args, "1 execstmt "+x.text+" "+x.args, "1 closestmt")...)
		})
	}
}

// TestFirstRow: an error in the first row is the call's, one later is the rows'.
func TestFirstRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 3}}, stintsql.Options{Dialect: stintsql.MariaDB})
		tries := 0
		f.on = func(_ *fake, _ int, what, _ string) answer {
			if tries++; tries == 2 { // the first is connect
				return answer{late: &numbered{1213}}
			}
			return answer{rows: [][]driver.Value{{int64(1)}, {int64(2)}}, late: io.ErrUnexpectedEOF}
		}
		rows, err := s.QueryContext(within(t, time.Second), "select")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		if n != 2 || !errors.Is(rows.Err(), stintsql.ErrOutcomeUnknown) || !errors.Is(rows.Err(), io.ErrUnexpectedEOF) {
			t.Errorf("%d rows, %v: want 2, and what broke them", n, rows.Err())
		}
		if e := s.rec.Events(stint.CallDone); e[1].Attempt != 2 || e[1].Outcome.Kind != stint.OK {
			t.Errorf("%d attempts, %v: want 2", e[1].Attempt, e[1].Outcome)
		}
		if s.Stats().OpenConnections != 0 {
			t.Error("the connection was kept")
		}
	})
}

// TestRowsEnd: the reading of rows ends with the call's time, also where the driver does not look.
func TestRowsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := make([][]driver.Value, 100)
		for i := range many {
			many[i] = []driver.Value{int64(i)}
		}
		s := open(t, &fake{on: func(*fake, int, string, string) answer { return answer{rows: many} }}, stint.Policy{Timeout: 100 * time.Millisecond},
			stintsql.Options{Dialect: stintsql.SQLite})
		rows, err := s.QueryContext(context.Background(), "select")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			n++
			time.Sleep(30 * time.Millisecond)
		}
		if err := rows.Err(); n != 4 || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stint.ErrCallTimeout) {
			t.Errorf("%d rows, %v: want 4 and the call's timeout", n, err)
		}
		if err := s.QueryRowContext(context.Background(), "select").Scan(&n); err != nil || s.conns != 1 {
			t.Errorf("afterwards: %v, %d connections", err, s.conns)
		}
	})
}

// TestKill: what a driver hung up on is killed by another connection, where that is wanted.
func TestKill(t *testing.T) {
	for _, kill := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: func(_ *fake, _ int, _, query string) answer { return answer{silent: strings.Contains(query, "insert")} }}
			s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.MySQL, Kill: kill})
			start := time.Now()
			_, err := s.ExecContext(within(t, 100*time.Millisecond), "insert")
			if took := time.Since(start); took != 100*time.Millisecond || !errors.Is(err, stintsql.ErrOutcomeUnknown) {
				t.Errorf("%v after %v", err, took)
			}
			synctest.Wait()
			want := []string{"1 connect", "1 exec insert"}
			got := s.lines()
			slices.Sort(got)
			if want = append(want, "1 close"); kill {
				want = append(want, "2 connect", "2 exec KILL 101", "2 close")
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("kill %v: %q, want %q", kill, got, want)
			}
		})
	}
}

// TestKillSilent: a kill that nobody answers ends by itself, and so few are under way.
func TestKillSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		var f *fake
		f = &fake{on: func(_ *fake, n int, what, query string) answer {
			f.mu.Lock()
			defer f.mu.Unlock()
			if strings.HasPrefix(query, "KILL") {
				most++
			}
			return answer{silent: strings.Contains(query, "insert") || strings.HasPrefix(query, "KILL")}
		}}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.MariaDB, Kill: true})
		s.SetMaxOpenConns(0)
		for range 10 {
			go s.ExecContext(within(t, 100*time.Millisecond), "insert")
		}
		time.Sleep(900 * time.Millisecond)
		f.mu.Lock()
		if most != 4 {
			t.Errorf("%d kills at the same time, want 4", most)
		}
		f.mu.Unlock()
		time.Sleep(time.Second)
	})
}

// old is a driver as before contexts.
type old struct{ driver.Conn }

func (old) Close() error { return nil }

type oldConnector struct{ fake }

func (*oldConnector) Connect(context.Context) (driver.Conn, error) { return old{}, nil }

// TestWithoutContexts: a driver without them is refused, with a word about why.
func TestWithoutContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, err := stint.NewCaller("database", stint.Policy{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := stintsql.NewConnector(&oldConnector{}, caller, &stintsql.Options{Dialect: stintsql.None})
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(n)
		defer db.Close()
		if err := db.PingContext(context.Background()); err == nil || !strings.Contains(err.Error(), "stintsql_test.old takes no contexts") {
			t.Errorf("%v, want an error that names the driver", err)
		}
	})
}

// TestHedgeLater: a policy that gets its hedge later makes no copies: they would be on one connection.
func TestHedgeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer {
			if what == "exec" {
				return answer{after: 100 * time.Millisecond}
			}
			return answer{}
		}}
		var rec = &store{fake: f}
		caller, err := stint.NewCaller("database", stint.Policy{}, &stint.CallerOptions{Observer: &rec.rec})
		if err != nil {
			t.Fatal(err)
		}
		n, err := stintsql.NewConnector(f, caller, &stintsql.Options{Dialect: stintsql.None})
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(n)
		defer db.Close()
		if err := caller.SetPolicy(stint.Policy{Timeout: time.Second, Hedge: stint.Hedge{Copies: 1, Delay: 10 * time.Millisecond}}); err != nil {
			t.Fatal(err)
		}
		_, err = db.ExecContext(stintsql.WithOp(within(t, time.Second), stint.Op{Safety: stint.ReadOnly}), "select")
		if err != nil {
			t.Error(err)
		}
		rec.same(t, "with a hedge", "1 connect", "1 exec select")
	})
}

// rich are rows with all that a driver's may have.
type rich struct{ fakeRows }

func (*rich) HasNextResultSet() bool                            { return true }
func (r *rich) NextResultSet() error                            { r.rows = [][]driver.Value{{int64(2)}}; return nil }
func (*rich) ColumnTypeScanType(int) reflect.Type               { return reflect.TypeFor[int8]() }
func (*rich) ColumnTypeDatabaseTypeName(int) string             { return "TINY" }
func (*rich) ColumnTypeLength(int) (int64, bool)                { return 3, true }
func (*rich) ColumnTypeNullable(int) (bool, bool)               { return true, true }
func (*rich) ColumnTypePrecisionScale(int) (p, s int64, b bool) { return 4, 5, true }

// richConn checks arguments, and has rich rows.
type richConn struct{ *fakeConn }

func (c richConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &rich{fakeRows{columns: []string{"n"}, rows: [][]driver.Value{{int64(1)}}}}, nil
}

func (c richConn) CheckNamedValue(v *driver.NamedValue) error {
	if _, ok := v.Value.(chan int); ok {
		v.Value = "a channel"
		return nil
	}
	return driver.ErrSkip
}

type richConnector struct{ fake }

func (r *richConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.fake.Connect(ctx)
	return richConn{c.(*fakeConn)}, err
}

// TestNothingLost: what a driver's rows and arguments can do, they can still do; what they can't is as without stint.
func TestNothingLost(t *testing.T) {
	describe := func(db *sql.DB) string {
		rows, err := db.QueryContext(context.Background(), "select")
		if err != nil {
			return err.Error()
		}
		defer rows.Close()
		types, err := rows.ColumnTypes()
		c := types[0]
		length, hasLength := c.Length()
		nullable, hasNullable := c.Nullable()
		precision, scale, hasScale := c.DecimalSize()
		text := fmt.Sprint(err, c.Name(), c.ScanType(), c.DatabaseTypeName(), length, hasLength, nullable, hasNullable, precision, scale, hasScale)
		for again := true; again; again = len(text) < 200 && rows.NextResultSet() {
			for rows.Next() {
				var n int
				rows.Scan(&n)
				text += fmt.Sprint(" row ", n)
			}
			text += fmt.Sprint(" set ", rows.Err())
		}
		return text
	}
	synctest.Test(t, func(t *testing.T) {
		caller, err := stint.NewCaller("database", stint.Policy{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		row := func(*fake, int, string, string) answer { return answer{rows: [][]driver.Value{{int64(1)}}} }
		r := &richConnector{}
		for name, base := range map[string]driver.Connector{"rich": r, "poor": &fake{on: row}} {
			n, err := stintsql.NewConnector(base, caller, &stintsql.Options{Dialect: stintsql.None})
			if err != nil {
				t.Fatal(err)
			}
			plain, ours := sql.OpenDB(base), sql.OpenDB(n)
			if a, b := describe(plain), describe(ours); a != b || len(a) < 20 {
				t.Errorf("%s:\n%s\nwith stint:\n%s", name, a, b)
			}
			if name == "rich" {
				r.lines()
				if _, err := ours.ExecContext(context.Background(), "insert", make(chan int), 5); err != nil {
					t.Error(err)
				}
				if got := r.lines(); got[len(got)-1] != "2 exec insert [a channel 5]" {
					t.Errorf("arguments: %q", got)
				}
				c, err := ours.Conn(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Raw(func(c any) error {
					if _, ok := c.(interface{ Unwrap() driver.Conn }).Unwrap().(richConn); !ok {
						t.Error("Unwrap: want the driver's connection")
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
				c.Close()
			}
			plain.Close()
			ours.Close()
		}
	})
}

// TestHiddenRetries: what is repeated besides the Caller is said.
func TestHiddenRetries(t *testing.T) {
	s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
	said := s.conn.HiddenRetries()
	if len(said) != 1 || !strings.Contains(said[0], "at most twice") {
		t.Errorf("%q", said)
	}
}

// TestConnect: to connect is a call of its own, with the policy's retries; database/sql does not add its own.
func TestConnect(t *testing.T) {
	for _, refused := range []error{io.EOF, driver.ErrBadConn, state("57P03")} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: failing(9, "connect", refused)}
			s := open(t, f, stint.Policy{Retry: stint.Retry{Attempts: 2}}, stintsql.Options{Dialect: stintsql.PostgreSQL})
			_, err := s.ExecContext(within(t, time.Second), "insert")
			if err == nil || errors.Is(err, driver.ErrBadConn) || errors.Is(err, stintsql.ErrOutcomeUnknown) || f.conns != 2 {
				t.Errorf("%v: %v after %d connections, want 2", refused, err, f.conns)
			}
			if o := s.rec.Events(stint.CallDone)[0].Outcome; o.Kind != stint.Transient || !o.NotStarted {
				t.Errorf("%v: %v", refused, o)
			}
		})
	}
}
