package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// A picture is a waterfall: the attempts of every layer of one row, and the
// requests at its leaf, on one time axis.
type picture struct {
	caption  string
	why      string // stint: what kept the layers from more attempts
	mode     Mode
	lanes    []lane
	deadline time.Duration // the request's
	left     time.Duration // when nobody waited any more
}

// A lane is one line of a picture.
type lane struct {
	name string
	kind kind
	bars []bar // in the order in which they start
}

// A kind says what the bars of a lane are.
type kind uint8

const (
	attempts kind = iota
	work          // requests at the leaf
	marks         // what the leaf marked
)

// A bar is one attempt, which shows its number, the wait for one, which has
// none, one request at the leaf, or one mark.
type bar struct {
	span
	number int
}

// pictures returns the waterfalls of the rows that have one.
func (r Report) pictures() []picture {
	var all []picture
	for _, res := range r.Results {
		if res.row.draw {
			all = append(all, res.picture())
		}
	}
	return all
}

func (res Result) picture() picture {
	s := res.row.spec
	p := picture{mode: res.Mode, deadline: s.limit(), left: res.left - res.drawn}
	drawn := func(b bar) (bar, bool) {
		b.start, b.end = b.start-res.drawn, b.end-res.drawn
		return b, b.start >= 0
	}
	for _, c := range s.callers {
		l := lane{name: c.name}
		copies := lane{name: "copy"}
		for _, a := range res.attempts {
			b, ok := drawn(bar{a.span, a.number})
			switch {
			case !ok || a.layer != c.name:
			case a.copy:
				copies.bars = append(copies.bars, b)
			default:
				l.bars = append(l.bars, b)
			}
		}
		p.lanes = append(p.lanes, l)
		if len(copies.bars) > 0 {
			p.lanes = append(p.lanes, copies)
		}
	}
	requests := func(name string, visits []span) {
		l := lane{name: name, kind: work}
		for _, v := range visits {
			if b, ok := drawn(bar{span: v}); ok {
				l.bars = append(l.bars, b)
			}
		}
		p.lanes = append(p.lanes, l)
	}
	requests(s.leaf, res.visits)
	if s.replica != "" {
		requests(s.replica, res.others)
	}
	if s.store != NoStore {
		requests("query", res.queries)
	}
	if s.marks != "" {
		l := lane{name: s.marks, kind: marks}
		for _, m := range res.marks {
			if b, ok := drawn(bar{span: span{m.at, m.at}}); ok {
				l.bars = append(l.bars, b)
			}
		}
		p.lanes = append(p.lanes, l)
	}

	end := res.clientEnd
	if res.ClientStatus != 0 || strings.HasPrefix(end, grpcEnd) {
		end = "had its " + end
	}
	label := res.row.label
	switch {
	case s.together:
		label += fmt.Sprintf(", %d calls", s.calls)
	case s.calls > 1:
		label += fmt.Sprintf(", call %d", s.calls)
	}
	p.caption = fmt.Sprintf("%s: %s %s after %s", label, s.callers[0].name, end, term.MillisText(term.Millis(p.left)))
	if res.WastedMs >= 1 {
		p.caption += fmt.Sprintf(", %s worked on for %s", s.leaf, term.MillisText(res.WastedMs))
	}
	if s.store != NoStore {
		p.caption += ", the last query ended after " + term.MillisText(res.LastQueryMs)
	}
	if res.Mode == Stint {
		p.why = res.whyNot()
	}
	return p
}

// whyNot says what kept the layers from a further attempt, in stint's own words
// and how often. Layers with the same to say stand together.
func (res Result) whyNot() string {
	type cause struct {
		reason string
		times  int
	}
	var causes []cause
	layers := make(map[cause][]string)
	for _, c := range res.row.spec.callers {
		if c.name == "client" { // it makes one attempt anyway
			continue
		}
		var own []cause
		for s, n := range res.stops {
			if s.layer == c.name {
				own = append(own, cause{s.reason.String(), n})
			}
		}
		slices.SortFunc(own, func(x, y cause) int { return cmp.Compare(x.reason, y.reason) })
		for _, k := range own {
			if layers[k] == nil {
				causes = append(causes, k)
			}
			layers[k] = append(layers[k], c.name)
		}
	}
	var parts []string
	for _, k := range causes {
		part := strings.Join(layers[k], ", ") + ": " + k.reason
		if k.times > 1 {
			part += fmt.Sprintf(" x%d", k.times)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "no further attempt: " + strings.Join(parts, "; ")
}

// Widths of a waterfall.
const (
	nameWidth = 6
	laneWidth = width - 2 - nameWidth - 1 - 1 - 1 - 5 // the deadline, a blank, and a count such as x4096
)

// axisFor returns an axis on which all of the pictures fit. The deadline is on
// it unless all would shrink too much.
func axisFor(pictures ...picture) term.Axis {
	var end time.Duration
	for _, p := range pictures {
		end = max(end, p.left)
		for _, l := range p.lanes {
			for _, b := range l.bars {
				end = max(end, b.end)
			}
		}
	}
	return term.NewAxis(laneWidth, end, pictures[0].deadline)
}

// paint draws a lane. An attempt shows its number where it starts; # stands for
// several that start in one column, and a wait is dotted. A request at the leaf starts with a
// narrower block, so that it does not run into the one before.
func (l lane) paint(a term.Axis, p picture) []term.Cell {
	cells := a.Blank()
	starts := make([]int, len(cells))
	for n, b := range l.bars {
		from := a.Cell(b.start)
		to := max(from, a.Cell(b.end-1)) // the end is no part of it
		if l.kind == attempts && b.number == 0 {
			for i := from; i <= to; i++ {
				if cells[i].Rune == ' ' {
					cells[i].Rune = '·'
				}
			}
			continue
		}
		starts[from]++
		for i := from; i <= to; i++ {
			switch {
			case l.kind == marks && n == 0:
				cells[i] = term.Shaded('$', shadeOf(p.mode))
			case l.kind == marks:
				cells[i] = term.Shaded('$', red)
			case l.kind == attempts && i > from:
				cells[i].Rune = '─'
			case l.kind == attempts && starts[i] > 1:
				cells[i].Rune = '#'
			case l.kind == attempts:
				cells[i].Rune = rune('0' + b.number%10)
			case i == from && starts[i] == 1 && b.start >= p.left:
				cells[i] = term.Shaded('▒', red)
			case i > a.Cell(p.left) && b.end > p.left:
				cells[i] = term.Shaded('░', red)
			case i == from && starts[i] == 1:
				cells[i] = term.Shaded('▐', shadeOf(p.mode))
			default:
				cells[i] = term.Shaded('█', shadeOf(p.mode))
			}
		}
	}
	return a.Mark(cells)
}

// waterfalls writes the pictures, on one axis or each on its own.
func waterfalls(b *strings.Builder, st Style, pictures []picture, ownAxes bool) {
	shared := axisFor(pictures...)
	name := func(s string) string { return fmt.Sprintf("  %-*s ", nameWidth, s) }
	note := fmt.Sprintf("The deadline, %s, is far to the right.", term.Duration(pictures[0].deadline))
	if slices.ContainsFunc(pictures, func(p picture) bool { return axisFor(p).Deadline >= 0 }) {
		note = fmt.Sprintf("The deadline, %s, is the line |, and ░ is work after the client had left.", term.Duration(pictures[0].deadline))
	}
	b.WriteString("\n  " + st.paint(dim, note) + "\n")
	for i, p := range pictures {
		a := shared
		if ownAxes {
			a = axisFor(p)
		}
		b.WriteString("\n" + wrap("  ", p.caption))
		if p.why != "" {
			b.WriteString(wrap("  ", p.why))
		}
		if i == 0 || ownAxes {
			b.WriteString(st.paint(dim, name("")+a.Ticks()) + "\n")
		}
		for _, l := range p.lanes {
			b.WriteString(name(l.name) + term.Line(st.Color, l.paint(a, p)) + fmt.Sprintf(" x%d\n", l.count()))
		}
	}
}

// count is how many attempts, requests or marks there are.
func (l lane) count() (n int) {
	for _, b := range l.bars {
		if l.kind != attempts || b.number > 0 {
			n++
		}
	}
	return n
}
