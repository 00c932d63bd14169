package policy

import (
	"fmt"
	"strings"
)

// hidden holds what repeats calls by itself against what the file says of it.
func (c *checker) hidden(e *call) {
	layers := c.g.Layers(e.Edge)
	n, stated := e.From.HiddenRetries(e.Dependency)
	if len(layers) == 0 {
		if n > 0 && !stated {
			c.add(e.From, e.key("hiddenRetries"), "mesh-default-forgotten",
				fmt.Sprintf("calls of %s go through %s, which repeats them %s unless it is told otherwise, and the file does not say so", e.name(), e.carriers(), often(n)),
				fmt.Sprintf("Switch its retries off and write hiddenRetries: 0, or hiddenRetries: %d to have them counted.", n))
		}
		return
	}
	all := retries(layers)
	var names []string
	silent := true
	for _, l := range layers {
		if l.Retries > 0 {
			silent = silent && !l.Stated
		}
		names = append(names, fmt.Sprintf("%s (%s)", l.Name, l.Position))
	}
	if !stated {
		all = (1+all)*(1+e.d.SDK.HiddenRetries()) - 1
	}
	named := strings.Join(names, ", ")
	switch {
	case stated && n == all, !stated && all == 0:
	case stated:
		c.add(e.From, e.key("hiddenRetries"), "hidden-retries",
			fmt.Sprintf("the file says that calls of %s are repeated %s below, and %s makes it %s", e.name(), often(n), named, often(all)),
			fmt.Sprintf("Switch them off there and write hiddenRetries: 0, or hiddenRetries: %d.", all))
	case silent:
		c.add(e.From, e.key("hiddenRetries"), "hidden-retries",
			fmt.Sprintf("nobody configured retries for %s, yet calls are repeated %s: %s says nothing of retries, and that is its default", e.name(), often(all), named),
			"Write attempts: 0 (or its like) there and hiddenRetries: 0 here.")
	default:
		c.add(e.From, e.key("hiddenRetries"), "hidden-retries",
			fmt.Sprintf("%s repeats calls of %s %s, and the file does not say so", named, e.name(), often(all)),
			fmt.Sprintf("Switch them off there and write hiddenRetries: 0, or hiddenRetries: %d to have them counted.", all))
	}
}

func (e *call) carriers() string {
	var names []string
	if e.From.Mesh.HiddenRetries() > 0 {
		names = append(names, string(e.From.Mesh))
	}
	if e.d.SDK.HiddenRetries() > 0 {
		names = append(names, "the client library "+string(e.d.SDK))
	}
	return strings.Join(names, " and ")
}

// often is a number of repetitions.
func often(n int) string { return plural(n, "time", "times") }
