package policy_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/policy"
)

// example returns the files of a directory under examples, by name.
func example(t testing.TB, dir string) map[string]string {
	t.Helper()
	if here, err := os.Getwd(); err == nil && strings.Contains(here, "@") {
		t.Skip("a downloaded module has no examples")
	}
	names, err := filepath.Glob("../examples/" + dir + "/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("examples/%s: %v, error %v", dir, names, err)
	}
	files := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = string(data)
	}
	return files
}

func TestCheckExampleIsClean(t *testing.T) {
	for _, f := range parse(t, example(t, "policy")).Check(nil) {
		t.Errorf("%v: %s: %s", f.Position, f.Code, f.What)
	}
}

// An edit is a change of one file; old has to stand there just once.
type edit struct{ file, old, with string }

// A place is a line: that of the end of a text that stands in the file just once.
type place struct {
	code  string
	level policy.Level
	file  string
	text  string
}

// A mistake is planted into the clean example, or stands in files of its own.
type mistake struct {
	name   string
	edits  []edit
	files  map[string]string
	layers []policy.Layer
	want   []place
}

const (
	e  = policy.Error
	w  = policy.Warning
	ms = time.Millisecond
)

func single(text string) map[string]string { return map[string]string{"one.yaml": text} }

var noBudget = []edit{
	{"inventory.yaml", "  deadline: 120ms             # one attempt of orders\n", ""},
	{"inventory.yaml", "latencyBudget:\n  local: 20ms\n  database: 60ms\n  contingency: 20ms\n", ""},
}

const (
	postsUnder = "    hiddenRetries: 0\n    distance: datacentre\n    busy: 50%"
	pricing    = "timeout: 180ms\n    minUseful: 20ms\n    retry: none\n    hiddenRetries: 0"
)

var mistakes = []mistake{
	{name: "more is allotted than there is", edits: []edit{{"orders.yaml", "contingency: 150ms", "contingency: 151ms"}},
		want: []place{{"allocation-over-deadline", e, "orders.yaml", "contingency: 151ms"}}},
	{name: "the deadline is less than was allotted", edits: []edit{{"orders.yaml", "deadline: 760ms", "deadline: 750ms"}},
		want: []place{{"allocation-over-deadline", e, "orders.yaml", "contingency: 150ms"}}},
	{name: "time that belongs to nobody", edits: []edit{{"orders.yaml", "contingency: 150ms", "contingency: 149ms"}},
		want: []place{{"allocation-over-deadline", w, "orders.yaml", "contingency: 149ms"}}},
	{name: "a share without a dependency", edits: []edit{{"orders.yaml", "  pricing: 180ms", "  pricin: 180ms"}},
		want: []place{{"unknown-share", e, "orders.yaml", "pricin: 180ms"}}},
	{name: "a timeout above its share", edits: []edit{{"orders.yaml", "timeout: 180ms", "timeout: 181ms"}},
		want: []place{{"timeout-over-share", e, "orders.yaml", "timeout: 181ms"}}},
	{name: "two calls above their share", edits: []edit{{"inventory.yaml", "timeout: 60ms", "timeout: 40ms\n    calls: {perRequest: 2}"}},
		want: []place{{"timeout-over-share", e, "inventory.yaml", "timeout: 40ms"}}},
	{name: "an operation above the share", edits: []edit{{"orders.yaml", `"GET /stock/{sku}": {minUseful: 20ms}`, `"GET /stock/{sku}": {timeout: 270ms}`}},
		want: []place{{"timeout-over-share", e, "orders.yaml", "{timeout: 270ms}"}}},
	{name: "calls longer than the deadline", edits: []edit{{"inventory.yaml", "timeout: 60ms", "timeout: 60ms\n    calls: {perRequest: 40}"}, noBudget[1]},
		want: []place{{"path-over-deadline", e, "inventory.yaml", "deadline: 120ms"}}},
	{name: "a callee that plans for more", edits: append([]edit{{"inventory.yaml", "timeout: 60ms", "timeout: 110ms"}}, noBudget...),
		want: []place{{"child-needs-more", e, "orders.yaml", "perAttemptTimeout: 120ms"}}},
	{name: "a callee whose deadline is longer", edits: []edit{{"inventory.yaml", "deadline: 120ms", "deadline: 130ms"}, {"inventory.yaml", "contingency: 20ms", "contingency: 30ms"}},
		want: []place{{"timeout-order", w, "inventory.yaml", "deadline: 130ms"}}},
	{name: "a callee that waits longer", edits: append([]edit{{"inventory.yaml", "timeout: 60ms", "timeout: 130ms"}}, noBudget...),
		want: []place{{"timeout-order", e, "inventory.yaml", "timeout: 130ms"}}},
	{name: "a route that cuts first", layers: []policy.Layer{{Name: "route", Service: "pricing", Stated: true, Timeout: 100 * ms}},
		want: []place{{"timeout-order", e, "orders.yaml", "timeout: 180ms"}}},
	{name: "a route whose attempts are longer than its calls", layers: []policy.Layer{{Position: policy.Position{File: "route.yaml", Line: 7, Column: 1}, Name: "route", Service: "pricing", Stated: true, Timeout: 200 * ms, PerAttempt: 300 * ms}},
		want: []place{{"timeout-order", e, "route.yaml", "7"}}},
	{name: "one timeout everywhere", files: map[string]string{
		"a.yaml": "service: a\ndependencies:\n  b: {timeout: 5s}\n",
		"b.yaml": "service: b\ndependencies:\n  c: {timeout: 5s}\n",
		"c.yaml": "service: c\ndependencies:\n  database: {timeout: 5s}\n"},
		want: []place{{"same-timeout", w, "c.yaml", "timeout: 5s"}}},
	{name: "one timeout for all calls", files: single("service: a\ndependencies:\n  b: {timeout: 5s}\n  c: {timeout: 5s}\n  d: {timeout: 5s}\n"),
		want: []place{{"same-timeout", w, "one.yaml", "b: {timeout: 5s}"}}},
	{name: "a call that nothing bounds", files: single("service: job\ndependencies:\n  warehouse: {}\n"),
		want: []place{{"no-deadline", e, "one.yaml", "warehouse: {}"}}},
	{name: "no bound from above either", files: map[string]string{
		"a.yaml": "service: a\ndependencies:\n  b: {timeout: 5s}\n  c: {}\n",
		"b.yaml": "service: b\ndependencies:\n  database: {}\n",
		"c.yaml": "service: c\ndependencies:\n  queue: {}\n"},
		want: []place{{"no-deadline", e, "a.yaml", "c: {}"}, {"no-deadline", e, "c.yaml", "queue: {}"}}},
	{name: "the article's three attempts of 120ms in 260ms", edits: []edit{{"orders.yaml", "maxAttempts: 2", "maxAttempts: 3"}},
		want: []place{{"attempts-do-not-fit", e, "orders.yaml", "maxAttempts: 3"}}},
	{name: "three attempts, of which one may be slow", edits: []edit{{"orders.yaml", "maxAttempts: 2", "maxAttempts: 3"}, {"orders.yaml", "    timeout: 260ms\n", "    timeout: 260ms\n    repeatAfterTimeout: false\n"}}},
	{name: "attempts without a timeout, of which one may be slow", edits: []edit{{"orders.yaml", "      perAttemptTimeout: 120ms\n", ""}, {"orders.yaml", "    timeout: 260ms\n", "    timeout: 260ms\n    repeatAfterTimeout: false\n"}}},
	{name: "an operation longer than any request", files: single("service: a\nentry:\n  trust: peers\n  deadline: 700ms\n  exempt: [/livez]\n  reserve: 50ms\n  routes: {/r: {deadline: 2s}}\ndependencies:\n  b:\n    timeout: 100ms\n    operations:\n      GET: {timeout: 1950ms}\n      POST: {timeout: 1951ms}\n"),
		want: []place{{"path-over-deadline", e, "one.yaml", "timeout: 1951ms"}}},
	{name: "an operation's attempts do not fit", edits: []edit{{"orders.yaml", `"GET /stock/{sku}": {minUseful: 20ms}`, `"GET /stock/{sku}": {timeout: 200ms}`}},
		want: []place{{"attempts-do-not-fit", e, "orders.yaml", "maxAttempts: 2"}}},
	{name: "an attempt longer than its call", edits: []edit{{"orders.yaml", "perAttemptTimeout: 120ms", "perAttemptTimeout: 300ms"}},
		want: []place{{"attempt-over-call", e, "orders.yaml", "perAttemptTimeout: 300ms"}}},
	{name: "a callee that waits longer than the call, whose attempts may", edits: append([]edit{{"inventory.yaml", "timeout: 60ms", "timeout: 280ms"}, {"orders.yaml", "perAttemptTimeout: 120ms", "perAttemptTimeout: 300ms"}}, noBudget...),
		want: []place{{"timeout-order", e, "inventory.yaml", "timeout: 280ms"}, {"attempt-over-call", e, "orders.yaml", "perAttemptTimeout: 300ms"}}},
	{name: "attempts without a timeout", edits: []edit{{"orders.yaml", "      perAttemptTimeout: 120ms\n", ""}},
		want: []place{{"no-attempt-timeout", w, "orders.yaml", "maxAttempts: 2"}}},
	{name: "four attempts", files: single("service: a\ndependencies:\n  b:\n    timeout: 5s\n    retry: {maxAttempts: 4, perAttemptTimeout: 1s}\n"),
		want: []place{{"too-many-attempts", w, "one.yaml", "maxAttempts: 4"}}},
	{name: "more retries than the budget holds", files: single("service: a\ndependencies:\n  b:\n    timeout: 5s\n    retry: {maxAttempts: 3, perAttemptTimeout: 1s,\n      budget: {ceiling: 1}}\n"),
		want: []place{{"budget-never-pays", w, "one.yaml", "ceiling: 1"}}},
	{name: "a burst above half of the callee's limit", edits: []edit{{"orders.yaml", "ceiling: 10", "ceiling: 21"}},
		want: []place{{"budget-burst", w, "orders.yaml", "ceiling: 21"}}},
	{name: "a burst of many replicas", files: single("service: a\nreplicas: 11\ndependencies:\n  b:\n    timeout: 5s\n    retry: {maxAttempts: 3, perAttemptTimeout: 1s}\n"),
		want: []place{{"budget-burst", w, "one.yaml", "maxAttempts: 3"}}},
	{name: "a budget above the spare capacity", edits: []edit{{"orders.yaml", "busy: 50%", "busy: 93%"}, {"orders.yaml", "ratio: 10%", "ratio: 8%"}},
		want: []place{{"budget-burst", w, "orders.yaml", "ratio: 8%"}}},
	{name: "two layers, held by the owner's mark", edits: []edit{retryBelow("auto")},
		want: []place{{"retries-multiply", w, "inventory.yaml", "maxAttempts: 2"}}},
	{name: "two layers, the lower one always", edits: []edit{retryBelow("always")},
		want: []place{{"retries-multiply", e, "inventory.yaml", "maxAttempts: 2"}}},
	{name: "two layers, and an edge between", edits: []edit{retryBelow("auto"), {"inventory.yaml", "trust: peers", "trust: edge"}},
		want: []place{{"retries-multiply", e, "inventory.yaml", "maxAttempts: 2"}}},
	{name: "two layers, and no peer between", edits: []edit{retryBelow("auto"), {"orders.yaml", "    service: inventory\n", ""}},
		want: []place{{"retries-multiply", e, "inventory.yaml", "maxAttempts: 2"}}},
	{name: "two layers, one of them hidden", edits: []edit{{"orders.yaml", postsUnder, strings.Replace(postsUnder, "0", "2", 1)}},
		want: []place{{"retries-multiply", e, "orders.yaml", "hiddenRetries: 2"}}},
	{name: "two owners", edits: []edit{retryBelow("always"), {"orders.yaml", "owner: auto", "owner: always"}},
		want: []place{{"several-owners", e, "inventory.yaml", "owner: always"}, {"retries-multiply", e, "inventory.yaml", "maxAttempts: 2"}}},
	{name: "services that call each other", files: map[string]string{
		"a.yaml": "service: a\ndependencies:\n  b: {service: b, timeout: 1s}\n",
		"b.yaml": "service: b\ndependencies:\n  a: {service: a, timeout: 1s}\n"},
		want: []place{{"cycle", e, "b.yaml", "a: {service: a, timeout: 1s}"}}},
	{name: "a deadline is retried", edits: []edit{{"orders.yaml", "[RESOURCE_EXHAUSTED]", "[DEADLINE_EXCEEDED]"}},
		want: []place{{"retry-on-deadline", w, "orders.yaml", "[DEADLINE_EXCEEDED]"}}},
	{name: "a 404 is retried", edits: []edit{{"orders.yaml", "[RESOURCE_EXHAUSTED]", "[429, 404]"}},
		want: []place{{"retry-on-deadline", w, "orders.yaml", "[429, 404]"}}},
	{name: "keys are ignored", edits: []edit{{"orders.yaml", "{keys: honoured, ttl: 24h}", "ignored"}},
		want: []place{{"retry-not-safe", e, "orders.yaml", `"POST /reservations": {minUseful: 30ms}`}}},
	{name: "nothing is known of keys", edits: []edit{{"orders.yaml", "    idempotency: {keys: honoured, ttl: 24h}\n", ""}},
		want: []place{{"retry-not-safe", w, "orders.yaml", `"POST /reservations": {minUseful: 30ms}`}}},
	{name: "declared idempotent, and keys are ignored", edits: []edit{{"orders.yaml", "{keys: honoured, ttl: 24h}", "ignored"}, {"orders.yaml", `"POST /reservations": {minUseful: 30ms}`, `"POST /reservations": {safety: idempotent}`}},
		want: []place{{"retry-not-safe", e, "orders.yaml", "safety: idempotent"}}},
	{name: "a key is forgotten", edits: []edit{{"orders.yaml", "ttl: 24h", "ttl: 1s"}},
		want: []place{{"key-forgotten-early", e, "orders.yaml", "ttl: 1s"}}},
	{name: "a route that repeats", layers: []policy.Layer{{Name: "route", Service: "pricing", Retries: 2, Stated: true}},
		want: []place{{"hidden-retries", e, "orders.yaml", pricing}}},
	{name: "a route that repeats, of which nothing is said", layers: []policy.Layer{{Name: "route", Service: "b", Retries: 2, Stated: true}},
		files: single("service: a\ndependencies:\n  b: {timeout: 5s}\n"),
		want:  []place{{"hidden-retries", e, "one.yaml", "b: {timeout: 5s}"}}},
	{name: "a client library's default", edits: []edit{{"pricing.yaml", "    hiddenRetries: 0 ", "    concurrency: 64 "}},
		want: []place{{"mesh-default-forgotten", w, "pricing.yaml", "dependencies:\n  cache:"}}},
	{name: "retries of which a database repeats none", edits: []edit{{"inventory.yaml", "retry: none", "retry: {maxAttempts: 2, perAttemptTimeout: 20ms, backoff: {cap: 10ms}, owner: never}"}}},
	{name: "attempts of which a database repeats none", edits: []edit{{"inventory.yaml", "retry: none", "retry: {maxAttempts: 2, perAttemptTimeout: 20ms, backoff: {cap: 10ms}}"}},
		want: []place{{"retries-multiply", w, "inventory.yaml", "maxAttempts: 2"}, {"retry-not-safe", w, "inventory.yaml", "maxAttempts: 2"}}},
	{name: "a counter is repeated", edits: []edit{{"pricing.yaml", "    retry: none ", "    operations: {incr: {safety: idempotent, retry: {maxAttempts: 2, perAttemptTimeout: 8ms, backoff: {cap: 4ms}}}} "}},
		want: []place{{"retry-not-safe", e, "pricing.yaml", "safety: idempotent"}}},
	{name: "a mesh's default", edits: []edit{{"orders.yaml", pricing, strings.TrimSuffix(pricing, "\n    hiddenRetries: 0")}},
		want: []place{{"mesh-default-forgotten", w, "orders.yaml", "busy: 50%\n  pricing:"}}},
	{name: "copies without known capacity", edits: []edit{{"orders.yaml", pricing, pricing + "\n    hedge: {after: p95}"}},
		want: []place{{"hedge-without-capacity", w, "orders.yaml", "hedge: {after: p95}"}}},
	{name: "copies to a busy dependency", edits: []edit{{"orders.yaml", pricing, pricing + "\n    busy: 61%\n    hedge: {after: p95}"}},
		want: []place{{"hedge-without-capacity", w, "orders.yaml", "hedge: {after: p95}"}}},
	{name: "copies of a POST", edits: []edit{{"orders.yaml", pricing, pricing + "\n    busy: 50%\n    operations:\n      \"POST /quotes\": {hedge: {max: 1}}"}},
		want: []place{{"hedge-not-safe", e, "orders.yaml", "hedge: {max: 1}"}}},
	{name: "a short window", edits: []edit{{"orders.yaml", "window: 1m", "window: 200ms"}},
		want: []place{{"breaker-window", w, "orders.yaml", "window: 200ms"}}},
	{name: "health checks are not exempt", edits: []edit{{"pricing.yaml", "  exempt: [/livez, /readyz]\n", ""}},
		want: []place{{"no-exempt", w, "pricing.yaml", "entry:"}}},
	{name: "less than the way takes", edits: []edit{{"inventory.yaml", "timeout: 60ms\n    minUseful: 20ms", "timeout: 60ms\n    minUseful: 10ms"}},
		want: []place{{"min-useful-floor", w, "inventory.yaml", "minUseful: 10ms"}}},
	{name: "less than the way to another region takes", edits: []edit{{"orders.yaml", pricing + "\n    distance: datacentre", pricing + "\n    distance: region"}},
		want: []place{{"min-useful-floor", w, "orders.yaml", "timeout: 180ms\n    minUseful: 20ms"}}},
}

// What looks like a mistake and is none.
func TestCheckAccepts(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"two layers of one timeout": {
			"a.yaml": "service: a\ndependencies:\n  b: {timeout: 5s}\n  x: {timeout: 1s}\n",
			"b.yaml": "service: b\ndependencies:\n  c: {timeout: 5s}\n"},
		"a deadline bounds a call without a timeout": single("service: a\nentry: {trust: edge, deadline: 2s, exempt: [/livez]}\ndependencies:\n  b: {}\n"),
		"a caller bounds it": {
			"a.yaml": "service: a\ndependencies:\n  b: {timeout: 5s}\n",
			"b.yaml": "service: b\ndependencies:\n  c: {}\n"},
		"calls at the same time": single("service: a\nentry: {trust: edge, deadline: 2s, exempt: [/livez]}\ndependencies:\n" +
			"  b: {timeout: 1500ms, calls: {parallelWith: [b, c], perRequest: 9}}\n  c: {timeout: 1900ms}\n"),
		"nothing repeats a named POST": single("service: a\ndependencies:\n  b:\n    timeout: 1s\n    operations: {\"POST /x\": {timeout: 500ms}}\n"),
		"a breaker that is off":        single("service: a\ndependencies:\n  b: {timeout: 2m, breaker: off}\n"),
	} {
		for _, f := range parse(t, files).Check(nil) {
			t.Errorf("%s: %v: %s: %s", name, f.Position, f.Code, f.What)
		}
	}
}

// retryBelow makes inventory repeat calls to its database, of which it only reads.
func retryBelow(owner string) edit {
	return edit{"inventory.yaml", "    retry: none", "    safety: readOnly\n    retry:\n      owner: " + owner + "\n      maxAttempts: 2\n      perAttemptTimeout: 20ms\n      backoff: {base: 10ms, cap: 10ms}"}
}

// lineOf returns the line in which text, which stands in s just once, ends.
func lineOf(t *testing.T, s, text string) int {
	t.Helper()
	before, after, ok := strings.Cut(s, text)
	if !ok || strings.Contains(after, text) {
		t.Fatalf("%q stands not just once in\n%s", text, s)
	}
	return strings.Count(before+text, "\n") + 1
}

func TestCheckFindsMistakes(t *testing.T) {
	clean := example(t, "policy")
	covered := map[string]bool{}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			files := m.files
			if files == nil {
				files = maps.Clone(clean)
			}
			for _, ed := range m.edits {
				lineOf(t, files[ed.file], ed.old)
				files[ed.file] = strings.Replace(files[ed.file], ed.old, ed.with, 1)
			}
			g := parse(t, files)
			g.AddLayers(m.layers...)
			var got, want []string
			for _, f := range g.Check(nil) {
				got = append(got, fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Level, f.Code))
				if f.What == "" || f.Why == "" || f.Do == "" || f.Service == "" || f.Key == "" {
					t.Errorf("%+v lacks something", f)
				}
			}
			for _, p := range m.want {
				covered[p.code] = true
				line := 7
				if text, ok := files[p.file]; ok {
					line = lineOf(t, text, p.text)
				}
				want = append(want, fmt.Sprintf("%s:%d: %s: %s", p.file, line, p.level, p.code))
			}
			if !slices.Equal(got, want) {
				t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
	for _, r := range policy.Rules() {
		if !covered[r.Code] {
			t.Errorf("no mistake shows %s", r.Code)
		}
		if r.Level != policy.Error && r.Level != policy.Warning || r.Title == "" || r.Why == "" {
			t.Errorf("%+v lacks something", r)
		}
	}
}
