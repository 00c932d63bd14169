package lab

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// An attempt is one request that a layer sent to the next.
type attempt struct {
	layer  string
	copy   bool // that a hedge sent
	number int  // of the layer's call, 1-based; zero is a wait between two
	span
}

// A span is when something began and ended, measured from the row's first call.
type span struct{ start, end time.Duration }

// A mark is something that the leaf did and that its experiment counts.
type mark struct {
	at   time.Duration // measured as a span is
	left time.Duration // that the leaf's caller granted it; zero if it named no limit
}

// A stop is why a layer made no further attempt.
type stop struct {
	layer  string
	reason stint.Reason
}

// A record is what happens in one row. Naive loops and leaf write it
// themselves; from stint it takes the events, as a stint.Observer. Its methods
// may be called at the same time.
type record struct {
	mu       sync.Mutex
	began    time.Time
	attended context.Context    // ends with the last call of the client
	end      context.CancelFunc // ends it
	attempts []attempt
	visits   []span          // of requests at the leaf
	others   []span          // and at its replica
	open     int             // attempts of stint that are under way
	queries  map[string]span // in the store, by its name for each: when it was first and last seen to run
	gap      time.Duration   // the longest time without a look at the store
	marks    []mark
	stops    map[stop]int // in the last call
}

func newRecord() *record {
	r := &record{began: time.Now(), stops: make(map[stop]int), queries: make(map[string]span)}
	r.attended, r.end = context.WithCancel(context.Background())
	return r
}

// begin makes now the time from which all is measured.
func (r *record) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.gap = time.Now(), 0
}

// call returns the time since begin, at which a call starts: the only one or the
// last one is drawn, and its stops are told.
func (r *record) call() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.stops)
	return time.Since(r.began)
}

// now returns the time since begin.
func (r *record) now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.began)
}

// attempted records an attempt.
func (r *record) attempted(layer string, number int, start, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts = append(r.attempts, attempt{layer, false, number, r.span(start, end)})
}

// waited records the wait before an attempt.
func (r *record) waited(layer string, start, end time.Time) { r.attempted(layer, 0, start, end) }

// marked records what the leaf did just now.
func (r *record) marked(left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, mark{time.Since(r.began), left})
}

// visited records a request at the leaf, or at its replica.
func (r *record) visited(replica bool, start, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	visits := &r.visits
	if replica {
		visits = &r.others
	}
	*visits = append(*visits, r.span(start, end))
}

// looked records which queries a look at the store saw, and when it and the one
// before it began.
func (r *record) looked(queries []string, before, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gap = max(r.gap, at.Sub(before))
	for _, q := range queries {
		s := r.span(at, at)
		if first, ok := r.queries[q]; ok {
			s.start = first.start
		}
		r.queries[q] = s
	}
}

func (r *record) span(start, end time.Time) span { return span{start.Sub(r.began), end.Sub(r.began)} }

// complete reports whether every attempt that stint began has been reported.
func (r *record) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open == 0
}

// StartAttempt counts the attempt, and returns ctx.
func (r *record) StartAttempt(ctx context.Context, _ stint.Event) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	return ctx
}

// Observe keeps the attempts, and why there was no further one.
func (r *record) Observe(_ context.Context, e stint.Event) {
	switch e.Kind {
	case stint.AttemptDone:
		a := attempt{e.Service, e.Copy > 0, e.Attempt, r.span(e.Time.Add(-e.Elapsed), e.Time)}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
		r.attempts = append(r.attempts, a)
	case stint.CallDone:
		if e.Reason != 0 {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stops[stop{e.Service, e.Reason}]++
		}
	}
}

// events writes what has been recorded into res, in the order in which it
// began. The row has to be over.
func (r *record) events(res *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.attempts, func(a, b attempt) int { return cmp.Compare(a.start, b.start) })
	for _, visits := range [][]span{r.visits, r.others} {
		slices.SortFunc(visits, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	}
	res.attempts, res.visits, res.others, res.marks, res.stops = r.attempts, r.visits, r.others, r.marks, r.stops
	res.queries = slices.SortedFunc(maps.Values(r.queries), func(a, b span) int { return cmp.Compare(a.start, b.start) })
	res.gap = r.gap
}

// wasted returns how much of the visits came after left.
func wasted(visits []span, left time.Duration) (sum time.Duration) {
	for _, v := range visits {
		sum += max(v.end-max(v.start, left), 0)
	}
	return sum
}
