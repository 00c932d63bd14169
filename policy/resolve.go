package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// defaults is a stint.Policy with every default filled in.
var defaults = new(stint.Caller).Policy()

// dependency returns the named dependency, or an error that says which there are.
func (f *File) dependency(name string) (*Dependency, error) {
	d := f.Dependencies[name]
	if d == nil {
		return nil, fmt.Errorf("policy: %s: no dependency %q; %s", f.path, name, suggest(name, sorted(f.Dependencies)))
	}
	return d, nil
}

// Timeout returns what bounds one call to the dependency: its timeout, or its
// share of latencyBudget; zero where only the caller's deadline, or 10s, does.
func (f *File) Timeout(dependency string) time.Duration {
	d := f.Dependencies[dependency]
	if d == nil {
		return 0
	}
	if d.Timeout > 0 {
		return d.Timeout
	}
	share := f.LatencyBudget[dependency]
	if n := d.Calls.PerRequest; n > 1 && !slices.Contains(d.Calls.ParallelWith, dependency) {
		share = (share / time.Duration(n)).Truncate(time.Millisecond)
	}
	return share
}

// HiddenRetries returns how often what lies under the dependency's calls repeats
// them, and whether the file says so; else it is what its mesh and sdk do, or of a
// store its client library.
func (f *File) HiddenRetries(dependency string) (n int, stated bool) {
	d := f.Dependencies[dependency]
	switch {
	case d == nil:
		return 0, false
	case d.HiddenRetries != nil:
		return *d.HiddenRetries, true
	case d.Kind.Store():
		_, n := d.Kind.client()
		return n, false
	}
	return (1+f.Mesh.HiddenRetries())*(1+d.SDK.HiddenRetries()) - 1, false
}

// Operation returns the named dependency with what differs for the operation
// laid over it; an operation that the file does not name is the dependency as
// it is. Its Timeout is filled in.
func (f *File) Operation(dependency, operation string) (Dependency, error) {
	d, err := f.dependency(dependency)
	if err != nil {
		return Dependency{}, err
	}
	own := *d
	own.Timeout = f.Timeout(dependency)
	own.Operations = nil
	o := d.Operations[operation]
	if o == nil {
		return own, nil
	}
	over(&own.Timeout, o.Timeout)
	over(&own.MinUseful, o.MinUseful)
	over(&own.RepeatAfterTimeout, o.RepeatAfterTimeout)
	over(&own.Safety, o.Safety)
	over(&own.Hedge, o.Hedge)
	if o.Retry != nil {
		r := *o.Retry
		if d.Retry != nil {
			r = *d.Retry
			over(&r.Owner, o.Retry.Owner)
			over(&r.MaxAttempts, o.Retry.MaxAttempts)
			if o.Retry.MaxAttempts == 1 { // the limit is there to leave time for another attempt
				r.PerAttemptTimeout = 0
			}
			over(&r.PerAttemptTimeout, o.Retry.PerAttemptTimeout)
			over(&r.Backoff.Base, o.Retry.Backoff.Base)
			over(&r.Backoff.Cap, o.Retry.Backoff.Cap)
			over(&r.Jitter, o.Retry.Jitter)
			if o.Retry.Retryable != nil {
				r.Retryable = o.Retry.Retryable
			}
		}
		own.Retry = &r
	}
	return own, nil
}

// Patterns returns the operations of a dependency that are routes, sorted: what
// stinthttp.RouteOp takes. Those that are a method alone are none.
func (f *File) Patterns(dependency string) []string {
	var patterns []string
	if d := f.Dependencies[dependency]; d != nil {
		for _, name := range sorted(d.Operations) {
			if validPattern(name) == nil {
				patterns = append(patterns, name)
			}
		}
	}
	return patterns
}

// over sets *v to the value that lies over it, if there is one.
func over[T comparable](v *T, with T) {
	var zero T
	if with != zero {
		*v = with
	}
}

// Policy returns the named dependency's numbers as a Caller takes them, those of
// its operations included. A zero is stint.Policy's default. The error says that
// there is no such dependency.
func (f *File) Policy(dependency string) (stint.Policy, error) {
	d, err := f.Operation(dependency, "")
	if err != nil {
		return stint.Policy{}, err
	}
	p := d.policy()
	p.Bulkhead = d.Concurrency
	if d.Retry != nil {
		p.Retry.BudgetRatio, p.Retry.BudgetCeiling = float64(d.Retry.Budget.Ratio), d.Retry.Budget.Ceiling
	}
	if b := d.Breaker; b != nil {
		p.Breaker = stint.Breaker{Off: b.Off, FailureRatio: float64(b.FailureRatio), MinCalls: b.MinimumCalls,
			Window: b.Window, OpenFor: b.OpenFor, Probes: b.Probes}
	}
	for name := range f.Dependencies[dependency].Operations {
		o, err := f.Operation(dependency, name)
		if err != nil {
			return p, err
		}
		if p.Operations == nil {
			p.Operations = map[string]stint.Policy{}
		}
		p.Operations[name] = o.policy()
	}
	return p, nil
}

// OperationPolicy returns the numbers under which one operation of a dependency
// is called: what Policy has for it, with the breaker, the bulkhead and the
// budget, which it shares with the others, filled in.
func (f *File) OperationPolicy(dependency, operation string) (stint.Policy, error) {
	whole, err := f.Policy(dependency)
	if err != nil {
		return whole, err
	}
	p, ok := whole.Operations[operation]
	if !ok {
		whole.Operations = nil
		return whole, nil
	}
	p.Breaker, p.Bulkhead = whole.Breaker, whole.Bulkhead
	p.Retry.BudgetRatio, p.Retry.BudgetCeiling = whole.Retry.BudgetRatio, whole.Retry.BudgetCeiling
	return p, nil
}

// policy is what may differ between operations.
func (d *Dependency) policy() stint.Policy {
	p := stint.Policy{Timeout: d.Timeout, MinUseful: d.MinUseful, Reserve: d.Reserve, Safety: safeties[d.Safety]}
	if r := d.Retry; r != nil {
		p.Retry.Attempts, p.Retry.AttemptTimeout = r.MaxAttempts, r.PerAttemptTimeout
		p.Retry.Base, p.Retry.Cap = r.Backoff.Base, r.Backoff.Cap
		p.Retry.Owner = owners[r.Owner]
		for _, c := range r.Retryable {
			p.Retry.Codes = append(p.Retry.Codes, string(c))
		}
	}
	p.Retry.NotAfterTimeout = d.RepeatAfterTimeout != nil && !*d.RepeatAfterTimeout
	if h := d.Hedge; h != nil {
		p.Hedge = stint.Hedge{Copies: max(h.Max, 1), Delay: time.Duration(h.After)}
	}
	return p
}

var (
	owners   = map[Owner]stint.Ownership{OwnerAlways: stint.OwnerAlways, OwnerNever: stint.OwnerNever}
	safeties = map[Safety]stint.Safety{ReadOnly: stint.ReadOnly, Idempotent: stint.Idempotent}
	classes  = func() map[Class]stint.Class {
		m := map[Class]stint.Class{}
		for c := stint.Sheddable; c <= stint.CriticalPlus; c++ {
			m[Class(c.String())] = c
		}
		return m
	}()
)

// Safe returns what an operation with such a name is without being told: GET and
// the like are read only, PUT and DELETE idempotent (RFC 9110, 9.2), the rest is
// not repeatable. The name is a method, or begins with one.
func Safe(operation string) stint.Safety {
	method, _, _ := strings.Cut(operation, " ")
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return stint.ReadOnly
	case "PUT", "DELETE":
		return stint.Idempotent
	}
	return stint.Unrepeatable
}
