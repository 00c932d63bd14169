package stint

import (
	"slices"
	"time"
)

// The learned limit. Too few requests at once waste capacity, and a few too many
// only wait inside the handler instead of in front of it, so the limit is held
// where the handler takes about a third longer than it does without company.
const (
	firstLimit   = 16 // until it is learned: doubled soon if that is too few; too many would be in the handler for long
	defaultFloor = 4
	defaultCeil  = 1000

	growBelow   = 1.2  // of the latency without company: there is room
	shrinkAbove = 1.5  // requests wait for each other
	aim         = 1.35 // what shrinking aims at
	strained    = 2.0  // no chance: once is enough

	windowSamples = 100 // the median of so many is off by a tenth, for work as irregular as an exponential law
	fewSamples    = 20
	longWindow    = time.Second
	probeEvery    = 10 * time.Second
	probeAtMost   = 5 * time.Second // or twice the time after which a request is a stream

	lasting = 30          // times the baseline is no request but a stream: of an exponential law 1 in 10^9 takes so long
	stalled = time.Second // so long without an end, at least, is no accident
)

// limiter is the number of requests that may run at once: fixed, or learned from
// how long they take. It is an AIMD on latency with a probe of the baseline, put
// together from Vegas (grow and shrink by the ratio of latency to its baseline),
// Netflix's Gradient2 (no growth that nobody uses, at most half at a time) and BBR
// (to see the latency without queues the limit has to be lowered for a moment,
// else the baseline follows an overload up). Medians, so that a few streams among
// the requests change nothing.
type limiter struct {
	fixed          bool
	floor, ceiling float64
	limit          float64

	base     time.Duration // the median without company; zero: not known yet
	company  int           // how many ran at most when it was learned
	probed   time.Duration // what the last probe found, or less
	useful   time.Duration // the 95th percentile of the last window
	interval time.Duration // between two that end, when the limit is reached

	doubling bool // nothing has spoken against growth so far

	// The window under way.
	opened  time.Time
	samples [windowSamples]time.Duration
	n       int       // samples seen
	peak    int       // the most that ran at once
	reached bool      // somebody found no place
	last    time.Time // when one that was no stream ended
	strain  int       // windows in a row that were above shrinkAbove

	// The probe: the limit is low until samples of requests that began under it are there.
	probing  bool
	low      float64
	drained  bool
	since    time.Time     // it drains since then
	crowd    float64       // how many ran at most before it,
	slow     time.Duration // and how long it took
	held     float64       // the places of streams, which did not drain
	probeAt  time.Time     // the next one is due
	probedAt float64       // the limit at the last one
}

func newLimiter(o *GateOptions) limiter {
	if o.Limit != 0 {
		return limiter{fixed: true, limit: float64(o.Limit)}
	}
	first := float64(min(max(firstLimit, o.MinLimit), o.MaxLimit))
	return limiter{floor: float64(o.MinLimit), ceiling: float64(o.MaxLimit), limit: first, probedAt: first, doubling: true}
}

// change goes on under other options.
func (l *limiter) change(o *GateOptions, running int) {
	if o.Limit != 0 {
		l.fixed, l.limit, l.probing = true, float64(o.Limit), false
		return
	}
	if l.fixed {
		if l.limit < 0 { // there was none, and what runs is no overload yet
			l.limit = float64(max(firstLimit, running))
		}
		l.fixed, l.doubling, l.strain = false, l.base == 0, 0
	}
	l.floor, l.ceiling = float64(o.MinLimit), float64(o.MaxLimit)
	l.limit = min(max(l.limit, l.floor), l.ceiling)
	l.low = max(l.low, l.floor)
	if l.probedAt == 0 || l.probedAt > l.ceiling {
		l.probedAt = l.limit
	}
}

// allows reports whether another may run beside so many; a negative limit is none.
func (l *limiter) allows(running int) bool {
	return l.limit < 0 || float64(running+1) <= l.now()
}

// now is the limit in force.
func (l *limiter) now() float64 {
	if l.probing {
		return min(l.low, l.limit)
	}
	return l.limit
}

// began takes note of how many run, and whether somebody found no place.
func (l *limiter) began(now time.Time, running int, reached bool) {
	l.peak = max(l.peak, running)
	l.reached = l.reached || reached
	switch {
	case !reached:
	case l.probing && !l.drained: // perhaps none of those inside ever ends
		l.drain(now, running)
	case l.base > 0 && now.Sub(l.last) > max(stalled, lasting*l.base) && !l.allows(running):
		// Nothing ends: streams have all the places. If it is a hang, few more go in.
		l.limit, l.probing, l.last = min(l.ceiling, max(l.limit, float64(running)+l.floor)), false, now
		l.open(now)
	}
}

// ended takes in how long a request ran, zero if that says nothing; running are
// those that still do.
func (l *limiter) ended(now time.Time, took time.Duration, running int) {
	if took <= lasting*l.base || l.base == 0 {
		l.last = now
	}
	if l.probing && now.Sub(l.since) > max(probeAtMost, 2*lasting*l.base) { // nothing comes of it: the limit must not stay low
		l.probing, l.probeAt = false, now.Add(probeEvery)
		l.open(now)
	}
	switch {
	case took <= 0:
		return
	case l.opened.IsZero():
		l.opened = now.Add(-took)
	case now.Before(l.opened):
		return
	}
	if l.probing && !l.drained {
		l.drain(now, running)
		return
	}
	l.samples[l.n%windowSamples] = took
	l.n++
	age := now.Sub(l.opened)
	if l.n >= windowSamples && age >= min(2*l.base, longWindow) || l.n >= fewSamples && age >= max(longWindow, 10*l.base) { // ten rounds: in fewer it would learn from too few
		l.close(now)
	}
}

// drain waits until those that began before the probe are gone. What does not go
// in the time that requests take is a stream, and does not count.
func (l *limiter) drain(now time.Time, running int) {
	l.held = 0
	if float64(running) > l.low {
		if now.Sub(l.since) < lasting*l.base {
			return
		}
		l.held = float64(running)
		l.low += l.held
	}
	l.drained = true
	l.open(now.Add(3 * l.base)) // at once, only the quick ones would have ended
}

func (l *limiter) open(now time.Time) {
	l.opened, l.n, l.peak, l.reached = now, 0, 0, false
}

// close judges a window and opens the next.
func (l *limiter) close(now time.Time) {
	s := l.samples[:min(l.n, windowSamples)]
	slices.Sort(s)
	median := max(s[len(s)/2], 1)
	l.useful = s[len(s)*95/100]
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	// By Little's law; or as seen, which a stream among the samples does not distort.
	l.interval = min(time.Duration(float64(sum)/float64(len(s))/max(l.now(), 1)), now.Sub(l.opened)/time.Duration(l.n))
	if !l.fixed {
		now = now.Add(l.judge(now, median))
	}
	l.open(now)
}

// judge adapts the limit, and returns how long that takes to show.
func (l *limiter) judge(now time.Time, median time.Duration) (settle time.Duration) {
	if l.probing {
		l.learn(now, median)
		return 0
	}
	blind := false // nobody has seen it without company
	if l.base == 0 {
		l.base, l.probed = median, median
		blind = l.reached
	}
	ratio := float64(median) / float64(l.base)
	crowded := l.peak > l.company+l.company/2+2
	if !l.reached && (ratio < growBelow || !crowded) || ratio < .8 {
		// Not because of company, or less than it can be without.
		l.base = min(l.base+(median-l.base)/4, l.probed*3/2) // else it would follow a load that grows slowly
		l.probed = min(l.probed, l.base)
		l.company = max(l.peak, l.company*7/8)
	}
	if ratio > shrinkAbove {
		l.strain++
	} else {
		l.strain = 0
	}
	due := !now.Before(l.probeAt)
	switch least := l.limit / 2; {
	case !l.reached: // what makes it slow, company or the work itself, a probe has to tell
		if due = due && crowded && l.strain > 1; due {
			l.limit = max(l.floor, min(l.limit, float64(l.peak)))
		}
	case blind:
	case ratio < growBelow && l.doubling:
		l.limit, settle = min(l.ceiling, 2*l.limit), median // until those that began under the new limit end
	case ratio < growBelow:
		l.limit, settle = min(l.ceiling, l.limit+max(1, l.limit/10)), median
	case l.strain > 1 || ratio > strained:
		if l.probeAt.IsZero() { // it is no more than where we began
			least = 0
		}
		l.limit, l.doubling = max(l.floor, least, l.limit*aim/ratio), false
		due = due || l.limit <= l.probedAt/2
		settle, l.strain = 2*median, 0 // until those that began under the old limit are gone
	}
	if due {
		settle = 0
		l.probing, l.drained, l.since, l.crowd, l.slow = true, false, now, float64(l.peak), median
		l.low = max(l.floor, min(l.limit/2, float64(l.peak)/ratio)) // by Little's law none of so many has to wait
	}
	return settle
}

// learn ends a probe.
func (l *limiter) learn(now time.Time, median time.Duration) {
	before := l.base
	l.base, l.company, l.probing, l.probeAt = median, int(l.low), false, now.Add(probeEvery)
	switch {
	case median < before*7/10: // it was not the baseline yet, so this may not be either
		l.probeAt = now.Add(8 * median)
	case median > before*3/2: // the work itself takes longer; or this was not low enough yet
		l.doubling, l.probeAt = true, now.Add(8*median)
	default: // the difference may be chance
		l.base = (before + median) / 2
	}
	l.probed = l.base
	if ratio := float64(l.slow) / float64(l.base); ratio > shrinkAbove {
		l.limit, l.doubling = max(l.floor, min(l.limit, l.held+(l.crowd-l.held)*aim/ratio)), false
	}
	l.probedAt = l.limit
}
