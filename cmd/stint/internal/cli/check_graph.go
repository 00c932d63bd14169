package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/stint-go/stint/cmd/stint/internal/picture"
	"github.com/stint-go/stint/policy"
)

// draw writes the picture of the calls, with the findings in it.
func (c *checking) draw(std *Std, path string) error {
	g := c.picture()
	title := c.title()
	var data []byte
	var err error
	if strings.EqualFold(filepath.Ext(path), ".html") {
		data, err = picture.HTML(g, title, c.rows())
	} else {
		data, err = picture.SVG(g, title)
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(std.at(path), data, 0o644); err != nil {
		return named(path, err)
	}
	return nil
}

// title counts what is in the picture.
func (c *checking) title() string {
	stops, _ := c.graph.Traffic()
	services, stores := 0, ""
	for _, s := range stops {
		if s.Kind == "" {
			services++
		}
	}
	if n := len(stops) - services; n > 0 {
		stores = ", " + plural(n, "store", "stores")
	}
	return plural(services, "service", "services") + stores + ", " + plural(len(c.findings), "finding", "findings")
}

func (c *checking) picture() picture.Graph {
	var g picture.Graph
	stops, legs := c.graph.Traffic()
	for _, s := range stops {
		n := picture.Node{Name: s.Name, Text: requests(s.Requests)}
		if s.Kind != "" {
			n.Text = fmt.Sprintf("%s, %s", s.Kind, n.Text)
		}
		if s.File != nil && s.File.Entry != nil && s.File.Entry.Deadline > 0 {
			n.Text = fmt.Sprintf("deadline %v, %s", s.File.Entry.Deadline, n.Text)
		}
		if s.File != nil {
			n.Mark, n.Note = marked(c.about(s.Name, ""))
		}
		g.Nodes = append(g.Nodes, n)
	}
	for _, l := range legs {
		text := "→ " + l.Name() + ", "
		if text += "no timeout"; l.Timeout > 0 {
			text = fmt.Sprintf("→ %s, %v", l.Name(), l.Timeout)
		}
		if l.Attempts > 1 {
			text += ", ×" + count(l.Attempts)
		}
		call := picture.Call{From: l.Source, To: l.Target, Text: text}
		call.Mark, call.Note = marked(c.about(l.From.Service, l.Dependency))
		g.Calls = append(g.Calls, call)
	}
	return g
}

func requests(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "∞ requests"
	case x == 1:
		return "1 request"
	}
	return count(x) + " requests"
}

var marks = map[policy.Level]picture.Mark{policy.Warning: picture.Warning, policy.Error: picture.Error}

// marked is the worst of findings, and all of them in words.
func marked(findings []policy.Finding) (worst picture.Mark, note string) {
	var notes []string
	for _, f := range findings {
		worst = max(worst, marks[f.Level])
		notes = append(notes, f.Code+": "+f.What)
	}
	return worst, strings.Join(notes, "\n")
}

// rows are the findings for the table below the picture.
func (c *checking) rows() (rows []picture.Row) {
	for _, f := range c.findings {
		rows = append(rows, picture.Row{Mark: marks[f.Level], Code: f.Code, Where: f.Position.String(), What: f.What, Why: f.Why, Do: f.Do})
	}
	return rows
}

// dependencyOf is the dependency of f, which may be nil, that a key of it is about;
// empty if none is. Names may have dots, so that the longest that fits is meant.
func dependencyOf(key string, f *policy.File) (longest string) {
	_, rest, ok := strings.Cut(key, ".")
	if !ok || f == nil || !strings.HasPrefix(key, "dependencies.") && !strings.HasPrefix(key, "latencyBudget.") {
		return ""
	}
	for name := range f.Dependencies {
		if strings.HasPrefix(rest+".", name+".") && len(name) > len(longest) {
			longest = name
		}
	}
	return longest
}
