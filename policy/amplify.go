package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// An Amplification is how many requests may reach a leaf of the graph, which is
// what calls nothing itself, for one request at the top of a path.
type Amplification struct {
	Leaf string
	// Path is the way on which it is worst, from above; the last is the leaf.
	Path []string
	// Layers are what may repeat a request on that path, from above.
	Layers []RetryLayer
	// Worst is the product of their attempts: every attempt fails, and every layer
	// repeats for itself. It is +Inf below services that call each other in a
	// circle, and ends at math.MaxFloat64 elsewhere.
	Worst float64
	// Owned is the most there can be, on any path, while the mark of the retry
	// owner is passed on wherever peers pass it on.
	Owned float64
	// Expected is, for each failure rate asked for, how many there are if attempts
	// at the leaf fail independently: layers of independent failures are one loop
	// of A = Worst attempts, which makes (1-p^A)/(1-p).
	Expected []float64
}

// A RetryLayer is one that may repeat requests.
type RetryLayer struct {
	Name     string
	Attempts int // the first one, retries and copies
}

// A chain is a path from above, and what its layers multiply to.
type chain struct {
	at      *vertex
	product float64
	above   *chain // nil at the beginning, and so is call
	call    *call  // the last one
	layers  []repeater
}

// then is the chain one call further, with those layers on it.
func (ch *chain) then(c *call, layers []repeater) *chain {
	p := ch.product
	for _, l := range layers {
		p = min(p*float64(l.attempts), math.MaxFloat64)
	}
	return &chain{c.to, p, ch, c, layers}
}

func (ch *chain) path() (names []string, layers []repeater) {
	for ; ch != nil; ch = ch.above {
		names = append(names, ch.at.name)
		for _, l := range slices.Backward(ch.layers) {
			layers = append(layers, l)
		}
	}
	slices.Reverse(names)
	slices.Reverse(layers)
	return names, layers
}

// keep keeps the chain that multiplies to more.
func keep(best **chain, ch *chain) {
	if *best == nil || ch.product > (*best).product {
		*best = ch
	}
}

// worstOf returns the chain that multiplies to most; nil if there is none.
func worstOf(chains ...*chain) *chain {
	var best *chain
	for _, ch := range chains {
		if ch != nil {
			keep(&best, ch)
		}
	}
	return best
}

// A byLayers has the worst chain with no, with one, and with more layers.
type byLayers [3]*chain

// amplified is what the layers above a node make of one request.
type amplified struct {
	worst     byLayers    // each layer repeats for itself
	owned     [2]byLayers // marks are believed where they can be; [1]: an owner is known here
	unbounded bool        // a circle is above
}

// amplify goes once over the calls, and keeps for each node the worst chain of
// each kind: what follows can't make a smaller one of the same kind the worst.
func (n *network) amplify() []amplified {
	all := make([]amplified, len(n.nodes))
	for i, v := range n.nodes {
		all[i].unbounded = v.circle
		if v.entry() {
			all[i].worst[0] = &chain{at: v, product: 1}
		}
		// What comes in here, from wherever, may be the first of its path.
		all[i].owned[0][0] = &chain{at: v, product: 1}
	}
	n.forward(func(c *call) {
		from, to := &all[c.from.place], &all[c.to.place]
		to.unbounded = to.unbounded || from.unbounded
		for count, ch := range from.worst {
			if ch != nil {
				keep(&to.worst[min(count+len(c.layers), 2)], ch.then(c, c.layers))
			}
		}
		for known, chains := range from.owned {
			for count, ch := range chains {
				if ch == nil {
					continue
				}
				layers, owner := c.acting(known == 1)
				after := 0
				if owner && c.passes() {
					after = 1
				}
				keep(&to.owned[after][min(count+len(layers), 2)], ch.then(c, layers))
			}
		}
	})
	return all
}

// acting is which layers of a call repeat although marks are believed: one that
// claims the retries, and what is hidden; and whether there is an owner then.
func (c *call) acting(known bool) (layers []repeater, owner bool) {
	for _, l := range c.layers {
		if l.owner == "" || l.owner == OwnerAlways || !known {
			layers = append(layers, l)
		}
		known = known || l.owner != ""
	}
	return layers, known
}

// Amplification returns what retries on the way make of one request, for each leaf
// of the graph: the worst first, then by name. The rates are shares of failing
// attempts, from 0 to 1, for Expected.
func (g *Graph) Amplification(rates ...float64) []Amplification {
	n := g.network()
	var found []Amplification
	for i, a := range n.amplify() {
		if len(n.nodes[i].out) > 0 || len(n.nodes[i].in) == 0 {
			continue
		}
		worst := worstOf(a.worst[:]...)
		path, layers := worst.path()
		r := Amplification{Leaf: n.nodes[i].name, Path: path, Worst: worst.product, Owned: worstOf(slices.Concat(a.owned[0][:], a.owned[1][:])...).product}
		if a.unbounded {
			r.Worst, r.Owned = math.Inf(1), math.Inf(1)
		}
		for _, l := range layers {
			r.Layers = append(r.Layers, RetryLayer{l.name, l.attempts})
		}
		for _, p := range rates {
			r.Expected = append(r.Expected, expected(p, r.Worst))
		}
		found = append(found, r)
	}
	slices.SortFunc(found, func(a, b Amplification) int {
		return cmp.Or(cmp.Compare(b.Worst, a.Worst), strings.Compare(a.Leaf, b.Leaf))
	})
	return found
}

// expected is how many of at most a attempts are made if each fails with
// probability p: 1 + p + p^2 + ...
func expected(p, a float64) float64 {
	if p >= 1 {
		return a
	}
	return (1 - math.Pow(p, a)) / (1 - p)
}
