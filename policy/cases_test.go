package policy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/policy"
)

// found returns the findings of a kind, those of all if code is empty.
func found(g *policy.Graph, code string) []policy.Finding {
	return slices.DeleteFunc(g.Check(nil), func(f policy.Finding) bool { return code != "" && f.Code != code })
}

func mustSay(t *testing.T, f policy.Finding, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(f.What+" "+f.Do, word) {
			t.Errorf("%s says %q and %q, without %q", f.Code, f.What, f.Do, word)
		}
	}
}

// B18: an application tries four times, the client library below it three.
func TestB18AttemptsOfSeveralLayers(t *testing.T) {
	g := parse(t, single(`
service: bot
dependencies:
  model:
    timeout: 60s
    sdk: openai
    hiddenRetries: 2
    retry: {maxAttempts: 3, perAttemptTimeout: 15s}
    operations: {"GET /completion": {retry: {maxAttempts: 4, perAttemptTimeout: 14s}}}
`))
	a := one(t, g, "model")
	if a.Worst != 12 || len(a.Layers) != 2 {
		t.Errorf("worst %v by %v, want 12 by two layers", a.Worst, a.Layers)
	}
	fs := found(g, "retries-multiply")
	if len(fs) != 1 || fs[0].Level != policy.Error {
		t.Fatalf("%+v, want one error", fs)
	}
	mustSay(t, fs[0], "12 at model", "bot → model, 4 attempts", "under bot → model, 3 attempts", "makes 4 at most")
}

func TestB18ThreeAttemptsAreNotNine(t *testing.T) {
	fs := found(parse(t, chainOf("auto", 3, 3)), "retries-multiply")
	if len(fs) != 1 || fs[0].Level != policy.Warning {
		t.Fatalf("%+v, want one warning", fs)
	}
	mustSay(t, fs[0], "9 requests where the owner's mark is lost, 3 while it is passed on")
}

func TestB18FiveLayers(t *testing.T) {
	g := parse(t, chainOf("auto", 3, 3, 3, 3, 3))
	fs := found(g, "retries-multiply")
	if len(fs) != 1 {
		t.Fatalf("%+v, want one", fs)
	}
	mustSay(t, fs[0], "243", "91.3 where 99%", "10.0 where 90%", "s0 → s1, 3", "s4 → s5, 3")
	half := g.Check(&policy.CheckOptions{FailureRates: []float64{0.5, -1, 7}})
	mustSay(t, half[len(half)-1], "2 where 50%")
	if s := half[len(half)-1].What; strings.Contains(s, "90%") || strings.Contains(s, "700%") {
		t.Errorf("%q has a rate that was not asked for", s)
	}
}

// B19: nobody configured retries, and the mesh repeated payouts.
func TestB19MeshRetriesNobodyConfigured(t *testing.T) {
	files := single(`
service: shop
mesh: istio
dependencies:
  payouts:
    timeout: 5s
    operations: {"POST /payouts": {timeout: 4s}}
`)
	route := policy.Layer{Position: policy.Position{File: "vs.yaml", Line: 9, Column: 5}, Name: "Istio VirtualService payouts", Service: "payouts", Retries: 2}
	for _, c := range []struct {
		name   string
		layers []policy.Layer
		code   string
		says   []string
	}{
		{"the default alone", nil, "mesh-default-forgotten", []string{"istio", "2 times", "hiddenRetries: 0"}},
		{"a route that is silent", []policy.Layer{route}, "hidden-retries", []string{"nobody configured retries for shop → payouts", "2 times", "vs.yaml:9:5", "attempts: 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := parse(t, files)
			g.AddLayers(c.layers...)
			if a := one(t, g, "payouts"); a.Worst != 3 {
				t.Errorf("worst %v, want 3", a.Worst)
			}
			fs := found(g, "")
			var codes []string
			for _, f := range fs {
				codes = append(codes, f.Code)
			}
			if !slices.Equal(codes, []string{c.code, "retry-not-safe"}) {
				t.Fatalf("found %q", codes)
			}
			mustSay(t, fs[0], c.says...)
			mustSay(t, fs[1], `"POST /payouts"`, "3 times", "under shop → payouts")
			if fs[1].Level != policy.Error || fs[1].Line != 7 {
				t.Errorf("%v in line %d, want an error in line 7", fs[1].Level, fs[1].Line)
			}
		})
	}
	g := parse(t, files)
	route.Retries, route.Stated = 0, true
	g.AddLayers(route)
	for _, f := range found(g, "") {
		t.Errorf("%s although the route says attempts: 0: %s", f.Code, f.What)
	}
}

// B19, without a policy file: a mesh's own files are held against each other.
func TestB19LayersAlone(t *testing.T) {
	at := func(line int) policy.Position { return policy.Position{File: "mesh.yaml", Line: line, Column: 1} }
	for _, c := range []struct {
		name   string
		layers []policy.Layer
		want   []string
	}{
		{"said nothing", []policy.Layer{{Position: at(1), Name: "a route", Service: "pay", Retries: 2}},
			[]string{"1 error hidden-retries nobody configured retries for pay, yet calls are repeated 2 times: a route says nothing of retries, and that is its default, so that one request may become 3"}},
		{"said", []policy.Layer{{Position: at(1), Name: "a client", Service: "pay", Retries: 3, Stated: true}},
			[]string{"1 warning hidden-retries a client repeats calls of pay 3 times, so that one request may become 4; no policy file here says so"}},
		{"said none", []policy.Layer{{Position: at(1), Name: "a route", Service: "pay", Stated: true, Timeout: time.Second, PerAttempt: time.Second}}, nil},
		{"attempts longer than calls", []policy.Layer{{Position: at(1), Name: "a route", Service: "pay", Stated: true, Timeout: time.Second, PerAttempt: 2 * time.Second}},
			[]string{"1 error timeout-order a route gives an attempt 2s, and the call 1s"}},
		{"attempts that do not fit", []policy.Layer{{Position: at(1), Name: "a route", Service: "", Retries: 1, Stated: true, Timeout: time.Second, PerAttempt: 600 * time.Millisecond}},
			[]string{"1 error attempts-do-not-fit a route makes 2 attempts of 600ms, which may take 1.2s, and the call ends after 1s",
				"1 warning hidden-retries a route repeats calls of all services 1 time, so that one request may become 2; no policy file here says so"}},
		{"two of them", []policy.Layer{{Position: at(1), Name: "a client", Service: "pay", Retries: 3, Stated: true}, {Position: at(2), Name: "a route", Service: "pay", Retries: 2, Stated: true}},
			[]string{"1 warning hidden-retries a client repeats calls of pay 3 times, so that one request may become 4; no policy file here says so",
				"2 warning hidden-retries a route repeats calls of pay 2 times, so that one request may become 3; no policy file here says so",
				"2 error retries-multiply one call of pay may become 12 requests (a client, 4 attempts; a route, 3 attempts)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := policy.NewGraph()
			if err != nil {
				t.Fatal(err)
			}
			g.AddLayers(c.layers...)
			var got []string
			for _, f := range g.Check(nil) {
				got = append(got, fmt.Sprintf("%d %s %s %s", f.Line, f.Level, f.Code, f.What))
				if f.Why == "" || f.Do == "" || f.File != "mesh.yaml" {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// B20: listing DEADLINE_EXCEEDED does nothing for a call's own limit.
func TestB20DeadlineExceededIsNotRetryable(t *testing.T) {
	g := parse(t, single(`
service: a
dependencies:
  b:
    timeout: 12s
    retry:
      retryable: [UNAVAILABLE, DEADLINE_EXCEEDED]
      maxAttempts: 5
      perAttemptTimeout: 2s
`))
	fs := found(g, "retry-on-deadline")
	if len(fs) != 1 || fs[0].Line != 7 || fs[0].Key != "dependencies.b.retry.retryable[1]" {
		t.Fatalf("%+v, want one in line 7", fs)
	}
	mustSay(t, fs[0], "DEADLINE_EXCEEDED", "perAttemptTimeout")
	if fs := found(g, "attempts-do-not-fit"); len(fs) > 0 { // 10s and waits up to 0.75s
		t.Errorf("%+v", fs)
	}
}

// Which outcomes are never, and which may be, worth listing.
func TestB20OutcomesWorthARetry(t *testing.T) {
	for code, want := range map[string]int{
		"400": 1, "401": 1, "403": 1, "404": 1, "410": 1, "422": 1, "501": 1, "505": 1, "CANCELLED": 1, "INVALID_ARGUMENT": 1,
		"UNIMPLEMENTED": 1, "UNAUTHENTICATED": 1, "NOT_FOUND": 1, "DATA_LOSS": 1,
		"408": 0, "409": 0, "425": 0, "429": 0, "500": 0, "502": 0, "503": 0, "504": 0, "RESOURCE_EXHAUSTED": 0, "ABORTED": 0, "UNAVAILABLE": 0, "INTERNAL": 0, "UNKNOWN": 0,
	} {
		g := parse(t, single("service: a\ndependencies:\n  b:\n    timeout: 12s\n    retry: {maxAttempts: 2, perAttemptTimeout: 2s, retryable: ["+code+"]}\n"))
		if got := len(found(g, "")); got != want {
			t.Errorf("%s: %d findings, want %d", code, got, want)
		}
	}
}

func TestB29HealthChecksAreExempt(t *testing.T) {
	fs := found(parse(t, single("service: a\nentry: {trust: edge}\n")), "")
	if len(fs) != 1 || fs[0].Code != "no-exempt" || fs[0].Level != policy.Warning {
		t.Fatalf("%+v, want the warning no-exempt", fs)
	}
	mustSay(t, fs[0], "health", "exempt: [/livez, /readyz]")
	if fs := found(parse(t, single("service: a\nentry: {trust: edge, exempt: [/livez]}\n")), ""); len(fs) > 0 {
		t.Errorf("%+v although /livez is exempt", fs)
	}
}

// The figures of a finding are those of the files, and add up.
func TestCheckTexts(t *testing.T) {
	files := example(t, "policy")
	inventory := files["inventory.yaml"]
	entry := inventory[strings.Index(inventory, "entry:"):strings.Index(inventory, "dependencies:")]
	for _, c := range []struct {
		edits []edit
		code  string
		says  []string
	}{
		{[]edit{{"orders.yaml", "contingency: 150ms", "contingency: 170ms"}}, "allocation-over-deadline",
			[]string{"local 80ms + inventory 260ms + pricing 180ms + contingency 170ms + reserve 90ms = 780ms", "entry.deadline is 760ms", "20ms away"}},
		{[]edit{{"orders.yaml", "contingency: 150ms", "contingency: 120ms"}}, "allocation-over-deadline", []string{"30ms belongs to nobody", "contingency: 150ms"}},
		{[]edit{{"orders.yaml", "maxAttempts: 2", "maxAttempts: 3"}}, "attempts-do-not-fit",
			[]string{"3 attempts of 120ms take 360ms", "waits up to 30ms", "390ms", "has 260ms: 2 of them fit", "maxAttempts: 2", "perAttemptTimeout: 76ms"}},
		{append([]edit{{"inventory.yaml", "timeout: 60ms", "timeout: 110ms"}}, noBudget...), "child-needs-more",
			[]string{"orders grants inventory 120ms", "database 110ms + reserve 20ms = 130ms", "perAttemptTimeout: 130ms", "by 10ms"}},
		{[]edit{{"orders.yaml", "ceiling: 10", "ceiling: 21"}}, "budget-burst", []string{"3 replicas of orders", "63 retries", "above 60", "limit of 60 in 2 replicas", "ceiling of 20"}},
		{[]edit{{"orders.yaml", "replicas: 3", "replicas: 61"}}, "budget-burst", []string{"above 60", "Even a ceiling of 1", "of inventory"}},
		{[]edit{{"orders.yaml", "busy: 50%", "busy: 95%"}}, "budget-burst", []string{"95% busy", "5.3%", "10%"}},
		{[]edit{{"orders.yaml", "ttl: 24h", "ttl: 1s"}}, "key-forgotten-early", []string{"for 1s", "after 2s", "entry.maxDeadline of"}},
		{[]edit{{"orders.yaml", "ttl: 24h", "ttl: 3s"}, {"gateway.yaml", "maxDeadline: 2s", "maxDeadline: 5s"}}, "key-forgotten-early", []string{"for 3s", "after 5s", "entry.maxDeadline of gateway"}},
		{[]edit{retryBelow("always")}, "retries-multiply", []string{"leaves 4 of them: inventory → database claims the retries always"}},
		{[]edit{retryBelow("auto"), {"inventory.yaml", "trust: peers", "trust: edge"}}, "retries-multiply", []string{"leaves 4 of them: inventory does not believe its callers"}},
		{[]edit{retryBelow("auto"), {"orders.yaml", "    service: inventory\n", ""}}, "retries-multiply", []string{"orders tells it to peers only", "service: inventory"}},
		{[]edit{{"orders.yaml", postsUnder, strings.Replace(postsUnder, "0", "2", 1)}}, "retries-multiply", []string{"6 at database", "what lies under orders → inventory heeds none", "makes 3 at most"}},
		{[]edit{retryBelow("auto"), {"orders.yaml", "maxAttempts: 2", "maxAttempts: 1"}, {"orders.yaml", postsUnder, strings.Replace(postsUnder, "0", "2", 1)}}, "retries-multiply", []string{"what lies under orders → inventory sets none"}},
		{[]edit{retryBelow("auto"), {"inventory.yaml", entry, ""}}, "retries-multiply", []string{"inventory has no entry that reads it"}},
		{[]edit{{"orders.yaml", "timeout: 180ms\n", "timeout: 180ms\n    calls: {parallelWith: [inventory]}\n"}}, "allocation-over-deadline",
			[]string{"inventory (the longest of 2 at once) 260ms", "180ms belongs to nobody"}},
	} {
		t.Run(c.code, func(t *testing.T) {
			files := maps.Clone(files)
			for _, ed := range c.edits {
				lineOf(t, files[ed.file], ed.old)
				files[ed.file] = strings.Replace(files[ed.file], ed.old, ed.with, 1)
			}
			fs := found(parse(t, files), c.code)
			if len(fs) != 1 {
				t.Fatalf("found %+v", fs)
			}
			mustSay(t, fs[0], c.says...)
		})
	}
}

// All attempts of a call are within its timeout, and so are their keys.
func TestKeyHorizon(t *testing.T) {
	for ttl, want := range map[string]int{"29s": 1, "30s": 0, "1m": 0} {
		g := parse(t, single("service: a\ndependencies:\n  b:\n    timeout: 30s\n    idempotency: {keys: honoured, ttl: "+ttl+"}\n    retry: {maxAttempts: 3, perAttemptTimeout: 9s, backoff: {cap: 1s}}\n"))
		fs := found(g, "key-forgotten-early")
		if len(fs) != want {
			t.Errorf("ttl %s: found %+v", ttl, fs)
		}
		for _, f := range fs {
			mustSay(t, f, "after 30s", "a call's timeout")
		}
	}
}

func TestCheckIgnores(t *testing.T) {
	files := example(t, "policy")
	accept := func(s string) { // in the line of the finding
		files["pricing.yaml"] = strings.Replace(example(t, "policy")["pricing.yaml"], "contingency: 10ms", "contingency: 11ms "+s, 1)
	}
	for _, c := range []struct {
		comment string
		want    int
	}{{"", 1}, {"# stint:ignore no-exempt: another kind", 1}, {"# stint:ignore allocation-over-deadline: rounding", 0}} {
		accept(c.comment)
		if fs := found(parse(t, files), ""); len(fs) != c.want {
			t.Errorf("%q: %+v, want %d", c.comment, fs, c.want)
		}
	}
}

// What the projects ship, and nothing else.
func TestCheckTopologies(t *testing.T) {
	for _, c := range []struct {
		dir   string
		edges int
		want  string
	}{
		{"topologies/online-boutique", 16, "no-deadline 15"},
		{"topologies/hotel-reservation", 21, "no-deadline 17"},
		{"topologies/social-network", 33, "child-needs-more 17, cycle 1, same-timeout 1"},
	} {
		t.Run(c.dir, func(t *testing.T) {
			g := parse(t, example(t, c.dir))
			counts := map[string]int{}
			for _, f := range g.Check(nil) {
				counts[f.Code]++
				switch f.Code {
				case "cycle":
					mustSay(t, f, "social-graph → user → social-graph")
				case "same-timeout":
					mustSay(t, f, "10s", "33 of the 33 calls", "nginx → compose-post → home-timeline → social-graph")
				}
			}
			var got []string
			for _, code := range slices.Sorted(maps.Keys(counts)) {
				got = append(got, fmt.Sprintf("%s %d", code, counts[code]))
			}
			if s := strings.Join(got, ", "); s != c.want || len(g.Edges()) != c.edges {
				t.Errorf("%d edges with %s, want %d with %s", len(g.Edges()), s, c.edges, c.want)
			}
		})
	}
}

// The same graph gives the same findings in the same order.
func TestCheckOrder(t *testing.T) {
	files := example(t, "topologies/social-network")
	first := parse(t, files).Check(nil)
	if !slices.IsSortedFunc(first, func(a, b policy.Finding) int {
		return strings.Compare(fmt.Sprintf("%s %05d %s", a.File, a.Line, a.Code), fmt.Sprintf("%s %05d %s", b.File, b.Line, b.Code))
	}) {
		t.Error("not by file, line and code")
	}
	for range 5 {
		if again := parse(t, files).Check(nil); !slices.Equal(first, again) {
			t.Fatalf("%v\nand then\n%v", first, again)
		}
	}
}
