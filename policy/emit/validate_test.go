package emit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/policy/emit"
)

// The documents below are read by the very types that their readers use.

// serviceConfig has grpc-go take the document.
func serviceConfig(t *testing.T, js []byte) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithDefaultServiceConfig(string(js)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("grpc-go does not take it: %v\n%s", err, js)
	}
	conn.Close()
}

// bootstrap reads the document as Envoy does, strictly, and checks all rules of its types.
func bootstrap(t *testing.T, body []byte) *bootstrapv3.Bootstrap {
	t.Helper()
	js, err := k8syaml.YAMLToJSONStrict(body)
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrapv3.Bootstrap)
	if err := protojson.Unmarshal(js, b); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	manager(t, b)
	return b
}

// manager is what the bootstrap's listener does with requests.
func manager(t *testing.T, b *bootstrapv3.Bootstrap) *hcmv3.HttpConnectionManager {
	t.Helper()
	m := new(hcmv3.HttpConnectionManager)
	if err := b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	if err := m.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	return m
}

// object is one document of a Kubernetes kind.
type object struct {
	kind, name string
	spec       []byte // JSON
}

// objects splits a document and reads the frame of each of its objects strictly.
func objects(t *testing.T, body []byte) []object {
	t.Helper()
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	var found []object
	d := yaml.NewDecoder(bytes.NewReader(body))
	for {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		js, err := k8syaml.YAMLToJSONStrict(text)
		if err != nil {
			t.Fatal(err)
		}
		var frame struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Metadata   map[string]string `json:"metadata"`
			Spec       json.RawMessage   `json:"spec"`
		}
		strict := json.NewDecoder(bytes.NewReader(js))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&frame); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !label.MatchString(frame.Metadata["name"]) {
			t.Errorf("%s %q: no name of an object", frame.Kind, frame.Metadata["name"])
		}
		want := map[string]string{"VirtualService": "networking.istio.io/v1", "DestinationRule": "networking.istio.io/v1", "HTTPRoute": "gateway.networking.k8s.io/v1"}
		if want[frame.Kind] != frame.APIVersion {
			t.Errorf("%s of %s: want %s", frame.Kind, frame.APIVersion, want[frame.Kind])
		}
		found = append(found, object{frame.Kind, frame.Metadata["name"], frame.Spec})
	}
}

// mesh reads all VirtualServices and DestinationRules strictly.
func mesh(t *testing.T, body []byte) (services []*networking.VirtualService, rules []*networking.DestinationRule) {
	t.Helper()
	for _, o := range objects(t, body) {
		var m proto.Message
		switch o.kind {
		case "VirtualService":
			v := new(networking.VirtualService)
			services, m = append(services, v), v
		default:
			v := new(networking.DestinationRule)
			rules, m = append(rules, v), v
		}
		if err := protojson.Unmarshal(o.spec, m); err != nil {
			t.Fatalf("%s %s: %v\n%s", o.kind, o.name, err, o.spec)
		}
	}
	return services, rules
}

// httpRoutes reads all HTTPRoutes strictly, and checks their durations and sizes as their schema does.
func httpRoutes(t *testing.T, body []byte) []gateway.HTTPRouteSpec {
	t.Helper()
	var routes []gateway.HTTPRouteSpec
	duration := regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)
	for _, o := range objects(t, body) {
		var spec gateway.HTTPRouteSpec
		strict := json.NewDecoder(bytes.NewReader(o.spec))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&spec); err != nil {
			t.Fatalf("%v\n%s", err, o.spec)
		}
		check := func(d *gateway.Duration) {
			if d != nil && !duration.MatchString(string(*d)) {
				t.Errorf("%s: %q is no duration of GEP-2257", o.name, *d)
			}
		}
		if len(spec.Rules) > 16 {
			t.Errorf("%s: has %d rules, at most 16 may be", o.name, len(spec.Rules))
		}
		for _, r := range spec.Rules {
			check(r.Timeouts.Request)
			check(r.Timeouts.BackendRequest)
			if r.Retry != nil {
				check(r.Retry.Backoff)
				if *r.Retry.Attempts < 1 {
					t.Errorf("%s: retry.attempts %d; a rule without retries has no block", o.name, *r.Retry.Attempts)
				}
			}
			if len(r.Matches) > 64 {
				t.Errorf("%s: has %d matches, at most 64 may be", o.name, len(r.Matches))
			}
		}
		routes = append(routes, spec)
	}
	return routes
}

// odd is a policy with the least and the greatest values.
const odd = `service: Orders_1
dependencies:
  a_B.c:
    timeout: 1500us
    retry: {maxAttempts: 2147483647, perAttemptTimeout: 1200us, backoff: {base: 1ns, cap: 1ns}, budget: {ratio: 0.1%, ceiling: 2147483647}}
    safety: readOnly
    breaker: {failureRatio: 0.1%, minimumCalls: 1, window: 1ms, openFor: 1ms}
  b:
    timeout: 24h
    retry: {maxAttempts: 2, perAttemptTimeout: 23h59m59s999ms, budget: 100%}
    operations:
      "/a/{x}/{rest...}": {timeout: 1s}
      "/a/{x}/b/": {timeout: 1s}
      "GET /a.b/{$}": {timeout: 1s}
      "not a name": {timeout: 1s}
      "/{half": {timeout: 1s}
      Quote: {safety: idempotent}
  "9": {service: a-very-long-name-of-a-service-which-has-sixty-three-letters-in.it}
`

func TestReadersTakeIt(t *testing.T) {
	saved := "service: a\ndependencies: {b: {safety: readOnly, retry: {maxAttempts: 2, budget: {ratio: 10%, ceiling: 100000}}}}\n"
	many := "service: a\ndependencies:\n  b:\n    retry: {maxAttempts: 2}\n    operations:\n"
	for _, c := range "abcdefghijklmnopqr" {
		many += "      /" + string(c) + ": {timeout: 1s}\n"
	}
	for _, text := range []string{odd, many, saved, "service: a\ndependencies: {b: {}}\n"} {
		f := parse(t, text)
		serviceConfig(t, write(t, emit.GRPC, f).Body)
		bootstrap(t, write(t, emit.Envoy, f).Body)
		mesh(t, write(t, emit.Istio, f).Body)
		httpRoutes(t, write(t, emit.Gateway, f).Body)
	}
	f := load(t, "orders.yaml")
	serviceConfig(t, write(t, emit.GRPC, f).Body)
	if b := bootstrap(t, write(t, emit.Envoy, f).Body); len(b.GetStaticResources().GetClusters()) != 5 {
		t.Errorf("Envoy has %d clusters, want one for each of 5 dependencies", len(b.GetStaticResources().GetClusters()))
	}
	services, rules := mesh(t, write(t, emit.Istio, f).Body)
	if len(services) != 5 || len(rules) != 5 {
		t.Errorf("Istio has %d VirtualServices and %d DestinationRules, want 5 and 5", len(services), len(rules))
	}
	if routes := httpRoutes(t, write(t, emit.Gateway, f).Body); len(routes) != 5 {
		t.Errorf("%d HTTPRoutes, want 5", len(routes))
	}
}

// FuzzEmit holds that whatever a policy says, the readers take what is written for it.
func FuzzEmit(f *testing.F) {
	f.Add([]byte("service: a\ndependencies:\n  b: {timeout: 1s, retry: {maxAttempts: 2, backoff: {base: 1ms, cap: 1s}, budget: 10%}}\n"))
	f.Add([]byte("service: a\ndependencies:\n  b: {safety: readOnly, retry: {maxAttempts: 9, perAttemptTimeout: 1s, retryable: [429]}, idempotency: honoured}\n"))
	f.Add([]byte("service: a\ndependencies:\n  b: {breaker: {failureRatio: 1%, window: 1s}, reserve: 1ms, operations: {\"GET /a/{b}\": {timeout: 1h}, s.T/M: {safety: idempotent}}}\n"))
	f.Add([]byte("service: a\ndependencies:\n  b: {kind: http, timeout: 1s}\n  c: {kind: postgres, operations: {select: {safety: readOnly}}}\n  d: {kind: grpc}\nlatencyBudget: {c: 1ms}\nentry: {trust: edge, deadline: 1s}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policy.Parse("p", data)
		if err != nil {
			return
		}
		for _, target := range emit.Targets() {
			d, err := emit.Emit(target, p)
			if err != nil {
				continue
			}
			switch target {
			case emit.GRPC:
				serviceConfig(t, d.Body)
			case emit.Envoy:
				bootstrap(t, d.Body)
			case emit.Istio:
				mesh(t, d.Body)
			case emit.Gateway:
				httpRoutes(t, d.Body)
				continue
			}
			if _, err := emit.Read("f", d.Body); err != nil {
				t.Errorf("%s can't be read again: %v\n%s", target, err, d.Body)
			}
		}
	})
}
