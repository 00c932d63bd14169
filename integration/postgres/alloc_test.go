//go:build !race

package postgres

import (
	"context"
	"testing"

	"github.com/stint-go/stint/integration/testenv"
)

// TestAllocQuery: a query over stintpgx allocates twice more than over pgx alone. With a limit by
// hand it is 29 times more.
func TestAllocQuery(t *testing.T) {
	b := newBench(t, testenv.SharedPostgres(t).DSN(items(t)), "")
	count := func(query func(context.Context, string, int) (string, error)) float64 {
		return testing.AllocsPerRun(500, func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := query(ctx, byKey, 7); err != nil {
				t.Fatal(err)
			}
		})
	}
	plain, ours := count(b.plain), count(b.stint)
	t.Logf("%v allocations with pgx alone, %v with stintpgx", plain, ours)
	if ours > plain+2 {
		t.Errorf("%v allocations more than pgx alone, want at most 2", ours-plain)
	}
}
