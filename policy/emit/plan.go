package emit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// defaults is a stint.Policy with every default filled in.
var defaults = new(stint.Caller).Policy()

// defaultTimeout is what bounds a call that nothing else does; see stint.Policy.
const defaultTimeout = 10 * time.Second

// A plan is a file with all defaults filled in, in the order in which targets
// match requests.
type plan struct {
	file   *policy.File
	target target
	calls  []*call
	left   []string // dependencies that it can't have
}

// A call is one dependency.
type call struct {
	name    string // its name in the file
	host    string // the callee's name there
	renamed bool   // host is not what the file says
	dep     policy.Dependency
	policy  stint.Policy // with all defaults
	routes  []*route     // first match counts; the last matches everything
	unknown []*route     // operations whose name matches nothing there
}

// A route is the dependency itself, or one of its operations.
type route struct {
	op    string // empty for the dependency itself
	match match
	dep   policy.Dependency

	timeout      time.Duration // bounds the call
	stated       bool          // timeout is the file's
	perAttempt   time.Duration // bounds an attempt; zero: nothing does
	base, cap    time.Duration
	attempts     int // 1: no retries
	afterTimeout bool
	repeat       repeat
}

// repeat is which requests of a route may be repeated: all, those with one of
// the methods, those with an idempotency key.
type repeat struct {
	all     bool
	methods []string
	key     bool
}

func (r repeat) none() bool { return !r.all && len(r.methods) == 0 && !r.key }

// retries reports whether any request of the route is repeated.
func (r *route) retries() bool { return r.attempts > 1 && !r.repeat.none() }

// whole is the limit of a call in a target that tells attempts from calls: of a
// single attempt the sooner of both.
func (r *route) whole() time.Duration {
	if r.perAttempt > 0 && !r.retries() {
		return min(r.timeout, r.perAttempt)
	}
	return r.timeout
}

func newPlan(f *policy.File, t target) (*plan, error) {
	p := &plan{file: f, target: t}
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Dependencies)) {
		d, err := f.Operation(name, "")
		if err != nil {
			return nil, err
		}
		if d.Kind.Store() || d.Kind != "" && d.Kind == t.not {
			p.left = append(p.left, name)
			continue
		}
		said := cmp.Or(d.Service, name)
		c := &call{name: name, host: t.host(said), dep: d}
		c.renamed = c.host != said
		if c.host == "" {
			return nil, p.problem(fmt.Sprintf("%q has no letter or digit for a host's name; name it as its callers reach it", said), "dependencies", name)
		}
		if other := taken[c.host]; other != "" {
			return nil, p.problem(fmt.Sprintf("is the callee %s, and so is dependencies.%s; a callee has one policy there: make one dependency of both, with operations", c.host, other), "dependencies", name)
		}
		taken[c.host] = name
		if c.policy, err = f.Policy(name); err != nil {
			return nil, err
		}
		c.fill()
		for op := range f.Dependencies[name].Operations {
			d, err := f.Operation(name, op)
			if err != nil {
				return nil, err
			}
			if m, ok := parseMatch(op); ok && t.matches(m) {
				c.routes = append(c.routes, newRoute(op, m, d, t.whole))
			} else {
				c.unknown = append(c.unknown, newRoute(op, m, d, t.whole))
			}
		}
		c.routes = append(c.routes, newRoute("", match{kind: anyPath}, d, t.whole))
		slices.SortFunc(c.routes, func(a, b *route) int {
			return cmp.Or(a.match.compare(b.match), cmp.Compare(b.op, a.op))
		})
		p.calls = append(p.calls, c)
	}
	return p, nil
}

func (p *plan) problem(text string, key ...string) error {
	return &policy.Problem{Position: p.file.At(key...), Key: joined(key), Text: text}
}

// fill puts the library's defaults where the file says nothing.
func (c *call) fill() {
	p, d := &c.policy, defaults
	p.Bulkhead = cmp.Or(p.Bulkhead, d.Bulkhead)
	p.Retry.BudgetRatio = cmp.Or(p.Retry.BudgetRatio, d.Retry.BudgetRatio)
	p.Retry.BudgetCeiling = cmp.Or(p.Retry.BudgetCeiling, d.Retry.BudgetCeiling)
	b := &p.Breaker
	b.FailureRatio = cmp.Or(b.FailureRatio, d.Breaker.FailureRatio)
	b.MinCalls = cmp.Or(b.MinCalls, d.Breaker.MinCalls)
	b.Window = cmp.Or(b.Window, d.Breaker.Window)
	b.OpenFor = cmp.Or(b.OpenFor, d.Breaker.OpenFor)
	b.Probes = cmp.Or(b.Probes, d.Breaker.Probes)
}

// retries reports whether any request to the dependency is repeated.
func (c *call) retries() bool {
	return slices.ContainsFunc(c.routes, (*route).retries)
}

// all is the route of what no operation matches.
func (c *call) all() *route { return c.routes[len(c.routes)-1] }

func newRoute(op string, m match, d policy.Dependency, whole bool) *route {
	r := &route{op: op, match: m, dep: d, attempts: 1, stated: d.Timeout > 0, timeout: cmp.Or(d.Timeout, defaultTimeout)}
	r.afterTimeout = d.RepeatAfterTimeout == nil || *d.RepeatAfterTimeout
	if y := d.Retry; y != nil {
		r.perAttempt = min(y.PerAttemptTimeout, r.timeout)
		r.cap = cmp.Or(y.Backoff.Cap, defaults.Retry.Cap)
		r.base = min(cmp.Or(y.Backoff.Base, defaults.Retry.Base), r.cap)
		if y.Owner != policy.OwnerNever {
			r.attempts = max(y.MaxAttempts, 1)
		}
	}
	key := d.Idempotency.Keys == policy.Honoured
	switch {
	case r.attempts == 1:
	case whole:
		r.repeat.all = d.Safety != ""
	case d.Safety != "", r.match.method != "" && policy.Safe(r.match.method) != stint.Unrepeatable:
		r.repeat.all = true
	case r.match.method != "":
		r.repeat.key = key
	default:
		r.repeat = repeat{methods: safeMethods(), key: key}
	}
	return r
}

// safeMethods are the methods that may be repeated whatever they are for.
func safeMethods() []string {
	return slices.DeleteFunc(slices.Clone(methods), func(m string) bool { return policy.Safe(m) == stint.Unrepeatable })
}
