package emit_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
			"dependencies.payments.idempotency", "dependencies.payments.sdk", "dependencies.ledger.calls",
			"dependencies.ledger.timeout", "dependencies.Mail_Out.timeout", "dependencies.Mail_Out.breaker"} {
			if _, ok := have[key]; !ok {
				t.Errorf("%s: %s has no row", target, key)
			}
		}
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
