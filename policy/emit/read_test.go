package emit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/policy/emit"
)

// layers prints what Read returns: service, where, retries, timeouts, name.
func layers(t *testing.T, text string) []string {
	t.Helper()
	found, err := emit.Read("f", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var s []string
	for _, l := range found {
		stated := "by default"
		if l.Stated {
			stated = "stated"
		}
		s = append(s, fmt.Sprintf("%s:%d %d %s %v %v %s", l.Service, l.Line, l.Retries, stated, l.Timeout, l.PerAttempt, l.Name))
	}
	return s
}

const virtualService = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v}
spec:
  hosts: [inventory]
  http:
`

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"Istio, attempts as stated", virtualService + `  - route: [{destination: {host: inventory.shop.svc.cluster.local}}]
    timeout: 1s
    retries: {attempts: 4, perTryTimeout: 200ms}
`, []string{"inventory:9 4 stated 1s 200ms Istio VirtualService v"}},
		{"Istio, retries without attempts", virtualService + "  - route: [{destination: {host: a}}]\n    retries: {perTryTimeout: 1s}\n",
			[]string{"a:8 0 stated 0s 1s Istio VirtualService v"}},
		{"Istio, null retries", virtualService + "  - route: [{destination: {host: a}}]\n    retries:\n",
			[]string{"a:7 2 by default 0s 0s Istio VirtualService v"}},
		{"Istio, the worst of several routes", virtualService + `  - route: [{destination: {host: a}}, {destination: {host: "b:8080"}}]
    timeout: 3s
    retries: {attempts: 0}
  - redirect: {uri: /x}
  - route: [{destination: {host: a}}]
    timeout: 2s
`, []string{"a:11 2 by default 3s 0s Istio VirtualService v", "b:9 0 stated 3s 0s Istio VirtualService v"}},
		{"Istio, as many by default as stated", virtualService + "  - route: [{destination: {host: a}}]\n    retries: {attempts: 2}\n  - route: [{destination: {host: a}}]\n",
			[]string{"a:9 2 by default 0s 0s Istio VirtualService v"}},
		{"other objects are passed over", "apiVersion: v1\nkind: Service\n---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nspec: {host: a}\n---\n" +
			virtualService + "  - route: [{destination: {host: a}}]\n", []string{"a:14 2 by default 0s 0s Istio VirtualService v"}},
		{"a list of objects", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: networking.istio.io/v1beta1\n  kind: VirtualService\n  spec: {http: [{route: [{destination: {host: a}}]}]}\n",
			[]string{"a:6 2 by default 0s 0s Istio VirtualService "}},
		{"an anchor and a merge key", "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec:\n  http:\n  - &r\n    route: [{destination: {host: a}}]\n    retries: {attempts: 5}\n  - <<: *r\n    timeout: 1s\n",
			[]string{"a:7 5 stated 0s 0s Istio VirtualService "}},
		{"Envoy, plain route configuration", `name: x
virtual_hosts:
- name: h
  domains: ["*"]
  routes:
  - match: {prefix: /}
    route: {cluster: "outbound|80||inventory.shop.svc.cluster.local"}
  - match: {prefix: /}
    redirect: {path_redirect: /}
`, []string{"inventory:7 0 by default 15s 0s Envoy route to h"}},
		{"Envoy, a policy without a number", `virtual_hosts:
- name: h
  routes:
  - route: {cluster: a, timeout: 0s, retry_policy: {retry_on: 5xx, per_try_timeout: 0.25s}}
`, []string{"a:4 1 by default 0s 250ms Envoy route to h"}},
		{"Envoy, where the number stands", "virtual_hosts:\n- name: h\n  routes:\n  - route:\n      cluster: a\n      retry_policy:\n        retry_on: 5xx\n        num_retries: 7\n",
			[]string{"a:8 7 stated 15s 0s Envoy route to h"}},
		{"Envoy, the virtual host's policy, in JSON with tabs", "{\n\t\"virtualHosts\": [{\"name\": \"h\", \"retryPolicy\": {\"numRetries\": 3},\n\t\t\"routes\": [{\"route\": {\"weightedClusters\": {\"clusters\": [{\"name\": \"a\"}, {\"name\": \"b\"}]}, \"timeout\": \"2s\"}},\n\t\t{\"route\": {\"clusterHeader\": \"x-c\"}}]}]}",
			[]string{"a:2 3 stated 2s 0s Envoy route to h", "b:2 3 stated 2s 0s Envoy route to h", "h:2 3 stated 15s 0s Envoy route to h"}},
		{"Envoy, a discovery response", "resources:\n- \"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n  virtual_hosts: [{name: h, routes: [{route: {cluster: a}}]}]\n",
			[]string{"a:3 0 by default 15s 0s Envoy route to h"}},
		{"gRPC", `{"methodConfig": [
  {"name": [{"service": "s.T"}, {"service": "s.U", "method": "M"}], "timeout": "0.300s", "retryPolicy": {
    "maxAttempts": 3}},
  {"name": [{}], "timeout": "1.5s"},
  {"name": [{"service": "s.U"}]},
  {"name": [{"service": "s.V"}], "retryPolicy": {"maxAttempts": 9}}]}`,
			[]string{"s.T:3 2 stated 300ms 0s gRPC service config", "s.U:3 2 stated 0s 0s gRPC service config",
				":4 0 by default 1.5s 0s gRPC service config", "s.V:6 4 stated 0s 0s gRPC service config"}},
		{"gRPC without methods", `{"loadBalancingConfig": [{"round_robin": {}}]}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if have := layers(t, test.text); !slices.Equal(have, test.want) {
				t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(test.want, "\n"))
			}
			if !emit.IsForeign([]byte(test.text)) {
				t.Error("is not foreign")
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	route := virtualService + "  - route: [{destination: {host: a}}]\n"
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"a policy file", "service: a\n", []string{"f:1:1", "policy.Load"}},
		{"something else", "a: b\n", []string{"f:1:1", "methodConfig"}},
		{"no block", "- a\n", []string{"f:1:1", "methodConfig"}},
		{"nothing", "# nothing\n", []string{"f:1:1", "empty"}},
		{"no YAML", "apiVersion: a\nkind: [\n", []string{"f:", "no YAML"}},
		{"an error in a later document", "apiVersion: v1\nkind: Service\n---\na: [\n", []string{"f:", "no YAML"}},
		{"too large", "apiVersion: " + strings.Repeat("a", 4<<20), []string{"f:1:1", "larger than"}},
		{"a small file that aliases make a large one", bomb(2000), []string{"f:", "aliases"}},
		{"negative attempts", route + "    retries: {attempts: -1}\n", []string{"f:8:25", "spec.http[0].retries.attempts", `"-1"`, "0"}},
		{"attempts that are no number", route + "    retries: {attempts: two}\n", []string{"f:8:25", `"two"`}},
		{"attempts that are a list", route + "    retries: {attempts: [2]}\n", []string{"f:8:25", "more than one value"}},
		{"retries that are no block", route + "    retries: 2\n", []string{"f:8:14", "block of keys"}},
		{"a timeout without unit", route + "    timeout: 3\n", []string{"f:8:14", `"3"`, "0.3s"}},
		{"a negative timeout", route + "    timeout: -3s\n", []string{"f:8:14", "negative"}},
		{"routes that are no list", virtualService + "    route: x\n", []string{"f:7:5", "spec.http", "list"}},
		{"no host", virtualService + "  - route: [{}]\n", []string{"f:7:13", "destination.host"}},
		{"two errors", route + "    timeout: 3\n    retries: {attempts: -1}\n", []string{"f:8:", "f:9:"}},
		{"Envoy's retries below zero", "virtual_hosts: [{routes: [{route: {cluster: a, retry_policy: {num_retries: -1}}}]}]", []string{"f:1:76", "num_retries"}},
		{"gRPC's one attempt", `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 1}}]}`, []string{"f:1:65", "maxAttempts", "2"}},
		{"gRPC without maxAttempts", `{"methodConfig": [{"name": [{}], "retryPolicy": {}}]}`, []string{"retryPolicy", "maxAttempts"}},
		{"gRPC's durations", `{"methodConfig": [{"name": [{}], "timeout": "300ms"}]}`, []string{`"300ms"`, "0.3s"}},
		{"gRPC's negative timeout", `{"methodConfig": [{"name": [{}], "timeout": "-3s"}]}`, []string{"negative"}},
		{"gRPC without names", `{"methodConfig": [{}]}`, []string{"name"}},
		{"gRPC's method alone", `{"methodConfig": [{"name": [{"method": "M"}]}]}`, []string{"method without service"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, err := emit.Read("f", []byte(test.text))
			if err == nil {
				t.Fatalf("no error, but %v", found)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// bomb is a VirtualService with n routes to n destinations each, most of them aliases.
func bomb(n int) string {
	return virtualService + "  - &r {route: [&d {destination: {host: a}}" + strings.Repeat(", *d", n-1) + "]}\n" + strings.Repeat("  - *r\n", n-1)
}

// TestReadAliases holds that what is met on several ways is read once.
func TestReadAliases(t *testing.T) {
	text := "static_resources:\n  a0: &a0 {virtual_hosts: [{name: h, routes: [{route: {cluster: a}}]}]}\n"
	for i := range 40 {
		text += fmt.Sprintf("  a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	if have := layers(t, text); len(have) != 1 {
		t.Errorf("have %q, want one layer", have)
	}
	if have := layers(t, "static_resources: &a {b: *a, c: [*a], <<: *a}\n"); have != nil {
		t.Errorf("have %q, want no layer of a block in itself", have)
	}
}

func TestIsForeign(t *testing.T) {
	for text, want := range map[string]bool{
		"service: a\n": false,
		"":             false,
		"service: [\n": false,
		"- a\n":        false,
		"apiVersion: v1\nkind: Service\n---\n[\n": true,
		"{\n\t\"methodConfig\": []}":              true,
		"service: a\nresources: x\n":              false,
		"static_resources: {}\n":                  true,
	} {
		if have := emit.IsForeign([]byte(text)); have != want {
			t.Errorf("%q: foreign is %v, want %v", text, have, want)
		}
	}
}

// TestRoundTrip holds that what was written says the same when it is read.
func TestRoundTrip(t *testing.T) {
	f := load(t, "orders.yaml")
	want := map[emit.Target][]string{
		emit.GRPC:  {"Mail_Out 0 10s 0s", "inventory 0 260ms 0s", "ledger 0 10s 0s", "payments 0 2s 0s", "shop.Price 4 180ms 0s"},
		emit.Envoy: {"mail-out 0 10s 0s", "inventory 2 260ms 100ms", "ledger 0 10s 0s", "payments 0 2s 0s", "shop.price 6 1.5s 50ms"},
		emit.Istio: {"mail-out 0 10s 0s", "inventory 2 260ms 100ms", "ledger 0 10s 0s", "payments 0 2s 0s", "shop.price 6 1.5s 50ms"},
	}
	for target, want := range want {
		found, err := emit.Read("f", write(t, target, f).Body)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, l := range found {
			have = append(have, fmt.Sprintf("%s %d %v %v", l.Service, l.Retries, l.Timeout, l.PerAttempt))
			if target != emit.GRPC && !l.Stated {
				t.Errorf("%s: the retries of %s are not stated", target, l.Service)
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: have %q, want %q", target, have, want)
		}
	}
}

// TestB19 holds that silence in Istio, which means two retries, is never written and always seen.
func TestB19SilenceMeansRetries(t *testing.T) {
	for _, text := range []string{
		"service: a\ndependencies:\n  payout: {retry: none}\n",
		"service: a\ndependencies:\n  payout: {}\n",
		"service: a\ndependencies:\n  payout: {retry: {owner: never, maxAttempts: 3}}\n",
		"service: a\ndependencies:\n  payout: {retry: {maxAttempts: 3}, operations: {\"POST /payouts\": {timeout: 1s}}}\n",
	} {
		body := write(t, emit.Istio, parse(t, text)).Body
		services, _ := mesh(t, body)
		for _, route := range services[0].Http {
			if route.Retries == nil {
				t.Errorf("%s\na route without retries: %v", text, route)
			}
		}
		if post := services[0].Http[0]; post.Retries.GetAttempts() != 0 && !strings.Contains(string(body), "regex: DELETE|GET") {
			t.Errorf("%s\nthe first route is repeated: %v", text, post)
		}
		if last := services[0].Http[len(services[0].Http)-1]; last.Retries.GetAttempts() != 0 || last.Match != nil {
			t.Errorf("%s\nwhat nobody may repeat is: %v", text, last)
		}
	}
	found, err := emit.Read("vs.yaml", []byte(virtualService+"  - route: [{destination: {host: payout}}]\n"))
	if err != nil || len(found) != 1 || found[0].Retries != 2 || found[0].Stated {
		t.Fatalf("a route without retries is %+v, error %v; want 2 hidden retries", found, err)
	}
	g, err := policy.NewGraph(parse(t, "service: a\ndependencies:\n  payout: {retry: none}\n"))
	if err != nil {
		t.Fatal(err)
	}
	g.AddLayers(found...)
	if under := g.Layers(g.Edges()[0]); len(under) != 1 {
		t.Errorf("the graph has %v under the call, want the mesh's route", under)
	}
}

// TestB20 holds that a call's limit stays the whole call's in a gRPC service config.
func TestB20TimeoutIsTheCalls(t *testing.T) {
	d := write(t, emit.GRPC, parse(t, `service: a
dependencies:
  s.T:
    timeout: 12s
    safety: idempotent
    retry: {maxAttempts: 5, perAttemptTimeout: 2s, retryable: [UNAVAILABLE, DEADLINE_EXCEEDED]}
`))
	serviceConfig(t, d.Body)
	if s := string(d.Body); strings.Count(s, `"timeout"`) != 1 || !strings.Contains(s, `"timeout": "12s"`) || !strings.Contains(s, `"maxAttempts": 5`) {
		t.Errorf("want one timeout of 12s and 5 attempts:\n%s", s)
	}
	want := map[string]string{
		"dependencies.s.T.timeout":                 "",
		"dependencies.s.T.retry.maxAttempts":       "",
		"dependencies.s.T.retry.perAttemptTimeout": "X-LOSS-ATTEMPT-TIMEOUT",
		"dependencies.s.T.retry.retryable[1]":      "X-LOSS-DEADLINE-EXCEEDED",
	}
	for _, r := range d.Rows {
		if code, ok := want[r.Key]; ok && code != r.Code {
			t.Errorf("%s has %q, want %q", r.Key, r.Code, code)
		}
		delete(want, r.Key)
	}
	if len(want) > 0 {
		t.Errorf("no rows for %v", want)
	}
	if len(d.Losses()) == 0 || len(d.Losses()) >= len(d.Rows) {
		t.Errorf("%d losses of %d rows", len(d.Losses()), len(d.Rows))
	}
}

func FuzzRead(f *testing.F) {
	// Small ones, since the fuzzer makes what it finds interesting smaller first.
	for _, seed := range []string{
		"service: a\n",
		virtualService + "  - &r {route: [{destination: {host: a}}], timeout: 1s, <<: *r}\n",
		virtualService + "  - {route: [{destination: {host: a}}], retries: {attempts: 2, perTryTimeout: 1s}}\n",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List}]\n",
		bomb(3),
		"a: &a {b: *a, <<: *a}\nstatic_resources: *a\n",
		"virtual_hosts: [{name: h, retry_policy: {num_retries: 1}, routes: [{route: {cluster: a, timeout: 0.5s}}]}]",
		"resources: [{virtualHosts: [{routes: [{route: {weightedClusters: {clusters: [{name: b}]}}}]}]}]",
		"{\n\t\"methodConfig\": [{\"name\": [{}], \"timeout\": \"1s\", \"retryPolicy\": {\"maxAttempts\": 3}}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := emit.Read("f", data)
		if err != nil {
			if found != nil || !strings.Contains(err.Error(), "f:") {
				t.Fatalf("layers %v with error %q, which should name the place", found, err)
			}
			return
		}
		for _, l := range found {
			if l.Retries < 0 || l.Timeout < 0 || l.PerAttempt < 0 || l.Line < 1 || l.File != "f" || l.Name == "" {
				t.Fatalf("layer %+v", l)
			}
		}
	})
}
