package picture

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// A layout says where everything lies.
type layout struct {
	boxes         []box
	lines         []line
	width, height float64
}

type box struct {
	x, y, w, h float64
	rows       []int // the calls whose rows it has, from above
}

func (b box) middle() float64 { return b.y + b.h/2 }

type point struct{ x, y float64 }

// A line is a call: a curve through its points, of which each two are level,
// or a line with corners if it goes back.
type line struct {
	back   bool
	points []point
}

// An item is a box in its column, or a line that passes the column.
type item struct {
	node          int // -1: a line passes
	y, h          float64
	before, after []*item // its neighbours, one column to the left and to the right
	rank          float64
}

func (i *item) middle() float64 { return i.y + i.h/2 }

// mostPassing bounds the lines' places in columns. Above it long lines are
// drawn straight: nobody reads such a picture line by line.
const mostPassing = 20_000

// place lays the graph out: columns by the longest way from the left, the order
// in a column by the mean of the neighbours (K. Sugiyama, S. Tagawa, M. Toda,
// "Methods for Visual Understanding of Hierarchical System Structures", 1981).
// The same graph always looks the same.
func place(g Graph) layout {
	l := layout{boxes: make([]box, len(g.Nodes)), lines: make([]line, len(g.Calls))}
	depth := make([]int, len(g.Nodes))
	out := make([][]int, len(g.Nodes))
	for i, c := range g.Calls {
		out[c.From] = append(out[c.From], i)
	}
	for n := range g.Nodes {
		b := &l.boxes[n]
		chars := max(utf8.RuneCountInString(g.Nodes[n].head()), utf8.RuneCountInString(cut(g.Nodes[n].Text)))
		for _, i := range out[n] {
			chars = max(chars, utf8.RuneCountInString(g.Calls[i].row()))
			if to := g.Calls[i].To; to > n {
				depth[to] = max(depth[to], depth[n]+1)
			}
		}
		b.rows = out[n]
		b.w, b.h = float64(chars)*charWidth+2*padding, headHeight+float64(len(out[n]))*rowHeight
		if len(out[n]) > 0 {
			b.h += padding / 2
		}
	}
	columns, passing := arrange(g, l, depth)
	l.stack(columns)
	left := make([]float64, len(columns)+1)
	left[0] = margin
	for k, column := range columns {
		widest := 0.
		for _, i := range column {
			if i.node >= 0 {
				l.boxes[i.node].x = left[k]
				widest = max(widest, l.boxes[i.node].w)
			}
		}
		for _, i := range column {
			if i.node >= 0 {
				l.boxes[i.node].w = widest
			}
		}
		left[k+1] = left[k] + widest + columnGap
	}
	for n := range l.boxes { // rows as their callees stand, so that fewer lines cross
		slices.SortStableFunc(l.boxes[n].rows, func(a, b int) int { return cmp.Compare(l.aim(g, passing, a), l.aim(g, passing, b)) })
	}
	l.width = left[len(columns)] - columnGap + margin
	l.draw(g, depth, left, passing)
	return l
}

// arrange puts nodes and passing lines into columns, and orders these.
func arrange(g Graph, l layout, depth []int) (columns [][]*item, passing [][]*item) {
	passing = make([][]*item, len(g.Calls))
	if len(g.Nodes) == 0 {
		return nil, passing
	}
	columns = make([][]*item, slices.Max(depth)+1)
	boxes := make([]*item, len(g.Nodes))
	for n, b := range l.boxes {
		boxes[n] = &item{node: n, h: b.h}
		columns[depth[n]] = append(columns[depth[n]], boxes[n])
	}
	spare := mostPassing
	for i, c := range g.Calls {
		if c.To <= c.From {
			continue
		}
		at := boxes[c.From]
		if long := depth[c.To] - depth[c.From] - 1; long <= spare {
			spare -= long
			for k := depth[c.From] + 1; k < depth[c.To]; k++ {
				via := &item{node: -1, h: laneHeight}
				columns[k] = append(columns[k], via)
				passing[i] = append(passing[i], via)
				join(at, via)
				at = via
			}
		} else if long > 0 {
			continue
		}
		join(at, boxes[c.To])
	}
	for range 4 {
		for _, column := range columns {
			sortBy(column, func(i *item) []*item { return i.before })
		}
		for _, column := range slices.Backward(columns) {
			sortBy(column, func(i *item) []*item { return i.after })
		}
	}
	for _, column := range columns {
		sortBy(column, func(i *item) []*item { return i.before })
	}
	return columns, passing
}

func join(a, b *item) { a.after, b.before = append(a.after, b), append(b.before, a) }

// sortBy orders a column by the mean rank of neighbours; who has none stays.
func sortBy(column []*item, neighbours func(*item) []*item) {
	want := make(map[*item]float64, len(column))
	for at, i := range column {
		sum, ns := 0., neighbours(i)
		for _, n := range ns {
			sum += n.rank
		}
		if want[i] = float64(at); len(ns) > 0 {
			want[i] = sum / float64(len(ns))
		}
	}
	slices.SortStableFunc(column, func(a, b *item) int { return cmp.Compare(want[a], want[b]) })
	for at, i := range column {
		i.rank = float64(at) - float64(len(column)-1)/2 // columns are centred
	}
}

// stack gives the items of each column their heights: near their callers, in
// their order, none upon another.
func (l *layout) stack(columns [][]*item) {
	top, bottom := 0., 0.
	for _, column := range columns {
		at, off := 0., 0.
		for n, i := range column {
			want := 0.
			for _, b := range i.before {
				want += b.middle()
			}
			if len(i.before) > 0 {
				want = want/float64(len(i.before)) - i.h/2
			}
			if i.y = want; n > 0 {
				i.y = max(want, at)
			}
			at = i.y + i.h + boxGap
			off += i.y - want
		}
		for _, i := range column { // as much too high as too low
			i.y -= off / float64(len(column))
			top, bottom = min(top, i.y), max(bottom, i.y+i.h)
		}
	}
	for _, column := range columns {
		for _, i := range column {
			i.y += margin - top
			if i.node >= 0 {
				l.boxes[i.node].y = i.y
			}
		}
	}
	l.height = bottom - top + 2*margin
}

// aim is the height that a call leads to first; those that go back lead below all.
func (l *layout) aim(g Graph, passing [][]*item, call int) float64 {
	switch c := g.Calls[call]; {
	case c.To <= c.From:
		return l.height
	case len(passing[call]) > 0:
		return passing[call][0].middle()
	default:
		return l.boxes[c.To].y
	}
}

// draw leads each call from its row to its callee. A call that goes back takes a
// lane of its own below everything.
func (l *layout) draw(g Graph, depth []int, left []float64, passing [][]*item) {
	lanes := 0
	for n, b := range l.boxes {
		for row, i := range b.rows {
			c := g.Calls[i]
			to := l.boxes[c.To]
			start := point{b.x + b.w, b.y + headHeight + (float64(row)+0.5)*rowHeight}
			end := point{to.x, to.y + headHeight/2}
			if c.To <= n {
				lanes++
				y := l.height + float64(lanes)*laneHeight
				// Verticals stand apart, as far as a gap has room.
				out, in := start.x+12+float64(lanes%8)*4, end.x-12-float64(lanes%8)*4
				l.lines[i] = line{true, []point{start, {out, start.y}, {out, y}, {in, y}, {in, end.y}, end}}
				continue
			}
			points := []point{start}
			for k, via := range passing[i] {
				at := depth[n] + 1 + k
				points = append(points, point{left[at], via.middle()}, point{left[at+1] - columnGap, via.middle()})
			}
			l.lines[i] = line{false, append(points, end)}
		}
	}
	l.height += float64(lanes) * laneHeight
	if lanes > 0 {
		l.height += margin
	}
}
