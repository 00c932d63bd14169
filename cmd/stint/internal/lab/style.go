package lab

import "github.com/stint-go/stint/cmd/stint/internal/term"

// width is the most columns that the text output takes, unless it is short.
const width = 80

// A Style says how the text output looks. The zero value is all of it, without
// colours.
type Style struct {
	// Color paints what the text says anyway.
	Color bool
	// Short leaves a line for each row, and what is broken.
	Short bool
}

// The shades that the lab uses.
const (
	bold   = term.Bold
	dim    = term.Dim
	red    = term.Red
	green  = term.Green
	yellow = term.Yellow
)

// paint returns s in a shade.
func (st Style) paint(c term.Shade, s string) string { return term.Paint(st.Color, c, s) }

// shadeOf is the shade of a row's bars.
func shadeOf(m Mode) term.Shade {
	if m == Stint {
		return green
	}
	return yellow
}

// wrap is term.Wrap within the lab's width.
func wrap(prefix, s string) string { return term.Wrap(prefix, s, width) }
