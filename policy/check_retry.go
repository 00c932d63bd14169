package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostTries is how many attempts are worth making: article and practice alike say
// two or three.
const mostTries = 3

// attempts holds the number of attempts against the time that there is for them.
func (c *checker) attempts(v view) {
	r, n := v.Retry, v.Retry.tries()
	if n == 1 {
		return
	}
	each := v.key("retry", "perAttemptTimeout")
	slow := v.RepeatAfterTimeout == nil || *v.RepeatAfterTimeout // else only a quick failure is followed by another attempt
	switch limit := v.limit(); {
	case r.PerAttemptTimeout == 0 && !slow:
	case r.PerAttemptTimeout == 0:
		c.add(v.f, v.key("retry", "maxAttempts"), "no-attempt-timeout",
			fmt.Sprintf("%s has %d attempts in %s and no perAttemptTimeout", v.title(), n, dur(limit)),
			fmt.Sprintf("Write perAttemptTimeout: %s, so that %d fit.", dur(share(limit, r, n)), n))
	case v.Timeout > 0 && r.PerAttemptTimeout > v.Timeout:
		c.add(v.f, each, "attempt-over-call",
			fmt.Sprintf("an attempt of %s may take %s, and the whole call %s", v.title(), dur(r.PerAttemptTimeout), dur(v.Timeout)),
			fmt.Sprintf("Write perAttemptTimeout: %s, or a timeout above %s.", dur(share(v.Timeout, r, n)), dur(r.PerAttemptTimeout)))
	case slow && r.longest(n) > limit:
		fit := r.fits(limit)
		c.add(v.f, v.key("retry", "maxAttempts"), "attempts-do-not-fit",
			fmt.Sprintf("%d attempts of %s take %s, with waits up to %s that is %s, and a call of %s has %s: %d of them fit",
				n, dur(r.PerAttemptTimeout), dur(times(r.PerAttemptTimeout, n)), dur(r.waits(n)), dur(r.longest(n)), v.title(), dur(limit), fit),
			fmt.Sprintf("Write maxAttempts: %d, or perAttemptTimeout: %s, or a shorter backoff.", max(fit, 1), dur(share(limit, r, n))))
	}
	if n > mostTries {
		c.add(v.f, v.key("retry", "maxAttempts"), "too-many-attempts",
			fmt.Sprintf("%s is tried up to %d times", v.title(), n),
			fmt.Sprintf("Write maxAttempts: %d or less.", mostTries))
	}
}

// share is the time for each of n attempts in a call, the waits taken off where
// they leave something.
func share(limit time.Duration, r *Retry, n int) time.Duration {
	if waits := r.waits(n); waits < limit/2 {
		limit -= waits
	}
	return max((limit / time.Duration(n)).Truncate(time.Millisecond), time.Millisecond)
}

// burst is how many requests at once on top of the ordinary are no matter, where
// the callee's limit is not known.
const burst = 100

// budget holds the retry budget against the attempts, and against the callee.
func (c *checker) budget(e *call, v view) {
	n := v.Retry.tries()
	if n == 1 {
		return
	}
	var b Budget
	if e.d.Retry != nil {
		b = e.d.Retry.Budget
	}
	ceiling := cmp.Or(b.Ceiling, defaults.Retry.BudgetCeiling)
	key := e.key("retry", "budget", "ceiling")
	if n-1 > ceiling {
		c.add(v.f, key, "budget-never-pays",
			fmt.Sprintf("%s may make %s, and its budget holds %d", v.title(), plural(n-1, "retry", "retries"), ceiling),
			fmt.Sprintf("Write maxAttempts: %d, or a ceiling of %d.", ceiling+1, n-1))
	}
	replicas, most, whence := max(e.From.Replicas, 1), burst, "what may be sent without knowing its limit"
	if e.To != nil && e.To.Entry != nil && e.To.Entry.Limit > 0 {
		theirs := max(e.To.Replicas, 1)
		most = int(e.To.Entry.Limit) * theirs / 2
		whence = fmt.Sprintf("half of its limit of %d in %s", e.To.Entry.Limit, plural(theirs, "replica", "replicas"))
	}
	if ceiling*replicas > most {
		lower := fmt.Sprintf("Write a ceiling of %d.", most/replicas)
		if most < replicas {
			lower = fmt.Sprintf("Even a ceiling of 1 is too much here: write retry: none and leave retries to a layer of fewer instances, or raise the limit of %s.", e.to.name)
		}
		c.add(v.f, key, "budget-burst",
			fmt.Sprintf("%s of %s with a budget of %d may send %d retries to %s at once, above %d, %s",
				plural(replicas, "replica", "replicas"), e.from.name, ceiling, ceiling*replicas, e.to.name, most, whence),
			lower)
	}
	ratio := cmp.Or(b.Ratio, Ratio(defaults.Retry.BudgetRatio))
	if spare := 1/float64(e.d.Busy) - 1; e.d.Busy > 0 && float64(ratio) > spare {
		c.add(v.f, e.key("retry", "budget"), "budget-burst",
			fmt.Sprintf("%s is %s busy at peak, which leaves room for %.1f%% more, and the budget allows %s of retries", e.Dependency, e.d.Busy, 100*spare, ratio),
			fmt.Sprintf("Write a ratio below %.1f%%, which is 1/busy - 1.", 100*spare))
	}
}

// final are outcomes that are the same each time.
var final = []Code{"501", "505", "CANCELLED", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS", "UNAUTHENTICATED"}

// passing are the statuses below 500 that may be different the next time (RFC
// 9110, 15.5; RFC 6585; RFC 8470): a wait, a lock, a conflict, another server.
var passing = []Code{"408", "409", "421", "423", "425", "429"}

// codes finds outcomes that are not worth a retry.
func (c *checker) codes(v view) {
	if v.Retry.tries() == 1 {
		return
	}
	for i, code := range v.Retry.Retryable {
		key := v.key("retry", "retryable")
		key[len(key)-1] += fmt.Sprintf("[%d]", i)
		status, http := code.HTTP()
		switch {
		case outcomes[v.Kind][code].lasting:
			c.add(v.f, key, "retry-on-deadline",
				fmt.Sprintf("%s lists %s, which the same command meets again", v.title(), code),
				fmt.Sprintf("Remove %s.", code))
		case v.Kind.Store():
		case code == "DEADLINE_EXCEEDED":
			c.add(v.f, key, "retry-on-deadline",
				fmt.Sprintf("%s lists DEADLINE_EXCEEDED: after the call's own timeout nothing is left for a retry, and after an attempt's it is one anyway", v.title()),
				"Remove it; perAttemptTimeout is what makes a slow attempt end in time for another.")
		case slices.Contains(final, code) || http && status < 500 && !slices.Contains(passing, code):
			c.add(v.f, key, "retry-on-deadline",
				fmt.Sprintf("%s lists %s, which the same request meets again", v.title(), code),
				fmt.Sprintf("Remove %s; what may pass is listed by %s.", code, strings.Join([]string{"429", "500", "RESOURCE_EXHAUSTED", "ABORTED"}, ", ")))
		}
	}
}
