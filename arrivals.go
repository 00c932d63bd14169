package stint

import "time"

// What a Gate remembers of the requests that arrived lately.
const (
	arrivalSpan  = time.Second
	arrivalSpans = 10
	fewArrivals  = 20  // below them a share says nothing
	retryShare   = .10 // of the arrivals: more than the retry budgets of well-behaved callers
)

// arrivals counts the requests of the last ten seconds.
type arrivals struct {
	spans [arrivalSpans]arrivalCount
	sum   arrivalCount
	at    time.Time // when the present span began
	i     int
}

type arrivalCount struct{ all, retries, refused int }

func (a *arrivalCount) add(o arrivalCount, sign int) {
	a.all += sign * o.all
	a.retries += sign * o.retries
	a.refused += sign * o.refused
}

// turn forgets what is too old.
func (a *arrivals) turn(now time.Time) {
	if now.Sub(a.at) >= arrivalSpans*arrivalSpan {
		*a = arrivals{at: now}
		return
	}
	for ; now.Sub(a.at) >= arrivalSpan; a.at = a.at.Add(arrivalSpan) {
		a.i = (a.i + 1) % arrivalSpans
		a.sum.add(a.spans[a.i], -1)
		a.spans[a.i] = arrivalCount{}
	}
}

func (a *arrivals) count(c arrivalCount) {
	a.spans[a.i].add(c, 1)
	a.sum.add(c, 1)
}

func (a *arrivals) arrived(now time.Time, retry bool) {
	a.turn(now)
	c := arrivalCount{all: 1}
	if retry {
		c.retries = 1
	}
	a.count(c)
}

// refuse counts a refusal, if no more than so large a share of the arrivals was
// refused with it.
func (a *arrivals) refuse(now time.Time, most float64) bool {
	a.turn(now)
	if most < 1 && float64(a.sum.refused+1) > most*float64(a.sum.all) {
		return false
	}
	a.count(arrivalCount{refused: 1})
	return true
}

// retried reports whether a good share of the arrivals were retries.
func (a *arrivals) retried(now time.Time) bool {
	a.turn(now)
	return a.sum.all >= fewArrivals && float64(a.sum.retries) > retryShare*float64(a.sum.all)
}
