package database

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintsql"
)

// TestManyLeave: of many callers on few connections some leave at any moment. Each gets its own answer or none, and
// nothing of those who left stays: no connection, no bulkhead slot, no goroutine, no transaction.
func TestManyLeave(t *testing.T) {
	for _, x := range []struct {
		name, driver  string
		dsn           func(t *testing.T) string
		o             stintsql.Options
		echo, sleeper string // the latter takes some 20 ms
	}{
		{"PostgreSQL", "pgx", func(t *testing.T) string {
			pg := testenv.SharedPostgres(t)
			name, _ := postgres(t, pg)
			return pg.DSN(name)
		}, postgreSQL, "select $1::int", "select $1::int + length(pg_sleep(0.02)::text)"},
		{"MariaDB", "mysql", func(t *testing.T) string {
			m := testenv.SharedMariaDB(t)
			name, _ := mariadb(t, m)
			return m.DSN(name)
		}, stintsql.Options{Dialect: stintsql.MariaDB, Kill: true}, "select cast(? as int)", "select cast(? as int) + sleep(0.02)"},
		{"SQLite", "sqlite", func(t *testing.T) string {
			return "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(wal)"
		}, stintsql.Options{Dialect: stintsql.SQLite}, "select cast(? as int)",
			"with recursive n(i) as (select 1 union all select i + 1 from n limit 2000) select cast(? as int) + count(*) * 0 from n"},
	} {
		t.Run(x.name, func(t *testing.T) {
			const conns, callers, rounds = 8, 64, 6
			dsn := x.dsn(t)
			before := runtime.NumGoroutine()
			t.Cleanup(func() { until(t, func() bool { return runtime.NumGoroutine() <= before }) }) // the last: the DB has been closed
			s := open(t, x.driver, dsn, conns, stint.Policy{Timeout: 5 * time.Second, Bulkhead: conns, Retry: stint.Retry{Attempts: 2, AttemptTimeout: 2 * time.Second},
				Breaker: stint.Breaker{Off: true}}, x.o)
			s.SetConnMaxLifetime(50 * time.Millisecond) // connections change all the while
			if _, err := s.ExecContext(within(t, patience), "create table sums (n int)"); err != nil {
				t.Fatal(err)
			}
			st, err := s.PrepareContext(within(t, patience), x.echo)
			if err != nil {
				t.Fatal(err)
			}
			var answers, left, wrong atomic.Int64
			one := func(n int) error {
				ctx, cancel := context.WithCancel(stintsql.WithOp(context.Background(), stint.Op{Safety: stint.ReadOnly}))
				defer cancel()
				if rand.IntN(2) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(30000))*time.Microsecond, cancel)
				}
				var got int
				query := x.echo
				switch rand.IntN(6) {
				case 0:
					query = x.sleeper
				case 1:
					if err := st.QueryRowContext(ctx, n).Scan(&got); err != nil {
						return err
					}
					query = ""
				case 2:
					tx, err := s.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer tx.Rollback()
					if _, err := tx.ExecContext(ctx, "delete from sums"); err != nil {
						return err
					}
					if err := tx.QueryRowContext(ctx, x.echo, n).Scan(&got); err != nil {
						return err
					}
					query = ""
				case 3: // rows that are closed unread
					rows, err := s.QueryContext(ctx, x.sleeper, n)
					if err != nil {
						return err
					}
					if rand.IntN(2) == 0 {
						cancel()
					}
					return rows.Close()
				}
				if query != "" {
					if err := s.QueryRowContext(ctx, query, n).Scan(&got); err != nil {
						return err
					}
				}
				if answers.Add(1); got != n && query != x.sleeper || got < n {
					wrong.Add(1)
					return fmt.Errorf("%d, want %d", got, n)
				}
				return nil
			}
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for r := range rounds {
						if one(c*rounds+r) != nil {
							left.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if wrong.Load() != 0 || answers.Load() == 0 || left.Load() == 0 {
				t.Errorf("%d answers, %d of them of somebody else, %d left", answers.Load(), wrong.Load(), left.Load())
			}
			t.Logf("%d answers, %d left", answers.Load(), left.Load())
			until(t, func() bool { return s.Stats().InUse == 0 })
			st.Close()
			ctx := within(t, patience)
			for range conns { // every connection is there, and every slot
				rows, err := s.QueryContext(ctx, x.echo, 1)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
			}
		})
	}
}
