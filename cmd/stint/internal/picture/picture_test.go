package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// drawn is what a picture shows.
type drawn struct {
	nodes, calls map[string]int
	boxes        []box
	width        float64
	height       float64
}

// read parses a picture as XML, strictly.
func read(t *testing.T, data []byte) drawn {
	t.Helper()
	d := drawn{nodes: map[string]int{}, calls: map[string]int{}}
	dec := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
		}
		f := func(name string) float64 { v, _ := strconv.ParseFloat(at[name], 64); return v }
		class := strings.Fields(at["class"])
		switch {
		case e.Name.Local == "svg":
			d.width, d.height = f("width"), f("height")
		case e.Name.Local == "script", e.Name.Local == "link", at["src"] != "", at["href"] != "":
			t.Errorf("needs something from elsewhere: %v", e)
		case len(class) == 0:
		case class[0] == "node":
			d.nodes[at["data-name"]]++
		case class[0] == "call":
			d.calls[at["data-from"]+">"+at["data-to"]]++
		case class[0] == "box":
			d.boxes = append(d.boxes, box{x: f("x"), y: f("y"), w: f("width"), h: f("height")})
		}
	}
}

// holds reports what is wrong with a picture of g: each node and call is drawn
// once, no box lies upon another or outside.
func holds(t *testing.T, g Graph, d drawn) {
	t.Helper()
	for _, n := range g.Nodes {
		if d.nodes[n.Name] != 1 {
			t.Errorf("%s is drawn %d times", n.Name, d.nodes[n.Name])
		}
	}
	want := map[string]int{}
	for _, c := range g.Calls {
		want[g.Nodes[c.From].Name+">"+g.Nodes[c.To].Name]++
	}
	if fmt.Sprint(want) != fmt.Sprint(d.calls) || len(d.boxes) != len(g.Nodes) {
		t.Errorf("calls %v, want %v; %d boxes", d.calls, want, len(d.boxes))
	}
	for i, a := range d.boxes {
		if a.x < 0 || a.y < 0 || a.x+a.w > d.width || a.y+a.h > d.height {
			t.Errorf("box %d is outside: %+v of %v x %v", i, a, d.width, d.height)
		}
		for j, b := range d.boxes[:i] {
			if a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h {
				t.Errorf("boxes %d and %d overlap: %+v, %+v", i, j, a, b)
			}
		}
	}
}

// chain is a graph of nodes with those calls.
func chain(n int, calls ...[2]int) Graph {
	var g Graph
	for i := range n {
		g.Nodes = append(g.Nodes, Node{Name: "service-" + strconv.Itoa(i), Text: "760ms, 9 requests"})
	}
	for _, c := range calls {
		g.Calls = append(g.Calls, Call{From: c[0], To: c[1], Text: "→ service-" + strconv.Itoa(c[1]) + " 120ms ×3"})
	}
	return g
}

// random is a graph of n nodes with so many calls each, some of which go back.
func random(n, calls int) Graph {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	g := chain(n)
	for from := range n {
		for range calls {
			to := from + 1 + r.IntN(40)
			if r.IntN(50) == 0 {
				to = r.IntN(from + 1)
			}
			if to < n {
				g.Calls = append(g.Calls, Call{From: from, To: to, Text: "→ x"})
			}
		}
	}
	return g
}

func TestPicture(t *testing.T) {
	odd := chain(3, [2]int{0, 1}, [2]int{1, 2})
	odd.Nodes[0].Name, odd.Nodes[1].Name = `<&"'>`, "ünïcode → "+strings.Repeat("x", 99)
	odd.Nodes[2].Text = "\x00\x1b"
	for name, g := range map[string]Graph{
		"nothing":            {},
		"one":                chain(1),
		"itself":             chain(1, [2]int{0, 0}),
		"a line":             chain(4, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}),
		"a long line beside": chain(4, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{0, 3}),
		"a circle":           chain(3, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 0}),
		"twice":              chain(2, [2]int{0, 1}, [2]int{0, 1}),
		"a fan":              chain(5, [2]int{0, 1}, [2]int{0, 2}, [2]int{0, 3}, [2]int{0, 4}),
		"islands":            chain(4, [2]int{0, 1}, [2]int{2, 3}),
		"odd names":          odd,
		"many":               random(60, 3),
	} {
		t.Run(name, func(t *testing.T) {
			svg, err := SVG(g, "a <picture>")
			if err != nil {
				t.Fatal(err)
			}
			holds(t, g, read(t, svg))
			again, _ := SVG(g, "a <picture>")
			if !bytes.Equal(svg, again) {
				t.Error("it looks different the second time")
			}
			page, err := HTML(g, "a <picture>", []Row{{Mark: Error, Code: "c", What: "<w>"}})
			if err != nil || !bytes.Contains(page, svg) || !bytes.Contains(page, []byte("&lt;w&gt;")) {
				t.Errorf("the page: %v", err)
			}
			read(t, page)
		})
	}
}

// Callees stand to the right of all their callers, but for calls that go back.
func TestColumns(t *testing.T) {
	g := random(60, 3)
	l := place(g)
	for _, c := range g.Calls {
		if from, to := l.boxes[c.From], l.boxes[c.To]; c.To > c.From && to.x < from.x+from.w+columnGap/2 {
			t.Errorf("%d at %v calls %d at %v", c.From, from.x, c.To, to.x)
		}
	}
}

// A line that passes a column does not run through a box there.
func TestLinesKeepClear(t *testing.T) {
	g := random(60, 3)
	l := place(g)
	for i, ln := range l.lines {
		for k := 2; !ln.back && k < len(ln.points); k += 2 {
			if a, b := ln.points[k-1], ln.points[k]; a.y != b.y || a.x >= b.x {
				t.Errorf("call %d passes a column from %v to %v", i, a, b)
			}
		}
		for k := 1; k < len(ln.points); k++ {
			a, b := ln.points[k-1], ln.points[k]
			if a.y != b.y && a.x != b.x {
				continue // a curve in a gap
			}
			for n, box := range l.boxes {
				if min(a.x, b.x) < box.x+box.w-1 && max(a.x, b.x) > box.x+1 && min(a.y, b.y) < box.y+box.h && max(a.y, b.y) > box.y {
					t.Errorf("call %d runs through box %d: %v to %v, %+v", i, n, a, b, box)
				}
			}
		}
	}
}

// A mark is a symbol and a class, so that colour is never the only sign.
func TestMarks(t *testing.T) {
	g := chain(2, [2]int{0, 1})
	g.Nodes[1].Mark, g.Nodes[1].Note = Error, "cycle: it is a circle"
	g.Calls[0].Mark = Warning
	svg, err := SVG(g, "marks")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`class="node error"`, "✖ service-1</text>", `class="call warning"`, "▲ → service-1 120ms ×3</text>", "cycle: it is a circle", "prefers-color-scheme: dark"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%q is not in\n%s", want, svg)
		}
	}
}

func TestBadCall(t *testing.T) {
	for _, c := range [][2]int{{0, 2}, {-1, 0}, {2, 0}, {0, -1}} {
		if _, err := SVG(chain(2, c), "bad"); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
}

// Places are bounded, so that a large graph is drawn in good time: a line of
// 1,000 services, each of which calls the last.
func TestPassingBounded(t *testing.T) {
	g := chain(1000)
	for i := range 999 {
		g.Calls = append(g.Calls, Call{From: i, To: i + 1}, Call{From: i, To: 999})
	}
	l := place(g)
	all := 0
	for _, ln := range l.lines {
		all += len(ln.points)
	}
	if all > 2*mostPassing+3*len(g.Calls) {
		t.Errorf("%d points", all)
	}
}

func BenchmarkSVG(b *testing.B) {
	g := random(1000, 3)
	for b.Loop() {
		if _, err := SVG(g, "large"); err != nil {
			b.Fatal(err)
		}
	}
}
