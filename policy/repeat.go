package policy

import (
	"cmp"
	"math"
)

// A repeater is something on a path that may send a request more than once.
type repeater struct {
	name     string
	attempts int
	owner    Owner // empty: it is hidden, and asks nobody
	key      []string
	call     *call
}

// repeaters returns what may repeat a call, from above.
func (g *Graph) repeaters(c *call) []repeater {
	var under []repeater
	add := func(name string, attempts int, owner Owner, key []string) {
		if attempts > 1 {
			under = append(under, repeater{name, attempts, owner, key, c})
		}
	}
	most := c.views[0]
	for _, v := range c.views[1:] {
		if v.requests() > most.requests() {
			most = v
		}
	}
	owner := OwnerAuto
	if most.Retry != nil {
		owner = cmp.Or(most.Retry.Owner, OwnerAuto)
	}
	add(c.name(), most.requests(), owner, most.key("retry", "maxAttempts"))

	hidden, layers := c.key("hiddenRetries"), g.Layers(c.Edge)
	if n, stated := c.From.HiddenRetries(c.Dependency); stated && n > retries(layers) {
		add("what lies under "+c.name(), 1+n, "", hidden)
		return under
	}
	for _, l := range layers {
		add(l.Name+" under "+c.name(), 1+retries([]Layer{l}), "", hidden)
	}
	if c.d.HiddenRetries != nil {
		return under
	}
	if client, n := c.d.Kind.client(); n > 0 {
		add(client+" under "+c.name(), 1+n, "", hidden)
	}
	if len(layers) == 0 && !c.d.Kind.Store() {
		add(string(c.From.Mesh)+" under "+c.name(), 1+c.From.Mesh.HiddenRetries(), "", hidden)
	}
	add(string(c.d.SDK)+" client under "+c.name(), 1+c.d.SDK.HiddenRetries(), "", hidden)
	return under
}

// retries is how often layers under each other repeat a call between them, at most
// math.MaxInt32 - 1.
func retries(layers []Layer) int {
	all := 1
	for _, l := range layers {
		all = min(all*(1+min(max(l.Retries, 0), math.MaxInt32-1)), math.MaxInt32)
	}
	return all - 1
}

// requests is how many requests of one call may leave: attempts, and copies.
func (v view) requests() int {
	n := v.Retry.tries()
	if v.Hedge != nil && (v.Retry == nil || v.Retry.Owner != OwnerNever) {
		n += max(v.Hedge.Max, 1)
	}
	return n
}

// passes reports whether the mark of a retry owner gets to the callee: the caller
// tells it to peers only, and only a Gate that trusts its callers believes it.
func (c *call) passes() bool {
	return c.d.Service != "" && c.To != nil && c.To.Entry != nil && c.To.Entry.Trust == TrustPeers
}
