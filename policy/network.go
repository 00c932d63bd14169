package policy

import (
	"slices"
	"time"
)

// A network is a Graph put in order, so that a pass over its calls sees what is
// above a call before the call: each pass is linear, and none follows paths.
type network struct {
	nodes   []*vertex // callers before callees, except along calls that go back
	calls   []*call   // by caller, in that order
	circles [][]*vertex
	visits  int // calls seen by all passes
}

// A vertex is a service, or what has no policy here: a store, a third party.
type vertex struct {
	name    string
	kind    Kind  // of a store, else empty
	file    *File // nil where the graph has none
	in, out []*call
	place   int  // in network.nodes
	circle  bool // calls itself, by way of others
}

// A call is an edge between vertices.
type call struct {
	Edge
	d        *Dependency
	from, to *vertex
	back     bool // closes a circle
	timeout  time.Duration
	views    []view
	layers   []repeater
}

// network puts the graph in order.
func (g *Graph) network() *network {
	n := &network{}
	byName := map[string]*vertex{}
	at := func(name string) *vertex {
		if byName[name] == nil {
			byName[name] = &vertex{name: name, file: g.files[name]}
		}
		return byName[name]
	}
	store := func(name string, kind Kind) *vertex { // "cache" may be a service as well
		key := join(name, string(kind))
		if byName[key] == nil {
			byName[key] = &vertex{name: name, kind: kind}
		}
		return byName[key]
	}
	for _, f := range g.Services() {
		at(f.Service)
	}
	for _, e := range g.Edges() {
		c := &call{Edge: e, d: e.From.Dependencies[e.Dependency], from: at(e.From.Service)}
		if c.d.Kind.Store() {
			c.to = store(e.Dependency, c.d.Kind)
		} else {
			c.to = at(e.Name())
		}
		c.timeout = e.From.Timeout(e.Dependency)
		c.views = e.From.views(e.Dependency)
		c.layers = g.repeaters(c)
		c.from.out, c.to.in = append(c.from.out, c), append(c.to.in, c)
	}
	n.order(byName)
	return n
}

// order is R. Tarjan's algorithm (Depth-first search and linear graph algorithms,
// 1972): callees are finished before callers, circles come out as a whole.
func (n *network) order(byName map[string]*vertex) {
	index, low, open := map[*vertex]int{}, map[*vertex]int{}, map[*vertex]bool{}
	var stack, finished []*vertex
	var visit func(v *vertex)
	visit = func(v *vertex) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, open[v] = append(stack, v), true
		for _, c := range v.out {
			switch {
			case index[c.to] == 0:
				visit(c.to)
				low[v] = min(low[v], low[c.to])
			case open[c.to]:
				low[v] = min(low[v], index[c.to])
			}
		}
		finished = append(finished, v)
		if low[v] != index[v] {
			return
		}
		from := slices.Index(stack, v)
		circle := slices.Clone(stack[from:])
		stack = stack[:from]
		for _, w := range circle {
			delete(open, w)
		}
		if len(circle) > 1 || slices.ContainsFunc(v.out, func(c *call) bool { return c.to == v }) {
			n.circles = append(n.circles, circle)
			for _, w := range circle {
				w.circle = true
			}
		}
	}
	names := sorted(byName)
	for _, entries := range []bool{true, false} { // a circle is entered from above
		for _, name := range names {
			if v := byName[name]; index[v] == 0 && (!entries || len(v.in) == 0) {
				visit(v)
			}
		}
	}
	slices.Reverse(finished)
	n.nodes = finished
	for i, v := range n.nodes {
		v.place = i
	}
	for _, v := range n.nodes {
		for _, c := range v.out {
			c.back = c.to.place <= v.place
			n.calls = append(n.calls, c)
		}
	}
}

// forward calls f for each call but those that go back, those from above first.
func (n *network) forward(f func(*call)) {
	for _, c := range n.calls {
		n.visits++
		if !c.back {
			f(c)
		}
	}
}

// entry reports whether requests come to the node from outside of the graph, as
// far as can be seen: nobody in it calls it, or only what it calls.
func (v *vertex) entry() bool {
	return !slices.ContainsFunc(v.in, func(c *call) bool { return !c.back })
}

// key is where the call's dependency has a key.
func (c *call) key(more ...string) []string {
	return append([]string{"dependencies", c.Dependency}, more...)
}

// timeoutKey is where the bound of a call stands.
func (c *call) timeoutKey() []string {
	if c.d.Timeout == 0 && c.timeout > 0 {
		return []string{"latencyBudget", c.Dependency}
	}
	return c.key("timeout")
}

// grant is what one attempt of the call has: zero where no number says.
func (c *call) grant() time.Duration {
	if r := c.d.Retry; r != nil && r.PerAttemptTimeout > 0 && r.tries() > 1 {
		if c.timeout > 0 {
			return min(r.PerAttemptTimeout, c.timeout)
		}
		return r.PerAttemptTimeout
	}
	return c.timeout
}

// grantKey is where grant stands.
func (c *call) grantKey() []string {
	if c.grant() != c.timeout {
		return c.key("retry", "perAttemptTimeout")
	}
	return c.timeoutKey()
}

// name is how texts call it.
func (c *call) name() string { return c.from.name + " → " + c.to.name }
