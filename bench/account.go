package main

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// A phase is a time in which requests arrive at one rate.
type phase struct {
	rate  float64 // a second
	lasts time.Duration
}

func (p phase) arrivals() int { return int(p.rate*p.lasts.Seconds() + .5) }

// A schedule says when which request of a load run is to be sent, whatever becomes of those before it.
type schedule []phase

func (s schedule) arrivals() (n int) {
	for _, p := range s {
		n += p.arrivals()
	}
	return n
}

// intended is when the request of that number, from zero on, is to be sent.
func (s schedule) intended(number int) (at time.Duration) {
	for _, p := range s {
		if n := p.arrivals(); number >= n {
			number -= n
			at += p.lasts
			continue
		}
		return at + time.Duration(float64(number)/p.rate*float64(time.Second))
	}
	return at
}

// Pace is what vegeta asks before each request, so many after the beginning.
func (s schedule) Pace(elapsed time.Duration, sent uint64) (wait time.Duration, stop bool) {
	return s.intended(int(sent)) - elapsed, int(sent) >= s.arrivals()
}

// Rate belongs to vegeta's interface.
func (s schedule) Rate(elapsed time.Duration) float64 {
	for i, p := range s {
		if s.span(i).has(elapsed) {
			return p.rate
		}
	}
	return 0
}

// span is when the i-th phase begins and ends.
func (s schedule) span(i int) (sp span) {
	for _, p := range s[:i] {
		sp.from += p.lasts
	}
	sp.to = sp.from + s[i].lasts
	return sp
}

// A span is from when to when, not included.
type span struct{ from, to time.Duration }

func (s span) has(t time.Duration) bool { return t >= s.from && t < s.to }

// A sample is what became of one request. All times are since the load began.
type sample struct {
	intended, sent, ended time.Duration
	code                  int // zero: no answer, or half of one
}

// samples are those of a load run, in the order in which they were to be sent, with the deadline of each. A request's
// time counts from when it was to be sent: a generator that fell behind must not make the server look quicker.
type samples struct {
	list     []sample
	deadline time.Duration
}

func newSamples(list []sample, deadline time.Duration) samples {
	slices.SortFunc(list, func(a, b sample) int { return cmp.Compare(a.intended, b.intended) })
	return samples{list, deadline}
}

func (s samples) good(x sample) bool {
	return x.code == http.StatusOK && x.ended-x.intended <= s.deadline
}

// goodput is how many good answers came in a second of the span. Those that come after it are not in it: what a queue
// holds when the load ends would else be work above capacity.
func (s samples) goodput(in span) float64 {
	n := 0
	for _, x := range s.list {
		if s.good(x) && in.has(x.ended) {
			n++
		}
	}
	return float64(n) / (in.to - in.from).Seconds()
}

// refusals counts the requests of the span that were refused, and says how long the median of them took to learn it.
func (s samples) refusals(in span) (n int, median time.Duration) {
	var took []time.Duration
	for _, x := range s.list {
		if in.has(x.intended) && (x.code == http.StatusServiceUnavailable || x.code == http.StatusTooManyRequests) {
			took = append(took, x.ended-x.intended)
		}
	}
	return len(took), quantile(took, .5)
}

// Goodput is back when of the requests of so long, so many are answered well.
const (
	backWindow = 250 * time.Millisecond
	backShare  = .95
)

// back is how long after the beginning of the span goodput is back; ok is false if it never is.
func (s samples) back(in span) (after time.Duration, ok bool) {
	good, end := 0, 0
	for first, x := range s.list {
		if x.intended >= in.from {
			if x.intended+backWindow > in.to {
				break
			}
			for end = max(end, first); end < len(s.list) && s.list[end].intended < x.intended+backWindow; end++ {
				if s.good(s.list[end]) {
					good++
				}
			}
			if float64(good) >= backShare*float64(end-first) {
				return x.intended - in.from, true
			}
			if s.good(x) {
				good--
			}
		}
	}
	return 0, false
}

// late is by how much 99 % of the requests were sent later than intended, at most.
func (s samples) late() time.Duration {
	var by []time.Duration
	for _, x := range s.list {
		by = append(by, x.sent-x.intended)
	}
	return quantile(by, .99)
}

// quantile returns zero for nothing.
func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[int(q*float64(len(of)-1))]
}
