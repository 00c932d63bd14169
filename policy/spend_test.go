package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
)

// drawn are slices as text: level, name, kind where it is another, from - to.
func drawn(slices []policy.Slice) []string {
	var lines []string
	for _, s := range slices {
		name := s.Name
		if s.Kind == policy.Call {
			name += "()"
		}
		lines = append(lines, fmt.Sprintf("%s%s %v-%v", strings.Repeat(" ", s.Level), name, s.Start, s.End))
	}
	return lines
}

func TestSpend(t *testing.T) {
	parallel := map[string]string{"a.yaml": `
service: a
entry: {trust: peers, deadline: 1s, reserve: 100ms}
dependencies:
  z: {timeout: 300ms, calls: {parallelWith: [b]}}
  b: {service: b, timeout: 200ms}
  c: {timeout: 100ms, calls: {perRequest: 3}}
  d: {}
`, "b.yaml": "service: b\nentry: {trust: peers, deadline: 5s, reserve: 1s}\ndependencies:\n  a: {service: a, timeout: 3s}\n"}
	for _, c := range []struct {
		name    string
		g       *policy.Graph
		service string
		want    []string
	}{
		{"the example", parse(t, example(t, "policy")), "gateway", []string{
			"local 0s-25ms", "orders() 25ms-785ms",
			" local 25ms-105ms", " inventory() 105ms-365ms",
			"  local 105ms-125ms", "  database() 125ms-185ms", "  contingency 185ms-205ms", "  reserve 205ms-225ms",
			" pricing() 365ms-545ms",
			"  local 365ms-495ms", "  cache() 495ms-515ms", "  contingency 515ms-525ms", "  reserve 525ms-545ms",
			" contingency 545ms-695ms", " reserve 695ms-785ms",
			"reserve 785ms-800ms"}},
		{"at once, several, without a number", parse(t, parallel), "a", []string{
			"z() 0s-300ms", "b() 0s-200ms",
			" a() 0s-150ms", " reserve 150ms-200ms",
			"c, 3 times() 300ms-600ms", "d() 600ms-900ms", "reserve 900ms-1s"}},
		{"a client", parse(t, chainOf("auto", 1)), "s0", []string{"s1() 0s-10s"}},
		{"nobody", parse(t, chainOf("auto", 1)), "x", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := drawn(c.g.Spend(c.service)); !slices.Equal(got, c.want) {
				t.Errorf("spent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// Calls are followed a few levels deep, however deep the graph is.
func TestSpendDepth(t *testing.T) {
	g := parse(t, chainOf("auto", 1, 1, 1, 1, 1, 1, 1))
	deepest := 0
	for _, s := range g.Spend("s0") {
		deepest = max(deepest, s.Level)
	}
	if deepest != 3 {
		t.Errorf("%d levels below the first, want 3", deepest)
	}
}

func TestReview(t *testing.T) {
	clean := parse(t, example(t, "policy")).Review()
	lists := map[string]int{}
	for _, a := range clean {
		lists[a.List]++
		if a.Question == "" || a.Answer == "" || a.Answerable == strings.HasPrefix(a.Answer, "not answerable from here: ") {
			t.Errorf("%+v", a)
		}
	}
	if lists["design review"] != 6 || lists["calling other services"] != 6 || lists["before shipping"] != 7 {
		t.Errorf("questions %v", lists)
	}
	bad := parse(t, map[string]string{
		"a.yaml": "service: a\ndependencies:\n  b:\n    service: b\n    breaker: off\n    retry: {maxAttempts: 3}\n",
		"b.yaml": "service: b\ndependencies:\n  db: {hiddenRetries: 1}\n",
	}).Review()
	circle := parse(t, map[string]string{
		"a.yaml": "service: a\ndependencies: {b: {service: b, timeout: 1s, retry: {maxAttempts: 2}}}\n",
		"b.yaml": "service: b\ndependencies: {a: {service: a, timeout: 1s}}\n",
	}).Review()
	stores := parse(t, map[string]string{"a.yaml": "service: a\ndependencies:\n" +
		"  cache: {kind: redis, timeout: 1s, hiddenRetries: 0, operations: {get: {timeout: 500ms}}}\n" +
		"  db: {kind: mysql, timeout: 1s, operations: {select: {safety: readOnly}, insert: {timeout: 500ms}}}\n"}).Review()
	for _, c := range []struct {
		answers  []policy.Answer
		question string
		says     []string
	}{
		{clean, "Which deadline", []string{"gateway 800ms (gateway.yaml:9:"}},
		{clean, "How does the time left", []string{"3 of 5 calls", "each command has its limit: pricing → cache, redis (pricing.yaml:15:", "inventory → database, postgres (inventory.yaml:18:", "orders → pricing (orders.yaml:41:", "X-Request-Deadline"}},
		{clean, "Who owns the retries", []string{"2 requests reach database", "orders → inventory, 2 (orders.yaml:26:"}},
		{clean, "idempotency key", []string{"orders → inventory honours keys for 24h (orders.yaml:36:"}},
		{clean, "Is only repeated what is safe", []string{"yes", "1 of 2"}},
		{clean, "over few attempts", []string{"at most 3 everywhere"}},
		{clean, "breaker", []string{"yes"}},
		{clean, "too little time", []string{"5 of 5 calls state minUseful", "inventory → database 20ms (inventory.yaml:"}},
		{circle, "Who owns the retries", []string{"without bound", "a → b, 2 (a.yaml:2:"}},
		{stores, "Is only repeated what is safe", []string{"1 of 2"}}, // a command of Redis says it itself
		{stores, "deadline written", []string{"0 of 2 calls", "each command to a store has it as its limit: a → cache, redis (a.yaml:3:"}},
		{stores, "database calls", []string{"a → db, mysql (a.yaml:4:"}},
		{bad, "Which deadline", []string{"none"}},
		{bad, "Who owns the retries", []string{"6 requests reach db"}},
		{bad, "Has every call a timeout", []string{"0 of 2 calls", "no-deadline (a.yaml:3:"}},
		{bad, "over few attempts", []string{"no-attempt-timeout (a.yaml:6:"}},
		{bad, "one layer of a path", []string{"retries-multiply (b.yaml:3:"}},
		{bad, "breaker", []string{"a → b (a.yaml:5:"}},
	} {
		i := slices.IndexFunc(c.answers, func(a policy.Answer) bool { return strings.Contains(a.Question, c.question) })
		if i < 0 {
			t.Errorf("no question %q", c.question)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(c.answers[i].Answer, word) {
				t.Errorf("%q is answered by %q, without %q", c.question, c.answers[i].Answer, word)
			}
		}
	}
	if at := clean[0].Position; at.File != "gateway.yaml" || at.Line != 9 {
		t.Errorf("the first answer stands at %v", at)
	}
}
