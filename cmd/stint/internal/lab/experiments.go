package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What is the same in all experiments.
const (
	// backoff is the wait between attempts: always in the naive loop, and base
	// and cap of stint's full jitter.
	backoff = time.Millisecond
	// patience is the client's deadline, and each naive hop's timeout, where
	// time is not the subject: far above what the slowest machine needs.
	patience = time.Minute
)

// The deadline experiment's times: two attempts fit, a third one does not.
const (
	shortDeadline = 300 * time.Millisecond // what the client has
	slowWork      = 120 * time.Millisecond // what the leaf needs
	guard         = 130 * time.Millisecond // the least time with which an attempt starts
	hopTimeout    = 5 * time.Second        // the naive hops' own
)

const (
	fewAttempts = 3   // where -attempts does not say it
	deadCalls   = 300 // of the dead experiment
)

// An experiment is one thing to show: rows to run, each with what has to come
// of it.
type experiment struct {
	name    string
	shows   string // in a sentence
	setting string // the chain and its numbers, as they are printed
	leaf    string // the name of the service whose requests are counted
	rows    []row
	// ownAxes gives each waterfall a time axis of its own, where one row takes
	// so much longer that nothing could be seen of the other.
	ownAxes bool
}

// A row is one chain, run once.
type row struct {
	label   string
	spec    spec
	want    want   // how many requests reach the leaf
	promise string // stint: what it promises here
	draw    bool   // as a waterfall
}

// want is a range of counts.
type want struct{ least, most int }

func exactly(n int) want { return want{n, n} }
func atMost(n int) want  { return want{0, n} }

func (w want) holds(n int) bool { return w.least <= n && n <= w.most }

func (w want) String() string {
	switch {
	case w.least == w.most:
		return strconv.Itoa(w.most)
	case w.least == 0:
		return fmt.Sprintf("<= %d", w.most)
	}
	return fmt.Sprintf("%d-%d", w.least, w.most)
}

// catalogue is every experiment, in the order in which they run.
var catalogue = []struct {
	name  string
	build func(Options) experiment
}{
	{"multiply", func(o Options) experiment { return multiply(o.Attempts) }},
	{"depth", func(o Options) experiment { return depth(o.Attempts, o.Depth) }},
	{"deadline", func(Options) experiment { return deadline() }},
	{"dead", func(Options) experiment { return dead() }},
}

// Names returns the names of all experiments, in the order in which they run.
func Names() []string {
	var names []string
	for _, c := range catalogue {
		names = append(names, c.name)
	}
	return names
}

func experiments(o Options) []experiment {
	var all []experiment
	for _, c := range catalogue {
		e := c.build(o)
		e.name = c.name
		all = append(all, e)
	}
	return all
}

// chained is the spec of one request of a client, through a service for each of
// attempts, A first, to a leaf that fails.
func chained(m Mode, attempts ...int) spec {
	s := spec{mode: m, callers: []caller{{"client", 1}}, calls: 1, deadline: patience, passContext: true}
	if m == Naive {
		s.hopTimeout = patience
	}
	for i, n := range attempts {
		s.callers = append(s.callers, caller{letter(i), n})
	}
	s.leaf = letter(len(attempts))
	return s
}

func letter(i int) string { return string(rune('A' + i)) }

func multiply(n int) experiment {
	e := experiment{
		shows:   "retries at two layers multiply, unless one of them owns the path",
		setting: "client -> A -> B -> C. C answers 503 to everything. The numbers are the attempts that A and B may make.",
		leaf:    "C",
	}
	add := func(m Mode, a, b, leaf int) *row {
		e.rows = append(e.rows, row{label: fmt.Sprintf("%s, %d and %d", m, a, b), spec: chained(m, a, b), want: exactly(leaf)})
		return &e.rows[len(e.rows)-1]
	}
	add(Naive, 1, 1, 1)
	add(Naive, 1, n, n)
	add(Naive, n, n, n*n).draw = true
	owned := add(Stint, n, n, n)
	owned.draw = true
	owned.promise = fmt.Sprintf("A claims the retries and B makes one try for each of A's, so C sees %s", plural(n, "request"))
	return e
}

func depth(n, layers int) experiment {
	attempts := slices.Repeat([]int{n}, layers)
	naive, owned := chained(Naive, attempts...), chained(Stint, attempts...)
	names := []string{}
	for _, c := range naive.callers {
		names = append(names, c.name)
	}
	label := func(m Mode) string { return fmt.Sprintf("%s, %s", m, plural(layers, "layer")) }
	return experiment{
		shows: "the deeper the calls go, the more the retries multiply",
		setting: fmt.Sprintf("%s -> %s. %[2]s answers 503 to everything. Each layer may make %s.",
			strings.Join(names, " -> "), naive.leaf, plural(n, "attempt")),
		leaf:    naive.leaf,
		ownAxes: true,
		rows: []row{
			{label: label(Naive), spec: naive, want: exactly(power(n, layers)), draw: true},
			{label: label(Stint), spec: owned, want: exactly(n), draw: true,
				promise: fmt.Sprintf("however deep the chain, %s sees one layer's attempts: %s", naive.leaf, plural(n, "request"))},
		},
	}
}

func deadline() experiment {
	const n = fewAttempts
	build := func(m Mode) spec {
		s := chained(m, n, n)
		s.deadline, s.work = shortDeadline, slowWork
		if m == Naive {
			s.hopTimeout = hopTimeout
		} else {
			s.guard = guard
		}
		return s
	}
	plain := build(Naive) // as it is most often found: a client with a timeout, and no context
	plain.passContext = false
	return experiment{
		shows: "nobody works on for a client that has left",
		setting: fmt.Sprintf("client -> A -> B -> C. The client has %s. C needs %s, then answers 503. A and B may make %d attempts. "+
			"Each naive hop has a timeout of %s, and in the second row also the request's context. stint's MinUseful is %s.",
			duration(shortDeadline), duration(slowWork), n, duration(hopTimeout), duration(guard)),
		leaf: "C",
		rows: []row{
			{label: "naive, own timeouts", spec: plain, want: exactly(n * n), draw: true},
			// How many these are depends on when each service notices that its caller has left.
			{label: "naive, with context", spec: build(Naive), want: atMost(n*n - 1), draw: true},
			{label: "stint", spec: build(Stint), want: atMost(2), draw: true,
				promise: "no attempt starts that cannot end in time, so C sees at most 2 requests and the client has an error by 400 ms " +
					"(the count decides, the time is only shown)"},
		},
	}
}

func dead() experiment {
	const n = fewAttempts
	build := func(m Mode) spec {
		s := chained(m)
		s.callers, s.calls, s.leaf = []caller{{"A", n}}, deadCalls, "C"
		return s
	}
	budget := build(Stint)
	budget.breakerOff = true
	most := deadCalls + savedRetries()
	return experiment{
		shows:   "a dependency that is down is left alone",
		setting: fmt.Sprintf("A -> C. C answers 503 to everything. A makes %d calls, one after the other, each of up to %d attempts.", deadCalls, n),
		leaf:    "C",
		rows: []row{
			{label: "naive", spec: build(Naive), want: exactly(n * deadCalls), draw: true},
			{label: "stint, budget only", spec: budget, want: want{deadCalls, most}, draw: true,
				promise: fmt.Sprintf("with the breaker off, the retry budget allows the %d retries that were saved up and no more: C sees %d to %d requests",
					savedRetries(), deadCalls, most)},
			{label: "stint, defaults", spec: build(Stint), want: atMost(30), draw: true,
				promise: "the breaker opens, and C sees at most 30 requests"},
		},
	}
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
