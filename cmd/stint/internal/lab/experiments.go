package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
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

const fewAttempts = 3 // where -attempts does not say it

// An experiment is one thing to show: rows to run, each with what has to come
// of it.
type experiment struct {
	name    string
	shows   string // in a sentence
	setting string // the chain and its numbers, as they are printed
	leaf    string // the name of the last service
	rows    []row

	// counted is what the rows count, and head the same in at most 12 letters;
	// count counts it. Empty and nil: the requests that reached the leaf.
	counted, head string
	count         func(Result) int
	// end is how a row ended, with its unit, and endHead what that is. Nil and
	// empty: how the client's last call ended, and after how long.
	end     func(Result) string
	endHead string

	// ownAxes gives each waterfall a time axis of its own, where one row takes
	// so much longer that nothing could be seen of the other.
	ownAxes bool
	// perCall draws how the count develops from call to call.
	perCall bool
	// draw draws a picture of its own; may be nil.
	draw func(*strings.Builder, Style, []Result)
}

// A row is one chain, run on fresh servers.
type row struct {
	label   string
	spec    spec
	want    want              // of the count
	ends    func(Result) bool // how the client's last call has to end; nil: with an error or a 5xx
	void    func(Result) bool // the machine stood still for so long that it shows nothing; may be nil
	promise string            // what is to be seen here
	draw    bool              // as a waterfall
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

// catalogue is every experiment, in the order in which they run. Those that are
// about nothing but the chain run over gRPC too.
var catalogue = []struct {
	name     string
	overGRPC bool
	build    func(Options) experiment
}{
	{"multiply", true, func(o Options) experiment { return multiply(o.Attempts) }},
	{"depth", true, func(o Options) experiment { return depth(o.Attempts, o.Depth) }},
	{"deadline", true, func(Options) experiment { return deadline() }},
	{"dead", true, func(Options) experiment { return dead() }},
	{"zombie", false, func(Options) experiment { return zombie() }},
	{"retryafter", false, func(Options) experiment { return retryAfter() }},
	{"payment", false, func(Options) experiment { return payment() }},
	{"skew", false, func(Options) experiment { return skew() }},
	{"redirect", false, func(Options) experiment { return redirect() }},
	{"hedge", false, func(Options) experiment { return hedge() }},
	{"overload", false, func(Options) experiment { return overload() }},
}

// Names returns the names of all experiments that there are over t, in the order
// in which they run.
func Names(t Transport) []string {
	var names []string
	for _, c := range catalogue {
		if t == HTTP || c.overGRPC {
			names = append(names, c.name)
		}
	}
	return names
}

// experiments returns those that o has, whatever it selects of them.
func experiments(o Options) []experiment {
	if o.Store != NoStore {
		return []experiment{complete("store", storeOf(o.Store, o.DSN))}
	}
	var all []experiment
	for _, c := range catalogue {
		if o.Transport != HTTP && !c.overGRPC {
			continue
		}
		e := complete(c.name, c.build(o))
		for i := range e.rows {
			e.rows[i].spec.transport = o.Transport
		}
		all = append(all, e)
	}
	return all
}

// complete fills in what e leaves out.
func complete(name string, e experiment) experiment {
	e.name = name
	def(&e.counted, "requests at "+e.leaf)
	def(&e.head, "at "+e.leaf)
	def(&e.endHead, "client")
	if e.count == nil {
		e.count = func(res Result) int { return res.LeafRequests }
	}
	if e.end == nil {
		e.end = func(res Result) string { return res.clientEnd + " " + term.MillisText(res.ElapsedMs) }
	}
	return e
}

func def(s *string, zero string) {
	if *s == "" {
		*s = zero
	}
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

// direct is the spec of one request of a client, in at most so many attempts,
// to a leaf.
func direct(m Mode, attempts int) spec {
	s := chained(m)
	s.callers, s.leaf = []caller{{"A", attempts}}, "C"
	return s
}

func letter(i int) string { return string(rune('A' + i)) }

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
