package stint

import (
	"math"
	"time"
)

// forever is the longest duration: "too far", never a wrapped number.
const forever time.Duration = math.MaxInt64

// backoff returns the wait after attempt n (1-based) under full jitter: rnd, in
// [0, 1], of min(ceiling, base * 2^(n-1)). It caps before it could overflow, so
// it is right for every n, and for every rnd: what lies outside counts as the
// nearest. A ceiling of zero gives no wait.
func backoff(n int, base, ceiling time.Duration, rnd float64) time.Duration {
	if base <= 0 || ceiling <= 0 {
		return 0
	}
	d := ceiling
	if shift := max(n, 1) - 1; shift < 63 && base <= ceiling>>shift {
		d = base << shift
	}
	if w := rnd * float64(d); w < float64(d) { // not so for NaN, nor for a d that is rounded up
		return time.Duration(max(w, 0))
	}
	return d
}

// addSat adds two non-negative durations; a sum out of range is forever.
func addSat(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}
