package term

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Axis maps times to columns.
type Axis struct {
	// End is the time at the right end; above zero.
	End time.Duration
	// Columns is how wide it is, the line of the deadline aside.
	Columns int
	// Deadline is the cell that the deadline's line stands before; none if
	// negative.
	Deadline int
}

// NewAxis returns an axis of so many columns up to end. The deadline is on it
// unless all else would shrink too much.
func NewAxis(columns int, end, deadline time.Duration) Axis {
	a := Axis{End: max(end, time.Microsecond), Columns: columns, Deadline: -1}
	if deadline < 4*a.End {
		a.End = max(a.End, deadline+deadline/50)
		a.Deadline = a.Cell(deadline) + 1 // so that what ends with it stands before it
	}
	return a
}

// Cell returns the column of a time, the nearest if it is not on the axis.
func (a Axis) Cell(t time.Duration) int {
	return max(0, min(int(int64(t)*int64(a.Columns)/int64(a.End)), a.Columns-1))
}

// Ticks returns the line with the times.
func (a Axis) Ticks() string {
	const apart = 9 // columns, at least
	step, unit := time.Microsecond, []time.Duration{2, 5, 10}
	for base := step; int64(step)*int64(a.Columns) < apart*int64(a.End); {
		for _, u := range unit {
			if step = base * u; int64(step)*int64(a.Columns) >= apart*int64(a.End) {
				break
			}
		}
		base *= 10
	}
	line := []rune(strings.Repeat(" ", a.Columns+1))
	for t := time.Duration(0); t < a.End; t += step {
		text := strconv.FormatFloat(Millis(t), 'f', -1, 64)
		if t == 0 {
			text = "0 ms"
		}
		at := int(int64(t) * int64(a.Columns) / int64(a.End))
		if a.Deadline >= 0 && at >= a.Deadline {
			at++
		}
		if at+len(text) <= len(line) {
			copy(line[at:], []rune(text))
		}
	}
	return strings.TrimRight(string(line), " ")
}

// A Cell is one column of a line.
type Cell struct {
	Rune  rune
	Shade Shade
}

// Shaded returns a column with r in a shade.
func Shaded(r rune, s Shade) Cell { return Cell{r, s} }

// Blank returns the axis's columns, empty.
func (a Axis) Blank() []Cell {
	cells := make([]Cell, a.Columns)
	for i := range cells {
		cells[i].Rune = ' '
	}
	return cells
}

// Mark puts the deadline's line into cells.
func (a Axis) Mark(cells []Cell) []Cell {
	if a.Deadline < 0 {
		return cells
	}
	return slices.Insert(cells, a.Deadline, Cell{'|', Bold})
}

// Line joins cells to text, neighbours of one shade under one escape.
func Line(colors bool, cells []Cell) string {
	var b, run strings.Builder
	var s Shade
	for _, c := range cells {
		if c.Shade != s {
			b.WriteString(Paint(colors, s, run.String()))
			run.Reset()
			s = c.Shade
		}
		run.WriteRune(c.Rune)
	}
	b.WriteString(Paint(colors, s, run.String()))
	return b.String()
}
