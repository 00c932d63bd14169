package lab

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/stint-go/stint/stintsql"
)

// A step of the query takes so long. Between two of them SQLite looks whether it
// has been interrupted.
const sqliteStep = 10 * time.Millisecond

// stepsQuery goes step by step: how many, the run, and the query's name in it.
const stepsQuery = `with recursive step(n) as (select 1 union all select n + 1 from step where n < ?)
	select count(stint_lab_step(?, ?)) from step`

// A sqliteStore is SQLite in memory, by database/sql or by stintsql.
type sqliteStore struct {
	db    *sql.DB
	run   string
	steps int

	mu    sync.Mutex
	asked int
	now   map[string]bool // the queries that are within a step
}

// sqliteRuns has the sqliteStore of each run: a function of SQL is one for all of them.
var sqliteRuns sync.Map

var registerStep = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction("stint_lab_step", 2, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		run, _ := sqliteRuns.Load(args[0])
		s, ok := run.(*sqliteStore)
		query, named := args[1].(string)
		if !ok || !named {
			return nil, fmt.Errorf("stint_lab_step(%v, %v): no such run and query", args[0], args[1])
		}
		s.step(query)
		return int64(1), nil
	})
})

func openSQLite(_ context.Context, s spec, run string) (store, error) {
	if err := registerStep(); err != nil {
		return nil, err
	}
	db, err := openSQL(s)
	if err != nil {
		return nil, err
	}
	st := &sqliteStore{db: db, run: run, steps: int(s.work / sqliteStep), now: map[string]bool{}}
	sqliteRuns.Store(run, st)
	return st, nil
}

func openSQL(s spec) (*sql.DB, error) {
	const driverName, dsn = "sqlite", ":memory:"
	if s.mode == Naive {
		return sql.Open(driverName, dsn)
	}
	c, err := storeCaller(s)
	if err != nil {
		return nil, err
	}
	return stintsql.Open(driverName, dsn, c, &stintsql.Options{Dialect: stintsql.SQLite})
}

func (s *sqliteStore) ask(ctx context.Context) error {
	s.mu.Lock()
	s.asked++
	query := strconv.Itoa(s.asked)
	s.mu.Unlock()
	var steps int
	return s.db.QueryRowContext(ctx, stepsQuery, s.steps, s.run, query).Scan(&steps)
}

// step is what a query does for each row.
func (s *sqliteStore) step(query string) {
	s.mu.Lock()
	s.now[query] = true
	s.mu.Unlock()
	time.Sleep(sqliteStep)
	s.mu.Lock()
	delete(s.now, query)
	s.mu.Unlock()
}

func (s *sqliteStore) running(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.now)), nil
}

func (s *sqliteStore) close() error {
	sqliteRuns.Delete(s.run)
	return s.db.Close()
}
