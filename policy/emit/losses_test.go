package emit_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy/emit"
)

// TestLosses has a row for each code: what makes it appear, and where. What
// stands behind the key d is the policy of the dependency d.
func TestLosses(t *testing.T) {
	const three = "retry: {maxAttempts: 3}, safety: readOnly"
	tests := []struct {
		code     string
		target   emit.Target
		d, key   string
		fidelity emit.Fidelity
		text     string
	}{
		{"X-LOSS-AFTER-TIMEOUT", emit.Envoy, three + ", repeatAfterTimeout: false", "repeatAfterTimeout", emit.Approximate, "breaks"},
		{"X-LOSS-AFTER-TIMEOUT", emit.Gateway, three + ", repeatAfterTimeout: false", "repeatAfterTimeout", emit.Approximate, "504"},
		{"", emit.GRPC, three + ", repeatAfterTimeout: false", "repeatAfterTimeout", emit.Exact, ""},
		{"X-LOSS-ALL-CALLERS", emit.Istio, "", "", emit.Approximate, "not only for a"},
		{"X-LOSS-ATTEMPT-TIMEOUT", emit.GRPC, "timeout: 2s, retry: {perAttemptTimeout: 1s}", "retry.perAttemptTimeout", emit.Lost, "2s"},
		{"X-LOSS-ATTEMPT-TIMEOUT", emit.Gateway, "retry: {maxAttempts: 2, perAttemptTimeout: 1500ms}", "retry.perAttemptTimeout", emit.Approximate, "1s500ms"},
		{"", emit.Gateway, "retry: {perAttemptTimeout: 1s}", "retry.perAttemptTimeout", emit.Exact, "only attempt"},
		{"X-LOSS-ATTEMPTS-CUT", emit.GRPC, "safety: readOnly, retry: {maxAttempts: 6}", "retry.maxAttempts", emit.Approximate, "6 attempts are 5"},
		{"", emit.GRPC, "safety: readOnly, retry: {maxAttempts: 5}", "retry.maxAttempts", emit.Exact, "5"},
		{"", emit.Envoy, "retry: {maxAttempts: 6}", "retry.maxAttempts", emit.Exact, "5"},
		{"X-LOSS-BACKOFF", emit.Envoy, three, "retry.backoff", emit.Approximate, "50ms up to 2s"},
		{"X-LOSS-BACKOFF", emit.Istio, "retry: {maxAttempts: 2, backoff: {cap: 1s}}", "retry.backoff.cap", emit.Lost, ""},
		{"X-LOSS-BACKOFF", emit.Gateway, "retry: {maxAttempts: 2, backoff: {cap: 1s}}", "retry.backoff.cap", emit.Lost, ""},
		{"X-LOSS-BACKOFF", emit.Gateway, three, "retry.backoff", emit.Approximate, "50ms"},
		{"", emit.GRPC, three, "retry.backoff", emit.Exact, "50ms"},
		{"X-LOSS-BREAKER", emit.GRPC, "", "breaker", emit.Lost, ""},
		{"X-LOSS-BREAKER", emit.Gateway, "", "breaker", emit.Lost, ""},
		{"X-LOSS-BREAKER", emit.Envoy, "", "breaker", emit.Approximate, "single hosts"},
		{"X-LOSS-BREAKER", emit.Istio, "breaker: {minimumCalls: 9}", "breaker.minimumCalls", emit.Approximate, "one after another"},
		{"X-LOSS-BREAKER", emit.Istio, "breaker: {probes: 9}", "breaker.probes", emit.Lost, ""},
		{"", emit.Gateway, "breaker: off", "breaker", emit.Exact, ""},
		{"X-LOSS-BUDGET", emit.GRPC, "safety: readOnly, retry: {maxAttempts: 2, budget: 20%}", "retry.budget", emit.Approximate, "20 tokens are left; a failure costs 1, a success earns 0.2"},
		{"X-LOSS-BUDGET", emit.Envoy, three, "retry.budget", emit.Approximate, "10 %"},
		{"X-LOSS-BUDGET", emit.Istio, "retry: {maxAttempts: 2, budget: {ceiling: 5}}", "retry.budget.ceiling", emit.Lost, ""},
		{"X-LOSS-BUDGET", emit.Gateway, three, "retry.budget", emit.Lost, ""},
		{"X-LOSS-CALLER-DEADLINE", emit.Envoy, "", "", emit.Approximate, "gRPC"},
		{"X-LOSS-CALLER-DEADLINE", emit.Istio, "", "", emit.Lost, ""},
		{"X-LOSS-CODE", emit.GRPC, "safety: readOnly, retry: {maxAttempts: 2, retryable: [500]}", "retry.retryable[0]", emit.Lost, "500"},
		{"X-LOSS-CODE", emit.GRPC, "safety: readOnly, retry: {maxAttempts: 2, retryable: [429]}", "retry.retryable[0]", emit.Approximate, "RESOURCE_EXHAUSTED"},
		{"", emit.GRPC, "safety: readOnly, retry: {maxAttempts: 2, retryable: [503]}", "retry.retryable[0]", emit.Exact, "UNAVAILABLE"},
		{"X-LOSS-CODE", emit.Istio, "retry: {maxAttempts: 2, retryable: [500, DATA_LOSS]}", "retry.retryable[1]", emit.Lost, "DATA_LOSS"},
		{"X-LOSS-CODE", emit.Gateway, "retry: {maxAttempts: 2, retryable: [UNAVAILABLE]}", "retry.retryable[0]", emit.Lost, ""},
		{"", emit.Istio, "retry: {maxAttempts: 2, retryable: [504]}, repeatAfterTimeout: false", "retry.retryable[0]", emit.Exact, "repeatAfterTimeout"},
		{"X-LOSS-CONCURRENCY", emit.GRPC, "concurrency: 5", "concurrency", emit.Lost, ""},
		{"X-LOSS-CONCURRENCY", emit.Gateway, "", "concurrency", emit.Lost, ""},
		{"", emit.Istio, "", "concurrency", emit.Exact, "64"},
		{"X-LOSS-DEADLINE-EXCEEDED", emit.GRPC, "timeout: 1s, safety: readOnly, retry: {maxAttempts: 2, retryable: [DEADLINE_EXCEEDED]}", "retry.retryable[0]", emit.Approximate, "1s"},
		{"X-LOSS-DEFAULT-TIMEOUT", emit.Istio, "", "timeout", emit.Approximate, "10s"},
		{"X-LOSS-EXPERIMENTAL", emit.Gateway, three, "retry.maxAttempts", emit.Approximate, "2"},
		{"X-LOSS-HEDGE", emit.Envoy, "hedge: {max: 2}", "hedge.max", emit.Lost, ""},
		{"X-LOSS-JITTER", emit.GRPC, three, "retry.jitter", emit.Approximate, "20 %"},
		{"X-LOSS-JITTER", emit.Gateway, three, "retry.jitter", emit.Lost, ""},
		{"", emit.Envoy, three, "retry.jitter", emit.Exact, ""},
		{"X-LOSS-KEY", emit.GRPC, "idempotency: honoured", "idempotency", emit.Lost, ""},
		{"", emit.GRPC, "idempotency: ignored", "idempotency", emit.Exact, ""},
		{"X-LOSS-KIND", emit.Envoy, "kind: postgres, timeout: 20ms", "", emit.Lost, "kind postgres"},
		{"X-LOSS-KIND", emit.GRPC, "kind: http, timeout: 20ms", "", emit.Lost, "kind http"},
		{"", emit.Istio, "kind: http, timeout: 20ms", "kind", emit.Exact, ""},
		{"X-LOSS-MATCH", emit.GRPC, "operations: {\"GET /x\": {timeout: 1s}}", "operations.GET /x.timeout", emit.Lost, "GET /x"},
		{"X-LOSS-MATCH", emit.Envoy, "operations: {\"what ever\": {timeout: 1s}}", "operations.what ever.timeout", emit.Lost, ""},
		{"X-LOSS-MIN-USEFUL", emit.GRPC, "minUseful: 20ms", "minUseful", emit.Lost, ""},
		{"X-LOSS-NAME", emit.Gateway, "service: x.y", "", emit.Approximate, "x-y"},
		{"X-LOSS-NOT-STARTED", emit.Istio, "retry: {maxAttempts: 2}", "", emit.Approximate, ""},
		{"X-LOSS-OWNER", emit.Istio, three, "retry.owner", emit.Approximate, ""},
		{"", emit.Istio, "retry: {owner: never, maxAttempts: 3}", "retry.owner", emit.Exact, "attempts: 0"},
		{"", emit.Gateway, "retry: none", "retry", emit.Exact, "left out"},
		{"X-LOSS-RESERVE", emit.Envoy, "reserve: 20ms", "reserve", emit.Approximate, "20ms"},
		{"X-LOSS-RESERVE", emit.GRPC, "reserve: 20ms", "reserve", emit.Lost, ""},
		{"X-LOSS-RETRY-AFTER", emit.Envoy, three, "", emit.Approximate, "10s"},
		{"X-LOSS-RETRY-AFTER", emit.GRPC, three, "", emit.Approximate, "pushback"},
		{"X-LOSS-RETRY-AFTER", emit.Istio, three, "", emit.Lost, ""},
		{"X-LOSS-ROUNDED", emit.Istio, "timeout: 1500us", "timeout", emit.Approximate, "1.5ms is 1ms"},
		{"X-LOSS-ROUNDED", emit.Istio, "retry: {maxAttempts: 2, perAttemptTimeout: 2500us}", "retry.perAttemptTimeout", emit.Approximate, "2.5ms is 2ms"},
		{"", emit.Envoy, "timeout: 1500us", "timeout", emit.Exact, "1.5ms"},
		{"X-LOSS-UNSAFE", emit.GRPC, "retry: {maxAttempts: 3}", "retry.maxAttempts", emit.Lost, ""},
		{"X-LOSS-UNSAFE", emit.Istio, "operations: {POST: {retry: {maxAttempts: 3}}}", "operations.POST.retry.maxAttempts", emit.Lost, ""},
	}
	covered := map[string]bool{}
	for _, test := range tests {
		covered[test.code] = true
		text := "service: a\nentry: {trust: peers}\ndependencies:\n  d: {" + test.d + "}\n  e: {kind: grpc}\n"
		key := strings.TrimSuffix("dependencies.d."+test.key, ".")
		if strings.HasPrefix(test.key, "entry") {
			key = test.key
		}
		rows := write(t, test.target, parse(t, text)).Rows
		i := slices.IndexFunc(rows, func(r emit.Row) bool {
			return r.Key == key && r.Code == test.code && r.Fidelity == test.fidelity && strings.Contains(r.Text, test.text)
		})
		if i < 0 {
			t.Errorf("%s: {%s}: no row of %s with %q, %s and %q in\n%s", test.target, test.d, key, test.code, test.fidelity, test.text, table(rows))
		} else if rows[i].Line != 4 && key != test.key {
			t.Errorf("%s: %s is said to stand in line %d", test.target, key, rows[i].Line)
		}
	}
	delete(covered, "")

	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`X-LOSS-[A-Z-]+`).FindAllString(string(doc), -1)
	if have := slices.Sorted(maps.Keys(covered)); !slices.Equal(have, slices.Sorted(slices.Values(said))) {
		t.Errorf("tested are\n%q, the package's comment has\n%q", have, said)
	}
	for _, name := range []string{"codes.go", "rows.go", "grpc.go", "envoy.go", "istio.go", "gateway.go"} {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(`X-LOSS-[A-Z-]+`).FindAllString(string(src), -1) {
			if !covered[code] {
				t.Errorf("%s: %s has no row above", name, code)
			}
		}
	}
}
