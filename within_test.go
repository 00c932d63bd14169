package stint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

// TestWithin: a step of something under way waits for no slot and for no breaker, is
// still bound by time, and counts.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		c, err := stint.NewCaller("database", stint.Policy{Timeout: time.Second, MinUseful: 100 * time.Millisecond, Bulkhead: 1,
			Breaker: stint.Breaker{MinCalls: 1, OpenFor: time.Hour}}, &stint.CallerOptions{Observer: &rec})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		within := stint.Op{Within: true, OneShot: true}
		good := func(context.Context) error { return nil }
		errBad := errors.New("bad")

		err = c.Do(ctx, stint.Op{}, func(ctx context.Context) error {
			start := time.Now()
			if err := c.Do(ctx, within, good); err != nil {
				t.Errorf("while the only slot is held: %v", err)
			}
			if waited := time.Since(start); waited != 0 {
				t.Errorf("it waited %v for the slot", waited)
			}
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if err := c.Do(short, within, good); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with too little time: %v, want a refusal", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Do(ctx, stint.Op{}, good); err != nil {
			t.Errorf("afterwards the slot is not free: %v", err)
		}

		if err := c.Do(ctx, within, func(context.Context) error { return errBad }); !errors.Is(err, errBad) {
			t.Errorf("error %v, want %v", err, errBad)
		}
		c.Do(ctx, within, func(context.Context) error { return errBad })
		c.Do(ctx, within, func(context.Context) error { return errBad })
		if n := len(rec.Events(stint.BreakerChanged)); n == 0 {
			t.Fatal("its failures do not count for the breaker")
		}
		if err := c.Do(ctx, stint.Op{}, good); err == nil {
			t.Error("the breaker is open: want a refusal of an ordinary call")
		}
		if err := c.Do(ctx, within, good); err != nil {
			t.Errorf("the breaker is open: %v, want no refusal", err)
		}
	})
}
