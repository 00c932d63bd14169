package picture

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// style is in the picture itself, so that it is read in the light and in the
// dark wherever it is shown.
const style = `
.stint { --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --box: #f6f8fa; --edge: #818b98; --error: #c1121f; --warning: #8a5a00; }
@media (prefers-color-scheme: dark) {
.stint { --paper: #0d1117; --ink: #f0f6fc; --faint: #9198a1; --box: #161b22; --edge: #6e7781; --error: #ff7b72; --warning: #e3b341; } }
.stint .paper { fill: var(--paper); }
.stint text { fill: var(--ink); font: 12px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.stint .faint { fill: var(--faint); }
.stint .name { font-weight: bold; }
.stint .box { fill: var(--box); stroke: var(--edge); stroke-width: 1.2; }
.stint .call { fill: none; stroke: var(--edge); stroke-width: 1.4; }
.stint .back { stroke-dasharray: 6 4; }
.stint .warning .box, .stint .call.warning { stroke: var(--warning); stroke-width: 2; }
.stint .error .box, .stint .call.error { stroke: var(--error); stroke-width: 2.4; }
.stint .warning > .name, .stint text.warning { fill: var(--warning); }
.stint .error > .name, .stint text.error { fill: var(--error); }
.stint marker path { fill: context-stroke; stroke: none; }
`

// legend says what the symbols mean.
const legend = "✖ error · ▲ warning · dashed: a call that goes back · requests: at most, for one at the left"

// SVG returns the picture, of that title.
func SVG(g Graph, title string) ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	l := place(g)
	var b strings.Builder
	w, h := max(l.width, float64(utf8.RuneCountInString(legend))*charWidth+2*margin), l.height+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="stint" role="img" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s">`+"\n", num(w), num(h))
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(title), style)
	b.WriteString(`<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect class="paper" width="%s" height="%s"/>`+"\n", num(w), num(h))
	for i, c := range g.Calls {
		l.lines[i].write(&b, c, g)
	}
	for i, n := range g.Nodes {
		l.boxes[i].write(&b, n, g)
	}
	text(&b, margin, l.height+margin, "faint", legend)
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

func (l line) write(b *strings.Builder, c Call, g Graph) {
	class := "call " + c.Mark.class()
	if l.back {
		class += " back"
	}
	var d strings.Builder
	at := l.points[0]
	fmt.Fprintf(&d, "M%s %s", num(at.x), num(at.y))
	for _, p := range l.points[1:] {
		if l.back || p.y == at.y {
			fmt.Fprintf(&d, " L%s %s", num(p.x), num(p.y))
		} else {
			mid := num((at.x + p.x) / 2)
			fmt.Fprintf(&d, " C%s %s %s %s %s %s", mid, num(at.y), mid, num(p.y), num(p.x), num(p.y))
		}
		at = p
	}
	fmt.Fprintf(b, `<path class="%s" data-from="%s" data-to="%s" marker-end="url(#tip)" d="%s"><title>%s</title></path>`+"\n", class,
		escape(g.Nodes[c.From].Name), escape(g.Nodes[c.To].Name), &d, escape(note(g.Nodes[c.From].Name+" → "+c.Text, c.Note)))
}

func (box box) write(b *strings.Builder, n Node, g Graph) {
	fmt.Fprintf(b, `<g class="node %s" data-name="%s"><title>%s</title>`+"\n", n.Mark.class(), escape(n.Name), escape(note(n.Name+": "+n.Text, n.Note)))
	fmt.Fprintf(b, `<rect class="box" x="%s" y="%s" width="%s" height="%s" rx="6"/>`+"\n", num(box.x), num(box.y), num(box.w), num(box.h))
	text(b, box.x+padding, box.y+17, "name", n.head())
	text(b, box.x+padding, box.y+34, "faint", cut(n.Text))
	for row, i := range box.rows {
		c := g.Calls[i]
		text(b, box.x+padding, box.y+headHeight+float64(row)*rowHeight+14, "row "+c.Mark.class(), c.row())
	}
	b.WriteString("</g>\n")
}

func note(text, more string) string {
	if more == "" {
		return text
	}
	return text + "\n" + more
}

func text(b *strings.Builder, x, y float64, class, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%s" y="%s">%s</text>`+"\n", class, num(x), num(y), escape(s))
}

// num is a coordinate to a tenth of a pixel.
func num(x float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

// escape makes text of what may stand in a file, control characters included.
func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) // a Builder has no errors
	return b.String()
}
