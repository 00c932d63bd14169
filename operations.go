package stint

import (
	"maps"
	"slices"
)

// A rule is a policy in force, with its defaults filled in, and what was learned
// under it.
type rule struct {
	Policy
	latency *latencies
}

// rules are the policies of one Caller.
type rules struct {
	rule                    // where no other is named
	named  map[string]*rule // by Op.Name
	hedges bool             // any of them does
}

// newRules returns the rules that p says. What old ones learned stays.
func newRules(p Policy, old *rules) *rules {
	if old == nil {
		old = new(rules)
	}
	r := &rules{rule: newRule(p.withDefaults(), &old.rule)}
	if len(p.Operations) > 0 {
		r.named = make(map[string]*rule, len(p.Operations))
	}
	r.hedges = p.Hedge.Copies > 0
	for name, o := range p.Operations {
		r.hedges = r.hedges || o.Hedge.Copies > 0
		r.named[name] = new(newRule(o.withOwnDefaults(), old.named[name]))
	}
	r.Operations = nil
	return r
}

func newRule(p Policy, old *rule) rule {
	p.Retry.Codes = slices.Clone(p.Retry.Codes)
	r := rule{Policy: p}
	if old != nil {
		r.latency = old.latency
	}
	if r.latency == nil && p.Hedge.learns() {
		r.latency = new(latencies)
	}
	return r
}

// of returns the rule for an operation.
func (r *rules) of(name string) *rule {
	if len(r.named) > 0 {
		if own := r.named[name]; own != nil {
			return own
		}
	}
	return &r.rule
}

// whole returns the rules as one Policy, which nobody else holds.
func (r *rules) whole() Policy {
	p := r.own()
	if len(r.named) > 0 {
		p.Operations = make(map[string]Policy, len(r.named))
	}
	for name, o := range r.named {
		p.Operations[name] = o.own()
	}
	return p
}

func (r *rule) own() Policy {
	p := r.Policy
	p.Retry.Codes = slices.Clone(p.Retry.Codes)
	return p
}

// learns reports whether the delay is learned.
func (h *Hedge) learns() bool { return h.Copies > 0 && h.Delay == 0 }

// raised returns op with the least safety that the policy gives it.
func (p *Policy) raised(op Op) Op {
	op.Safety = max(op.Safety, p.Safety)
	return op
}

// shared adds what a policy of a single operation must leave to the one around
// it, and returns the policy without that.
func (ps *problems) shared(p Policy) Policy {
	const around = "all operations share it: set it in the policy around this one"
	if p.Bulkhead != 0 {
		ps.add("Bulkhead is %d: must be zero, %s", p.Bulkhead, around)
	}
	if p.Breaker != (Breaker{}) {
		ps.add("Breaker is %+v: must be zero, %s", p.Breaker, around)
	}
	if p.Retry.BudgetRatio != 0 {
		ps.add("Retry.BudgetRatio is %v: must be zero, %s", p.Retry.BudgetRatio, around)
	}
	if p.Retry.BudgetCeiling != 0 {
		ps.add("Retry.BudgetCeiling is %d: must be zero, %s", p.Retry.BudgetCeiling, around)
	}
	if p.Operations != nil {
		ps.add("Operations has %d of its own: must be nil, operations have no operations", len(p.Operations))
	}
	p.Bulkhead, p.Breaker, p.Retry.BudgetRatio, p.Retry.BudgetCeiling, p.Operations = 0, Breaker{}, 0, 0, nil
	return p
}

// operations adds what is wrong with the policies of single operations, in the
// order of their names.
func (ps *problems) operations(policies map[string]Policy) {
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if name == "" {
			ps.add(`Operations[""] has no name: must be an Op.Name`)
		}
		var own problems
		rest := own.shared(policies[name])
		for _, err := range append(own, rest.problems()...) {
			ps.add("Operations[%q]: %w", name, err)
		}
	}
}
