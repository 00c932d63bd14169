package cli

import (
	"io"
	"io/fs"
	"os"
	"strconv"

	xterm "golang.org/x/term"
)

// The columns that text takes: so many where nobody says how wide the terminal
// is, and within these bounds where somebody does.
const (
	usualColumns = 80
	fewColumns   = 60
	manyColumns  = 120
)

// columns is how wide text on standard output may be.
func (s *Std) columns() int { return s.columnsOf(s.Out) }

// columnsOf is how wide text may be: 80, or on a terminal what COLUMNS or the
// terminal itself says.
func (s *Std) columnsOf(w *Output) int {
	if !s.terminal(w) {
		return usualColumns
	}
	n, err := strconv.Atoi(s.Getenv("COLUMNS"))
	if f, ok := w.w.(*os.File); ok && err != nil {
		n, _, err = xterm.GetSize(int(f.Fd()))
	}
	if err != nil {
		return usualColumns
	}
	return min(max(n, fewColumns), manyColumns)
}

// terminal reports whether w is a terminal with colours, on which a line can be
// written over. Any other device passes for one too, but on the null device
// nobody reads.
func (s *Std) terminal(w *Output) bool {
	f, ok := w.w.(interface{ Stat() (fs.FileInfo, error) })
	if !ok || s.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// color reports whether the output has colours: on a terminal, unless NO_COLOR
// is set to anything (no-color.org).
func (s *Std) color() bool { return s.Getenv("NO_COLOR") == "" && s.terminal(s.Out) }

// A progress is one line on a terminal that says what is going on and that is
// written over. On anything else it is nothing.
type progress struct{ w io.Writer }

func (s *Std) progress() progress {
	if s.terminal(s.Err) {
		return progress{s.Err}
	}
	return progress{io.Discard}
}

// show replaces the line.
func (p progress) show(text string) { io.WriteString(p.w, "\r\x1b[K"+text) }

// clear takes the line away.
func (p progress) clear() { p.show("") }
