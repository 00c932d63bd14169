package emit_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy/emit"
)

// requests are what is sent in the test below.
var requests = []struct {
	method, path string
	key          bool
}{
	{"GET", "/other", false}, {"POST", "/other", false}, {"POST", "/other", true}, {"PUT", "/y", false},
	{"POST", "/x", false}, {"POST", "/x", true}, {"GET", "/x", false}, {"POST", "/declared", false},
	{"GET", "/g", false}, {"HEAD", "/g", false},
}

// TestNothingUnsafeIsRepeated plays requests through what is written: only what the policy lets be repeated is.
func TestNothingUnsafeIsRepeated(t *testing.T) {
	const operations = `, operations: {POST: {timeout: 1s}, /x: {timeout: 1s}, "PUT /y": {timeout: 1s}, /declared: {safety: idempotent}, "GET /g": {retry: none}}}` + "\n"
	for _, test := range []struct {
		d    string
		want []bool
	}{
		{"retry: {maxAttempts: 3}", []bool{true, false, false, true, false, false, true, true, false, false}},
		{"retry: {maxAttempts: 3}, idempotency: ignored", []bool{true, false, false, true, false, false, true, true, false, false}},
		{"retry: {maxAttempts: 3}, idempotency: honoured", []bool{true, false, true, true, false, true, true, true, false, false}},
		{"retry: {maxAttempts: 3}, safety: idempotent", []bool{true, true, true, true, true, true, true, true, false, false}},
		{"retry: {maxAttempts: 3, owner: never}, safety: idempotent", make([]bool, 10)},
		{"retry: none, safety: idempotent", make([]bool, 10)},
	} {
		f := parse(t, "service: a\ndependencies:\n  d: {"+test.d+operations)
		for i, r := range requests {
			for target, have := range map[emit.Target]bool{
				emit.Istio: istioRepeats(t, write(t, emit.Istio, f).Body, r.method, r.path, r.key),
				emit.Envoy: envoyRepeats(t, write(t, emit.Envoy, f).Body, r.method, r.path, r.key),
			} {
				if have != test.want[i] {
					t.Errorf("{%s}: %s repeats %+v: %v, want %v", test.d, target, r, have, test.want[i])
				}
			}
		}
	}
}

func oneOf(regex, s string) bool { return slices.Contains(strings.Split(regex, "|"), s) }

// istioRepeats asks the first route that matches, as Istio does.
func istioRepeats(t *testing.T, body []byte, method, path string, key bool) bool {
	services, _ := mesh(t, body)
	for _, route := range services[0].Http {
		hit := len(route.Match) == 0
		for _, m := range route.Match {
			_, keyed := m.Headers["idempotency-key"]
			uri := m.Uri == nil || m.Uri.GetExact() == path
			verb := m.Method == nil || m.Method.GetExact() == method || m.Method.GetRegex() != "" && oneOf(m.Method.GetRegex(), method)
			hit = hit || uri && verb && (!keyed || key)
		}
		if hit {
			return route.Retries.Attempts > 0
		}
	}
	t.Fatalf("no route for %s %s", method, path)
	return false
}

// envoyRepeats asks the first route that matches, and its condition for retries.
func envoyRepeats(t *testing.T, body []byte, method, path string, key bool) bool {
	for _, route := range manager(t, bootstrap(t, body)).GetRouteConfig().GetVirtualHosts()[0].GetRoutes() {
		m := route.GetMatch()
		if m.GetPath() != "" && m.GetPath() != path || len(m.GetHeaders()) > 0 && !oneOf(cmp.Or(m.GetHeaders()[0].GetStringMatch().GetExact(), m.GetHeaders()[0].GetStringMatch().GetSafeRegex().GetRegex()), method) {
			continue
		}
		y := route.GetRoute().GetRetryPolicy()
		conditions := y.GetRetriableRequestHeaders()
		met := len(conditions) == 0
		for _, h := range conditions {
			met = met || h.GetPresentMatch() && key || oneOf(h.GetStringMatch().GetSafeRegex().GetRegex(), method)
		}
		return y.GetNumRetries().GetValue() > 0 && met
	}
	t.Fatalf("no route for %s %s", method, path)
	return false
}

// TestGRPCRepeatsOnlyTheDeclared holds the same of a service config, which knows no methods of HTTP and no keys.
func TestGRPCRepeatsOnlyTheDeclared(t *testing.T) {
	body := write(t, emit.GRPC, parse(t, `service: a
dependencies:
  s.T: {retry: {maxAttempts: 3}, idempotency: honoured, operations: {Read: {safety: readOnly}, Write: {timeout: 1s}}}
  s.U: {retry: {maxAttempts: 3, owner: never}, safety: readOnly}
`)).Body
	serviceConfig(t, body)
	var config struct {
		MethodConfig []struct {
			Name        []struct{ Service, Method string }
			RetryPolicy *struct{ MaxAttempts int }
		}
	}
	if err := json.Unmarshal(body, &config); err != nil {
		t.Fatal(err)
	}
	var repeated, all []string
	for _, m := range config.MethodConfig {
		name := m.Name[0].Service + "/" + m.Name[0].Method
		all = append(all, name)
		if m.RetryPolicy != nil {
			repeated = append(repeated, name)
		}
	}
	if !slices.Equal(repeated, []string{"s.T/Read"}) || !slices.Equal(all, []string{"s.T/Read", "s.T/Write", "s.T/", "s.U/"}) {
		t.Errorf("repeated are %q of %q", repeated, all)
	}
}
