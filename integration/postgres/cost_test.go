package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
)

// A pair is the same query over pgx alone and over stintpgx, on one connection each.
type pair struct {
	plain *pgxpool.Pool
	ours  *store
	sql   string
}

func newPair(t testing.TB) pair {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table items (id int primary key, name text)")
	run(t, admin, "insert into items select n, 'item ' || n from generate_series(1, 10000) n")
	run(t, admin, "analyze items")
	plain, err := pgxpool.New(context.Background(), pg.DSN(name)+" pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	return pair{plain, open(t, pg.DSN(name), 1, stint.Policy{}, nil), "select name from items where id = $1"}
}

func (p pair) query(t testing.TB, ours bool, id int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	row := p.plain.QueryRow
	if ours {
		row = p.ours.QueryRow
	}
	var name string
	if err := row(ctx, p.sql, id).Scan(&name); err != nil {
		t.Fatal(err)
	}
}

// TestCost shows what the limit adds to a query by primary key, the quickest that
// there is, in turns, so that a busy machine slows both. It judges only what a busy
// machine can't bring about; BenchmarkQuery measures.
func TestCost(t *testing.T) {
	p := newPair(t)
	const turns = 2000
	var plain, ours []time.Duration
	for i := range turns + 100 {
		id := 1 + i%10000
		t0 := time.Now()
		p.query(t, false, id)
		t1 := time.Now()
		p.query(t, true, id)
		t2 := time.Now()
		if i >= 100 { // warm
			plain, ours = append(plain, t1.Sub(t0)), append(ours, t2.Sub(t1))
		}
	}
	a, b := quarter(plain), quarter(ours)
	t.Logf("by primary key, first quartile of %d: pgx %v, stintpgx %v: %+.1f %%", turns, a, b, 100*(float64(b)/float64(a)-1))
	if b > a*2 {
		t.Errorf("%v over %v: want much less than twice as much", b, a)
	}
}

// quarter is the first quartile: other work on the machine only adds.
func quarter(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/4]
}

func BenchmarkQuery(b *testing.B) {
	p := newPair(b)
	for _, s := range []struct {
		name string
		ours bool
	}{{"pgx", false}, {"stintpgx", true}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				p.query(b, s.ours, 1+i%10000)
			}
		})
	}
}
