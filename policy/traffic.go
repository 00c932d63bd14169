package policy

import (
	"math"
	"time"
)

// A Stop is a service of the graph, or what is called and has no policy there: a
// store, a third party.
type Stop struct {
	Name string
	// Kind is that of a store; else empty.
	Kind Kind
	// File is its policy; nil if the graph has none.
	File *File
	// Requests is how many may arrive for one request at the top, on the path on
	// which it is worst; +Inf below services that call each other in a circle.
	Requests float64
}

// A Leg is a call between two stops.
type Leg struct {
	Edge
	// Source and Target are the places of caller and callee among the stops.
	Source, Target int
	// Timeout bounds one call; zero where no number of the file does.
	Timeout time.Duration
	// Attempts is the most requests that one call becomes, with all that lies under
	// it and repeats.
	Attempts float64
}

// Traffic returns the graph for a picture of it: callers stand before what they
// call, except for calls that go back, those whose Target is not above their Source.
func (g *Graph) Traffic() ([]Stop, []Leg) {
	n := g.network()
	var stops []Stop
	for i, a := range n.amplify() {
		s := Stop{n.nodes[i].name, n.nodes[i].kind, n.nodes[i].file, math.Inf(1)}
		if !a.unbounded {
			s.Requests = worstOf(a.worst[:]...).product
		}
		stops = append(stops, s)
	}
	var legs []Leg
	for _, c := range n.calls {
		l := Leg{c.Edge, c.from.place, c.to.place, c.timeout, 1}
		for _, r := range c.layers {
			l.Attempts = min(l.Attempts*float64(r.attempts), math.MaxFloat64)
		}
		legs = append(legs, l)
	}
	return stops, legs
}
