package stintsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
	"github.com/stint-go/stint/stinttest"
)

// thisPackage is where the fake driver is.
const thisPackage = "github.com/stint-go/stint/stintsql_test"

// A fake is a scripted driver: no real one can be made to fail in each of these ways, nor
// in virtual time. It writes down what it was asked, as "1 exec insert ...", where 1 is the
// connection.
type fake struct {
	mu    sync.Mutex
	log   []string
	conns int

	// on answers what is asked, but for what a new connection is.
	on func(f *fake, conn int, what, query string) answer

	own      string // the session's own limit
	deaf     int    // so many connections do not answer when they are looked at
	noDirect bool   // the driver says driver.ErrSkip where there are arguments, as go-sql-driver does
	plainTx  bool   // its COMMIT and ROLLBACK have no context, as go-sql-driver's
}

// An answer is what the driver does.
type answer struct {
	err    error
	after  time.Duration // how long it takes
	silent bool          // it waits for its context
	rows   [][]driver.Value
	late   error // at the end of the rows
}

func (f *fake) Connect(ctx context.Context) (driver.Conn, error) {
	f.mu.Lock()
	f.conns++
	c := &fakeConn{f: f, n: f.conns}
	f.mu.Unlock()
	if _, err := c.do(ctx, "connect", ""); err != nil {
		return nil, err
	}
	return c, nil
}

func (f *fake) Driver() driver.Driver { return nil }

// lines returns what was asked since, and forgets it.
func (f *fake) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

type fakeConn struct {
	f      *fake
	n      int
	broken bool
	tx     context.Context
}

func (c *fakeConn) do(ctx context.Context, what, query string) (answer, error) {
	c.f.mu.Lock()
	c.f.log = append(c.f.log, strings.TrimSpace(fmt.Sprintf("%d %s %s", c.n, what, query)))
	c.f.mu.Unlock()
	var a answer
	if c.f.on != nil {
		a = c.f.on(c.f, c.n, what, query)
	}
	if a.silent {
		a.after = time.Hour
	}
	switch {
	case a.after > 0:
		select {
		case <-time.After(a.after):
		case <-ctx.Done():
			c.broken = true // as drivers do
			return a, ctx.Err()
		}
	case ctx.Err() != nil:
		return a, ctx.Err()
	}
	return a, a.err
}

func (c *fakeConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if _, err := c.do(ctx, "prepare", query); err != nil {
		return nil, err
	}
	return &fakeStmt{c, query}, nil
}

func (c *fakeConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	what := "begin"
	if o.ReadOnly {
		what = "begin read only"
	}
	if _, err := c.do(ctx, what, ""); err != nil {
		return nil, err
	}
	if c.tx = ctx; c.f.plainTx {
		c.tx = context.Background()
	}
	return &fakeTx{c}, nil
}

func (c *fakeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.HasPrefix(query, "select @@") || strings.HasPrefix(query, "select (extract(epoch") {
		own := c.f.own
		if own == "" {
			own = "0"
		}
		other := int64(100 + c.n) // the server's name for the connection
		if strings.Contains(query, "idle_in") {
			other = 0
		}
		return &fakeRows{columns: []string{"a", "b"}, rows: [][]driver.Value{{own, other}}}, nil
	}
	if c.f.noDirect && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return c.query(ctx, "query", query, args)
}

func (c *fakeConn) query(ctx context.Context, what, query string, args []driver.NamedValue) (driver.Rows, error) {
	a, err := c.do(ctx, what, query+values(args))
	if err != nil {
		return nil, err
	}
	r := &fakeRows{columns: []string{"n"}, rows: a.rows, late: a.late}
	if len(a.rows) > 0 {
		r.columns = make([]string, len(a.rows[0]))
	}
	return r, nil
}

func (c *fakeConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.f.noDirect && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return c.exec(ctx, "exec", query, args)
}

func (c *fakeConn) exec(ctx context.Context, what, query string, args []driver.NamedValue) (driver.Result, error) {
	if _, err := c.do(ctx, what, query+values(args)); err != nil {
		return nil, err
	}
	return driver.RowsAffected(1), nil
}

func values(args []driver.NamedValue) string {
	if len(args) == 0 {
		return ""
	}
	var s []string
	for i, a := range args {
		if a.Ordinal != i+1 {
			s = append(s, "misplaced")
		}
		s = append(s, fmt.Sprint(a.Value))
	}
	return " [" + strings.Join(s, " ") + "]"
}

func (c *fakeConn) Ping(ctx context.Context) error {
	_, err := c.do(ctx, "ping", "")
	return err
}

func (c *fakeConn) ResetSession(ctx context.Context) error {
	if c.n > c.f.deaf {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (c *fakeConn) IsValid() bool                       { return !c.broken }
func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("without a context") }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, errors.New("without a context") }
func (c *fakeConn) Close() error {
	_, err := c.do(context.Background(), "close", "")
	return err
}

type fakeStmt struct {
	c     *fakeConn
	query string
}

func (s *fakeStmt) Close() error {
	_, err := s.c.do(context.Background(), "closestmt", "")
	return err
}
func (s *fakeStmt) NumInput() int { return strings.Count(s.query, "?") }
func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) {
	return nil, errors.New("without a context")
}
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error) {
	return nil, errors.New("without a context")
}
func (s *fakeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, "execstmt", s.query, args)
}
func (s *fakeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, "querystmt", s.query, args)
}

type fakeTx struct{ c *fakeConn }

func (t *fakeTx) Commit() error {
	_, err := t.c.do(t.c.tx, "commit", "")
	return err
}

func (t *fakeTx) Rollback() error {
	_, err := t.c.do(t.c.tx, "rollback", "")
	return err
}

type fakeRows struct {
	columns []string
	rows    [][]driver.Value
	late    error
}

func (r *fakeRows) Columns() []string { return r.columns }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		if r.late != nil {
			return r.late
		}
		return io.EOF
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// state is an error with an SQLSTATE, as pgx's and lib/pq's have it.
type state string

func (s state) Error() string    { return "SQLSTATE " + string(s) }
func (s state) SQLState() string { return string(s) }

// numbered is an error with a number, as go-sql-driver's has it.
type numbered struct{ Number uint16 }

func (n *numbered) Error() string { return fmt.Sprintf("Error %d", n.Number) }

// result is an error with a code, as SQLite's drivers have it.
type result int

func (r result) Error() string { return fmt.Sprintf("code %d", int(r)) }
func (r result) Code() int     { return int(r) }

// failing answers the first times with an error, and then well.
func failing(times int, what string, err error) func(*fake, int, string, string) answer {
	return func(f *fake, _ int, w, _ string) answer {
		f.mu.Lock()
		defer f.mu.Unlock()
		if w == what && times > 0 {
			times--
			return answer{err: err}
		}
		return answer{}
	}
}

// A store is a DB over the fake, and what its Caller reports.
type store struct {
	*sql.DB
	*fake
	rec  stinttest.Recorder
	conn *stintsql.Connector
}

// open opens one of one connection.
func open(t testing.TB, f *fake, p stint.Policy, o stintsql.Options) *store {
	t.Helper()
	s := &store{fake: f}
	caller, err := stint.NewCaller("database", p, &stint.CallerOptions{Observer: &s.rec, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if s.conn, err = stintsql.NewConnector(f, caller, &o); err != nil {
		t.Fatal(err)
	}
	s.DB = sql.OpenDB(s.conn)
	s.SetMaxOpenConns(1)
	t.Cleanup(func() { s.DB.Close() })
	return s
}

// same compares what was asked.
func (s *store) same(t testing.TB, what string, want ...string) {
	t.Helper()
	if got := s.lines(); !slices.Equal(got, want) {
		t.Errorf("%s: the driver was asked\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// kinds are the kinds of outcome of a kind of events.
func (s *store) outcomes(kind stint.EventKind) (all []string) {
	for _, e := range s.rec.Events(kind) {
		all = append(all, e.Op+" "+e.Outcome.Kind.String()+" "+e.Outcome.Code)
	}
	return all
}
