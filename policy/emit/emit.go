package emit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint/policy"
)

// Target is what a policy is written for.
type Target string

// The targets.
const (
	GRPC    Target = "grpc"    // a gRPC service config, JSON
	Envoy   Target = "envoy"   // an Envoy bootstrap with routes and clusters, YAML
	Istio   Target = "istio"   // VirtualServices and DestinationRules, YAML
	Gateway Target = "gateway" // HTTPRoutes of the Gateway API, YAML
)

// Targets returns all targets.
func Targets() []Target { return []Target{GRPC, Envoy, Istio, Gateway} }

// Fidelity says how much of a key's meaning the target has.
type Fidelity string

// The fidelities.
const (
	Exact       Fidelity = "exact"       // it does there what it does here, or nothing has to be done
	Approximate Fidelity = "approximate" // it does something near
	Lost        Fidelity = "lost"        // nothing stands for it
)

// A Row says what became of one key of the policy.
type Row struct {
	policy.Position // where the key stands, or what encloses it where it is a default

	// Key is the policy's key: "dependencies.inventory.retry.maxAttempts".
	Key string
	// Fidelity is exact, approximate or lost.
	Fidelity Fidelity
	// Code names the kind of loss and stays the same; empty for what is exact.
	Code string
	// Text is what is written there, or what is different there.
	Text string
	// Instead is what can be done about a loss; empty for what is exact.
	Instead string
}

// A Document is a policy in a target's own words.
type Document struct {
	// Target is what it is for.
	Target Target
	// Body is the document, ready to be written to a file.
	Body []byte
	// Rows has each key that the file sets, and each default that matters, in the
	// order of the file.
	Rows []Row
}

// Losses returns the rows that are not exact.
func (d *Document) Losses() []Row {
	return slices.DeleteFunc(slices.Clone(d.Rows), func(r Row) bool { return r.Fidelity == Exact })
}

// Emit writes the policies of a file's dependencies for the target. The file is
// one that policy.Load or policy.Parse returned, and is not changed; Emit may be
// called concurrently. What the target can't say is no error: it is in the
// document's rows; a store is left out as a whole. An error, a *policy.Problem with the
// place where there is one, is a target that does not exist, a file without dependencies
// that could be written, and two that would be one and the same there.
func Emit(target Target, f *policy.File) (*Document, error) {
	t, ok := targets[target]
	switch {
	case !ok:
		return nil, fmt.Errorf("emit: %q is no target; it can be %s", target, list(Targets()))
	case f == nil:
		return nil, fmt.Errorf("emit: there is no policy file; load one with policy.Load")
	case len(f.Dependencies) == 0:
		return nil, &policy.Problem{Position: f.At("service"), Key: "dependencies", Text: "is missing; there is nothing to write for a service that calls nobody"}
	}
	p, err := newPlan(f, t)
	if err != nil {
		return nil, err
	}
	if len(p.calls) == 0 {
		return nil, p.problem(fmt.Sprintf("has nothing that %s carries; there is nothing to write for a service that calls only stores and the like", target), "dependencies")
	}
	body, err := t.body(p)
	if err != nil {
		return nil, err
	}
	return &Document{target, body, p.rows()}, nil
}

func list[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s[:len(s)-1], ", ") + " or " + s[len(s)-1]
}

// A target writes a plan, and says what of it is different there.
type target struct {
	body func(*plan) ([]byte, error)
	// verdict is about one key; false leaves it to what holds for all targets.
	verdict func(*plan, leaf) (verdict, bool)
	// also are what no key of the policy says and its carrying out means: fields of
	// a dependency that are judged as if they stood in the file.
	also []string
	// host is the callee's name there.
	host func(string) string
	// matches reports whether requests can be told apart like that.
	matches func(match) bool
	// whole says that a route is repeated or not whatever a request's method and
	// fields are.
	whole bool
	// not is a kind of dependency that it has no word for, besides all stores.
	not policy.Kind
}

var targets map[Target]target

func init() { // the verdicts lead back to targets
	every := func(match) bool { return true }
	targets = map[Target]target{
		GRPC:    {grpcBody, grpcVerdict, nil, strings.TrimSpace, func(m match) bool { return m.rpc != "" }, true, policy.HTTP},
		Envoy:   {envoyBody, envoyVerdict, []string{callerDeadline}, hostName, every, false, ""},
		Istio:   {istioBody, istioVerdict, []string{callerDeadline, allCallers}, hostName, every, false, ""},
		Gateway: {gatewayBody, gatewayVerdict, []string{callerDeadline, allCallers}, labelName, every, false, ""},
	}
}

// sortRows puts rows into the order of the file.
func sortRows(rows []Row) {
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
