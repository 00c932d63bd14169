package policy_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
)

// parse returns the graph of files that are given as text, by name.
func parse(t testing.TB, files map[string]string) *policy.Graph {
	t.Helper()
	var all []*policy.File
	for name, text := range files {
		f, err := policy.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	g, err := policy.NewGraph(all...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// chainOf is services that call each other in a row, the last one a database,
// each with a retry block of such attempts.
func chainOf(owner string, attempts ...int) map[string]string {
	files := map[string]string{}
	for i, n := range attempts {
		files[fmt.Sprintf("s%d.yaml", i)] = fmt.Sprintf(`
service: s%d
entry: {trust: peers, exempt: [/livez]}
dependencies:
  s%d:
    service: s%d
    timeout: %ds
    retry: {owner: %s, maxAttempts: %d, perAttemptTimeout: %ds}
`, i, i+1, i+1, 90-i*9, owner, n, (90-i*9-4)/n)
	}
	return files
}

func one(t *testing.T, g *policy.Graph, leaf string, rates ...float64) policy.Amplification {
	t.Helper()
	for _, a := range g.Amplification(rates...) {
		if a.Leaf == leaf {
			return a
		}
	}
	t.Fatalf("no leaf %s in %+v", leaf, g.Amplification())
	return policy.Amplification{}
}

func TestAmplification(t *testing.T) {
	unlinked := chainOf("auto", 3, 3)
	unlinked["s0.yaml"] = strings.Replace(unlinked["s0.yaml"], "    service: s1\n", "", 1)
	edge := chainOf("auto", 3, 3)
	edge["s1.yaml"] = strings.Replace(edge["s1.yaml"], "trust: peers", "trust: edge", 1)
	mesh := chainOf("auto", 1)
	mesh["s0.yaml"] += "mesh: istio\n"
	both := chainOf("auto", 4)
	both["s0.yaml"] += "    sdk: openai\n"
	two := chainOf("auto", 3)
	two["s0.yaml"] += "    sdk: aws\nmesh: istio\n"
	hedged := chainOf("auto", 2)
	hedged["s0.yaml"] += "    hedge: {max: 2}\n"
	operation := chainOf("auto", 1)
	operation["s0.yaml"] += "    operations: {\"GET /a\": {retry: {maxAttempts: 5}}}\n"
	circle := chainOf("auto", 2, 1)
	circle["s1.yaml"] += "  s0: {service: s0, timeout: 1s}\n"
	for _, c := range []struct {
		name         string
		files        map[string]string
		leaf         string
		worst, owned float64
		layers       string
	}{
		{"five services of three attempts", chainOf("auto", 3, 3, 3, 3, 3), "s5", 243, 3, "s0 → s1 3, s1 → s2 3, s2 → s3 3, s3 → s4 3, s4 → s5 3"},
		{"two layers", chainOf("auto", 3, 3), "s2", 9, 3, "s0 → s1 3, s1 → s2 3"},
		{"the larger one below", chainOf("auto", 2, 5), "s2", 10, 5, "s0 → s1 2, s1 → s2 5"},
		{"always repeats whoever owns", chainOf("always", 3, 3), "s2", 9, 9, "s0 → s1 3, s1 → s2 3"},
		{"never does not count", chainOf("never", 3, 3), "s2", 1, 1, ""},
		{"one attempt does not count", chainOf("auto", 1, 3), "s2", 3, 3, "s1 → s2 3"},
		{"the mark is not told to a third party", unlinked, "s2", 9, 9, "s0 → s1 3, s1 → s2 3"},
		{"the mark is not believed at the edge", edge, "s2", 9, 9, "s0 → s1 3, s1 → s2 3"},
		{"a mesh that nobody configured", mesh, "s1", 3, 3, "istio under s0 → s1 3"},
		{"a client library under retries", both, "s1", 12, 12, "s0 → s1 4, openai client under s0 → s1 3"},
		{"all three", two, "s1", 27, 27, "s0 → s1 3, istio under s0 → s1 3, aws client under s0 → s1 3"},
		{"copies count", hedged, "s1", 4, 4, "s0 → s1 4"},
		{"an operation may have more", operation, "s1", 5, 5, "s0 → s1 5"},
		{"below a circle", circle, "s2", math.Inf(1), math.Inf(1), "s0 → s1 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := one(t, parse(t, c.files), c.leaf)
			var layers []string
			for _, l := range a.Layers {
				layers = append(layers, fmt.Sprintf("%s %d", l.Name, l.Attempts))
			}
			if a.Worst != c.worst || a.Owned != c.owned || strings.Join(layers, ", ") != c.layers {
				t.Errorf("worst %v, owned %v, layers %q; want %v, %v, %q", a.Worst, a.Owned, layers, c.worst, c.owned, c.layers)
			}
			if a.Path[0] != "s0" || a.Path[len(a.Path)-1] != c.leaf {
				t.Errorf("path %v", a.Path)
			}
		})
	}
}

func TestAmplificationExpected(t *testing.T) {
	a := one(t, parse(t, chainOf("auto", 3, 3, 3, 3, 3)), "s5", 0.99, 0.9, 0.5, 0, 1)
	var got []string
	for _, x := range a.Expected {
		got = append(got, fmt.Sprintf("%.1f", x))
	}
	if want := []string{"91.3", "10.0", "2.0", "1.0", "243.0"}; !slices.Equal(got, want) {
		t.Errorf("expected %v, want %v", got, want)
	}
}

// A product beyond all numbers is the largest number: infinite are circles only.
func TestAmplificationSaturates(t *testing.T) {
	attempts := make([]int, 9)
	for i := range attempts {
		attempts[i] = 3
	}
	files := chainOf("auto", attempts...)
	for i := range 9 {
		name := fmt.Sprintf("s%d.yaml", i)
		files[name] = strings.Replace(files[name], "maxAttempts: 3", "maxAttempts: 2147483647", 1)
		files[name] += "    hiddenRetries: 2147483646\n"
	}
	g := parse(t, files)
	for range 3 {
		var layers []policy.Layer
		for i := range 10 {
			layers = append(layers, policy.Layer{Name: "more", Service: fmt.Sprintf("s%d", i), Retries: math.MaxInt32})
		}
		g.AddLayers(layers...)
	}
	if a := one(t, g, "s9"); a.Worst != math.MaxFloat64 {
		t.Errorf("worst %v, want the largest number", a.Worst)
	}
	g.Check(nil)
}

func TestAmplificationLayers(t *testing.T) {
	for _, c := range []struct {
		hidden string // in the file
		layers []policy.Layer
		want   float64
	}{
		{"", []policy.Layer{{Name: "route", Service: "s1", Retries: 4, Stated: true}}, 5},
		{"    hiddenRetries: 0\n", []policy.Layer{{Name: "route", Service: "s1", Retries: 4}}, 5},
		{"    hiddenRetries: 6\n", []policy.Layer{{Name: "route", Service: "s1", Retries: 4}}, 7},
		{"mesh: istio\n", []policy.Layer{{Name: "route", Service: "s1", Retries: 0, Stated: true}}, 1},
		{"mesh: istio\n", []policy.Layer{{Name: "route", Service: "another", Retries: 4}}, 3},
		{"", []policy.Layer{{Name: "route", Service: "s1", Retries: 1}, {Name: "client", Service: "s1", Retries: 2}}, 6},
	} {
		files := chainOf("auto", 1)
		files["s0.yaml"] += c.hidden
		g := parse(t, files)
		g.AddLayers(c.layers...)
		if a := one(t, g, "s1"); a.Worst != c.want {
			t.Errorf("%q under %v: worst %v, want %v", c.hidden, c.layers, a.Worst, c.want)
		}
	}
}
