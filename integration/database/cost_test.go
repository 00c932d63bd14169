package database

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintsql"
)

// byKey is the quickest query that there is.
const byKey = "select name from items where id = 77"

// A pair is the same query over the driver alone and over stintsql, each with one connection.
type pair struct{ plain, ours *sql.DB }

func newPair(t testing.TB, driverName, dsn string, d stintsql.Dialect) pair {
	t.Helper()
	p := pair{plain(t, driverName, dsn), open(t, driverName, dsn, 1, stint.Policy{}, stintsql.Options{Dialect: d}).DB}
	p.plain.SetMaxOpenConns(1)
	for _, db := range []*sql.DB{p.plain, p.ours} {
		if dsn == ":memory:" || db == p.plain {
			run(t, db, "create table items (id int primary key, name varchar(20))")
			run(t, db, "insert into items values (77, 'an item')")
		}
	}
	return p
}

// query runs it with so much time, as a request of a service would.
func query(t testing.TB, db *sql.DB, within time.Duration) time.Duration {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var name string
	if err := db.QueryRowContext(ctx, byKey).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func pairs(t testing.TB) map[string]pair {
	pg := testenv.SharedPostgres(t)
	pgName, _ := postgres(t, pg)
	m := testenv.SharedMariaDB(t)
	mName, _ := mariadb(t, m)
	return map[string]pair{
		"SQLite in memory":            newPair(t, "sqlite", ":memory:", stintsql.SQLite),
		"PostgreSQL by a Unix socket": newPair(t, "pgx", pg.DSN(pgName), stintsql.PostgreSQL),
		"MariaDB by a Unix socket":    newPair(t, "mysql", m.DSN(mName), stintsql.MariaDB),
	}
}

// TestCost shows what a call adds, in turns, so that a busy machine slows both. It judges only what a busy machine
// can't bring about.
func TestCost(t *testing.T) {
	const turns, warm = 1500, 100
	for name, p := range pairs(t) {
		for what, left := range map[string]func(i int) time.Duration{
			"the same time left for all": func(int) time.Duration { return 10 * time.Second },
			"10 to 100 % of it, by turns": func(i int) time.Duration {
				return time.Duration(1+i%10) * time.Second
			},
		} {
			var plain, ours []time.Duration
			for i := range turns + warm {
				a, b := query(t, p.plain, left(i)), query(t, p.ours, left(i))
				if i >= warm {
					plain, ours = append(plain, a), append(ours, b)
				}
			}
			a, b := quarter(plain), quarter(ours)
			t.Logf("%-28s %-28s driver %8v, stintsql %8v, %+.1f %%", name+":", what, a, b, 100*(float64(b)/float64(a)-1))
			if b-a > time.Millisecond {
				t.Errorf("%s: %v more: want some 10µs, and a round trip where the time differs", name, b-a)
			}
		}
	}
}

// quarter is the first quartile: other work on the machine only adds.
func quarter(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/4]
}

func BenchmarkQuery(b *testing.B) {
	for name, p := range pairs(b) {
		for who, db := range map[string]*sql.DB{"driver": p.plain, "stintsql": p.ours} {
			b.Run(name+"/"+who, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					query(b, db, 10*time.Second)
				}
			})
		}
	}
}
