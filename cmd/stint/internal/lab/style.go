package lab

import "strings"

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

// A shade is a colour of the terminal: the number of an ANSI escape (ECMA-48,
// SGR). Zero is none.
type shade string

const (
	plainText shade = ""
	bold      shade = "1"
	dim       shade = "2"
	red       shade = "31"
	green     shade = "32"
	yellow    shade = "33"
)

// paint returns s in a shade.
func (st Style) paint(c shade, s string) string {
	if !st.Color || c == plainText || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// shadeOf is the shade of a row's bars.
func shadeOf(m Mode) shade {
	if m == Stint {
		return green
	}
	return yellow
}

// wrap breaks s into lines that fit behind prefix, and indents the later ones
// as far as it.
func wrap(prefix, s string) string {
	var b strings.Builder
	indent := strings.Repeat(" ", len(prefix))
	line := prefix
	for _, word := range strings.Fields(s) {
		if line != prefix && line != indent {
			if len(line)+1+len(word) > width {
				b.WriteString(line + "\n")
				line = indent
			} else {
				line += " "
			}
		}
		line += word
	}
	return b.String() + line + "\n"
}
