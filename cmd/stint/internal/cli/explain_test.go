package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stint-go/stint"
)

// explainJSON runs stint explain on the file of the tests.
func explainJSON(t *testing.T, dependency, flags string) explainedJSON {
	t.Helper()
	var out, stderr bytes.Buffer
	args := append([]string{"explain", "testdata/orders.yaml", dependency, "-json"}, strings.Fields(flags)...)
	if code := Run(t.Context(), args, nil, &out, &stderr); code != exitClean {
		t.Fatalf("stint %s: exit code %d: %s", args, code, &stderr)
	}
	var j explainedJSON
	if err := json.Unmarshal(out.Bytes(), &j); err != nil {
		t.Fatal(err)
	}
	return j
}

// Each Reason is the verdict of the step that it belongs to, which is the only
// one that says no; those before it passed, those behind it were not reached.
func TestExplainSteps(t *testing.T) {
	for _, c := range []struct {
		name, dependency, flags string
		refused                 int // counted from 1; 0: none
		reason                  stint.Reason
		text                    string // of the step that decides
	}{
		{"a retry", "inventory", "-remaining 1s -outcome 503 -method GET", 0, 0, ""},
		{"a failure", "inventory", "-remaining 1s -outcome 500 -method GET", 1, stint.Final, "would not cure"},
		{"listed", "pricing", "-remaining 1s -outcome 500 -method GET", 0, 0, ""},
		{"a success", "inventory", "-remaining 1s -outcome 200", 1, stint.Final, "nothing to repeat"},
		{"quota without a time", "inventory", "-remaining 1s -outcome 429 -method GET", 1, stint.Final, "does not say when"},
		{"quota with a time", "inventory", "-remaining 3s -outcome 429 -retry-after 1s -method GET", 0, 0, ""},
		{"RetryInfo", "inventory", "-remaining 3s -outcome RESOURCE_EXHAUSTED -retry-after 1500ms -method GET", 0, 0, ""},
		{"the caller left", "inventory", "-remaining 1s -outcome canceled -method GET", 1, stint.CallerGone, "gave up"},
		{"the deadline passed", "inventory", "-remaining 0s -outcome deadline -method GET", 1, stint.NoTime, "time is over"},
		{"the last attempt", "inventory", "-remaining 1s -outcome 503 -attempt 3 -method GET", 2, stint.AttemptsSpent, "3 attempts were made, of at most 3"},
		{"an operation of its own", "inventory", "-remaining 1s -outcome 503 -operation X -method GET", 2, stint.AttemptsSpent, ""},
		{"no time", "inventory", "-remaining 90ms -outcome 503 -attempt 2 -retry-after 2s -method POST", 3, stint.NoTime, "2.1s does not fit into the 90ms"},
		{"just enough", "inventory", "-remaining 75ms -outcome 503 -method GET", 0, 0, ""},
		{"just not enough", "inventory", "-remaining 74ms -outcome 503 -method GET", 3, stint.NoTime, "75ms does not fit into the 74ms"},
		{"not safe", "inventory", "-remaining 1s -outcome reset -method POST", 4, stint.NotRepeatable, "must not be executed twice"},
		{"nothing said of it", "inventory", "-remaining 1s -outcome reset", 4, stint.NotRepeatable, "an operation without a name"},
		{"with a key", "inventory", "-remaining 1s -outcome reset -method POST -key k", 0, 0, ""},
		{"with no key", "inventory", `-remaining 1s -outcome reset -method POST -key "`, 4, stint.NotRepeatable, "counts as none"},
		{"never started", "inventory", "-remaining 1s -outcome connection-refused -method POST -owned", 0, 0, ""},
		{"proof", "inventory", "-remaining 1s -outcome 503 -not-started -method POST", 0, 0, ""},
		{"declared safe", "pricing", "-remaining 1s -outcome reset -method POST", 0, 0, ""},
		{"not after a timeout", "pricing", "-remaining 1s -outcome timeout -method GET", 4, stint.NotRepeatable, "may be running still"},
		{"owned", "inventory", "-remaining 1s -outcome 503 -method GET -owned", 5, stint.NotOwner, "has claimed"},
		{"owned, and always", "pricing", "-remaining 1s -outcome 503 -method GET -owned", 0, 0, ""},
		{"open", "inventory", "-remaining 1s -outcome 503 -method GET -breaker open", 6, stint.BreakerOpen, "open"},
		{"spent", "inventory", "-remaining 1s -outcome UNAVAILABLE -method GET -balance 0.9", 7, stint.BudgetSpent, "holds 0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := explainJSON(t, c.dependency, c.flags)
			if j.Retry != (c.reason == 0) || j.Reason != c.reason.String() {
				t.Errorf("retry %v, reason %q, want %q", j.Retry, j.Reason, c.reason)
			}
			for i, s := range j.Steps {
				want := passed
				if c.refused > 0 && i+1 == c.refused {
					want = refused
				} else if c.refused > 0 && i+1 > c.refused {
					want = notReached
				}
				if s.State != want || (s.Text == "") != (want == notReached) {
					t.Errorf("step %d, %s: %s %q, want it %s", i+1, s.Name, s.State, s.Text, want)
				}
				if want == refused && !strings.Contains(s.Text, c.text) {
					t.Errorf("step %d, %s: %q, want %q in it", i+1, s.Name, s.Text, c.text)
				}
			}
		})
	}
}

// The wait is Decide's: the hint, and the draw's part of the doubled base.
func TestExplainDelay(t *testing.T) {
	for flags, want := range map[string]float64{
		"-rand 0":                            0,
		"-rand 0.5":                          25,
		"-rand 0.5 -attempt 2":               50,
		"-rand 0.5 -retry-after 1s":          1025,
		"-rand 0 -attempt 2 -retry-after 1s": 1000,
		"-rand 0 -outcome RESOURCE_EXHAUSTED -retry-after 1500ms": 1500,
	} {
		if j := explainJSON(t, "inventory", "-remaining 5s -method GET -outcome 503 "+flags); j.DelayMs != want || !j.Retry {
			t.Errorf("%s: retry %v after %v ms, want %v", flags, j.Retry, j.DelayMs, want)
		}
	}
}

// What the flags can't tell apart, or what can't be, is said.
func TestExplainNotes(t *testing.T) {
	for flags, want := range map[string]string{
		"-remaining 100ms -outcome DEADLINE_EXCEEDED -method GET": "of a peer that had more time left it is a failure",
		"-remaining 261ms -outcome 503 -method GET":               "the timeout of 260ms bounds the call, so that 261ms is never left of it",
		"-remaining 260ms -outcome 503 -method GET":               "",
	} {
		j := explainJSON(t, "inventory", flags)
		if got := strings.ToLower(strings.Join(j.Notes, " ")); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: notes %q, want %q", flags, got, want)
		}
	}
	if j := explainJSON(t, "inventory", "-remaining 100ms -outcome CANCELLED -method GET"); j.Attempt.Kind != stint.Failed.String() {
		t.Errorf("CANCELLED is %s, and to package stintgrpc a failure", j.Attempt.Kind)
	}
}

// Each number says where it stands: at the operation, at the dependency, in the
// latency budget, or nowhere.
func TestExplainWhere(t *testing.T) {
	for _, c := range []struct{ dependency, operation, key, value, where string }{
		{"inventory", "GET", "timeout", "260ms", "orders.yaml:13"},
		{"inventory", "GET", "retry.maxAttempts", "3", "orders.yaml:17"},
		{"inventory", "X", "retry.maxAttempts", "1", "orders.yaml:21"},
		{"inventory", "GET", "retry.backoff", "50ms, doubled up to 2s", "default"},
		{"pricing", "GET", "timeout", "180ms", "orders.yaml:8"},
		{"pricing", "GET", "retry.retryable", "500", "orders.yaml:25"},
		{"pricing", "GET", "retry.owner", "always", "orders.yaml:24"},
		{"pricing", "GET", "repeatAfterTimeout", "false", "orders.yaml:28"},
		{"pricing", "GET", "safety", "idempotent", "orders.yaml:27"},
		{"inventory", "GET", "idempotency", "honoured", "orders.yaml:19"},
	} {
		found := false
		for _, n := range explainJSON(t, c.dependency, "-remaining 1s -outcome 503 -operation "+c.operation).Policy {
			found = found || n == number{c.key, c.value, c.where}
		}
		if !found {
			t.Errorf("%s %s: no %s %s at %s", c.dependency, c.operation, c.key, c.value, c.where)
		}
	}
}

// Only where the file says that keys are honoured is a key taken without a word.
func TestExplainKeyNote(t *testing.T) {
	for dependency, want := range map[string]int{"inventory": 0, "pricing": 1} {
		if j := explainJSON(t, dependency, "-remaining 150ms -outcome 503 -method POST -key k"); len(j.Notes) != want {
			t.Errorf("%s: notes %q, want %d", dependency, j.Notes, want)
		}
	}
}
