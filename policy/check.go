package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CheckOptions are how Check counts. Nil and the zero value are its defaults.
type CheckOptions struct {
	// FailureRates are the shares of failing attempts for which texts say what to
	// expect, above 0 and up to 1; others are left out. Empty: 0.99 and 0.9.
	FailureRates []float64
}

// Check holds the files against each other and against what adds up within each,
// and returns what will hurt, by file, line and code. Findings that a comment in
// their file accepts are left out. The time it takes grows with the number of
// dependencies, not of paths. o may be nil. It changes nothing, and may be called
// from several goroutines.
func (g *Graph) Check(o *CheckOptions) []Finding {
	c := &checker{g: g, n: g.network(), seen: map[string]bool{}, late: map[*File]bool{}, reversed: map[*File]bool{}}
	if o != nil {
		c.rates = slices.DeleteFunc(slices.Clone(o.FailureRates), func(p float64) bool { return !(p > 0 && p <= 1) })
	}
	if len(c.rates) == 0 {
		c.rates = []float64{0.99, 0.9}
	}
	for _, f := range g.Services() {
		c.entry(f)
		c.allocation(f)
	}
	c.order()
	c.children()
	c.sameTimeout()
	c.noDeadline()
	c.circles()
	c.multiply()
	c.owners()
	c.keys()
	c.alone()
	for _, e := range c.n.calls {
		c.hidden(e)
		for _, v := range e.views {
			c.share(v)
			c.operation(v)
			c.attempts(v)
			c.budget(e, v)
			c.codes(v)
			c.safety(e, v)
			c.hedge(v)
			c.minUseful(v)
		}
		c.breaker(e)
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Code, b.Code), a.Column-b.Column,
			strings.Compare(a.Key, b.Key), strings.Compare(a.What, b.What))
	})
	return c.found
}

// A checker is one run of Check.
type checker struct {
	g     *Graph
	n     *network
	rates []float64
	found []Finding
	seen  map[string]bool

	late     map[*File]bool // path-over-deadline has said it
	reversed map[*File]bool // timeout-order has said it
}

// add adds a finding at a key of the file.
func (c *checker) add(f *File, key []string, code, what, do string) {
	c.at(ruleOf[code].Level, f, f.At(key...), key, code, what, do)
}

// warn is add of what is less bad than its rule can be.
func (c *checker) warn(f *File, key []string, code, what, do string) {
	c.at(Warning, f, f.At(key...), key, code, what, do)
}

// at is add at a place in another file than the policy. A number that several
// operations share is one finding.
func (c *checker) at(level Level, f *File, pos Position, key []string, code, what, do string) {
	k := strings.Join(key, ".")
	id := code + " " + pos.String() + " " + k
	if c.seen[id] || pos.File == f.path && f.Ignores(code, pos.Line) {
		return
	}
	c.seen[id] = true
	c.found = append(c.found, Finding{pos, code, level, f.Service, k, what, ruleOf[code].Why, do})
}

// entry is about what the Gate lets in.
func (c *checker) entry(f *File) {
	if f.Entry != nil && len(f.Entry.Exempt) == 0 {
		c.add(f, []string{"entry"}, "no-exempt",
			f.Service+" exempts no route, so that a full service refuses its own health checks",
			"Write exempt: [/livez, /readyz] with the paths that are probed.")
	}
}

// breaker holds the breaker's window against the longest call.
func (c *checker) breaker(e *call) {
	b := e.d.Breaker
	if b != nil && b.Off {
		return
	}
	window := defaults.Breaker.Window
	if b != nil {
		window = cmp.Or(b.Window, window)
	}
	slowest, whence := callDefault, "the default where there is no deadline"
	if e.From.Entry != nil {
		slowest, whence = e.From.Entry.maxDeadline(), "entry.maxDeadline, since it has no timeout"
	}
	for i, v := range e.views {
		if v.Timeout > 0 && (i == 0 || v.Timeout > slowest) {
			slowest, whence = v.Timeout, "its timeout"
		}
	}
	if window < slowest {
		c.add(e.From, e.key("breaker", "window"), "breaker-window",
			fmt.Sprintf("the breaker of %s looks back %s, and a call may take %s (%s)", e.Dependency, dur(window), dur(slowest), whence),
			fmt.Sprintf("Write a window of at least %s.", dur(times(slowest, 2))))
	}
}

// floors are the least times in which an attempt is of use, by distance: the
// round trip, and what a server does in any case.
var floors = map[Distance]time.Duration{Datacentre: 20 * time.Millisecond, Region: 100 * time.Millisecond}

func (c *checker) minUseful(v view) {
	floor := floors[v.Distance]
	if least := cmp.Or(v.MinUseful, defaults.MinUseful); least < floor {
		key := v.key("minUseful")
		if !v.f.Has(key...) {
			key = v.key("distance")
		}
		c.add(v.f, key, "min-useful-floor",
			fmt.Sprintf("%s is a %s away, where nothing useful takes less than %s, and minUseful is %s", v.title(), v.Distance, dur(floor), dur(least)),
			fmt.Sprintf("Write minUseful: %s, or more.", dur(floor)))
	}
}

// count is a number of requests in a text.
func count(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "unbounded"
	case x >= 1e15:
		return strconv.FormatFloat(x, 'g', 3, 64)
	case x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 1, 64)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}
