package stint

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// B13: doubling runs past 63 bits around attempt 35 if it is not capped before,
// and a random number below an empty range panics.
func TestB13BackoffStaysInRange(t *testing.T) {
	almostOne := math.Nextafter(1, 0)
	attempts := []int{math.MinInt, -1, math.MaxInt}
	for n := range 10_001 {
		attempts = append(attempts, n)
	}
	for _, base := range []time.Duration{0, 1, 9, time.Millisecond, 500 * time.Millisecond, time.Hour} {
		for _, ceiling := range []time.Duration{0, 1, 2 * time.Second, forever} {
			for _, n := range attempts {
				last := time.Duration(0)
				for _, rnd := range []float64{0, 0.5, almostOne, 1} {
					d := backoff(n, base, ceiling, rnd)
					if d < 0 || d > ceiling {
						t.Fatalf("attempt %d, base %v, cap %v, draw %v: a wait of %v", n, base, ceiling, rnd, d)
					}
					if d < last {
						t.Fatalf("attempt %d, base %v, cap %v: a higher draw gives %v after %v", n, base, ceiling, d, last)
					}
					if last = d; rnd == 0 && d != 0 {
						t.Fatalf("attempt %d, base %v, cap %v: the least wait is %v, want none", n, base, ceiling, d)
					}
				}
			}
		}
	}
}

// The longest wait doubles from base until it meets the cap, and then stays.
func TestB13BackoffDoubles(t *testing.T) {
	for _, c := range []struct {
		base, ceiling time.Duration
		n             int
		most          time.Duration
	}{
		{50 * time.Millisecond, 2 * time.Second, 1, 50 * time.Millisecond},
		{50 * time.Millisecond, 2 * time.Second, 2, 100 * time.Millisecond},
		{50 * time.Millisecond, 2 * time.Second, 6, 1600 * time.Millisecond},
		{50 * time.Millisecond, 2 * time.Second, 7, 2 * time.Second},
		{50 * time.Millisecond, 2 * time.Second, 10_000, 2 * time.Second},
		{time.Hour, 2 * time.Second, 1, 2 * time.Second},
		{1, forever, 63, 1 << 62},
		{1, forever, 64, forever},
		{2, forever, 63, forever},
		{1, 1, 5, 1},
	} {
		// A float64 is one off for half of the longest time.
		if d := backoff(c.n, c.base, c.ceiling, 0.5); d-c.most/2 < 0 || d-c.most/2 > 1 {
			t.Errorf("attempt %d, base %v, cap %v: half a draw is %v, want half of %v", c.n, c.base, c.ceiling, d, c.most)
		}
	}
}

// B13: far into the series back-off must not be silently off.
func TestB13BackoffAveragesHalfTheCap(t *testing.T) {
	const seed, draws = 13, 20_000
	ceiling := 2 * time.Second
	for _, base := range []time.Duration{1, 9, time.Millisecond, 500 * time.Millisecond, time.Hour} {
		for _, n := range []int{20, 35, 62, 63, 64, 65, 100, 1000, 10_000} {
			if base < time.Microsecond && n < 35 {
				continue // 1 ns doubled 20 times is not there yet
			}
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			var sum float64
			for range draws {
				sum += float64(backoff(n, base, ceiling, r.Float64()))
			}
			if mean := sum / draws / float64(ceiling); mean < 0.45 || mean > 0.55 {
				t.Errorf("seed %d: attempt %d, base %v: the mean is %.3f of the cap, want 0.5", seed, n, base, mean)
			}
		}
	}
}

func TestAddSat(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {1, 2, 3}, {forever, 0, forever}, {0, forever, forever}, {forever, 1, forever},
		{forever - 1, 1, forever}, {forever, forever, forever}, {forever/2 + 1, forever/2 + 1, forever},
	} {
		if got := addSat(c.a, c.b); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
