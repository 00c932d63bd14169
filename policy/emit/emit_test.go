package emit_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/policy/emit"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func load(t *testing.T, name string) *policy.File {
	t.Helper()
	f, err := policy.Load(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func parse(t *testing.T, text string) *policy.File {
	t.Helper()
	f, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, target emit.Target, f *policy.File) *emit.Document {
	t.Helper()
	d, err := emit.Emit(target, f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// table prints rows as golden files have them.
func table(rows []emit.Row) []byte {
	var b bytes.Buffer
	for _, r := range rows {
		fmt.Fprintf(&b, "%d: %s: %s %s: %s\n", r.Line, r.Key, r.Fidelity, r.Code, r.Text)
	}
	return b.Bytes()
}

func golden(t *testing.T, name string, have []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, have) {
		t.Errorf("%s is not what is written now; go test . -update writes it anew. Now:\n%s", path, have)
	}
}

func TestGolden(t *testing.T) {
	f := load(t, "orders.yaml")
	for _, target := range emit.Targets() {
		t.Run(string(target), func(t *testing.T) {
			d := write(t, target, f)
			ext := ".yaml"
			if target == emit.GRPC {
				ext = ".json"
			}
			golden(t, string(target)+ext, d.Body)
			golden(t, string(target)+".rows", table(d.Rows))
			if again := write(t, target, f); !bytes.Equal(again.Body, d.Body) || !bytes.Equal(table(again.Rows), table(d.Rows)) {
				t.Error("written twice, it is not the same")
			}
		})
	}
}

// TestEveryKeyHasARow holds that no key which the file sets is passed over.
func TestEveryKeyHasARow(t *testing.T) {
	f := load(t, "orders.yaml")
	for _, target := range emit.Targets() {
		have := map[string]emit.Row{}
		for _, r := range write(t, target, f).Rows {
			if other, twice := have[r.Key]; twice && other.Code == r.Code {
				t.Errorf("%s: %s has two rows: %v and %v", target, r.Key, other, r)
			}
			have[r.Key] = r
			if r.Line == 0 || r.Text == "" || (r.Fidelity == emit.Exact) != (r.Code == "") || (r.Code == "") != (r.Instead == "") {
				t.Errorf("%s: row %+v: want a place, a text, and a code and what to do instead unless it is exact", target, r)
			}
		}
		for _, key := range []string{"service", "replicas", "mesh", "entry.trust", "entry.deadline", "entry.exempt",
			"entry.routes.POST /reports.deadline", "latencyBudget.local", "latencyBudget.inventory",
			"dependencies.inventory.minUseful", "dependencies.inventory.reserve", "dependencies.inventory.retry.owner",
			"dependencies.inventory.retry.retryable[0]", "dependencies.inventory.retry.retryable[3]",
			"dependencies.inventory.retry.maxAttempts", "dependencies.inventory.retry.perAttemptTimeout",
			"dependencies.inventory.retry.backoff.base", "dependencies.inventory.retry.backoff.cap",
			"dependencies.inventory.retry.jitter", "dependencies.inventory.retry.budget.ratio",
			"dependencies.inventory.retry.budget.ceiling", "dependencies.inventory.hedge.after",
			"dependencies.inventory.hedge.max", "dependencies.inventory.breaker.failureRatio",
			"dependencies.inventory.breaker.minimumCalls", "dependencies.inventory.breaker.window",
			"dependencies.inventory.breaker.openFor", "dependencies.inventory.breaker.probes",
			"dependencies.inventory.concurrency", "dependencies.inventory.idempotency.keys",
			"dependencies.inventory.idempotency.ttl", "dependencies.inventory.hiddenRetries",
			"dependencies.inventory.distance", "dependencies.inventory.busy",
			"dependencies.inventory.operations.GET /heavy-report.timeout",
			"dependencies.inventory.operations.GET /heavy-report.retry.maxAttempts",
			"dependencies.inventory.operations.GET /heavy-report.repeatAfterTimeout",
			"dependencies.inventory.operations.PATCH.safety", "dependencies.pricing.service", "dependencies.pricing.safety",
			"dependencies.pricing.breaker", "dependencies.pricing.retry.budget", "dependencies.payments.retry",
			"dependencies.payments.idempotency", "dependencies.payments.sdk", "dependencies.ledger.calls.perRequest",
			"dependencies.ledger.timeout", "dependencies.Mail_Out.timeout", "dependencies.Mail_Out.breaker"} {
			if _, ok := have[key]; !ok {
				t.Errorf("%s: %s has no row", target, key)
			}
		}
	}
}

// TestTheExampleHasEveryKey holds that a key which is new in policy files is looked at here, too: its row
// is in the golden files then.
func TestTheExampleHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("testdata/orders.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(v reflect.Type) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Map:
			look(v.Elem())
		case reflect.Struct:
			if seen[v] {
				return
			}
			seen[v] = true
			for f := range v.Fields() {
				key := f.Tag.Get("yaml")
				if key == "" || key == "-" {
					continue
				}
				if !regexp.MustCompile(`(^|[\s{])` + key + `:`).Match(text) {
					t.Errorf("testdata/orders.yaml has no %s, which %v has; write it there, and look at its rows", key, v)
				}
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[policy.File]())
	if len(seen) < 10 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

func TestEmitErrors(t *testing.T) {
	two := "service: a\ndependencies:\n  x: {service: c}\n  y: {service: c}\n"
	for _, test := range []struct {
		name   string
		target emit.Target
		file   *policy.File
		want   []string
	}{
		{"no such target", "linkerd", parse(t, two), []string{`"linkerd"`, "grpc, envoy, istio or gateway"}},
		{"no file", emit.Istio, nil, []string{"policy.Load"}},
		{"no dependencies", emit.Istio, parse(t, "service: a\n"), []string{"policy.yaml:1:", "dependencies"}},
		{"two dependencies of one host", emit.Istio, parse(t, two), []string{"policy.yaml:4:", "dependencies.y", "dependencies.x"}},
		{"two dependencies of one gRPC service", emit.GRPC, parse(t, two), []string{"policy.yaml:4:", "dependencies.x"}},
		{"two dependencies of one gRPC method", emit.GRPC,
			parse(t, "service: a\ndependencies:\n  x: {operations: {s.T/M: {timeout: 1s}}}\n  y: {operations: {s.T/M: {timeout: 1s}}}\n"),
			[]string{"policy.yaml:4:", "s.T M", "dependencies.x"}},
		{"a name without letters", emit.Gateway, parse(t, "service: a\ndependencies:\n  \"..\": {}\n"), []string{"policy.yaml:3:", `".."`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := emit.Emit(test.target, test.file)
			if err == nil {
				t.Fatalf("no error, but %s", d.Body)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestDurations(t *testing.T) {
	for timeout, want := range map[string][2]string{
		"1ms":         {"0.001s", "1ms"},
		"1500us":      {"0.001500s", "1ms"},
		"1000001ns":   {"0.001000001s", "1ms"},
		"12s":         {"12s", "12s"},
		"1h1m1s1ms":   {"3661.001s", "1h1m1s1ms"},
		"1h30m":       {"5400s", "1h30m"},
		"2m0.050000s": {"120.050s", "2m50ms"},
	} {
		f := parse(t, "service: a\ndependencies: {d: {timeout: "+timeout+"}}\n")
		if body := write(t, emit.GRPC, f).Body; !bytes.Contains(body, []byte(`"timeout": "`+want[0]+`"`)) {
			t.Errorf("%s: gRPC has not %s:\n%s", timeout, want[0], body)
		}
		if body := write(t, emit.Gateway, f).Body; !bytes.Contains(body, []byte("request: "+want[1]+"\n")) {
			t.Errorf("%s: the Gateway API has not %s:\n%s", timeout, want[1], body)
		}
	}
}

// TestMatches has each kind of an operation's name, and what matches its requests in Envoy.
func TestMatches(t *testing.T) {
	for op, want := range map[string]string{
		"POST":                `{":method" POST} prefix:"/"`,
		"GET /a":              `{":method" GET|HEAD} path:"/a"`,
		"/a":                  `path:"/a"`,
		"/a/":                 `prefix:"/a/"`,
		"/":                   `prefix:"/"`,
		"/{$}":                `path:"/"`,
		"/a/{$}":              `path:"/a/"`,
		"PUT /v1.0/{id}":      `{":method" PUT} regex:"/v1\\.0/[^/]+"`,
		"/a/{id}/":            `regex:"/a/[^/]+/.*"`,
		"/a/{id}/{$}":         `regex:"/a/[^/]+/"`,
		"/a/{rest...}":        `prefix:"/a/"`,
		"shop.Price/Quote":    `{":method" POST} path:"/shop.Price/Quote"`,
		"/shop.Price/Quote":   `{":method" POST} path:"/shop.Price/Quote"`,
		"Quote":               `{":method" POST} regex:"/[^/]+/Quote"`,
		"a.example/x":         "",
		"GET a.example/x":     "",
		"PURGE /x":            "",
		"/a/{rest...}/b":      "",
		"/a/x{id}":            "",
		"what it is about":    "",
		"NOT-A-METHOD":        "",
		"GET  /two-spaces":    `{":method" GET|HEAD} path:"/two-spaces"`,
		"/a/{id}/b/{another}": `regex:"/a/[^/]+/b/[^/]+"`,
	} {
		f := parse(t, fmt.Sprintf("service: a\ndependencies: {d: {operations: {%q: {timeout: 1s}}}}\n", op))
		routes := manager(t, bootstrap(t, write(t, emit.Envoy, f).Body)).GetRouteConfig().GetVirtualHosts()[0].GetRoutes()
		have := ""
		if len(routes) > 1 {
			m := routes[0].GetMatch()
			for _, h := range m.GetHeaders() {
				have += fmt.Sprintf("{%q %s} ", h.GetName(), h.GetStringMatch().GetExact()+h.GetStringMatch().GetSafeRegex().GetRegex())
			}
			switch {
			case m.GetPath() != "":
				have += fmt.Sprintf("path:%q", m.GetPath())
			case m.GetPrefix() != "":
				have += fmt.Sprintf("prefix:%q", m.GetPrefix())
			default:
				have += fmt.Sprintf("regex:%q", m.GetSafeRegex().GetRegex())
			}
		}
		if have != want {
			t.Errorf("%q is %s, want %s", op, have, want)
		}
	}
}

// TestOrder holds that a narrower match is asked before a wider one.
func TestOrder(t *testing.T) {
	f := parse(t, `service: a
dependencies:
  d:
    operations:
      GET: {timeout: 7s}
      "/a/": {timeout: 6s}
      "GET /a/": {timeout: 5s}
      "/a/b/": {timeout: 4s}
      "/a/{x}": {timeout: 3s}
      "/a/b": {timeout: 2s}
      "GET /a/b": {timeout: 1s}
  e:
    operations:
      "/{x}/{y}": {timeout: 3s}
      "/a/{y}": {timeout: 2s}
      "/c/{x}/b/": {timeout: 5s}
      "/c/{rest...}": {timeout: 7s}
      "/{x}/b/": {timeout: 6s}
      "/{x}/b/{$}": {timeout: 1s}
      "/d/b/c/": {timeout: 4s}
`)
	services, _ := mesh(t, write(t, emit.Istio, f).Body)
	for i, want := range []string{"[1 2 3 4 5 6 7 10]", "[1 2 3 4 5 6 7 10]"} {
		var have []int64
		for _, r := range services[i].Http {
			have = append(have, r.Timeout.Seconds)
		}
		if fmt.Sprint(have) != want {
			t.Errorf("the routes' timeouts are %v, want %s:\n%v", have, want, services[i])
		}
	}
}

// A store is no part of any document. It is said once, whatever the file says of it.
func TestStoresAreLeftOut(t *testing.T) {
	const text = `service: orders
entry: {trust: peers, deadline: 1s}
latencyBudget: {local: 100ms, database: 300ms, inventory: 300ms, cache: 50ms, contingency: 250ms}
dependencies:
  database:
    kind: postgres
    minUseful: 5ms
    retry: {maxAttempts: 2, perAttemptTimeout: 100ms, retryable: [40001]}
    operations: {select: {safety: readOnly, timeout: 200ms}}
  cache: {kind: redis, timeout: 50ms}
  inventory: {}
`
	for _, target := range emit.Targets() {
		d := write(t, target, parse(t, text))
		for _, name := range []string{"database", "cache"} {
			if bytes.Contains(d.Body, []byte(name)) {
				t.Errorf("%s: %s is in the document:\n%s", target, name, d.Body)
			}
			var rows []emit.Row
			for _, r := range d.Rows {
				if strings.HasPrefix(r.Key+".", "dependencies."+name+".") {
					rows = append(rows, r)
				}
			}
			if len(rows) != 1 || rows[0].Code != "X-LOSS-KIND" || rows[0].Fidelity != emit.Lost || rows[0].Instead == "" {
				t.Errorf("%s: %s has the rows %+v, want one that it is lost", target, name, rows)
			}
		}
	}
	_, err := emit.Emit(emit.Istio, parse(t, "service: a\ndependencies: {x: {kind: redis}}\n"))
	if err == nil || !strings.Contains(err.Error(), "dependencies: has nothing that istio carries") {
		t.Errorf("the error is %v", err)
	}
}
