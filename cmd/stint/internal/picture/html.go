package picture

import (
	"fmt"
	"strings"
)

// A Row is a line of the table below the picture.
type Row struct {
	Mark                       Mark
	Code, Where, What, Why, Do string
}

const page = `
body { margin: 2rem; background: #ffffff; color: #1f2328; font: 15px/1.5 system-ui, sans-serif; }
figure { margin: 1rem 0; overflow-x: auto; }
@media (min-width: 60rem) { svg { max-width: 100%; height: auto; } }
table { border-collapse: collapse; }
th, td { padding: .4rem .8rem; text-align: left; vertical-align: top; border-bottom: 1px solid #d1d9e0; }
th, code { font-size: 13px; }
.error { color: #c1121f; }
.warning { color: #8a5a00; }
@media (prefers-color-scheme: dark) {
body { background: #0d1117; color: #f0f6fc; }
th, td { border-color: #3d444d; }
.error { color: #ff7b72; }
.warning { color: #e3b341; } }
`

// HTML returns a page with the picture and a table. It needs nothing from
// anywhere else.
func HTML(g Graph, title string, rows []Row) ([]byte, error) {
	svg, err := SVG(g, title)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"+
		"<meta name=\"viewport\" content=\"width=device-width\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n"+
		"<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n<h1>%[1]s</h1>\n<figure>\n%[3]s</figure>\n", escape(title), page, svg)
	if len(rows) == 0 {
		b.WriteString("<p>No findings.</p>\n")
	} else {
		b.WriteString("<table>\n<thead><tr><th>Finding</th><th>Where</th><th>What</th><th>Why it hurts</th><th>What would be right</th></tr></thead>\n<tbody>\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "<tr><td class=\"%s\">%s %[1]s: <code>%[3]s</code></td><td><code>%s</code></td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
				r.Mark.class(), r.Mark.Symbol(), escape(r.Code), escape(r.Where), escape(r.What), escape(r.Why), escape(r.Do))
		}
		b.WriteString("</tbody>\n</table>\n")
	}
	b.WriteString("</body>\n</html>\n")
	return []byte(b.String()), nil
}
