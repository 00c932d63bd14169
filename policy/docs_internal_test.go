package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs holds the list of findings in docs/policy.md against the rules.
func TestDocs(t *testing.T) {
	const path, begin, end = "../docs/policy.md", "<!-- rules:begin -->\n", "<!-- rules:end -->\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no block of rules", path)
	}
	var want strings.Builder
	want.WriteString("| code | level | what | why it hurts |\n|---|---|---|---|\n")
	for _, r := range Rules() {
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", r.Code, r.Level, r.Title, r.Why)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want.String() {
		t.Errorf("the rules in %s are others than Rules has; make schema writes them anew", path)
	}
}

// The example of stores is a file in which nothing is wrong.
func TestDocsOfStores(t *testing.T) {
	data, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), "## Stores\n\n```yaml\n")
	block, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatal("docs/policy.md has no example of stores")
	}
	f, err := Parse("docs.yaml", []byte("service: orders\n"+block))
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGraph(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range g.Check(nil) {
		t.Errorf("%s: %s", finding.Code, finding.What)
	}
}
