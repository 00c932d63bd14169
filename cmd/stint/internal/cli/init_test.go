package cli

import (
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

func initFile(t *testing.T, n int, deadline time.Duration) (plan, string) {
	t.Helper()
	p, err := newPlan("orders", []string{"a", "b", "c", "d", "e", "f"}[:n], deadline)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.file("stint.yaml")
	if err != nil {
		t.Fatalf("%d dependencies, %v: %v\n%s", n, deadline, err, text)
	}
	return p, string(text)
}

// checkedText is what stint check finds in a policy file.
func checkedText(t *testing.T, text string) []policy.Finding {
	t.Helper()
	f, err := policy.Parse("stint.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := policy.NewGraph(f)
	if err != nil {
		t.Fatal(err)
	}
	return g.Check(nil)
}

// The parts add up to the deadline, two attempts fit into a share, and a check
// finds nothing.
func TestInitNumbers(t *testing.T) {
	for _, deadline := range []time.Duration{40 * time.Millisecond, 137 * time.Millisecond, 800 * time.Millisecond, 10 * time.Second} {
		for n := 1; n <= 6; n++ {
			if deadline*6/10/time.Duration(n) < leastShare {
				continue
			}
			p, text := initFile(t, n, deadline)
			if found := checkedText(t, text); len(found) > 0 {
				t.Errorf("%v, %d dependencies: %v", deadline, n, found)
			}
			if sum := p.Local + p.Reserve + p.Contingency + time.Duration(n)*p.Share; sum != deadline || p.Contingency <= 0 {
				t.Errorf("%v, %d dependencies: %v in all, contingency %v", deadline, n, sum, p.Contingency)
			}
			if all := 2*p.AttemptTimeout + p.Cap; all > p.Share || p.CallMinUseful > p.AttemptTimeout {
				t.Errorf("%v, %d dependencies: attempts take %v of %v, least useful %v", deadline, n, all, p.Share, p.CallMinUseful)
			}
		}
	}
}

func TestInitTooShort(t *testing.T) {
	for _, n := range []int{1, 3, 6} {
		names := []string{"a", "b", "c", "d", "e", "f"}[:n]
		_, err := newPlan("orders", names, 5*time.Millisecond)
		if err == nil {
			t.Fatalf("%d dependencies in 5ms", n)
		}
		_, least, _ := strings.Cut(err.Error(), "take at least ")
		d, parseErr := time.ParseDuration(least)
		if parseErr != nil {
			t.Fatal(err)
		}
		if _, err := newPlan("orders", names, d); err != nil {
			t.Errorf("%d dependencies in %v, which was said to be enough: %v", n, d, err)
		}
	}
}

var switchedOff = regexp.MustCompile(`(?m)^( *)#((?:  )*"?[A-Za-z].*)$`)

// switchOn takes the # from keys: from those with examples too, or only from the
// defaults.
func switchOn(text string, examples bool) string {
	return switchedOff.ReplaceAllStringFunc(text, func(line string) string {
		if strings.HasSuffix(line, "# e.g.") != examples {
			return line
		}
		return switchedOff.ReplaceAllString(line, "$1$2")
	})
}

// What a commented-out key has as its default is its default: switched on, it
// changes nothing.
func TestInitDefaults(t *testing.T) {
	_, text := initFile(t, 2, 800*time.Millisecond)
	on := switchOn(text, false)
	if on == text {
		t.Fatal("no defaults are found")
	}
	before, err := policy.Parse("before.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	after, err := policy.Parse("after.yaml", []byte(on))
	if err != nil {
		t.Fatalf("%v\n%s", err, on)
	}
	effective := func(f *policy.File) (all []any) {
		for name := range f.Dependencies {
			c, err := f.Caller(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			d, err := f.Operation(name, "GET")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, name, c.Policy(), max(d.Calls.PerRequest, 1), len(d.Calls.ParallelWith))
		}
		g, err := f.Gate(&stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		o := g.Options()
		o.Logger, o.Observer = nil, nil
		return append(all, o, max(f.Replicas, 1), f.Mesh.HiddenRetries())
	}
	single := func(f *policy.File) []any { delete(f.Dependencies, "b"); return effective(f) }
	if a, b := single(before), single(after); !reflect.DeepEqual(a, b) {
		t.Errorf("switched on:\n%+v\nwant\n%+v", b, a)
	}
	if !strings.Contains(on, "\n    timeout: 240ms\n") || !strings.Contains(on, "\n  maxDeadline: 30s\n") {
		t.Errorf("not switched on:\n%s", on)
	}
}

// Each example can be read, and so can all of them together. One key stands
// there in two forms.
func TestInitExamples(t *testing.T) {
	_, text := initFile(t, 1, 800*time.Millisecond)
	if _, err := policy.Parse("examples.yaml", []byte(switchOn(text, true))); err != nil {
		t.Errorf("%v\n%s", err, switchOn(text, true))
	}
}

// Every key of the format is in the file.
func TestInitHasEveryKey(t *testing.T) {
	_, text := initFile(t, 1, 800*time.Millisecond)
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, typ.Kind()) {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			key := typ.Field(i).Tag.Get("yaml")
			if key == "" || key == "-" {
				continue
			}
			if !regexp.MustCompile(`[ #{]` + key + `:`).MatchString(strings.ReplaceAll(text, "\n", "\n ")) {
				t.Errorf("nothing is said of %s of %v", key, typ)
			}
			visit(typ.Field(i).Type)
		}
	}
	visit(reflect.TypeFor[policy.File]())
}
