package policy_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

func load(t *testing.T, path string) *policy.File {
	t.Helper()
	f, err := policy.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func parseFile(t *testing.T, data string) *policy.File {
	t.Helper()
	f, err := policy.Parse("f.yaml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every key of a dependency arrives where a Caller looks for it.
func TestPolicy(t *testing.T) {
	f := load(t, "testdata/every-key.yaml")
	got, err := f.Policy("inventory")
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := stint.Policy{
		Timeout: 260 * ms, MinUseful: 50 * ms, Reserve: 10 * ms, Safety: stint.Idempotent, Bulkhead: 32,
		Retry: stint.Retry{Attempts: 3, AttemptTimeout: 60 * ms, NotAfterTimeout: true, Base: 10 * ms, Cap: 40 * ms,
			Codes: []string{"UNAVAILABLE", "429", "500"}, BudgetRatio: .2, BudgetCeiling: 5, Owner: stint.OwnerAlways},
		Hedge:   stint.Hedge{Copies: 2, Delay: 40 * ms},
		Breaker: stint.Breaker{FailureRatio: .4, MinCalls: 10, Window: 30 * time.Second, OpenFor: 5 * time.Second, Probes: 2},
		Operations: map[string]stint.Policy{"GET /heavy-report": {
			Timeout: time.Second, MinUseful: 400 * ms, Reserve: 10 * ms, Safety: stint.ReadOnly,
			Retry: stint.Retry{Attempts: 1, Base: 10 * ms, Cap: 40 * ms,
				Codes: []string{"UNAVAILABLE", "429", "500"}, Owner: stint.OwnerAlways},
			Hedge: stint.Hedge{Copies: 1},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the policy is\n%+v\nwant\n%+v", got, want)
	}
	c, err := f.Caller("inventory", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Dependency() != "inventory" || c.Policy().Retry.Attempts != 3 {
		t.Errorf("the Caller is for %q, under %+v", c.Dependency(), c.Policy())
	}
	if p, err := f.Policy("pricing"); err != nil || !p.Breaker.Off || p.Retry.Attempts != 1 {
		t.Errorf("pricing: %+v, %v", p, err)
	}
	if _, err := f.Caller("invntory", nil); err == nil || err.Error() != `policy: testdata/every-key.yaml: no dependency "invntory"; did you mean inventory?` {
		t.Errorf("the error is %v", err)
	}
}

// An operation has the dependency's numbers where it says nothing, and shares
// breaker, bulkhead and budget.
func TestOperationPolicy(t *testing.T) {
	f := load(t, "testdata/every-key.yaml")
	p, err := f.OperationPolicy("inventory", "GET /heavy-report")
	if err != nil || p.Retry.Attempts != 1 || p.Retry.NotAfterTimeout || p.Retry.BudgetCeiling != 5 || p.Bulkhead != 32 || p.Breaker.Probes != 2 {
		t.Errorf("the operation's policy is %+v, %v", p, err)
	}
	p, err = f.OperationPolicy("inventory", "GET /other")
	if err != nil || p.Retry.Attempts != 3 || p.Operations != nil {
		t.Errorf("another operation's policy is %+v, %v", p, err)
	}
}

// What an operation does not say is the dependency's, number by number.
func TestOperationBackoff(t *testing.T) {
	f := parseFile(t, `service: a
dependencies:
  b:
    retry: {backoff: {base: 10ms, cap: 100ms}}
    operations:
      base: {retry: {backoff: {base: 20ms}}}
      cap: {retry: {backoff: {cap: 40ms}}}
`)
	p, err := f.Policy("b")
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	if r := p.Operations["base"].Retry; r.Base != 20*ms || r.Cap != 100*ms {
		t.Errorf("base: %v to %v", r.Base, r.Cap)
	}
	if r := p.Operations["cap"].Retry; r.Base != 10*ms || r.Cap != 40*ms {
		t.Errorf("cap: %v to %v", r.Base, r.Cap)
	}
}

func TestPatterns(t *testing.T) {
	f := parseFile(t, "service: a\ndependencies: {x: {operations: {POST: {timeout: 1s}, GET /b: {timeout: 1s}, /a/: {timeout: 1s}}}}\n")
	if got := f.Patterns("x"); !reflect.DeepEqual(got, []string{"/a/", "GET /b"}) {
		t.Errorf("the patterns are %q", got)
	}
	if got := f.Patterns("y"); got != nil {
		t.Errorf("the patterns of nobody are %q", got)
	}
}

func TestTimeout(t *testing.T) {
	f := parseFile(t, `service: a
entry: {trust: peers, deadline: 1s}
latencyBudget: {own: 100ms, share: 200ms, twice: 301ms, atonce: 300ms}
dependencies:
  own: {timeout: 90ms}
  share: {}
  twice: {calls: {perRequest: 2}}
  atonce: {calls: {perRequest: 2, parallelWith: [atonce]}}
  neither: {}
`)
	for name, want := range map[string]time.Duration{"own": 90, "share": 200, "twice": 150, "atonce": 300, "neither": 0, "nobody": 0} {
		if got := f.Timeout(name); got != want*time.Millisecond {
			t.Errorf("the timeout of %s is %v, want %v ms", name, got, int(want))
		}
		if f.Dependencies[name] == nil {
			continue
		}
		p, err := f.Policy(name)
		if err != nil || p.Timeout != want*time.Millisecond {
			t.Errorf("the policy of %s has Timeout %v, %v", name, p.Timeout, err)
		}
	}
}

func TestHiddenRetries(t *testing.T) {
	f := parseFile(t, `service: a
mesh: istio
dependencies:
  mesh: {}
  both: {sdk: aws}
  said: {sdk: aws, hiddenRetries: 0}
`)
	for name, want := range map[string]struct {
		n      int
		stated bool
	}{"mesh": {2, false}, "both": {8, false}, "said": {0, true}, "nobody": {0, false}} {
		if n, stated := f.HiddenRetries(name); n != want.n || stated != want.stated {
			t.Errorf("%s: %d, stated %v; want %+v", name, n, stated, want)
		}
	}
}

func TestSafe(t *testing.T) {
	for name, want := range map[string]stint.Safety{"GET": stint.ReadOnly, "GET /a/{id}": stint.ReadOnly, "PUT /a": stint.Idempotent,
		"DELETE": stint.Idempotent, "POST /a": stint.Unrepeatable, "/pkg.Service/Get": stint.Unrepeatable, "": stint.Unrepeatable} {
		if got := policy.Safe(name); got != want {
			t.Errorf("%q is %v, want %v", name, got, want)
		}
	}
}

// Every key of entry arrives where a Gate looks for it.
// Several observers are a slice, which can't be compared.
func TestGateTakesAnyObserver(t *testing.T) {
	f := parseFile(t, "service: a\nentry: {trust: peers}\n")
	if _, err := f.Gate(&stint.GateOptions{Observer: stint.Observers{}}); err != nil {
		t.Error(err)
	}
	if _, err := f.Gate(&stint.GateOptions{Observer: stint.Observers{}, Limit: 3}); err == nil {
		t.Error("no error for a number beside the file's")
	}
}

func TestGateOptions(t *testing.T) {
	o, err := load(t, "testdata/every-key.yaml").GateOptions()
	ms := time.Millisecond
	want := stint.GateOptions{Trust: stint.TrustDeadlineOnly, DefaultTimeout: 760 * ms, MaxTimeout: 2 * time.Second, ClockSkew: 500 * ms,
		MinUseful: 30 * ms, Reserve: 90 * ms, MinLimit: 8, MaxLimit: 200, ObserveOnly: true, MaxRefused: .125}
	if err != nil || o != want {
		t.Errorf("the options are\n%+v, %v\nwant\n%+v", o, err, want)
	}
	o, err = parseFile(t, "service: a\nentry: {trust: peers, limit: 12}\n").GateOptions()
	if err != nil || o.Trust != stint.TrustPeers || o.Limit != 12 {
		t.Errorf("the options are %+v, %v", o, err)
	}
	if _, err := parseFile(t, "service: a\n").Gate(nil); err == nil || err.Error() != "policy: f.yaml: the file has no entry, and so no Gate; write an entry block" {
		t.Errorf("the error is %v", err)
	}
	if _, err := load(t, "testdata/issue.yaml").Gate(&stint.GateOptions{Limit: 3}); err == nil {
		t.Error("a Gate took a number that stands in the file as well")
	}
}
