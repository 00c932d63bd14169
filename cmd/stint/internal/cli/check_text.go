package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stint-go/stint/cmd/stint/internal/term"
	"github.com/stint-go/stint/policy"
)

// text writes the findings for people, and what follows from the numbers.
func (c *checking) text(std *Std, waterfall string) {
	columns, colors := std.columns(), std.color()
	for _, f := range c.findings {
		line := term.Hang("", "    ", fmt.Sprintf("%s: %s: %s: %s", f.Position, f.Level, f.Code, f.What), columns)
		level := fmt.Sprintf(": %s:", f.Level)
		fmt.Fprint(std.Out, strings.Replace(line, level, ": "+term.Paint(colors, shadeOf(f.Level), string(f.Level))+":", 1))
		fmt.Fprint(std.Out, term.Wrap("    why: ", f.Why, columns), term.Wrap("    do:  ", f.Do, columns), "\n")
	}
	c.summary(std)
	c.requests(std)
	services := c.services()
	if waterfall == "" && len(services) == 1 {
		waterfall = services[0]
	}
	if waterfall != "" {
		c.waterfall(std, waterfall)
	}
}

func shadeOf(l policy.Level) term.Shade {
	if l == policy.Error {
		return term.Red
	}
	return term.Yellow
}

func (c *checking) summary(std *Std) {
	files := plural(c.files, "file", "files")
	if len(c.findings) == 0 {
		fmt.Fprintf(std.Out, "%s: nothing found in %s, by %d rules.\n", term.Paint(std.color(), term.Green, "ok"), files, len(policy.Rules()))
		return
	}
	errors := c.errors()
	fmt.Fprintf(std.Out, "%s in %s: %s, %s.\n", plural(len(c.findings), "finding", "findings"), files,
		plural(errors, "error", "errors"), plural(len(c.findings)-errors, "warning", "warnings"))
}

// mostLeaves is how many the table shows; a program gets all.
const mostLeaves = 20

// requests writes the amplification table.
func (c *checking) requests(std *Std) {
	columns, colors, w := std.columns(), std.color(), std.Out
	rows := c.amplification
	if len(rows) == 0 {
		return
	}
	if rows[0].Worst == 1 {
		fmt.Fprint(w, "\n", term.Wrap("", "Nothing repeats a request on its way: each one at the top is at most one at the bottom.", columns))
		return
	}
	fmt.Fprint(w, "\n", term.Wrap("", "Requests at the bottom for one at the top: at worst, as they are while one owner of the retries "+
		"is known on the way, and as expected where so many attempts fail:", columns), "\n")
	const numberWidth, gap = 10, 2
	nameWidth := columns - 2 - (2+len(c.rates))*(numberWidth+gap)
	head := fmt.Sprintf("  %-*s  %*s  %*s", nameWidth, "", numberWidth, "worst", numberWidth, "one owner")
	for _, p := range c.rates {
		head += fmt.Sprintf("  %*s", numberWidth, "at "+policy.Ratio(p).String())
	}
	fmt.Fprintln(w, term.Paint(colors, term.Dim, head))
	for i, r := range rows {
		if i == mostLeaves {
			fmt.Fprintf(w, "  and %d more, of at most %s\n", len(rows)-i, count(r.Worst))
			break
		}
		line := fmt.Sprintf("  %-*s  %*s  %*s", nameWidth, short(r.Leaf, nameWidth), numberWidth, count(r.Worst), numberWidth, count(r.Owned))
		for _, e := range r.Expected {
			line += fmt.Sprintf("  %*s", numberWidth, count(e))
		}
		fmt.Fprintln(w, line)
		var layers []string
		for _, l := range r.Layers {
			layers = append(layers, fmt.Sprintf("%s %d", l.Name, l.Attempts))
		}
		if len(layers) > 0 {
			fmt.Fprint(w, term.Wrap("    attempts: ", strings.Join(layers, ", "), columns))
		}
	}
}

// short cuts a name that a column has no room for.
func short(s string, columns int) string {
	if r := []rune(s); len(r) > columns {
		return string(r[:columns-1]) + "…"
	}
	return s
}

// count is a number of requests as it is printed.
func count(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "unbounded"
	case x >= 1e9:
		return strconv.FormatFloat(x, 'e', 2, 64)
	case x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 1, 64)
}
