package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// roundTrip prints f, reads that, and prints it again.
func roundTrip(t *testing.T, f *policy.File) {
	t.Helper()
	again, err := policy.Parse("again.yaml", f.Print())
	if err != nil {
		t.Fatalf("the file as printed does not load: %v\n%s", err, f.Print())
	}
	if !bytes.Equal(again.Print(), f.Print()) {
		t.Errorf("printed and read again:\n%s\nwant\n%s", again.Print(), f.Print())
	}
	for i := range reflect.TypeFor[policy.File]().NumField() {
		field := reflect.TypeFor[policy.File]().Field(i)
		if !field.IsExported() {
			continue
		}
		got, want := reflect.ValueOf(again).Elem().Field(i).Interface(), reflect.ValueOf(f).Elem().Field(i).Interface()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s printed and read again: %+v, want %+v", field.Name, got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		f, err := policy.Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		roundTrip(t, f)
	}
}

// A percentage is read again as the same number, whatever digits it has.
func TestRoundTripOfRatios(t *testing.T) {
	for _, s := range []string{"10%", "7%", "100%", "12.5%", "0.1%", "99.99%", "57%", "33.33333333333333%", "0.3333333333333333%", "0.00001%"} {
		f, err := policy.Parse("f.yaml", []byte("service: a\nentry: {trust: peers, maxRefused: "+s+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Entry.MaxRefused.String(); got != s {
			t.Errorf("%s is printed as %s", s, got)
		}
		roundTrip(t, f)
	}
}

// The retry block of article 002, key for key and value for value.
func TestArticleRetryBlock(t *testing.T) {
	f, err := policy.Load("testdata/article.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := *f.Dependencies["inventory"].Retry
	want := policy.Retry{Retryable: []policy.Code{"UNAVAILABLE", "RESOURCE_EXHAUSTED"}, MaxAttempts: 3,
		PerAttemptTimeout: 120 * time.Millisecond, Jitter: "full", Budget: policy.Budget{Ratio: .1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the block is %+v, want %+v", got, want)
	}
	p, err := f.Policy("inventory")
	if err != nil {
		t.Fatal(err)
	}
	wantRetry := stint.Retry{Attempts: 3, AttemptTimeout: 120 * time.Millisecond, Codes: []string{"UNAVAILABLE", "RESOURCE_EXHAUSTED"}, BudgetRatio: .1}
	if !reflect.DeepEqual(p.Retry, wantRetry) {
		t.Errorf("the policy's retry is %+v, want %+v", p.Retry, wantRetry)
	}
}

// Every mistake is an error that says where, which key, what is wrong and what
// would be right.
func TestStrict(t *testing.T) {
	const head = "service: a\n"
	for _, test := range []struct {
		name, data, want string
	}{
		{"empty", "", `f.yaml:1:1: the file is empty; it begins with the service's name: "service: orders"`},
		{"comment only", "# nothing\n", `f.yaml:1:1: the file is empty`},
		{"no service", "replicas: 2\n", "f.yaml:1:1: service: is missing; write the service's name"},
		{"service", "service: a b\n", `f.yaml:1:10: service: invalid service name "a b": must be 1 to 64 letters`},
		{"list", "- a\n", "f.yaml:1:1: is a list; write a block of keys"},
		{"tab", "service: a\n\treplicas: 2\n", "f.yaml:2:1: this is no YAML: "},
		{"two documents", "service: a\n---\nservice: b\n", "f.yaml:2:1: a second document begins here; write one file per service"},
		{"unknown key", head + "bogus: 1\n", "f.yaml:2:1: bogus: is an unknown key; it can be service, replicas, mesh, entry, latencyBudget or dependencies"},
		{"typo", head + "replcas: 1\n", "f.yaml:2:1: replcas: is an unknown key; did you mean replicas?"},
		{"Go's name", head + "dependencies:\n  x: {Timeout: 1s}\n", "f.yaml:3:7: dependencies.x.Timeout: is an unknown key; did you mean timeout?"},
		{"merge key", head + "<<: {replicas: 1}\n", "f.yaml:2:1: <<: is an unknown key"},
		{"twice", head + "service: b\n", "f.yaml:2:1: service: stands here twice; the first is in line 1"},
		{"null", head + "dependencies:\n  x:\n", "f.yaml:3:5: dependencies.x: has no value; write one, or leave the key out"},
		{"empty name", head + "dependencies: {x: {service: \"\"}}\n", "f.yaml:2:29: dependencies.x.service: is empty; write a name, or leave the key out"},
		{"control characters in a key", head + "dependencies: {\"x\\e[2J\": {}}\n", `f.yaml:2:16: dependencies: has a key that can't be printed: "x\x1b[2J"`},
		{"control characters", head + "entry: {trust: peers, exempt: [\"/a\\0\"]}\n", `f.yaml:2:32: entry.exempt[0]: can't be printed: "/a\x00"`},
		{"two numbers of an operation", head + "dependencies:\n  x:\n    minUseful: 9ms\n    operations:\n      GET: {retry: none}\n      \"GET /a.b\":\n        timeout: 5ms\n", `f.yaml:7:7: dependencies.x.operations.GET /a.b: minUseful 9ms is above timeout 5ms: no call could ever start`},
		{"a number of an operation", head + "dependencies:\n  x:\n    operations:\n      GET:\n        retry: {maxAttempts: 2, backoff: {base: 3s}}\n", `f.yaml:6:49: dependencies.x.operations.GET.retry.backoff.base: retry.backoff.base 3s is above retry.backoff.cap 2s`},
		{"number for a name", "service: 12\n", "f.yaml:1:10: service: 12 is no text; write it in quotes if it is meant so"},
		{"no unit", head + "dependencies: {x: {timeout: 260}}\n", "f.yaml:2:29: dependencies.x.timeout: 260 has no unit; write 260ms or 260s"},
		{"zero", head + "dependencies: {x: {timeout: 0s}}\n", `f.yaml:2:29: dependencies.x.timeout: is zero, which would not mean "no limit"; leave the key out for its default`},
		{"negative", head + "dependencies: {x: {timeout: -1s}}\n", "dependencies.x.timeout: -1s is negative; a duration is above zero"},
		{"words", head + "dependencies: {x: {timeout: long}}\n", `dependencies.x.timeout: "long" is no duration; write it as 120ms, 2s or 1m30s`},
		{"below the wire", head + "dependencies: {x: {timeout: 100us}}\n", "dependencies.x.timeout: 100us is below 1ms, the unit in which a peer is told; write 1ms or more"},
		{"no percent", head + "entry: {trust: peers, maxRefused: 0.1}\n", "entry.maxRefused: 0.1 has no unit; write 10%"},
		{"no percent, whole", head + "entry: {trust: peers, maxRefused: 12}\n", "entry.maxRefused: 12 has no unit; write 12%"},
		{"above 100", head + "entry: {trust: peers, maxRefused: 101%}\n", "entry.maxRefused: 101% is outside of what it can be; write a percentage above 0% and up to 100%"},
		{"not a number", head + "entry: {trust: peers, maxRefused: NaN%}\n", `entry.maxRefused: "NaN%" is no percentage; write it as 10%`},
		{"no trust", head + "entry: {deadline: 1s}\n", "f.yaml:2:8: entry.trust: is missing; write peers where only your own services call, edge where anybody can"},
		{"trust", head + "entry: {trust: all}\n", `f.yaml:2:16: entry.trust: "all" is unknown; write peers or edge`},
		{"limit", head + "entry: {trust: peers, limit: 0}\n", `entry.limit: "0" is no limit; write a number from 1 up, or adaptive`},
		{"limit and bounds", head + "entry: {trust: peers, limit: 5, minLimit: 2}\n", "entry.limit: is a number, so that minLimit and maxLimit bound nothing"},
		{"bounds", head + "entry: {trust: peers, minLimit: 9, maxLimit: 3}\n", "f.yaml:2:33: entry.minLimit: minLimit 9 is above maxLimit 3"},
		{"deadlines", head + "entry: {trust: peers, deadline: 40s}\n", "f.yaml:2:33: entry.deadline: deadline 40s is above maxDeadline 30s: it would be cut"},
		{"pattern", head + "entry: {trust: peers, exempt: [livez]}\n", `entry.exempt: pattern "livez" has no path; write it as "GET /path" or "/path"`},
		{"pattern twice", head + "entry: {trust: peers, exempt: [/a, /a]}\n", "entry.exempt: names /a twice"},
		{"two kinds", head + "entry: {trust: peers, exempt: [/a], routes: {/a: {class: critical}}}\n", `entry.routes: names "/a", and so does exempt; a route is of one kind`},
		{"class", head + "entry: {trust: peers, routes: {/a: {class: high}}}\n", `entry.routes./a.class: "high" is unknown; write sheddable, sheddable-plus, critical or critical-plus`},
		{"budget without deadline", head + "latencyBudget: {local: 1s}\n", "latencyBudget: divides entry.deadline, which is missing; write it"},
		{"share of nothing", head + "entry: {trust: peers, deadline: 1s}\nlatencyBudget: {x: 2ms}\ndependencies: {x: {calls: {perRequest: 3}}}\n", "f.yaml:3:20: latencyBudget.x: is less than 1ms for each of 3 calls in turn; write 3ms or more"},
		{"reserved name", head + "dependencies: {local: {}}\n", "dependencies.local: is a key of latencyBudget with a meaning of its own; call the dependency something else"},
		{"parallel with nobody", head + "dependencies: {x: {calls: {parallelWith: [z]}}}\n", "dependencies.x.calls.parallelWith: z is no dependency of this file; it can be x"},
		{"calls", head + "dependencies: {x: {calls: parallel}}\n", `dependencies.x.calls: "parallel" is unknown; write sequential, or {parallelWith: [names], perRequest: N}`},
		{"retry", head + "dependencies: {x: {retry: always}}\n", `dependencies.x.retry: "always" is unknown; write none, or {maxAttempts: 3`},
		{"attempts", head + "dependencies: {x: {retry: {maxAttempts: 0}}}\n", "dependencies.x.retry.maxAttempts: 0 is outside of what it can be; write a number from 1 to 2147483647, or leave the key out for its default"},
		{"half an attempt", head + "dependencies: {x: {retry: {maxAttempts: 1.5}}}\n", `dependencies.x.retry.maxAttempts: "1.5" is no whole number`},
		{"backoff", head + "dependencies: {x: {retry: {backoff: linear}}}\n", `dependencies.x.retry.backoff: "linear" is unknown; write exponential`},
		{"backoff bounds", head + "dependencies: {x: {retry: {backoff: {base: 2s, cap: 1s}}}}\n", "f.yaml:2:44: dependencies.x.retry.backoff.base: retry.backoff.base 2s is above retry.backoff.cap 1s"},
		{"jitter", head + "dependencies: {x: {retry: {jitter: none}}}\n", `dependencies.x.retry.jitter: "none" is unknown; write full`},
		{"budget", head + "dependencies: {x: {retry: {budget: 0.1}}}\n", `dependencies.x.retry.budget: "0.1" is no budget; write 10%, 10% of baseline traffic, or {ratio: 10%, ceiling: 10}`},
		{"code", head + "dependencies: {x: {retry: {retryable: [UNAVAILABLE, 200]}}}\n", `dependencies.x.retry.retryable[1]: "200" is no outcome; write an HTTP status from 400 to 599, a gRPC code such as UNAVAILABLE, or of a store its own code`},
		{"codes no list", head + "dependencies: {x: {retry: {retryable: 503}}}\n", "dependencies.x.retry.retryable: is one value; write a list: [a, b]"},
		{"operation's budget", head + "dependencies: {x: {operations: {GET: {retry: {budget: 10%}}}}}\n", "dependencies.x.operations.GET.retry.budget: is the dependency's, for all operations; write it in its retry block"},
		{"hedge", head + "dependencies: {x: {hedge: {max: 9}}}\n", "dependencies.x.hedge.max: 9 is outside of what it can be; write a number from 1 to 8"},
		{"hedge after", head + "dependencies: {x: {hedge: {after: p99}}}\n", `dependencies.x.hedge.after: "p99" is no wait; write p95, or a duration from 1ms up`},
		{"breaker", head + "dependencies: {x: {breaker: on}}\n", `dependencies.x.breaker: "on" is unknown; write off, or {failureRatio: 50%`},
		{"concurrency", head + "dependencies: {x: {concurrency: -1}}\n", "dependencies.x.concurrency: -1 is outside of what it can be; write a number from 1 to 2147483647"},
		{"idempotency", head + "dependencies: {x: {idempotency: yes}}\n", `dependencies.x.idempotency: "yes" is unknown; write honoured, ignored, or {keys: honoured, ttl: 24h}`},
		{"ttl of ignored keys", head + "dependencies: {x: {idempotency: {keys: ignored, ttl: 1h}}}\n", "dependencies.x.idempotency.ttl: is stated for keys that are not honoured"},
		{"hidden", head + "dependencies: {x: {hiddenRetries: -1}}\n", "dependencies.x.hiddenRetries: -1 is outside of what it can be; write a number from 0 to 2147483647"},
		{"bool", head + "dependencies: {x: {repeatAfterTimeout: yes}}\n", `dependencies.x.repeatAfterTimeout: "yes" is neither true nor false`},
		{"useless timeout", head + "dependencies: {x: {timeout: 10ms, minUseful: 20ms}}\n", "f.yaml:2:46: dependencies.x.minUseful: minUseful 20ms is above timeout 10ms: no call could ever start"},
		{"kind", head + "dependencies: {x: {kind: postgresql}}\n", `f.yaml:2:26: dependencies.x.kind: "postgresql" is unknown; write http, grpc, postgres, mariadb, mysql, sqlite, redis or mongodb; did you mean postgres?`},
		{"kind of nothing", head + "dependencies: {x: {kind: ldap}}\n", `dependencies.x.kind: "ldap" is unknown; write http, grpc, postgres, mariadb, mysql, sqlite, redis or mongodb`},
		{"service of a store", head + "dependencies: {x: {kind: redis, service: x}}\n", "f.yaml:2:42: dependencies.x.service: names a policy file, and a store (kind: redis) has none; remove it"},
		{"sdk of a store", head + "dependencies: {x: {kind: mysql, sdk: aws}}\n", "f.yaml:2:38: dependencies.x.sdk: is a library for services, and a store (kind: mysql) is not called through it"},
		{"keys of a store", head + "dependencies: {x: {kind: postgres, idempotency: honoured}}\n", "f.yaml:2:49: dependencies.x.idempotency: no store reads an Idempotency-Key; keep the key in a row"},
		{"copies for a store", head + "dependencies: {x: {kind: sqlite, hedge: {max: 1}}}\n", "f.yaml:2:41: dependencies.x.hedge: no copy of a command to a store (kind: sqlite) is ever sent; remove it"},
		{"copies for an operation", head + "dependencies: {x: {kind: redis, operations: {get: {hedge: {max: 1}}}}}\n", "dependencies.x.operations.get.hedge: no copy of a command to a store (kind: redis)"},
		{"route of a store", head + "dependencies: {x: {kind: postgres, operations: {GET /x: {timeout: 1s}}}}\n", "f.yaml:2:57: dependencies.x.operations.GET /x: is a route, and a store (kind: postgres) has none; name the operation as it is in events"},
		{"statement in capitals", head + "dependencies: {x: {kind: mariadb, operations: {SELECT: {timeout: 1s}}}}\n", "dependencies.x.operations.SELECT: is not the operation's name in events; write select"},
		{"command in capitals", head + "dependencies: {x: {kind: redis, operations: {XINFO STREAM: {timeout: 1s}}}}\n", "dependencies.x.operations.XINFO STREAM: is not the operation's name in events; write xinfo stream"},
		{"status of a database", head + "dependencies: {x: {kind: postgres, retry: {retryable: [40001, 503]}}}\n", "f.yaml:2:63: dependencies.x.retry.retryable[1]: 503 is not what a store of kind postgres answers; write one of 02, 03, 08, "},
		{"whole SQLSTATE", head + "dependencies: {x: {kind: postgres, operations: {select: {retry: {retryable: [08006]}}}}}\n", "dependencies.x.operations.select.retry.retryable[0]: 08006 is told by its class; write 08"},
		{"SQLSTATE of a Redis", head + "dependencies: {x: {kind: redis, retry: {retryable: [40001]}}}\n", "dependencies.x.retry.retryable[0]: 40001 is not what a store of kind redis answers; write one of ASK, BUSY, "},
		{"code of MongoDB", head + "dependencies: {x: {kind: mongodb, retry: {retryable: [40001]}}}\n", "dependencies.x.retry.retryable[0]: 40001: what a store of kind mongodb answers is judged by the program's own Classify; remove it, and let that say what may be repeated"},
		{"SQLSTATE of nobody", head + "dependencies: {x: {retry: {retryable: [40001]}}}\n", "dependencies.x.retry.retryable[0]: 40001 is what a store answers; write its kind, or an HTTP status or a gRPC code"},
		{"gRPC code over HTTP", head + "dependencies: {x: {kind: http, retry: {retryable: [UNAVAILABLE]}}}\n", "dependencies.x.retry.retryable[0]: UNAVAILABLE is no HTTP status, and the kind is http; write one from 400 to 599"},
		{"status over gRPC", head + "dependencies: {x: {kind: grpc, retry: {retryable: [503]}}}\n", "dependencies.x.retry.retryable[0]: 503 is no gRPC code, and the kind is grpc; write one such as UNAVAILABLE"},
		{"block for a value", head + "dependencies: {x: {timeout: {a: b}}}\n", "dependencies.x.timeout: is a block of keys; write one value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := policy.Parse("f.yaml", []byte(test.data))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is\n%v\nwant\n%s", err, test.want)
			}
			if p, ok := errors.AsType[*policy.Problem](err); !ok || p.Line == 0 {
				t.Errorf("the error names no line: %v", err)
			}
		})
	}
}

func TestEveryMistakeIsReported(t *testing.T) {
	_, err := policy.Parse("f.yaml", []byte("service: a\nbogus: 1\ndependencies:\n  x: {timeout: 1, concurrency: 0}\n"))
	if n := len(strings.Split(err.Error(), "\n")); n != 3 {
		t.Errorf("%d errors, want 3:\n%v", n, err)
	}
}

func TestLoadSaysWhichFile(t *testing.T) {
	if _, err := policy.Load("testdata/none.yaml"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("the error is %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("# comment\n"), 500_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(big); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("the error is %v", err)
	}
}

// Aliases are followed, and can't make a small file endless.
func TestAliases(t *testing.T) {
	f, err := policy.Parse("f.yaml", []byte("service: a\ndependencies:\n  x: &x {timeout: 1s}\n  y: *x\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Dependencies["y"].Timeout != time.Second {
		t.Errorf("y is %+v", f.Dependencies["y"])
	}
	var b strings.Builder
	b.WriteString("service: a\ndependencies:\n  d0: &d\n    operations:\n      o0: &o {retry: {retryable: [429]}}\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "      o%d: *o\n", i+1)
	}
	for i := range 1000 {
		fmt.Fprintf(&b, "  d%d: *d\n", i+1)
	}
	if _, err := policy.Parse("f.yaml", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "too large once its aliases are followed") {
		t.Errorf("the error is %.200v", err)
	}
}

// A key stands where it is written: the line of a comment that accepts a finding,
// in the order of the file where its value is an alias, and apart from keys that
// have its path in their names.
func TestPositionsOfBlocksAliasesAndDots(t *testing.T) {
	f, err := policy.Parse("f.yaml", []byte(`service: a
# stint:ignore no-exempt: another port has them
entry:
  trust: peers
dependencies:
  z: &z
    concurrency: 5
  x.timeout:
    timeout: 1s
    operations:
      "GET /a.b/{id}": {timeout: 2s}
  x: *z
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key  []string
		line int
		has  bool
	}{
		{[]string{"entry"}, 3, true},
		{[]string{"dependencies", "z"}, 6, true},
		{[]string{"dependencies", "x"}, 12, true},
		{[]string{"dependencies", "x", "concurrency"}, 7, true},
		{[]string{"dependencies", "x", "timeout"}, 12, false},
		{[]string{"dependencies", "x.timeout", "timeout"}, 9, true},
		{[]string{"dependencies", "x.timeout", "operations", "GET /a.b/{id}", "timeout"}, 11, true},
	} {
		if got := f.At(test.key...); got.Line != test.line {
			t.Errorf("%v stands at %v, want line %d", test.key, got, test.line)
		}
		if f.Has(test.key...) != test.has {
			t.Errorf("Has(%v) is %v", test.key, !test.has)
		}
	}
	g, err := policy.NewGraph(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range g.Check(nil) {
		if found.Code == "no-exempt" {
			t.Errorf("%v: found what the comment above accepts", found.Position)
		}
	}
}

func TestPositions(t *testing.T) {
	f, err := policy.Load("testdata/issue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key  []string
		line int
		has  bool
	}{
		{[]string{"service"}, 1, true},
		{[]string{"entry", "deadline"}, 4, true},
		{[]string{"dependencies", "inventory", "retry", "perAttemptTimeout"}, 27, true},
		{[]string{"dependencies", "inventory", "retry", "bogus"}, 23, false},
		{[]string{"dependencies", "inventory", "sdk"}, 19, false},
		{[]string{"replicas"}, 1, false},
	} {
		if got := f.At(test.key...); got.Line != test.line || got.File != "testdata/issue.yaml" {
			t.Errorf("%v stands at %v, want line %d", test.key, got, test.line)
		}
		if f.Has(test.key...) != test.has {
			t.Errorf("Has(%v) is %v", test.key, !test.has)
		}
	}
}

func TestIgnoreComments(t *testing.T) {
	f, err := policy.Parse("f.yaml", []byte(`service: a # stint:ignore one: it is so
# stint:ignore two: reason
# and more words

# stint:ignore three: reason
replicas: 3
# stint:ignore four
mesh: none # stint:ignore five:
`))
	if err != nil {
		t.Fatal(err)
	}
	for code, line := range map[string]int{"one": 1, "two": 6, "three": 6} {
		if !f.Ignores(code, line) {
			t.Errorf("%s is not accepted in line %d", code, line)
		}
	}
	for code, line := range map[string]int{"one": 2, "four": 8, "five": 8, "two": 2} {
		if f.Ignores(code, line) {
			t.Errorf("%s is accepted in line %d: without a reason, or elsewhere", code, line)
		}
	}
}

// A file loads, or the error names a line; what loads can be printed and read
// again, and gives Callers and a Gate.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.yaml")
	more, _ := filepath.Glob("../examples/*/*.yaml")
	for _, path := range append(paths, more...) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{"", "service: a\n---\n", "a: &a [*a]", "service: &a {x: *a}", "service: a\ndependencies: {x: {retry: {backoff: {base: 1ns, cap: 1ns}}}}",
		"service: a\nentry: {trust: edge, routes: {\"/ \": {deadline: 1h}}}", "? [a]\n: b", "service: \"\\0\"", "%YAML 1.1\n---\nservice: a"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policy.Parse("f.yaml", data)
		if err != nil {
			if p, ok := errors.AsType[*policy.Problem](err); !ok || p.Line < 1 || p.Text == "" {
				t.Fatalf("the error names no line: %v", err)
			}
			return
		}
		roundTrip(t, file)
		for name := range file.Dependencies {
			if _, err := file.Caller(name, nil); err != nil {
				t.Errorf("no Caller: %v", err)
			}
		}
		if file.Entry != nil {
			if _, err := file.Gate(&stint.GateOptions{Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Errorf("no Gate: %v", err)
			}
		}
		g, err := policy.NewGraph(file)
		if err != nil {
			t.Fatal(err)
		}
		g.Edges()
		g.Check(nil)
		g.Traffic()
		g.Spend(file.Service)
	})
}

// What is at the other end is one of a closed list.
func TestKinds(t *testing.T) {
	for kind, store := range map[policy.Kind]bool{policy.HTTP: false, policy.GRPC: false, policy.Postgres: true, policy.MariaDB: true,
		policy.MySQL: true, policy.SQLite: true, policy.Redis: true, policy.MongoDB: true} {
		f, err := policy.Parse("f.yaml", []byte("service: a\ndependencies: {x: {kind: "+string(kind)+"}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Dependencies["x"].Kind; got != kind || got.Store() != store {
			t.Errorf("%s is read as %q, a store: %v", kind, got, got.Store())
		}
		if _, err := f.Caller("x", nil); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if policy.Kind("").Store() {
		t.Error("what is not said is a store")
	}
}
