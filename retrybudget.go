package stint

import (
	"math"
	"sync/atomic"
)

// milli is the unit in which a RetryBudget counts: fixed point, so that ten
// deposits of 0.1 are one retry exactly, however many there have been.
const milli = 1000

// A RetryBudget allows retries only as a share of successful calls. Each
// success deposits a part of a token, up to a ceiling; each retry withdraws a
// whole one. It starts full. While the dependency is down nothing is earned, so
// retries stop once the ceiling is spent: the extra load of n calls is at most
// ceiling/n, where a request-fed budget would go on adding its ratio.
//
// A Caller has one of its own; share a budget by sharing the Caller. One that
// stands alone is for simulations, and for loops that are not a Caller's. Its
// methods may be called at the same time. The zero value is empty and earns
// nothing.
type RetryBudget struct {
	tokens  atomic.Int64 // in thousandths, between 0 and ceiling
	ceiling atomic.Int64
	ratio   atomic.Int64
}

// NewRetryBudget returns a full budget. ratio is what a success earns, in
// tokens: 0.001 to 1, in steps of 0.001; ceiling is the most tokens held, at
// most math.MaxInt32. Zero means 0.1 and 10, and so does what is below zero or
// no number; what lies beyond is brought to the nearest.
func NewRetryBudget(ratio float64, ceiling int) *RetryBudget {
	if ratio > 0 {
		ratio = min(max(ratio, 1./milli), 1)
	} else { // NaN comes here as well
		ratio = 0
	}
	b := new(RetryBudget)
	b.set(ratio, min(max(ceiling, 0), math.MaxInt32))
	b.tokens.Store(b.ceiling.Load())
	return b
}

// set changes the rates and keeps the tokens, as far as they fit.
func (b *RetryBudget) set(ratio float64, ceiling int) {
	def(&ratio, defaultBudgetRatio)
	def(&ceiling, defaultBudgetCeiling)
	b.ratio.Store(int64(ratio*milli + 0.5))
	b.ceiling.Store(int64(ceiling) * milli)
	b.add(0)
}

// Deposit records a successful call.
func (b *RetryBudget) Deposit() { b.add(b.ratio.Load()) }

// Withdraw takes one token and reports whether there was one.
func (b *RetryBudget) Withdraw() bool {
	for {
		t := b.tokens.Load()
		if t < milli {
			return false
		}
		if b.tokens.CompareAndSwap(t, t-milli) {
			return true
		}
	}
}

// Return gives back a token that was withdrawn for a retry that never left.
func (b *RetryBudget) Return() { b.add(milli) }

// Balance returns the tokens held: the retries that could be made now.
func (b *RetryBudget) Balance() float64 { return float64(b.tokens.Load()) / milli }

func (b *RetryBudget) add(n int64) {
	for {
		t := b.tokens.Load()
		next := min(t+n, b.ceiling.Load())
		if next == t || b.tokens.CompareAndSwap(t, next) {
			return
		}
	}
}
