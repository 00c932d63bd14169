//go:build !race

package stintsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

// quick is a driver that does nothing, so that what is counted is database/sql's and ours.
type quick struct{}

func (quick) Connect(context.Context) (driver.Conn, error) { return &quickConn{}, nil }
func (quick) Driver() driver.Driver                        { return nil }

type quickConn struct{ fakeConn }

func (*quickConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if strings.HasPrefix(query, "select @@") || strings.HasPrefix(query, "select (") { // what a new connection is asked
		return &fakeRows{columns: []string{"a", "b"}, rows: [][]driver.Value{{int64(0), int64(0)}}}, nil
	}
	return &quickRows{}, nil
}

func (*quickConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}
func (*quickConn) IsValid() bool                      { return true }
func (*quickConn) ResetSession(context.Context) error { return nil }
func (*quickConn) Close() error                       { return nil }

type quickRows struct{ fakeRows }

func (*quickRows) Columns() []string         { return nil }
func (*quickRows) Next([]driver.Value) error { return nil }

func quickDB(t testing.TB, d stintsql.Dialect) *sql.DB {
	t.Helper()
	if d == 0 {
		db := sql.OpenDB(quick{})
		t.Cleanup(func() { db.Close() })
		return db
	}
	caller, err := stint.NewCaller("database", stint.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := stintsql.NewConnector(quick{}, caller, &stintsql.Options{Dialect: d})
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(n)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestAlloc: what a statement costs beside database/sql alone.
func TestAlloc(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	count := func(d stintsql.Dialect, do func(*sql.DB)) float64 {
		db := quickDB(t, d)
		best := testing.AllocsPerRun(200, func() { do(db) })
		for range 5 { // what goroutines of others allocate meanwhile counts as well
			best = min(best, testing.AllocsPerRun(200, func() { do(db) }))
		}
		return best
	}
	for what, do := range map[string]func(*sql.DB){
		"exec": func(db *sql.DB) {
			if _, err := db.ExecContext(ctx, "insert"); err != nil {
				t.Fatal(err)
			}
		},
		"query": func(db *sql.DB) {
			rows, err := db.QueryContext(ctx, "select")
			if err != nil {
				t.Fatal(err)
			}
			rows.Close()
		},
	} {
		plain := count(0, do)
		if what == "query" {
			plain++ // a goroutine of database/sql's allocates sooner or later
		}
		for d, most := range map[stintsql.Dialect]float64{stintsql.None: 2, stintsql.SQLite: 2, stintsql.PostgreSQL: 2, stintsql.MariaDB: 4} { // the call and its breaker; the text with the limit
			if n := count(d, do) - plain; n > most {
				t.Errorf("%s, %v: %v allocations more than database/sql's %v, want at most %v", what, d, n, plain, most)
			} else {
				t.Logf("%s, %v: %v allocations more than database/sql's %v", what, d, n, plain)
			}
		}
	}
}

func BenchmarkExec(b *testing.B) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, d := range []stintsql.Dialect{0, stintsql.None, stintsql.PostgreSQL, stintsql.MariaDB} {
		name := d.String()
		if d == 0 {
			name = "database/sql"
		}
		b.Run(name, func(b *testing.B) {
			db := quickDB(b, d)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := db.ExecContext(ctx, "insert"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
