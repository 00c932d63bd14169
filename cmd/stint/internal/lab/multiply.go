package lab

import (
	"fmt"
	"slices"
	"strings"
)

func multiply(n int) experiment {
	e := experiment{
		shows:   "retries at two layers multiply, unless one of them owns the path",
		setting: "client -> A -> B -> C. C is always unavailable. The numbers are the attempts that A and B may make.",
		leaf:    "C",
	}
	add := func(m Mode, a, b, leaf int) *row {
		e.rows = append(e.rows, row{label: fmt.Sprintf("%s, %d and %d", m, a, b), spec: chained(m, a, b), want: exactly(leaf)})
		return &e.rows[len(e.rows)-1]
	}
	add(Naive, 1, 1, 1)
	add(Naive, 1, n, n)
	add(Naive, n, n, n*n).draw = true
	owned := add(Stint, n, n, n)
	owned.draw = true
	owned.promise = fmt.Sprintf("A claims the retries and B makes one try for each of A's, so C sees %s", plural(n, "request"))
	return e
}

func depth(n, layers int) experiment {
	attempts := slices.Repeat([]int{n}, layers)
	naive, owned := chained(Naive, attempts...), chained(Stint, attempts...)
	names := []string{}
	for _, c := range naive.callers {
		names = append(names, c.name)
	}
	label := func(m Mode) string { return fmt.Sprintf("%s, %s", m, plural(layers, "layer")) }
	return experiment{
		shows: "the deeper the calls go, the more the retries multiply",
		setting: fmt.Sprintf("%s -> %s. %[2]s is always unavailable. Each layer may make %s.",
			strings.Join(names, " -> "), naive.leaf, plural(n, "attempt")),
		leaf:    naive.leaf,
		ownAxes: true,
		rows: []row{
			{label: label(Naive), spec: naive, want: exactly(power(n, layers)), draw: true},
			{label: label(Stint), spec: owned, want: exactly(n), draw: true,
				promise: fmt.Sprintf("however deep the chain, %s sees one layer's attempts: %s", naive.leaf, plural(n, "request"))},
		},
	}
}
