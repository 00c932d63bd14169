package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
)

// A bench is a pool with one connection, over which the same queries go by pgx alone and by
// stintpgx.
type bench struct{ *stintpgx.Pool }

// newBench opens a pool; settings are added to its connection string.
func newBench(t testing.TB, dsn, settings string) bench {
	config, err := pgxpool.ParseConfig(dsn + " pool_max_conns=1 " + settings)
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
	return bench{pool}
}

// items makes a database with 10,000 rows to query.
func items(t testing.TB) (name string) {
	name, admin := database(t, testenv.SharedPostgres(t))
	run(t, admin, "create table items (id int primary key, name text)")
	run(t, admin, "insert into items select n, 'item ' || n from generate_series(1, 10000) n")
	run(t, admin, "analyze items")
	return name
}

const byKey = "select name from items where id = $1" // the quickest that there is

func (b bench) plain(ctx context.Context, sql string, id int) (name string, err error) {
	return name, b.Unwrap().QueryRow(ctx, sql, id).Scan(&name)
}

func (b bench) stint(ctx context.Context, sql string, id int) (name string, err error) {
	return name, b.QueryRow(ctx, sql, id).Scan(&name)
}

// byHand is a limit in the same round trip as a program would send it that has only pgx.
func (b bench) byHand(ctx context.Context, sql string, id int) (name string, err error) {
	var batch pgx.Batch
	batch.Queue("select set_config('statement_timeout', $1, true)", "9995")
	batch.Queue(sql, id)
	results := b.Unwrap().SendBatch(ctx, &batch)
	_, errLimit := results.Exec()
	err = results.QueryRow().Scan(&name)
	return name, errors.Join(errLimit, err, results.Close())
}

// TestCost shows what a call costs more than pgx alone, and of what: in turns, so that a busy
// machine slows all. It judges only what a busy machine can't bring about.
func TestCost(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name := items(t)
	over := []struct{ name, dsn string }{{"Unix socket", pg.DSN(name)}, {"TCP, proxy", pg.Proxy(t).DSN(name)}}
	for _, size := range []struct {
		name, sql string
		turns     int
	}{
		{"by primary key", byKey, 1000},
		{"800 rows aggregated", "select max(name) from items where id between $1 % 100 and 800 + $1 % 100", 400},
		{"2,000 rows aggregated", "select max(name) from items where id between $1 % 100 and 2000 + $1 % 100", 200},
	} {
		for _, o := range over {
			open, limited := newBench(t, o.dsn, ""), newBench(t, o.dsn, "statement_timeout=10s") // half of patience
			compare(t, size.name+", "+o.name, size.sql, size.turns, []subject{{"pgx alone", open.plain}, {"pgx alone, again", open.plain},
				{"pgx, and a limit by hand", open.byHand}, {"stintpgx", open.stint}})
			compare(t, size.name+", "+o.name, size.sql, size.turns, []subject{{"pgx, a session with a limit", limited.plain},
				{"stintpgx there: it sends none", limited.stint}})
		}
	}
}

// A subject is a way to send a query.
type subject struct {
	name  string
	query func(ctx context.Context, sql string, id int) (string, error)
}

// compare prints how long each of some subjects takes, and how much more than the first.
func compare(t *testing.T, what, sql string, turns int, subjects []subject) {
	t.Helper()
	const warm = 50
	took := make([][]time.Duration, len(subjects))
	for i := range turns + warm {
		for _, j := range rand.Perm(len(subjects)) { // who comes after whom counts, too
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_, err := subjects[j].query(ctx, sql, 1+i)
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", subjects[j].name, err)
			}
			if i >= warm {
				took[j] = append(took[j], time.Since(start))
			}
		}
	}
	base := tenth(took[0])
	for j, s := range subjects {
		d := tenth(took[j])
		t.Logf("%-34s %-30s %7.1f us, %+6.1f us, %+5.1f %%", what, s.name, micros(d), micros(d-base), 100*(float64(d)/float64(base)-1))
		if d-base > base+time.Millisecond {
			t.Errorf("%s, %s: %v more: want some 5 us", what, s.name, d-base)
		}
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// tenth is the first decile: other work on the machine only adds.
func tenth(ds []time.Duration) time.Duration {
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[len(ds)/10]
}

func BenchmarkQuery(b *testing.B) {
	p := newBench(b, testenv.SharedPostgres(b).DSN(items(b)), "")
	for _, s := range []struct {
		name  string
		query func(context.Context, string, int) (string, error)
	}{{"pgx", p.plain}, {"stintpgx", p.stint}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if _, err := s.query(ctx, byKey, 1+i%10000); err != nil {
					b.Fatal(err)
				}
				cancel()
			}
		})
	}
}
