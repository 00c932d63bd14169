package policy

import (
	"cmp"
	"fmt"
	"strings"
)

// hidden holds what repeats calls by itself against what the file says of it.
func (c *checker) hidden(e *call) {
	layers := c.g.Layers(e.Edge)
	n, stated := e.From.HiddenRetries(e.Dependency)
	if len(layers) == 0 {
		if n > 0 && !stated {
			how := ""
			if e.d.Kind == Redis {
				how = " (stintredis.Options does)"
			}
			c.add(e.From, e.key("hiddenRetries"), "mesh-default-forgotten",
				fmt.Sprintf("calls of %s go through %s, which repeats them %s unless it is told otherwise, and the file does not say so", e.name(), e.carriers(), often(n)),
				fmt.Sprintf("Switch its retries off%s and write hiddenRetries: 0, or hiddenRetries: %d to have them counted.", how, n))
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

// alone is about layers under calls of which no file tells: what a mesh, or a
// client's own configuration, does by itself.
func (c *checker) alone() {
	known := map[string]bool{}
	for _, e := range c.n.calls {
		if !e.d.Kind.Store() {
			known[e.Name()], known[e.Dependency] = true, true
		}
	}
	for _, service := range sorted(c.g.layers) {
		if known[service] {
			continue
		}
		called, layers := cmp.Or(service, "all services"), c.g.layers[service]
		var repeat []string
		for _, l := range layers {
			if l.Retries > 0 {
				repeat = append(repeat, fmt.Sprintf("%s, %d attempts", l.Name, 1+l.Retries))
			}
		}
		if len(repeat) > 1 {
			c.under(layers[len(layers)-1], Error, "retries-multiply",
				fmt.Sprintf("one call of %s may become %s requests (%s)", called, count(1+float64(retries(layers))), strings.Join(repeat, "; ")),
				"Keep one of them, and write attempts: 0 (or its like) in the others.")
		}
		for _, l := range layers {
			made := float64(1 + max(l.Retries, 0))
			switch {
			case l.Retries <= 0:
			case !l.Stated:
				c.under(l, Error, "hidden-retries",
					fmt.Sprintf("nobody configured retries for %s, yet calls are repeated %s: %s says nothing of retries, and that is its default, so that one request may become %s", called, often(l.Retries), l.Name, count(made)),
					"Write attempts: 0 (or its like) where its callers repeat, or what may not be done twice.")
			default:
				c.under(l, Warning, "hidden-retries",
					fmt.Sprintf("%s repeats calls of %s %s, so that one request may become %s; no policy file here says so", l.Name, called, often(l.Retries), count(made)),
					fmt.Sprintf("Write hiddenRetries: %d into the policies of its callers, so that it is counted, or switch it off there.", l.Retries))
			}
			if l.Timeout > 0 && l.PerAttempt > l.Timeout {
				c.under(l, Error, "timeout-order", fmt.Sprintf("%s gives an attempt %s, and the call %s", l.Name, dur(l.PerAttempt), dur(l.Timeout)),
					fmt.Sprintf("Write a limit of an attempt below %s.", dur(l.Timeout)))
			} else if need := times(l.PerAttempt, 1+max(l.Retries, 0)); l.Timeout > 0 && need > l.Timeout {
				c.under(l, Error, "attempts-do-not-fit", fmt.Sprintf("%s makes %s of %s, which may take %s, and the call ends after %s", l.Name, plural(1+l.Retries, "attempt", "attempts"), dur(l.PerAttempt), dur(need), dur(l.Timeout)),
					fmt.Sprintf("Write a timeout of at least %s, or fewer attempts.", dur(need)))
			}
		}
	}
}

// under adds a finding in the file of a layer.
func (c *checker) under(l Layer, level Level, code, what, do string) {
	c.found = append(c.found, Finding{l.Position, code, level, l.Service, "", what, ruleOf[code].Why, do})
}

func (e *call) carriers() string {
	if client, n := e.d.Kind.client(); n > 0 {
		return "the client library " + client
	}
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
