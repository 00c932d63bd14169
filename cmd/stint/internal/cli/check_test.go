package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
)

const examples = "../../../../examples"

// checked is stint check of the paths, as far as its output.
func checked(t *testing.T, paths ...string) *checking {
	t.Helper()
	c := &checking{rates: []float64{0.99, 0.9}}
	if err := c.load(std(io.Discard, nil), paths); err != nil {
		t.Fatal(err)
	}
	c.findings, c.amplification = c.graph.Check(nil), c.graph.Amplification(c.rates...)
	return c
}

func topologies(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(examples + "/topologies/*")
	if err != nil || len(dirs) < 3 {
		t.Fatalf("topologies: %v, %v", dirs, err)
	}
	return dirs
}

func TestCheckExample(t *testing.T) {
	if c := checked(t, examples+"/policy"); len(c.findings) > 0 || c.files != 4 {
		t.Errorf("%d files: %v", c.files, c.findings)
	}
}

// What a code host wants of SARIF: rules that the results point to, a place in
// the file, and a fingerprint of its own for each finding that is about
// something else.
func TestSARIF(t *testing.T) {
	for _, dir := range topologies(t) {
		c := checked(t, dir)
		data, err := json.Marshal(c.sarif())
		if err != nil {
			t.Fatal(err)
		}
		var log struct {
			Schema  string `json:"$schema"`
			Version string
			Runs    []struct {
				Tool struct {
					Driver struct {
						Name  string
						Rules []struct {
							ID                   string
							ShortDescription     struct{ Text string }
							FullDescription      struct{ Text string }
							DefaultConfiguration struct{ Level string }
						}
					}
				}
				Results []struct {
					RuleID    string
					RuleIndex int
					Level     string
					Message   struct{ Text string }
					Locations []struct {
						PhysicalLocation struct {
							ArtifactLocation struct{ URI, URIBaseID string }
							Region           struct{ StartLine, StartColumn int }
						}
					}
					PartialFingerprints map[string]string
				}
			}
		}
		if err := json.Unmarshal(data, &log); err != nil {
			t.Fatal(err)
		}
		if log.Version != "2.1.0" || !strings.Contains(log.Schema, "sarif-schema-2.1.0.json") || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" {
			t.Fatalf("%s: %+v", dir, log)
		}
		run := log.Runs[0]
		if len(run.Results) != len(c.findings) || len(c.findings) == 0 || len(run.Tool.Driver.Rules) != len(policy.Rules()) {
			t.Fatalf("%s: %d results, %d rules", dir, len(run.Results), len(run.Tool.Driver.Rules))
		}
		for _, r := range run.Tool.Driver.Rules {
			if r.ID == "" || r.ShortDescription.Text == "" || r.FullDescription.Text == "" || r.DefaultConfiguration.Level == "" {
				t.Errorf("rule %+v", r)
			}
		}
		prints := map[string]string{}
		for i, r := range run.Results {
			f := c.findings[i]
			if r.RuleIndex < 0 || run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID || r.RuleID != f.Code || r.Level != string(f.Level) {
				t.Errorf("%v: rule %d %s, level %s", f.Position, r.RuleIndex, r.RuleID, r.Level)
			}
			at := r.Locations[0].PhysicalLocation
			if at.Region.StartLine != f.Line || at.Region.StartColumn != f.Column || f.Line < 1 || f.Column < 1 || at.ArtifactLocation.URIBaseID != "SRCROOT" {
				t.Errorf("%v: %+v", f.Position, at)
			}
			if data, err := os.ReadFile(filepath.FromSlash(at.ArtifactLocation.URI)); err != nil || bytes.Count(data, []byte("\n")) < f.Line {
				t.Errorf("%v: %v", f.Position, err)
			}
			about := f.Code + " " + f.Service + " " + f.Key
			for _, print := range r.PartialFingerprints {
				if other := prints[print]; other != "" && other != about {
					t.Errorf("%q and %q have one fingerprint", other, about)
				}
				prints[print] = about
			}
		}
		if len(prints) < 2 {
			t.Errorf("%s: fingerprints %v", dir, prints)
		}
	}
}

func TestFileURI(t *testing.T) {
	for path, want := range map[string]string{
		"a/b c.yaml":  "a/b%20c.yaml",
		"/a/b#1.yaml": "file:///a/b%231.yaml",
		"a:b.yaml":    "./a:b.yaml",
	} {
		if have := fileURI(path); have != want {
			t.Errorf("%s: %s, want %s", path, have, want)
		}
	}
}

// Each service and each call of real topologies is in the picture once, with its
// timeout, and what was found is marked in its own place.
func TestPictureOfTopologies(t *testing.T) {
	for _, dir := range topologies(t) {
		c := checked(t, dir)
		g := c.picture()
		marked := 0
		for _, n := range g.Nodes {
			if n.Note != "" {
				marked += 1 + strings.Count(n.Note, "\n")
			}
		}
		for _, call := range g.Calls {
			if call.Note != "" {
				marked += 1 + strings.Count(call.Note, "\n")
			}
		}
		if marked != len(c.findings) {
			t.Errorf("%s: %d findings in the picture, want %d", dir, marked, len(c.findings))
		}
		var buffer bytes.Buffer
		path := filepath.Join(t.TempDir(), "calls.html")
		if err := c.draw(std(&buffer, nil), path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]int{}
		rows := 0
		for d := xml.NewDecoder(bytes.NewReader(data)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if e.Name.Local == "tr" {
				rows++
			}
			at := map[string]string{}
			for _, a := range e.Attr {
				at[a.Name.Local] = a.Value
			}
			if name := at["data-name"]; name != "" {
				have[name]++
			}
			if from := at["data-from"]; from != "" {
				have[from+">"+at["data-to"]]++
			}
		}
		want := map[string]int{}
		for _, f := range c.graph.Services() {
			want[f.Service] = 1
		}
		for _, e := range c.graph.Edges() {
			want[e.Name()] = 1
			want[e.From.Service+">"+e.Name()]++
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s: drawn\n%v\nwant\n%v", dir, have, want)
		}
		if rows != len(c.findings)+1 {
			t.Errorf("%s: %d rows in the table, want %d and a head", dir, rows, len(c.findings))
		}
	}
}

func TestDependencyOf(t *testing.T) {
	f := &policy.File{Dependencies: map[string]*policy.Dependency{"a": {}, "a.b": {}, "deadline": {}}}
	for key, want := range map[string]string{
		"dependencies.a.timeout": "a", "dependencies.a": "a", "latencyBudget.a": "a", "latencyBudget.local": "",
		"latencyBudget.contingency": "", "latencyBudget": "", "entry.deadline": "", "": "",
		"dependencies.a.b.timeout": "a.b", "latencyBudget.a.b": "a.b", "latencyBudget.nobody": "", "dependencies.a.bc": "a",
	} {
		if have := dependencyOf(key, f); have != want {
			t.Errorf("%q: %q, want %q", key, have, want)
		}
		if have := dependencyOf(key, nil); have != "" {
			t.Errorf("%q, without a file: %q", key, have)
		}
	}
}

// However many leaves there are, the table stays short.
func TestManyLeaves(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("service: a\ndependencies:\n")
	for i := range mostLeaves + 5 {
		fmt.Fprintf(&b, "  d%02d: {timeout: 1s, retry: {maxAttempts: 2, perAttemptTimeout: 100ms}}\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	checked(t, dir).requests(std(&out, nil))
	if text := out.String(); strings.Count(text, "attempts: ") != mostLeaves || !strings.HasSuffix(text, "  and 5 more, of at most 2\n") {
		t.Errorf("the table:\n%s", text)
	}
}

func TestCount(t *testing.T) {
	for x, want := range map[float64]string{1: "1", 9: "9", 91.29: "91.3", 1e6: "1000000", 2.5e11: "2.50e+11"} {
		if have := count(x); have != want {
			t.Errorf("%v: %s, want %s", x, have, want)
		}
	}
}
