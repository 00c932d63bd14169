package emit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/stint-go/stint/policy"
)

// The fields that no key of the policy says.
const (
	callerDeadline = "callerDeadline"
	allCallers     = "allCallers"
	retryAfter     = "retryAfter"
	notStarted     = "notStarted"
	renamed        = "renamed"
)

var unsaid = []string{callerDeadline, allCallers, retryAfter, notStarted, renamed}

// A leaf is one key of the policy.
type leaf struct {
	key   []string
	field string // its name below the dependency or operation: "retry.maxAttempts"
	call  *call  // nil for what is no dependency's
	route *route // of the operation, or the dependency's own
	set   bool   // it stands in the file
	known bool   // its operation can be told apart there
}

// A verdict is what becomes of a leaf.
type verdict struct {
	fidelity   Fidelity
	code, text string
}

func exact(format string, args ...any) verdict {
	return verdict{Exact, "", fmt.Sprintf(format, args...)}
}

func approximate(code, format string, args ...any) verdict {
	return verdict{Approximate, code, fmt.Sprintf(format, args...)}
}

func lost(code, format string, args ...any) verdict {
	return verdict{Lost, code, fmt.Sprintf(format, args...)}
}

func joined(key []string) string { return strings.Join(key, ".") }

// rows judges all leaves.
func (p *plan) rows() []Row {
	var rows []Row
	for _, l := range p.leaves() {
		var v verdict
		ok := l.call != nil && l.known && !l.moot()
		if ok {
			v, ok = p.target.verdict(p, l)
		}
		if !ok {
			v = p.common(l)
		}
		key := l.key
		if !l.set && !slices.Contains(unsaid, l.field) {
			key = append(slices.Clone(key), strings.Split(l.field, ".")...)
		}
		rows = append(rows, Row{p.file.At(key...), joined(key), v.fidelity, v.code, v.text, instead[v.code]})
	}
	for _, name := range p.left {
		v := lost("X-LOSS-KIND", "calls of kind %s are not carried there; all that the file says of it is left out", p.file.Dependencies[name].Kind)
		key := []string{"dependencies", name}
		rows = append(rows, Row{p.file.At(key...), joined(key), v.fidelity, v.code, v.text, instead[v.code]})
	}
	sortRows(rows)
	return rows
}

// leaves are the keys that stand in the file, and the defaults that matter.
func (p *plan) leaves() []leaf {
	w := &walker{f: p.file}
	w.walk(nil, reflect.ValueOf(p.file).Elem())
	var leaves []leaf
	for _, key := range w.leaves {
		if key[0] != "dependencies" || !slices.Contains(p.left, key[1]) {
			leaves = append(leaves, p.leaf(key))
		}
	}
	for _, c := range p.calls {
		add := func(fields ...string) {
			for _, field := range fields {
				leaves = append(leaves, leaf{key: []string{"dependencies", c.name}, field: field, call: c, route: c.all(), known: true})
			}
		}
		has := func(field string) bool {
			return p.file.Has(append([]string{"dependencies", c.name}, strings.Split(field, ".")...)...)
		}
		add(p.target.also...)
		if c.renamed {
			add(renamed)
		}
		if !c.all().stated {
			add("timeout")
		}
		fields := []string{"breaker", "concurrency"}
		if c.retries() {
			add(retryAfter, notStarted)
			fields = append(fields, "retry.owner", "retry.budget", "retry.backoff", "retry.jitter")
		}
		for _, field := range fields {
			if !has(field) {
				add(field)
			}
		}
	}
	return leaves
}

// leaf finds out whose key it is.
func (p *plan) leaf(key []string) leaf {
	l := leaf{key: key, field: joined(key), set: true, known: true}
	switch {
	case key[0] == "dependencies" && len(key) > 2:
		l.call = p.call(key[1])
		l.route, l.field = l.call.all(), joined(key[2:])
		if key[2] == "operations" && len(key) > 4 {
			l.route, l.known = l.call.operation(key[3])
			l.field = joined(key[4:])
		}
	case key[0] == "latencyBudget" && len(key) == 2:
		// A share is the timeout of a dependency that states none.
		if d := p.file.Dependencies[key[1]]; d != nil && d.Timeout == 0 && !slices.Contains(p.left, key[1]) {
			l.call = p.call(key[1])
			l.route, l.field = l.call.all(), "timeout"
		}
	}
	return l
}

func (p *plan) call(name string) *call {
	return p.calls[slices.IndexFunc(p.calls, func(c *call) bool { return c.name == name })]
}

// operation is the route of an operation, and whether it is told apart there.
func (c *call) operation(op string) (*route, bool) {
	is := func(r *route) bool { return r.op == op }
	if i := slices.IndexFunc(c.routes, is); i >= 0 {
		return c.routes[i], true
	}
	return c.unknown[slices.IndexFunc(c.unknown, is)], false
}

// moot reports what is about retries where there are none.
func (l leaf) moot() bool {
	switch l.field {
	case "retry.maxAttempts", "retry.perAttemptTimeout":
		return false
	case "retry.owner":
		if l.route.attempts == 1 {
			return false
		}
	}
	if l.field == "repeatAfterTimeout" || strings.HasPrefix(l.field, "retry.") {
		return !l.route.retries() && (l.route.op != "" || !l.call.retries())
	}
	return false
}

// common is what holds for every target.
func (p *plan) common(l leaf) verdict {
	top, _, _ := strings.Cut(l.field, ".")
	switch {
	case l.call == nil && top == "entry":
		return exact("what the service lets in stays with its own Gate, File.Gate; the document is about its calls")
	case l.call == nil && top == "latencyBudget":
		return exact("is a plan that a check holds against the rest; nothing has to be carried out")
	case !l.known:
		return lost("X-LOSS-MATCH", "%q can't be told apart from other requests there; it is treated like the rest", l.route.op)
	case l.field == renamed:
		return approximate("X-LOSS-NAME", "the callee is called %s there", l.call.host)
	case l.field == allCallers:
		return approximate("X-LOSS-ALL-CALLERS", "holds for every caller of %s, not only for %s", l.call.host, p.file.Service)
	case l.field == callerDeadline:
		return lost("X-LOSS-CALLER-DEADLINE", "the time that the caller has left is not looked at: each call has its whole timeout")
	case l.field == retryAfter:
		return lost("X-LOSS-RETRY-AFTER", "the time that a server asks to wait is not waited for")
	case l.field == notStarted:
		if l.call.all().repeat.all {
			return exact("what never started is repeated like other failures")
		}
		return approximate("X-LOSS-NOT-STARTED", "an unsafe request that provably never started is not repeated there")
	case l.field == "minUseful":
		return lost("X-LOSS-MIN-USEFUL", "an attempt starts however little time is left")
	case l.field == "reserve":
		return lost("X-LOSS-RESERVE", "nothing is kept back for what the service has to do afterwards")
	case top == "hedge":
		return lost("X-LOSS-HEDGE", "no copy of a slow attempt is sent")
	case l.field == "retry", (l.field == "retry.maxAttempts" || l.field == "retry.owner") && l.route.attempts == 1:
		return exact("no request is repeated")
	case l.field == "retry.maxAttempts" && !l.route.retries():
		return lost("X-LOSS-UNSAFE", "nothing says that these requests may be repeated, and there the caller can't say it for each; no request is repeated")
	case l.field == "retry.owner":
		return approximate("X-LOSS-OWNER", "it repeats requests even where a layer above owns their retries, and tells no layer below")
	case l.call != nil && l.moot():
		return exact("there are no retries that it would be about")
	}
	return exact("nothing has to be carried out there")
}

// A walker finds the keys that stand in a file, by its types.
type walker struct {
	f      *policy.File
	leaves [][]string
}

// walk adds the leaves below v, which is at key, and reports whether there are any.
func (w *walker) walk(key []string, v reflect.Value) (any bool) {
	below := func(name string, v reflect.Value) {
		k := append(slices.Clone(key), name)
		if !w.f.Has(k...) {
			return
		}
		any = true
		if !w.walk(k, v) && !w.empty(k) {
			w.leaves = append(w.leaves, k)
		}
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return false
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("yaml") != "-" {
				below(f.Tag.Get("yaml"), v.Field(i))
			}
		}
	case reflect.Map:
		for _, name := range v.MapKeys() {
			below(name.String(), v.MapIndex(name))
		}
	case reflect.Slice:
		if key[len(key)-1] != "retryable" {
			return false
		}
		any = true
		last := key[len(key)-1]
		for i := range v.Len() {
			w.leaves = append(w.leaves, append(slices.Clone(key[:len(key)-1]), fmt.Sprintf("%s[%d]", last, i)))
		}
	}
	return any
}

// empty reports a dependency or an operation of which nothing is said: {}.
func (w *walker) empty(key []string) bool {
	return key[0] == "dependencies" && (len(key) <= 2 || key[2] == "operations" && len(key) <= 4)
}
