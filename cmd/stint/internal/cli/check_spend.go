package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint/cmd/stint/internal/term"
	"github.com/stint-go/stint/policy"
)

// fills are how the kinds of time are drawn.
var fills = map[string]struct {
	fill  rune
	shade term.Shade
}{
	policy.Local:       {'█', term.Green},
	policy.Call:        {'▒', ""},
	policy.Contingency: {'·', term.Dim},
	policy.Reserve:     {'░', term.Yellow},
}

// waterfall draws how one deadline is spent: a line for each part of it, those
// of a callee below the call.
func (c *checking) waterfall(std *Std, service string) {
	slices := c.graph.Spend(service)
	if len(slices) == 0 {
		return
	}
	colors, columns := std.color(), std.columns()
	var end time.Duration
	widest := 0
	for _, s := range slices {
		end = max(end, s.End)
		widest = max(widest, utf8.RuneCountInString(s.Name)+2*s.Level)
	}
	names := min(widest, columns/3)
	const lengths = 8 // of a time behind the bars
	a := term.NewAxis(columns-2-names-1-1-1-lengths, end, end)
	fmt.Fprint(std.Out, "\n", term.Wrap("", fmt.Sprintf("How a request to %s may spend its %s, up to the line |: █ own work, ▒ a call, · nobody's, "+
		"░ kept back for the answer.", service, term.Duration(end)), columns), "\n")
	row := func(name, rest string) { fmt.Fprintf(std.Out, "  %-*s %s\n", names, short(name, names), rest) }
	row("", term.Paint(colors, term.Dim, a.Ticks()))
	for _, s := range slices {
		f := fills[s.Kind]
		cells := a.Blank()
		for i := a.Cell(s.Start); i <= max(a.Cell(s.Start), a.Cell(s.End-1)); i++ {
			cells[i] = term.Shaded(f.fill, f.shade)
		}
		row(strings.Repeat("  ", s.Level)+s.Name, term.Line(colors, a.Mark(cells))+" "+term.Duration(s.End-s.Start))
	}
}

// review writes the questions of reviews, and their answers.
func (c *checking) review(std *Std) {
	columns, colors := std.columns(), std.color()
	list, number := "", 0
	for _, a := range c.graph.Review() {
		if a.List != list {
			if list != "" {
				fmt.Fprintln(std.Out)
			}
			list, number = a.List, 0
			fmt.Fprintln(std.Out, term.Paint(colors, term.Bold, a.List))
		}
		number++
		fmt.Fprint(std.Out, term.Wrap(fmt.Sprintf("  %d. ", number), a.Question, columns))
		mark := "     = "
		if !a.Answerable {
			mark = "     ? "
		}
		fmt.Fprint(std.Out, term.Wrap(mark, a.Answer, columns))
	}
}
