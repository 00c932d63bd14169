package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

func reflectOf(f *File) reflect.Value { return reflect.ValueOf(f).Elem() }

// validate reports what can't be meant between the values of one file. What is
// legal and unwise is Graph.Check's.
func (f *File) validate() []error {
	v := &validator{f: f}
	if f.Service == "" {
		v.add("is missing; write the service's name", "service")
	} else if _, err := stint.NewGate(f.Service, quiet()); err != nil {
		v.add(strings.TrimPrefix(err.Error(), "stint: "), "service")
	}
	v.entry()
	v.latencyBudget()
	for _, name := range sorted(f.Dependencies) {
		v.dependency(name, f.Dependencies[name])
	}
	return v.bad
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type validator struct {
	f   *File
	bad []error
}

func (v *validator) add(text string, key ...string) {
	v.bad = append(v.bad, &Problem{v.f.At(key...), strings.Join(key, "."), text})
}

func (v *validator) entry() {
	e := v.f.Entry
	if e == nil {
		return
	}
	if e.Trust == "" {
		v.add("is missing; write peers where only your own services call, edge where anybody can", "entry", "trust")
	}
	if e.Limit != 0 && (e.MinLimit != 0 || e.MaxLimit != 0) {
		v.add("is a number, so that minLimit and maxLimit bound nothing; leave them out, or write adaptive", "entry", "limit")
	}
	seen := map[string]string{}
	for _, kind := range []struct {
		key      string
		patterns []string
	}{{"exempt", e.Exempt}, {"longRunning", e.LongRunning}, {"routes", sorted(e.Routes)}} {
		for _, p := range kind.patterns {
			if err := validPattern(p); err != nil {
				v.add(err.Error(), "entry", kind.key)
			}
			if other := seen[p]; other != "" {
				v.add(fmt.Sprintf("names %q, and so does %s; a route is of one kind", p, other), "entry", kind.key)
			}
			seen[p] = kind.key
		}
	}
	if len(v.bad) == 0 {
		g, err := v.f.Gate(quiet())
		if err != nil {
			v.refused(err, "entry")
			return
		}
		for _, p := range sorted(e.Routes) {
			_, err := g.With(e.Routes[p].options(g.Options()))
			v.refused(err, "entry", "routes", p)
		}
	}
}

// validPattern reports what net/http's ServeMux would not take, as far as it can
// be told without it: the packages that route for a protocol say the rest.
func validPattern(p string) error {
	path := p
	if method, rest, ok := strings.Cut(p, " "); ok {
		if method == "" || strings.ToUpper(method) != method {
			return fmt.Errorf("pattern %q has no method in front of its path; write it as \"GET /path\" or \"/path\"", p)
		}
		path = strings.TrimLeft(rest, " ")
	}
	if !strings.Contains(path, "/") {
		return fmt.Errorf("pattern %q has no path; write it as \"GET /path\" or \"/path\"", p)
	}
	return nil
}

func (v *validator) latencyBudget() {
	f := v.f
	if f.LatencyBudget == nil {
		return
	}
	if f.Entry == nil || f.Entry.Deadline == 0 {
		v.add("divides entry.deadline, which is missing; write it", "latencyBudget")
	}
	for _, name := range sorted(f.Dependencies) {
		// What is left for each call must not round to zero, which bounds nothing.
		if n := f.inTurn(name); f.LatencyBudget[name] > 0 && f.Timeout(name) == 0 {
			v.add(fmt.Sprintf("is less than 1ms for each of %d calls in turn; write %dms or more", n, n), "latencyBudget", name)
		}
	}
}

func (v *validator) dependency(name string, d *Dependency) {
	key := []string{"dependencies", name}
	at := func(more ...string) []string { return append(slices.Clone(key), more...) }
	if name == Local || name == Contingency {
		v.add("is a key of latencyBudget with a meaning of its own; call the dependency something else", key...)
	}
	for _, with := range d.Calls.ParallelWith {
		if v.f.Dependencies[with] == nil {
			v.add(with+" is no dependency of this file; "+suggest(with, sorted(v.f.Dependencies)), at("calls", "parallelWith")...)
		}
	}
	v.kind(d, at)
	if d.Idempotency.TTL > 0 && d.Idempotency.Keys != Honoured {
		v.add("is stated for keys that are not honoured; write {keys: honoured, ttl: ...}", at("idempotency", "ttl")...)
	}
	for op, o := range d.Operations {
		if o.Retry != nil && o.Retry.Budget != (Budget{}) {
			v.add("is the dependency's, for all operations; write it in its retry block", at("operations", op, "retry", "budget")...)
		}
	}
	if len(v.bad) > 0 {
		return
	}
	p, err := v.f.Policy(name)
	if err != nil {
		v.add(err.Error(), key...)
		return
	}
	operations := p.Operations
	p.Operations = nil
	v.refused(p.Validate(), key...)
	if len(v.bad) > 0 {
		return // operations inherit it
	}
	for _, op := range sorted(operations) {
		v.refused(operations[op].Validate(), at("operations", op)...)
	}
}

// fields are the names of package stint that its errors begin with or compare with,
// as they are called here.
var fields = strings.NewReplacer("DefaultTimeout ", "deadline ", "MaxTimeout ", "maxDeadline ", "MinLimit ", "minLimit ", "MaxLimit ", "maxLimit ",
	"Retry.AttemptTimeout ", "retry.perAttemptTimeout ", "Retry.Base ", "retry.backoff.base ", "Retry.Cap ", "retry.backoff.cap ",
	"Retry.BudgetRatio ", "retry.budget.ratio ", "MinUseful ", "minUseful ", "Timeout ", "timeout ")

// refused adds what package stint says of the numbers in a block, each at its key.
func (v *validator) refused(err error, key ...string) {
	if err == nil {
		return
	}
	s := err.Error()
	for _, cut := range []string{"stint: invalid policy: ", "stint: invalid gate options: "} {
		s = strings.TrimPrefix(s, cut)
	}
	for text := range strings.SplitSeq(fields.Replace(s), "\n") {
		field, _, _ := strings.Cut(text, " ")
		own := append(slices.Clone(key), strings.Split(field, ".")...)
		for len(own) > len(key) && !v.f.Has(own...) {
			own = own[:len(own)-1]
		}
		v.add(text, own...)
	}
}
