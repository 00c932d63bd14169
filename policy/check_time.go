package policy

import (
	"fmt"
	"strings"
	"time"
)

// allocation adds up the time of one request.
func (c *checker) allocation(f *File) {
	for _, name := range sorted(f.LatencyBudget) {
		if name != Local && name != Contingency && f.Dependencies[name] == nil {
			c.add(f, []string{"latencyBudget", name}, "unknown-share",
				fmt.Sprintf("%s has a share of %s, and is no dependency of %s", name, dur(f.LatencyBudget[name]), f.Service),
				"Remove it or name a dependency; "+suggest(name, append(sorted(f.Dependencies), Local, Contingency)))
		}
	}
	if f.Entry == nil {
		return
	}
	limit := f.Entry.deadline()
	stated := "entry.deadline"
	if f.Entry.Deadline == 0 {
		stated = "entry.deadline by default"
	}
	if f.LatencyBudget != nil {
		key := []string{"latencyBudget", Contingency}
		all := f.allocation()
		switch {
		case all.total > limit:
			c.late[f] = true
			c.add(f, key, "allocation-over-deadline",
				fmt.Sprintf("the budget of %s allots %s, and %s is %s", f.Service, all, stated, dur(limit)),
				fmt.Sprintf("Take %s away from the shares, or write entry.deadline: %s.", dur(all.total-limit), dur(all.total)))
			return
		case all.total < limit && f.LatencyBudget[Contingency] > 0:
			c.warn(f, key, "allocation-over-deadline",
				fmt.Sprintf("the budget of %s allots %s, and %s is %s: %s belongs to nobody", f.Service, all, stated, dur(limit), dur(limit-all.total)),
				fmt.Sprintf("Write contingency: %s.", dur(f.LatencyBudget[Contingency]+limit-all.total)))
		}
	}
	if plan := f.plan(); plan.total > limit {
		c.late[f] = true
		c.add(f, []string{"entry", "deadline"}, "path-over-deadline",
			fmt.Sprintf("a request of %s may take %s, and %s is %s", f.Service, plan, stated, dur(limit)),
			fmt.Sprintf("Lower the timeouts by %s together, call at the same time what can be, or write deadline: %s.", dur(plan.total-limit), dur(plan.total)))
	}
}

// operation holds what an operation may take against the longest deadline here:
// which route it belongs to is not in the file.
func (c *checker) operation(v view) {
	e, key := v.f.Entry, []string{"dependencies", v.name, "operations", v.operation, "timeout"}
	if e == nil || len(e.LongRunning) > 0 || !v.f.Has(key...) {
		return
	}
	limit := e.deadline()
	for _, r := range e.Routes {
		limit = max(limit, r.Deadline)
	}
	if all := plus(v.Timeout, e.Reserve); all > limit {
		c.add(v.f, key, "path-over-deadline",
			fmt.Sprintf("one call of %s takes up to %s, and no request of %s has more than %s", v.title(), dur(v.Timeout), v.f.Service, dur(limit)),
			fmt.Sprintf("Write less than %s, or a route with a deadline of %s.", dur(limit-e.Reserve), dur(all)))
	}
}

// share holds a stated timeout against its share.
func (c *checker) share(v view) {
	share := v.f.LatencyBudget[v.name]
	key := v.key("timeout")
	if share == 0 || !v.f.Has(key...) {
		return
	}
	n := v.f.inTurn(v.name)
	if all := times(v.Timeout, n); all > share {
		each := dur(v.Timeout)
		if n > 1 {
			each = fmt.Sprintf("%s, %d times in turn, makes %s", each, n, dur(all))
		}
		c.add(v.f, key, "timeout-over-share",
			fmt.Sprintf("the timeout of %s is %s, and its share of the budget is %s", v.title(), each, dur(share)),
			fmt.Sprintf("Write timeout: %s, or a share of %s.", dur(max((share/time.Duration(n)).Truncate(time.Millisecond), time.Millisecond)), dur(all)))
	}
}

// order holds the timeouts of a service and of what lies under a call against
// those above. A service that several call is held against the longest.
func (c *checker) order() {
	for _, v := range c.n.nodes {
		if top := longestGrant(v); v.file != nil && top != nil {
			c.below(v, top)
		}
	}
	for _, e := range c.n.calls {
		for _, l := range c.g.Layers(e.Edge) {
			if l.Timeout > 0 && e.timeout > l.Timeout {
				c.add(e.From, e.timeoutKey(), "timeout-order",
					fmt.Sprintf("calls of %s may take %s, and %s under them cuts at %s (%s)", e.name(), dur(e.timeout), l.Name, dur(l.Timeout), l.Position),
					fmt.Sprintf("Write %s there, or timeout: %s here.", dur(e.timeout), dur(l.Timeout)))
			}
			if l.Timeout > 0 && l.PerAttempt > l.Timeout {
				c.at(Error, e.From, l.Position, []string{l.Name}, "timeout-order",
					fmt.Sprintf("%s gives an attempt %s, and the call %s", l.Name, dur(l.PerAttempt), dur(l.Timeout)),
					fmt.Sprintf("Write less than %s for an attempt.", dur(l.Timeout)))
			}
		}
	}
}

// longestGrant is the call that gives a service most; nil where one gives it no
// number, or nobody calls it.
func longestGrant(v *vertex) *call {
	var top *call
	for _, e := range v.in {
		if e.grant() == 0 {
			return nil
		}
		if top == nil || e.grant() > top.grant() {
			top = e
		}
	}
	return top
}

func (c *checker) below(v *vertex, top *call) {
	grant := top.grant()
	whence := func() string {
		return fmt.Sprintf("%s grants it %s (%s)", top.from.name, dur(grant), top.From.At(top.grantKey()...))
	}
	for _, e := range v.out {
		if e.timeout > grant {
			c.reversed[v.file] = true
			c.add(v.file, e.timeoutKey(), "timeout-order",
				fmt.Sprintf("%s waits up to %s for %s, and %s", v.name, dur(e.timeout), e.to.name, whence()),
				fmt.Sprintf("Write less than %s, and leave time for the answer.", dur(grant)))
		}
	}
	if entry := v.file.Entry; entry != nil && entry.Deadline > grant {
		c.warn(v.file, []string{"entry", "deadline"}, "timeout-order",
			fmt.Sprintf("%s gives a request that brings no deadline %s, and %s", v.name, dur(entry.Deadline), whence()),
			fmt.Sprintf("Write deadline: %s.", dur(grant)))
	}
}

// children holds a callee's plan against what its caller grants.
func (c *checker) children() {
	for _, e := range c.n.calls {
		grant := e.grant()
		if e.To == nil || grant == 0 || c.reversed[e.To] {
			continue
		}
		plan := e.To.plan()
		said := c.late[e.To] && e.To.Entry.deadline() <= grant
		if plan.total > grant && !said {
			key := e.grantKey()
			c.add(e.From, key, "child-needs-more",
				fmt.Sprintf("%s grants %s %s, and that may take %s (%s)", e.from.name, e.to.name, dur(grant), plan, e.To.path),
				fmt.Sprintf("Write %s: %s, or lower the timeouts in %s by %s together.", key[len(key)-1], dur(plan.total), e.To.path, dur(plan.total-grant)))
		}
	}
}

// A run is calls below each other with the same timeout.
type run struct {
	length int
	above  *run
	call   *call
}

// sameTimeout finds the longest path for each timeout that is used on all of it.
func (c *checker) sameTimeout() {
	ending := make([]map[time.Duration]*run, len(c.n.nodes))
	longest := map[time.Duration]*run{}
	uses, stated := map[time.Duration]int{}, map[time.Duration]int{}
	for _, e := range c.n.calls {
		uses[e.timeout]++
		if e.d.Timeout > 0 { // equal shares of one deadline are no habit: they add up
			stated[e.timeout]++
		}
	}
	c.n.forward(func(e *call) {
		t := e.timeout
		if t == 0 {
			return
		}
		above := ending[e.from.place][t]
		r := &run{1, above, e}
		if above != nil {
			r.length += above.length
		}
		to := &ending[e.to.place]
		if *to == nil {
			*to = map[time.Duration]*run{}
		}
		if other := (*to)[t]; other == nil || r.length > other.length {
			(*to)[t] = r
		}
		if other := longest[t]; other == nil || r.length > other.length {
			longest[t] = r
		}
	})
	for t, r := range longest {
		all := stated[t] == len(c.n.calls) && stated[t] >= 3
		if r.length < 3 && !all {
			continue
		}
		last := r.call
		names := []string{last.to.name}
		for ; r != nil; r = r.above {
			names = append([]string{r.call.from.name}, names...)
		}
		c.add(last.From, last.timeoutKey(), "same-timeout",
			fmt.Sprintf("%s is the timeout of each call of %s, and of %d of the %d calls in all files", dur(t), strings.Join(names, " → "), uses[t], len(c.n.calls)),
			fmt.Sprintf("Let the deadline of the first be passed on, and write here what %s really takes, less than %s.", last.to.name, dur(t)))
	}
}

// noDeadline finds calls that no number bounds, neither here nor above.
func (c *checker) noDeadline() {
	bare := make([]bool, len(c.n.nodes)) // requests may come without any bound
	for i, v := range c.n.nodes {
		bare[i] = v.entry()
	}
	unbounded := func(e *call) bool {
		stated := e.From.Entry != nil && e.From.Entry.Deadline > 0
		return bare[e.from.place] && !stated && e.timeout == 0
	}
	c.n.forward(func(e *call) {
		bare[e.to.place] = bare[e.to.place] || unbounded(e)
	})
	for _, e := range c.n.calls {
		if unbounded(e) {
			c.add(e.From, e.key("timeout"), "no-deadline",
				fmt.Sprintf("nothing bounds %s: it has no timeout and no share, and no deadline is stated here or above", e.name()),
				fmt.Sprintf("Write a timeout for %s a bit above its 99.9th percentile, or entry.deadline, of which %s is the default.", e.Dependency, dur(entryDefault)))
		}
	}
}
