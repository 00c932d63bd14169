package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// random is a graph of seven services, in which each may call those after it, and
// with circles also those before.
func random(r *rand.Rand, circles bool) *Graph {
	const services = 7
	var files []*File
	for i := range services {
		f := &File{Service: fmt.Sprintf("s%d", i), path: "random.yaml", Dependencies: map[string]*Dependency{}}
		if r.IntN(5) > 0 {
			f.Entry = &Entry{Trust: []Trust{TrustPeers, TrustPeers, TrustEdge}[r.IntN(3)]}
		}
		for j := range services {
			if j == i || j < i && !circles || r.IntN(3) == 0 {
				continue
			}
			name := fmt.Sprintf("s%d", j)
			d := &Dependency{Service: name, Timeout: time.Second}
			if r.IntN(5) == 0 {
				d.Service = ""
			}
			if n := r.IntN(4); n > 0 {
				d.Retry = &Retry{MaxAttempts: n, Owner: []Owner{"", OwnerAuto, OwnerAlways, OwnerNever}[r.IntN(4)]}
			}
			if r.IntN(6) == 0 {
				d.HiddenRetries = new(r.IntN(3))
			}
			f.Dependencies[name] = d
		}
		files = append(files, f)
	}
	g, err := NewGraph(files...)
	if err != nil {
		panic(err)
	}
	return g
}

// walk follows every path down from v, which is what the passes must not do.
func walk(v *vertex, known bool, worst, owned float64, layers int, see func(v *vertex, worst, owned float64, layers int)) {
	see(v, worst, owned, layers)
	for _, c := range v.out {
		w, o, n := worst, owned, layers
		acting, owner := c.acting(known)
		for _, l := range c.layers {
			w *= float64(l.attempts)
		}
		for _, l := range acting {
			o *= float64(l.attempts)
			n++
		}
		walk(c.to, owner && c.passes(), w, o, n, see)
	}
}

// The passes find what following every path finds.
func TestAmplifyAgainstAllPaths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := random(r, false).network()
		worst, owned, multiplies := map[*vertex]float64{}, map[*vertex]float64{}, map[*vertex]bool{}
		for _, v := range n.nodes {
			walk(v, false, 1, 1, 0, func(v *vertex, w, o float64, layers int) {
				worst[v], owned[v] = max(worst[v], w), max(owned[v], o)
				multiplies[v] = multiplies[v] || layers > 1
			})
		}
		for i, a := range n.amplify() {
			v := n.nodes[i]
			w := worstOf(a.worst[:]...).product
			o := worstOf(append(a.owned[0][:], a.owned[1][:]...)...).product
			m := worstOf(a.owned[0][2], a.owned[1][2]) != nil
			if w != worst[v] || o != owned[v] || m != multiplies[v] {
				t.Fatalf("%s: worst %v, owned %v, multiplies %v; by all paths %v, %v, %v", v.name, w, o, m, worst[v], owned[v], multiplies[v])
			}
		}
	}
}

// Circles of any shape end, and every one is found.
func TestCheckRandomCircles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		g := random(r, true)
		circles := 0
		for _, f := range g.Check(nil) {
			if f.Code == "cycle" {
				circles++
			}
		}
		if want := len(g.network().circles); circles == 0 || circles > want {
			t.Fatalf("%d circles reported of %d", circles, want)
		}
		g.Amplification(0.9)
		g.Review()
		for _, f := range g.Services() {
			g.Spend(f.Service)
		}
	}
}
