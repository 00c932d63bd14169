package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// circles finds services that call each other.
func (c *checker) circles() {
	for _, circle := range c.n.circles {
		names := round(circle)
		closing := names[len(names)-1]
		var path []string
		for _, e := range names {
			path = append(path, e.from.name)
		}
		path = append(path, closing.to.name)
		c.add(closing.From, closing.key(), "cycle",
			fmt.Sprintf("%s: each may call the next for one request, and so without end", strings.Join(path, " → ")),
			fmt.Sprintf("Remove the call of %s, or split one of the services so that what it calls does not call it.", closing.name()))
	}
}

// round returns a shortest way round in a circle, from the service that comes
// first in the network: a search in breadth.
func round(circle []*vertex) []*call {
	first := slices.MinFunc(circle, func(a, b *vertex) int { return a.place - b.place })
	in := map[*vertex]bool{}
	for _, v := range circle {
		in[v] = true
	}
	by := map[*vertex]*call{}
	for queue := []*vertex{first}; by[first] == nil; queue = queue[1:] {
		for _, e := range queue[0].out {
			if in[e.to] && by[e.to] == nil {
				by[e.to] = e
				queue = append(queue, e.to)
			}
		}
	}
	way := []*call{by[first]}
	for way[len(way)-1].from != first {
		way = append(way, by[way[len(way)-1].from])
	}
	slices.Reverse(way)
	return way
}

// A product is what reaches leaves by the same layers.
type product struct {
	worst, acting *chain // acting multiplies even though marks are passed on; nil: none does
	unbounded     bool
	leaves        int
}

// multiply finds leaves that several layers above them repeat for. Leaves under
// the same last layer are one finding.
func (c *checker) multiply() {
	type place struct {
		call *call
		name string
	}
	groups := map[place]*product{}
	var order []*product
	for i, a := range c.n.amplify() {
		v := c.n.nodes[i]
		if len(v.out) > 0 || a.worst[2] == nil {
			continue
		}
		p := &product{worst: a.worst[2], acting: worstOf(a.owned[0][2], a.owned[1][2]), unbounded: a.unbounded}
		last := p.last()
		g := groups[place{last.call, last.name}]
		if g == nil {
			groups[place{last.call, last.name}] = p
			order = append(order, p)
			g = p
		}
		g.leaves++
	}
	for _, p := range order {
		c.product(p)
	}
}

// last is the layer that should go: the lowest that multiplies.
func (p *product) last() repeater {
	ch := p.acting
	if ch == nil {
		ch = p.worst
	}
	for len(ch.layers) == 0 {
		ch = ch.above
	}
	return ch.layers[len(ch.layers)-1]
}

func (c *checker) product(p *product) {
	path, layers := p.worst.path()
	var names []string
	one := 0
	for _, l := range layers {
		names = append(names, fmt.Sprintf("%s, %d attempts", l.name, l.attempts))
		one = max(one, l.attempts)
	}
	var rates []string
	for _, r := range c.rates {
		rates = append(rates, fmt.Sprintf("%s where %s of the attempts fail", count(expected(r, p.worst.product)), Ratio(r)))
	}
	leaf := path[len(path)-1]
	what := fmt.Sprintf("one request at %s may become %s at %s (%s; %s to be expected)",
		path[0], count(p.worst.product), leaf, strings.Join(names, "; "), strings.Join(rates, ", "))
	if n := p.leaves - 1; n > 0 {
		what += fmt.Sprintf(", and likewise at %s", plural(n, "other", "others"))
	}
	if p.acting == nil {
		what += fmt.Sprintf("; that is %s requests where the owner's mark is lost, %d while it is passed on", count(p.worst.product), one)
	} else {
		what += fmt.Sprintf("; the owner's mark leaves %s of them: %s", count(p.acting.product), p.acting.why())
	}
	if p.unbounded {
		what += "; with the circle above it there is no bound"
	}
	last, report := p.last(), c.add
	if p.acting == nil {
		report = c.warn
	}
	report(last.call.From, last.key, "retries-multiply", what,
		fmt.Sprintf("Keep one of them, which makes %d at most, and take the others away: retry: none or owner: never, and no retries in what is hidden.", one))
}

// why says why marks do not keep the first two layers of a chain apart.
func (ch *chain) why() string {
	_, layers := ch.path()
	upper, lower := layers[0], layers[1]
	switch {
	case lower.owner == "":
		return lower.name + " heeds none"
	case lower.owner == OwnerAlways:
		return lower.name + " claims the retries always"
	case upper.owner == "":
		return upper.name + " sets none"
	}
	lost := upper.call // or a call further down
	for ; ch.above != nil; ch = ch.above {
		if c := ch.call; !c.passes() && c.from.place >= upper.call.from.place && c.to.place <= lower.call.from.place {
			lost = c
		}
	}
	switch {
	case lost.d.Service == "":
		return fmt.Sprintf("%s tells it to peers only, and %s is not named as one (service: %s)", lost.from.name, lost.Dependency, lost.to.name)
	case lost.To.Entry == nil:
		return lost.to.name + " has no entry that reads it"
	}
	return lost.to.name + " does not believe its callers (trust: edge)"
}

// owners finds a second layer of a path that claims the retries always.
func (c *checker) owners() {
	always := func(e *call) *repeater {
		for i, l := range e.layers {
			if l.owner == OwnerAlways {
				return &e.layers[i]
			}
		}
		return nil
	}
	above := make([]*repeater, len(c.n.nodes))
	c.n.forward(func(e *call) {
		own, other := always(e), above[e.from.place]
		if own != nil && other != nil {
			c.add(e.From, e.key("retry", "owner"), "several-owners",
				fmt.Sprintf("%s claims the retries always, and so does %s above it (%s)", own.name, other.name,
					other.call.From.At(other.call.key("retry", "owner")...)),
				"Write owner: never in all but one of them, usually the one that is closest to the user.")
		}
		if below := cmp.Or(own, other); above[e.to.place] == nil {
			above[e.to.place] = below
		}
	})
}
