package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
)

// A pair is the same queries over pgx alone and over stintpgx, on the one connection
// of the one pool.
type pair struct{ *stintpgx.Pool }

func newPair(t testing.TB, dsn func(database string) string) pair {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table items (id int primary key, name text)")
	run(t, admin, "insert into items select n, 'item ' || n from generate_series(1, 10000) n")
	run(t, admin, "analyze items")
	if dsn == nil {
		dsn = pg.DSN
	}
	config, err := pgxpool.ParseConfig(dsn(name) + " pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	caller, err := stint.NewCaller("database", stint.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := stintpgx.New(context.Background(), config, caller, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pair{pool}
}

const (
	byKey   = "select name from items where id = $1"                                      // the quickest that there is
	thirdMs = "select max(name) from items where id between $1 % 100 and 2000 + $1 % 100" // some 0.3 ms
)

func (p pair) query(t testing.TB, ours bool, sql string, id int) time.Duration {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	row := p.Unwrap().QueryRow
	if ours {
		row = p.QueryRow
	}
	var name string
	if err := row(ctx, sql, id).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestCost shows what the limit adds, in turns, so that a busy machine slows both. It
// judges only what a busy machine can't bring about.
func TestCost(t *testing.T) {
	const turns, warm = 1500, 100
	for _, c := range []struct {
		name, sql string
		dsn       func(string) string
	}{
		{"by primary key, a Unix socket", byKey, nil},
		{"by primary key, TCP through a proxy", byKey, testenv.SharedPostgres(t).Proxy(t).DSN},
		{"2,000 rows aggregated, a Unix socket", thirdMs, nil},
	} {
		p := newPair(t, c.dsn)
		var plain, ours []time.Duration
		for i := range turns + warm {
			a, b := p.query(t, false, c.sql, 1+i), p.query(t, true, c.sql, 1+i)
			if i >= warm {
				plain, ours = append(plain, a), append(ours, b)
			}
		}
		a, b := quarter(plain), quarter(ours)
		t.Logf("%-38s pgx %8v, stintpgx %8v, %+.1f %%", c.name+":", a, b, 100*(float64(b)/float64(a)-1))
		if b-a > time.Millisecond {
			t.Errorf("%s: %v more: want some 10µs", c.name, b-a)
		}
	}
}

// quarter is the first quartile: other work on the machine only adds.
func quarter(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/4]
}

func BenchmarkQuery(b *testing.B) {
	p := newPair(b, nil)
	for _, s := range []struct {
		name string
		ours bool
	}{{"pgx", false}, {"stintpgx", true}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				p.query(b, s.ours, byKey, 1+i%10000)
			}
		})
	}
}
