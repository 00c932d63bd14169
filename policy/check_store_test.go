package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
)

// stored is the file of a service with one dependency, whose keys are given in flow
// style; all that any store needs is there.
func stored(kind, keys string) map[string]string {
	return single("service: a\nentry: {trust: peers, deadline: 1s, exempt: [/livez]}\ndependencies:\n" +
		"  x: {kind: " + kind + ", timeout: 500ms" + keys + "}\n")
}

const (
	looked = ", hiddenRetries: 0"
	twice  = ", retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}}"
)

// What is wrong with a store's keys, and what is not. An empty code is none.
func TestCheckStores(t *testing.T) {
	for _, c := range []struct {
		name, kind, keys string
		code             string
		level            policy.Level
		key              string
		says             []string
	}{
		{"as it is", "postgres", "", "", "", "", nil},
		{"database/sql sends again only what never began", "mysql", "", "", "", "", nil},
		{"SQLite", "sqlite", "", "", "", "", nil},
		{"MariaDB", "mariadb", "", "", "", "", nil},

		{"the client's own retries", "redis", "", "mesh-default-forgotten", policy.Warning, "dependencies.x.hiddenRetries", []string{"a → x go through the client library go-redis", "3 times", "stintredis.Options", "hiddenRetries: 0"}},
		{"switched off", "redis", looked, "", "", "", nil},
		{"MongoDB's", "mongodb", "", "mesh-default-forgotten", policy.Warning, "dependencies.x.hiddenRetries", []string{"mongo-driver", "1 time "}},
		{"MongoDB's, switched off", "mongodb", looked, "", "", "", nil},
		{"a counter below them", "redis", ", hiddenRetries: 3, operations: {incr: {timeout: 100ms}}", "retry-not-safe", policy.Error, "dependencies.x.operations.incr", []string{`"incr", may be carried out 4 times`}},
		{"a read below them", "redis", ", hiddenRetries: 3, operations: {get: {timeout: 100ms}}", "", "", "", nil},
		{"a write that MongoDB tells from another", "mongodb", ", hiddenRetries: 1, operations: {insert: {timeout: 100ms}}", "", "", "", nil},

		{"attempts for nothing", "postgres", twice, "retry-not-safe", policy.Warning, "dependencies.x.retry.maxAttempts", []string{"x has 2 attempts", "only what never did", "select: {safety: readOnly}"}},
		{"attempts for nothing, MongoDB", "mongodb", looked + twice, "retry-not-safe", policy.Warning, "dependencies.x.retry.maxAttempts", nil},
		{"attempts of one operation for nothing", "mysql", ", operations: {select: {retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}}}}", "retry-not-safe", policy.Warning, "dependencies.x.operations.select.retry.maxAttempts", []string{`x, "select", has 2 attempts`}},
		{"attempts for what is declared", "postgres", twice + ", operations: {select: {safety: readOnly}, insert: {timeout: 100ms, retry: {perAttemptTimeout: 20ms}}}", "", "", "", nil},
		{"attempts of what is declared", "postgres", ", operations: {select: {safety: readOnly, retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}}}}", "", "", "", nil},
		{"declared, and of one attempt", "postgres", twice + ", operations: {select: {safety: readOnly, retry: {maxAttempts: 1}}}", "retry-not-safe", policy.Warning, "dependencies.x.retry.maxAttempts", nil},
		{"a replica", "postgres", twice + ", safety: readOnly", "", "", "", nil},
		{"Redis' commands say it themselves", "redis", looked + twice, "", "", "", nil},

		{"a read that writes", "postgres", ", operations: {insert: {safety: readOnly}}", "retry-not-safe", policy.Error, "dependencies.x.operations.insert.safety", []string{`x, "insert", counts as readOnly, and writes`, "refuses"}},
		{"a read that writes, by what it inherits", "mariadb", ", safety: readOnly, operations: {update: {timeout: 100ms}}", "retry-not-safe", policy.Error, "dependencies.x.operations.update", []string{"readOnly", "2 times"}},
		{"a write that may be repeated", "postgres", twice + ", operations: {insert: {safety: idempotent}}", "", "", "", nil},
		{"all writes", "sqlite", twice + ", safety: idempotent", "retry-not-safe", policy.Warning, "dependencies.x.safety", []string{"each INSERT"}},
		{"all writes, in one attempt", "sqlite", ", safety: idempotent", "", "", "", nil},
		{"a counter", "redis", looked + twice + ", operations: {incr: {safety: idempotent}}", "retry-not-safe", policy.Error, "dependencies.x.operations.incr.safety", []string{`x, "incr", counts as idempotent`, "2 times"}},
		{"a counter, in one attempt", "redis", looked + ", operations: {incr: {safety: idempotent}}", "", "", "", nil},
		{"a script", "redis", looked + twice + ", operations: {eval: {safety: idempotent}}", "", "", "", nil},
		{"all commands", "redis", looked + twice + ", safety: idempotent", "retry-not-safe", policy.Warning, "dependencies.x.safety", []string{"INCR, LPUSH and XADD", "stintredis knows"}},

		{"what may pass", "postgres", ", safety: readOnly, retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}, retryable: [40001, 40P01, 08, 53, 25, P0, 57014]}", "", "", "", nil},
		{"what may pass in Redis", "redis", looked + ", retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}, retryable: [LOADING, OOM, MISCONF]}", "", "", "", nil},
		{"what does not pass", "postgres", ", safety: readOnly, retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}, retryable: [40001, 23]}", "retry-on-deadline", policy.Warning, "dependencies.x.retry.retryable[1]", []string{"x lists 23, which the same command meets again"}},
		{"what does not pass in Redis", "redis", looked + ", retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}, retryable: [WRONGTYPE]}", "retry-on-deadline", policy.Warning, "dependencies.x.retry.retryable[0]", nil},

		{"copies", "postgres", ", busy: 30%, safety: readOnly, hedge: {after: 20ms}", "", "", "", nil},
		{"copies at an unknown load", "postgres", ", safety: readOnly, hedge: {after: 20ms}", "hedge-without-capacity", policy.Warning, "dependencies.x.hedge", nil},
		{"copies of a write", "postgres", ", busy: 30%, operations: {update: {hedge: {after: 20ms}}}", "hedge-not-safe", policy.Error, "dependencies.x.operations.update.hedge", []string{"nothing declares it safe", "no store reads idempotency keys"}},

		{"a wait that is too long", "postgres", ", reserve: 1ms, operations: {select: {timeout: 2s}}", "path-over-deadline", policy.Error, "dependencies.x.operations.select.timeout", []string{"2s", "more than 1s"}},
		{"a breaker that forgets", "redis", looked + ", breaker: {window: 100ms}", "breaker-window", policy.Warning, "dependencies.x.breaker.window", nil},
		{"too little to be useful", "postgres", ", distance: region, minUseful: 50ms", "min-useful-floor", policy.Warning, "dependencies.x.minUseful", nil},
		{"a burst", "postgres", ", safety: readOnly, retry: {maxAttempts: 2, perAttemptTimeout: 200ms, backoff: {cap: 50ms}, budget: {ceiling: 101}}", "budget-burst", policy.Warning, "dependencies.x.retry.budget.ceiling", []string{"101 retries to x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var codes []string
			fs := found(parse(t, stored(c.kind, c.keys)), "")
			for _, f := range fs {
				codes = append(codes, f.Code)
			}
			if want := strings.Fields(c.code); !slices.Equal(codes, want) {
				t.Fatalf("found %q, want %q: %+v", codes, want, fs)
			}
			if len(fs) == 0 {
				return
			}
			if fs[0].Level != c.level || fs[0].Key != c.key {
				t.Errorf("%s at %s, want %s at %s", fs[0].Level, fs[0].Key, c.level, c.key)
			}
			mustSay(t, fs[0], c.says...)
		})
	}
}

// A store is a leaf of its own: no service that is called so, no circle, and nothing
// of a mesh under it.
func TestStoresAreLeaves(t *testing.T) {
	g := parse(t, map[string]string{
		"shop.yaml": "service: shop\nmesh: istio\nentry: {trust: peers, deadline: 1s, exempt: [/livez]}\ndependencies:\n" +
			"  cache: {kind: redis, timeout: 100ms, hiddenRetries: 0}\n  shop: {kind: postgres, timeout: 200ms}\n  stock: {service: stock, timeout: 300ms, hiddenRetries: 0}\n",
		"cache.yaml": "service: cache\nentry: {trust: peers, deadline: 5s, exempt: [/livez]}\ndependencies:\n  shop: {service: shop, timeout: 4s}\n",
		"stock.yaml": "service: stock\nentry: {trust: peers, deadline: 300ms, exempt: [/livez]}\ndependencies:\n" +
			"  cache: {kind: postgres, timeout: 150ms}\n  shop: {kind: postgres, timeout: 100ms}\n",
	})
	g.AddLayers(policy.Layer{Position: policy.Position{File: "vs.yaml", Line: 1, Column: 1}, Name: "Istio VirtualService cache", Service: "cache", Retries: 2, Stated: true})
	var got []string
	for _, f := range g.Check(nil) {
		got = append(got, fmt.Sprintf("%s %s", f.File, f.Code))
	}
	// The route is for the service cache, which nobody here calls.
	if want := []string{"vs.yaml hidden-retries"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	for _, e := range g.Edges() {
		if store := e.From.Dependencies[e.Dependency].Kind.Store(); store && (e.To != nil || len(g.Layers(e)) > 0) {
			t.Errorf("%s → %s leads to a policy, or has layers under it", e.From.Service, e.Dependency)
		}
	}
	var stops []string
	all, _ := g.Traffic()
	for _, s := range all {
		if s.Kind != "" {
			stops = append(stops, fmt.Sprintf("%s %s", s.Kind, s.Name))
		}
	}
	slices.Sort(stops)
	if want := []string{"postgres cache", "postgres shop", "redis cache"}; !slices.Equal(stops, want) {
		t.Errorf("the stores are %q, want %q", stops, want)
	}
	for _, a := range g.Amplification() {
		if a.Worst != 1 {
			t.Errorf("%s gets %v requests, want 1", a.Leaf, a.Worst)
		}
	}
	for _, s := range g.Spend("shop") {
		if s.Level > 1 {
			t.Errorf("%s is followed into a store: %+v", s.Name, s)
		}
	}
}

// B32 on paper: the client's own retries come on top of the Caller's, and nobody tells
// them who owns a path.
func TestB32ClientLibraryUnderAStore(t *testing.T) {
	files := map[string]string{
		"edge.yaml": "service: edge\nentry: {trust: edge, deadline: 1s, exempt: [/livez]}\ndependencies:\n" +
			"  api: {service: api, timeout: 900ms, retry: {maxAttempts: 2, perAttemptTimeout: 400ms}}\n",
		"api.yaml": "service: api\nentry: {trust: peers, deadline: 400ms, exempt: [/livez]}\ndependencies:\n" +
			"  cache: {kind: redis, timeout: 100ms, operations: {incr: {timeout: 50ms}}}\n",
	}
	g := parse(t, files)
	if a := one(t, g, "cache"); a.Worst != 8 || a.Owned != 8 || len(a.Layers) != 2 || a.Layers[1].Name != "go-redis under api → cache" {
		t.Errorf("%+v, want 2 × 4 whether or not the mark is passed on", a)
	}
	fs := found(g, "retries-multiply")
	if len(fs) != 1 || fs[0].Level != policy.Error {
		t.Fatalf("%+v, want one error", fs)
	}
	mustSay(t, fs[0], "8 at cache", "go-redis under api → cache heeds none")
	fs = found(g, "retry-not-safe")
	if len(fs) != 1 || fs[0].Level != policy.Error {
		t.Fatalf("%+v, want one error", fs)
	}
	mustSay(t, fs[0], `"incr", may be carried out 4 times: go-redis`)

	files["api.yaml"] = strings.Replace(files["api.yaml"], "timeout: 100ms,", "timeout: 100ms, hiddenRetries: 0,", 1)
	for _, f := range found(parse(t, files), "") {
		t.Errorf("%s although the client's retries are off: %s", f.Code, f.What)
	}
}

// Article 003's first picture: each layer has a limit of its own, and the database the
// longest.
func TestArticleIndependentTimeouts(t *testing.T) {
	g := parse(t, map[string]string{
		"a.yaml": "service: a\nentry: {trust: edge, deadline: 5s, exempt: [/livez]}\ndependencies: {b: {service: b, timeout: 5s}}\n",
		"b.yaml": "service: b\nentry: {trust: peers, exempt: [/livez]}\ndependencies: {c: {service: c, timeout: 5s}}\n",
		"c.yaml": "service: c\nentry: {trust: peers, exempt: [/livez]}\ndependencies: {database: {kind: postgres, timeout: 30s}}\n",
	})
	fs := found(g, "timeout-order")
	if len(fs) != 1 || fs[0].Key != "dependencies.database.timeout" {
		t.Fatalf("%+v, want one at the database", found(g, ""))
	}
	mustSay(t, fs[0], "c waits up to 30s for database", "grants it 5s")
}
