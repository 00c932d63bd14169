// Package picture draws who calls whom: services as boxes from left to right,
// calls as lines from a row of the caller's box to the callee.
package picture

import (
	"fmt"
	"unicode/utf8"
)

// A Graph is what is drawn. Nodes come in an order in which callers stand before
// callees; a call to one that stands before it, or to itself, is drawn as going
// back.
type Graph struct {
	Nodes []Node
	Calls []Call
}

// A Node is a service, or what a service calls.
type Node struct {
	Name string
	// Text is the second line of its box.
	Text string
	// Mark is the worst that there is to say about it, Note what.
	Mark Mark
	Note string
}

// A Call leads from one node to another, by their places in Graph.Nodes.
type Call struct {
	From, To int
	// Text is its row in the caller's box.
	Text string
	Mark Mark
	Note string
}

// A Mark says how bad something is: by a symbol, and by a colour too.
type Mark int

// The marks.
const (
	Fine Mark = iota
	Warning
	Error
)

// Symbol is the mark without colours.
func (m Mark) Symbol() string { return [...]string{"", "▲", "✖"}[m] }

func (m Mark) class() string { return [...]string{"fine", "warning", "error"}[m] }

// Sizes in pixels. Text is in a font whose characters are all as wide.
const (
	charWidth  = 7.4 // at 12 px, rounded up
	headHeight = 42
	rowHeight  = 20
	padding    = 10
	boxGap     = 22
	laneHeight = 12 // of a line that passes a column
	columnGap  = 84
	margin     = 24
	mostChars  = 44
)

// cut shortens what would make a box too wide.
func cut(s string) string {
	if utf8.RuneCountInString(s) <= mostChars {
		return s
	}
	return string([]rune(s)[:mostChars-1]) + "…"
}

// head is the first line of a node's box, row that of a call.
func (n Node) head() string {
	if n.Mark == Fine {
		return cut(n.Name)
	}
	return n.Mark.Symbol() + " " + cut(n.Name)
}

func (c Call) row() string {
	if c.Mark == Fine {
		return cut(c.Text)
	}
	return c.Mark.Symbol() + " " + cut(c.Text)
}

// check reports a call that leads nowhere.
func (g Graph) check() error {
	for i, c := range g.Calls {
		if c.From < 0 || c.From >= len(g.Nodes) || c.To < 0 || c.To >= len(g.Nodes) {
			return fmt.Errorf("picture: call %d leads from %d to %d, of %d nodes", i, c.From, c.To, len(g.Nodes))
		}
	}
	return nil
}
