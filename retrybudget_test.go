package stint_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// budgetCaller is a Caller that may make many attempts, so that only its budget
// says no; its breaker is off.
func budgetCaller(t testing.TB, name string, change func(*stint.Policy)) *stint.Caller {
	t.Helper()
	p := stint.Policy{
		Retry:   stint.Retry{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond},
		Breaker: stint.Breaker{Off: true},
	}
	if change != nil {
		change(&p)
	}
	c, err := stint.NewCaller(name, p, &stint.CallerOptions{
		Classify: func(context.Context, error) stint.Outcome { return stint.Outcome{Kind: stint.Transient} },
		Rand:     func() float64 { return 0.9 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var errBudgetDown = errors.New("down")

// budgetCalls makes n calls whose first attempts end with first and whose others
// end with then. It returns the number of retries, and of calls that the budget
// refused one.
func budgetCalls(c *stint.Caller, n int, first, then error) (retries, refused int) {
	for range n {
		attempts := 0
		err := c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error {
			if attempts++; attempts == 1 {
				return first
			}
			return then
		})
		retries += attempts - 1
		var e *stint.Error
		if errors.As(err, &e) && e.Reason == stint.BudgetSpent {
			refused++
		}
	}
	return retries, refused
}

// B21: what a dependency's outage costs is bounded, and what its recovery earns
// can be spent.
func TestB21DrainsAndRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := budgetCaller(t, "d", nil)
		if b := c.Budget().Balance(); b != 10 {
			t.Errorf("it starts with %v retries, want 10", b)
		}
		if retries, refused := budgetCalls(c, 100, errBudgetDown, errBudgetDown); retries != 10 || refused != 90 {
			t.Errorf("100 failing calls: %d retries, %d refused; want 10, 90", retries, refused)
		}
		budgetCalls(c, 9, nil, nil)
		if retries, refused := budgetCalls(c, 1, errBudgetDown, errBudgetDown); retries != 0 || refused != 1 {
			t.Errorf("9 successes: %d retries, %d refused; want none yet", retries, refused)
		}
		budgetCalls(c, 91, nil, nil)
		if b := c.Budget().Balance(); b != 10 {
			t.Errorf("100 successes earned %v retries, want 10", b)
		}
		if retries, _ := budgetCalls(c, 100, errBudgetDown, errBudgetDown); retries != 10 {
			t.Errorf("then 100 failing calls: %d retries, want 10", retries)
		}
		budgetCalls(c, 1000, nil, nil)
		if b := c.Budget().Balance(); b != 10 {
			t.Errorf("1000 successes saved up %v retries, want 10 at most", b)
		}
	})
}

// A call that a retry saved has earned its part, and costs a whole one.
func TestB21SavedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := budgetCaller(t, "d", nil)
		if retries, refused := budgetCalls(c, 9, errBudgetDown, nil); retries != 9 || refused != 0 {
			t.Errorf("%d retries, %d refused; want 9, none", retries, refused)
		}
		if b := c.Budget().Balance(); b != 1.9 {
			t.Errorf("%v retries left, want 10 - 9 + 0.9", b)
		}
	})
}

// A ratio too small for the unit in which tokens are counted must not pass and
// then never earn anything: once drained, that budget would stay empty for good.
func TestB21SmallRatioIsRefusedOrEarns(t *testing.T) {
	p := stint.Policy{Retry: stint.Retry{Attempts: 2, BudgetRatio: 0.0004}}
	c, err := stint.NewCaller("d", p, nil)
	if err != nil {
		return
	}
	for c.Budget().Withdraw() {
	}
	for range 10_000 { // 4 retries' worth
		c.Budget().Deposit()
	}
	if !c.Budget().Withdraw() {
		t.Error("a ratio of 0.0004 is accepted, but 10000 successes earned nothing")
	}
}

func TestB21Bounds(t *testing.T) {
	const seed, operations = 21, 1_000_000
	r := rand.New(rand.NewPCG(seed, 0))
	b := stint.NewRetryBudget(0.1, 10)
	// The same in whole thousandths: what is counted must not drift from it.
	want := int64(10_000)
	for i := range operations {
		if r.IntN(12) > 0 {
			b.Deposit()
			want = min(want+100, 10_000)
		} else if ok := b.Withdraw(); ok != (want >= 1000) {
			t.Fatalf("seed %d, operation %d: a token given: %v, with %d thousandths", seed, i, ok, want)
		} else if ok {
			want -= 1000
		}
		if got := b.Balance(); math.Abs(got-float64(want)/1000) > 1e-9 || got < 0 || got > 10 {
			t.Fatalf("seed %d, operation %d: a balance of %v, want %d thousandths", seed, i, got, want)
		}
	}
}

func TestRetryBudgetDefaults(t *testing.T) {
	b := stint.NewRetryBudget(0, 0)
	if b.Balance() != 10 {
		t.Errorf("it starts with %v, want 10", b.Balance())
	}
	b.Withdraw()
	b.Deposit()
	if b.Balance() != 9.1 {
		t.Errorf("%v after a withdrawal and a deposit, want 9.1", b.Balance())
	}
	var zero stint.RetryBudget
	zero.Deposit()
	zero.Return()
	if zero.Balance() != 0 || zero.Withdraw() {
		t.Errorf("the zero value holds %v, want that it is empty and earns nothing", zero.Balance())
	}
}

// A ratio in whole thousandths is counted as it was written, and any other as
// the nearest of them.
func TestRetryBudgetCountsInThousandths(t *testing.T) {
	counted := map[float64]int{0.0019: 2, 0.0334: 33, 0.0336: 34, 0.9996: 1000}
	for k := 1; k <= 1000; k++ {
		counted[float64(k)/1000] = k
	}
	for ratio, k := range counted {
		b := stint.NewRetryBudget(ratio, 2)
		b.Withdraw()
		b.Deposit()
		if want := float64(1000+k) / 1000; b.Balance() != want {
			t.Errorf("a ratio of %v: %v after a withdrawal and a deposit, want %v", ratio, b.Balance(), want)
		}
	}
}

// NewRetryBudget takes any two numbers; whatever they are, the balance stays
// between none and the ceiling.
func TestRetryBudgetOddValues(t *testing.T) {
	for _, ratio := range []float64{0, -1, 0.0001, 1, 2, 1e300, math.Inf(1), math.Inf(-1), math.NaN()} {
		for _, ceiling := range []int{0, -1, 1, 10, math.MaxInt32, math.MaxInt, math.MinInt} {
			b := stint.NewRetryBudget(ratio, ceiling)
			most := float64(ceiling)
			if ceiling <= 0 {
				most = 10
			}
			ok := func() bool { return b.Balance() >= 0 && b.Balance() <= most }
			full := ok() && b.Balance() >= 1
			taken := b.Withdraw()
			for range 3 {
				b.Deposit()
				full = full && ok()
			}
			b.Return()
			if !full || !taken || !ok() {
				t.Errorf("ratio %v, ceiling %d: a token to begin with: %v; now %v", ratio, ceiling, taken, b.Balance())
			}
		}
	}
}

// B22: the budget is the Caller's. What one dependency's outage spends, another
// does not miss; one Caller that is shared is one budget.
func TestB22BudgetsOfTwoCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		payments, search := budgetCaller(t, "payments", nil), budgetCaller(t, "search", nil)
		var retried, refused, searches int
		for range 500 {
			budgetCalls(payments, 1, errBudgetDown, errBudgetDown)
			first := error(nil)
			if searches++; searches%50 == 0 {
				first = errBudgetDown
			}
			n, no := budgetCalls(search, 1, first, nil)
			retried, refused = retried+n, refused+no
		}
		if b := payments.Budget().Balance(); b != 0 {
			t.Errorf("payments, which is down, still has %v retries", b)
		}
		if retried != 10 || refused != 0 {
			t.Errorf("search: %d retries, %d refused; want 10, none", retried, refused)
		}
		// The name is not a key: two Callers of one name are two budgets, and
		// who wants one shares the Caller.
		twin := budgetCaller(t, "payments", nil)
		if b := twin.Budget().Balance(); b != 10 {
			t.Errorf("another Caller of that name has %v retries, want its own 10", b)
		}
	})
}

func TestB22OneCallerIsOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := budgetCaller(t, "d", nil)
		var retries atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				n, _ := budgetCalls(c, 4, errBudgetDown, errBudgetDown)
				retries.Add(int64(n))
			})
		}
		wg.Wait()
		if n := retries.Load(); n != 10 {
			t.Errorf("200 failing calls from 50 users of one Caller: %d retries, want 10", n)
		}
	})
}

// Tokens neither appear nor get lost, whoever takes and gives at the same time.
func TestRetryBudgetConcurrency(t *testing.T) {
	const workers, rounds, ceiling = 8, 5_000, 1_000_000
	b := stint.NewRetryBudget(0.1, ceiling)
	for b.Withdraw() { // so that the ceiling takes nothing away below
	}
	var deposits, taken, returned atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 0))
			for range rounds {
				switch r.IntN(4) {
				case 0:
					if b.Withdraw() {
						taken.Add(1)
						if r.IntN(2) == 0 {
							b.Return()
							returned.Add(1)
						}
					}
				default:
					b.Deposit()
					deposits.Add(1)
				}
				if b.Balance() < 0 {
					t.Error("overdrawn")
				}
			}
		})
	}
	wg.Wait()
	want := deposits.Load()*100 - 1000*(taken.Load()-returned.Load())
	if got := int64(math.Round(b.Balance() * 1000)); got != want || taken.Load() == 0 {
		t.Errorf("%d thousandths left, want %d (%d deposits, %d taken, %d returned)", got, want, deposits.Load(), taken.Load(), returned.Load())
	}
}

// A token withdrawn for a retry that never leaves goes back.
func TestRetryBudgetGetsBackWhatIsNotUsed(t *testing.T) {
	slow := func(p *stint.Policy) { p.Retry.Base, p.Retry.Cap = time.Hour, time.Hour; p.Timeout = 3 * time.Hour }
	t.Run("the caller cancels in the back-off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := budgetCaller(t, "d", slow)
			ctx, cancel := context.WithCancel(context.Background())
			var err error
			attempts := 0
			done := make(chan struct{})
			go func() {
				defer close(done)
				err = c.Do(ctx, stint.Op{Safety: stint.ReadOnly}, func(context.Context) error { attempts++; return errBudgetDown })
			}()
			synctest.Wait()
			if b := c.Budget().Balance(); b != 9 {
				t.Errorf("%v while it waits, want 9: the token is taken", b)
			}
			cancel()
			<-done
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errBudgetDown) || attempts != 1 {
				t.Errorf("%d attempts, then %v", attempts, err)
			}
			if b := c.Budget().Balance(); b != 10 {
				t.Errorf("%v afterwards, want 10", b)
			}
		})
	})
	t.Run("no slot for the retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := budgetCaller(t, "d", func(p *stint.Policy) {
				p.Bulkhead, p.Timeout = 1, 100*time.Millisecond
				p.Retry.Base, p.Retry.Cap = 50*time.Millisecond, 50*time.Millisecond
			})
			// Another call takes the slot while the first one backs off.
			go func() {
				time.Sleep(10 * time.Millisecond)
				c.Do(context.Background(), stint.Op{}, func(context.Context) error { time.Sleep(time.Second); return errBudgetDown })
			}()
			err := c.Do(context.Background(), stint.Op{Safety: stint.ReadOnly}, func(context.Context) error {
				time.Sleep(10*time.Millisecond - 1)
				return errBudgetDown
			})
			var e *stint.Error
			if !errors.As(err, &e) || e.Reason != stint.Full || e.Attempts != 1 || !errors.Is(err, errBudgetDown) {
				t.Errorf("got %v, want full after 1 attempt, and what that said", err)
			}
			if b := c.Budget().Balance(); b != 10 {
				t.Errorf("%v afterwards, want 10", b)
			}
			time.Sleep(2 * time.Second)
		})
	})
}

func TestRetryBudgetSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := budgetCaller(t, "d", nil)
		set := func(ratio float64, ceiling int) {
			t.Helper()
			p := c.Policy()
			p.Retry.BudgetRatio, p.Retry.BudgetCeiling = ratio, ceiling
			if err := c.SetPolicy(p); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, n float64) {
			t.Helper()
			if b := c.Budget().Balance(); b != n {
				t.Errorf("%s: %v, want %v", when, b, n)
			}
		}
		budget := c.Budget()
		budgetCalls(c, 4, errBudgetDown, errBudgetDown)
		want("4 retries", 6)
		set(0.1, 100)
		want("a higher ceiling earns nothing", 6)
		set(0.5, 100)
		want("a higher ratio neither", 6)
		budgetCalls(c, 2, nil, nil)
		want("2 successes at the new ratio", 7)
		budgetCalls(c, 1000, nil, nil)
		want("1000 more", 100)
		set(0.1, 3)
		want("a lower ceiling", 3)
		set(0.1, 10)
		want("and back", 3)
		if err := c.SetPolicy(stint.Policy{Retry: stint.Retry{BudgetRatio: -1}}); err == nil {
			t.Error("a negative ratio was accepted")
		}
		budgetCalls(c, 10, nil, nil)
		want("10 successes after a policy that was refused", 4)
		if c.Budget() != budget {
			t.Error("a new policy brought a new budget")
		}
	})
}
