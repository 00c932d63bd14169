package policy

import (
	"fmt"
	"testing"
	"time"
)

// layered is a graph of so many services, ten in a layer, each of which calls
// three of the next one.
func layered(services int) *Graph {
	const wide = 10
	var files []*File
	for i := range services {
		f := &File{Service: fmt.Sprintf("s%d", i), path: fmt.Sprintf("s%d.yaml", i), Entry: &Entry{Trust: TrustPeers, Exempt: []string{"/livez"}}}
		if i+wide < services {
			f.Dependencies = map[string]*Dependency{}
			next := i - i%wide + wide
			for j := range 3 {
				name := fmt.Sprintf("s%d", min(next+(i+j)%wide, services-1))
				f.Dependencies[name] = &Dependency{Service: name, Timeout: time.Second, Retry: &Retry{MaxAttempts: 2, PerAttemptTimeout: 400 * time.Millisecond}}
			}
		}
		files = append(files, f)
	}
	g, err := NewGraph(files...)
	if err != nil {
		panic(err)
	}
	return g
}

// Each pass sees each call once. There are 3^99 paths in the larger graph.
func TestNetworkIsLinear(t *testing.T) {
	for _, services := range []int{100, 1000} {
		n := layered(services).network()
		c := &checker{g: layered(services), n: n, rates: []float64{0.9}, seen: map[string]bool{}}
		for name, pass := range map[string]func(){
			"amplify": func() { n.amplify() }, "sameTimeout": c.sameTimeout, "noDeadline": c.noDeadline, "owners": c.owners, "keys": c.keys, "multiply": c.multiply,
		} {
			n.visits = 0
			pass()
			if n.visits != len(n.calls) {
				t.Errorf("%s of %d services saw %d calls, there are %d", name, services, n.visits, len(n.calls))
			}
		}
	}
}

// Callers stand before callees, except where a call goes back.
func TestNetworkOrder(t *testing.T) {
	dep := func(names ...string) map[string]*Dependency {
		m := map[string]*Dependency{}
		for _, name := range names {
			m[name] = &Dependency{}
		}
		return m
	}
	g, err := NewGraph(
		&File{Service: "top", Dependencies: dep("b", "z")},
		&File{Service: "a", Dependencies: dep("b")},
		&File{Service: "b", Dependencies: dep("c")},
		&File{Service: "c", Dependencies: dep("a", "db")},
		&File{Service: "self", Dependencies: dep("self", "db")},
		&File{Service: "z", Dependencies: dep("db")},
	)
	if err != nil {
		t.Fatal(err)
	}
	n := g.network()
	var back []string
	for _, c := range n.calls {
		if c.back {
			back = append(back, c.name())
		} else if c.from.place >= c.to.place {
			t.Errorf("%s stands after what it calls, %s", c.from.name, c.to.name)
		}
	}
	if s := fmt.Sprint(back); s != "[a → b self → self]" && s != "[self → self a → b]" {
		t.Errorf("calls that go back: %v", back)
	}
	if len(n.circles) != 2 {
		t.Errorf("%d circles, want 2", len(n.circles))
	}
	for _, v := range n.nodes {
		if want := v.name == "a" || v.name == "b" || v.name == "c" || v.name == "self"; v.circle != want {
			t.Errorf("%s in a circle: %v", v.name, v.circle)
		}
	}
	for _, circle := range n.circles {
		if way := round(circle); way[0].from != way[len(way)-1].to || len(way) != len(circle) {
			t.Errorf("the way round %v is %v", circle, way)
		}
	}
}

// A wait that no number can hold, and an attempt count that no loop should run to.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		r    Retry
		n    int
		want time.Duration
	}{
		{Retry{}, 1, 0},
		{Retry{}, 2, 50 * time.Millisecond},
		{Retry{}, 4, 350 * time.Millisecond},
		{Retry{}, 9, (50+100+200+400+800+1600)*time.Millisecond + 2*2*time.Second},
		{Retry{Backoff: Backoff{Cap: 10 * time.Millisecond}}, 3, 20 * time.Millisecond},
		{Retry{Backoff: Backoff{Base: time.Nanosecond, Cap: forever}}, 1 << 62, forever},
		{Retry{}, 1 << 62, forever},
	} {
		if got := c.r.waits(c.n); got != c.want {
			t.Errorf("%d attempts with %+v wait %v, want %v", c.n, c.r.Backoff, got, c.want)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, services := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			g := layered(services)
			edges := len(g.Edges())
			for b.Loop() {
				g.Check(nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(edges), "ns/edge")
		})
	}
}
