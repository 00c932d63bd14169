package emit

import (
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stint-go/stint/policy"
)

// What the readers of the files do where these say nothing.
const (
	istioRetries = 2                // of a route without retries: the mesh's default
	envoyRetries = 1                // of a retry policy without num_retries; a route without policy has none
	envoyTimeout = 15 * time.Second // of a route without timeout
)

// kubernetes reads a VirtualService, or a list with some in it; other kinds say
// nothing about retries that is known here.
func (r *reader) kubernetes(v value) {
	group, _, _ := strings.Cut(v.get("apiVersion").text(), "/")
	switch kind := v.get("kind").text(); {
	case kind == "List":
		for _, item := range v.items("items") {
			if item.get("kind").text() != "List" {
				r.kubernetes(item)
			}
		}
	case kind == "VirtualService" && group == "networking.istio.io":
		r.virtualService(v)
	}
}

func (r *reader) virtualService(v value) {
	name := "Istio VirtualService " + v.block("metadata").get("name").text()
	spec := v.block("spec")
	for _, route := range spec.items("http") {
		to := route.items("route")
		if len(to) == 0 {
			continue // a redirect, an answer of its own, another VirtualService
		}
		l := policy.Layer{Name: name, Position: route.position(), Retries: istioRetries,
			Timeout: route.get("timeout").duration(0)}
		if y := route.block("retries"); y.n != nil {
			attempts := y.get("attempts")
			l.Retries, l.Stated = attempts.integer(0, 0), true
			l.PerAttempt = y.get("perTryTimeout").duration(0)
			l.Position = y.position()
			if attempts.n != nil {
				l.Position = attempts.position()
			}
		}
		for _, d := range to {
			host := d.block("destination").get("host")
			if l.Service = serviceOf(host.text()); l.Service == "" {
				d.fail("has no destination.host; write the callee's")
				continue
			}
			r.add(l)
		}
	}
}

// serviceOf is the service that a host or a cluster is: without port, and without
// the domain that Kubernetes puts behind it.
func serviceOf(host string) string {
	host = host[strings.LastIndexByte(host, '|')+1:]
	if name, port, ok := strings.Cut(host, ":"); ok && strings.Trim(port, "0123456789") == "" {
		host = name
	}
	if strings.Contains(host+".", ".svc.") {
		host, _, _ = strings.Cut(host, ".")
	}
	return host
}

var grpcDuration = regexp.MustCompile(`^-?\d+(\.\d{1,9})?s$`)

// grpc reads a gRPC service config, as strictly as grpc-go does.
func (r *reader) grpc(v value) {
	for _, m := range v.items("methodConfig") {
		timeout := m.get("timeout")
		l := policy.Layer{Name: "gRPC service config", Position: m.position()}
		if s := timeout.text(); timeout.n != nil && !grpcDuration.MatchString(s) {
			timeout.fail("%q is no duration here; write seconds with up to 9 decimals: 0.3s", s)
		} else {
			l.Timeout = timeout.duration(0)
		}
		if y := m.block("retryPolicy"); y.n != nil {
			attempts := y.get("maxAttempts")
			n := attempts.integer(2, 0)
			if attempts.n == nil {
				y.fail("has no maxAttempts, for which gRPC rejects all of it; write 2 or more")
			} else {
				l.Position = attempts.position()
			}
			l.Retries, l.Stated = min(max(n, 2), maxGRPCAttempts)-1, true
		}
		names := m.items("name")
		if len(names) == 0 {
			m.fail("has no name, so that it is for no method; write {service: package.Service}")
		}
		for _, n := range names {
			l.Service = n.get("service").text()
			if l.Service == "" && n.get("method").text() != "" {
				n.fail("has a method without service, for which gRPC rejects all of it; write both")
			}
			r.add(l)
		}
	}
}

// envoy finds the virtual hosts, wherever in a bootstrap they are, and each once.
func (r *reader) envoy(v value) {
	if v.n == nil || r.seen[v.n] {
		return
	}
	r.seen[v.n] = true
	switch v.n.Kind {
	case yaml.SequenceNode:
		for _, item := range v.list() {
			r.envoy(item)
		}
	case yaml.MappingNode:
		for _, host := range v.items("virtualHosts") {
			r.virtualHost(host)
		}
		for i := 0; i+1 < len(v.n.Content); i += 2 {
			k := v.n.Content[i].Value
			if k != "virtual_hosts" && k != "virtualHosts" {
				r.envoy(v.child(v.n.Content[i+1], k))
			}
		}
	}
}

func (r *reader) virtualHost(host value) {
	name := host.get("name").text()
	general := host.block("retryPolicy")
	for _, entry := range host.items("routes") {
		route := entry.block("route")
		if route.n == nil {
			continue // a redirect, or an answer of its own
		}
		l := policy.Layer{Name: "Envoy route to " + name, Position: route.position(),
			Timeout: route.get("timeout").duration(envoyTimeout)}
		y := route.block("retryPolicy")
		if y.n == nil {
			y = general
		}
		if y.n != nil {
			number := y.get("numRetries")
			l.Retries, l.Stated = number.integer(0, envoyRetries), number.n != nil
			l.PerAttempt = y.get("perTryTimeout").duration(0)
			l.Position = y.position()
			if l.Stated {
				l.Position = number.position()
			}
		}
		clusters := []value{route.get("cluster")}
		for _, c := range route.block("weightedClusters").items("clusters") {
			clusters = append(clusters, c.get("name"))
		}
		found := false
		for _, c := range clusters {
			if l.Service = serviceOf(c.text()); l.Service != "" {
				found = true
				r.add(l)
			}
		}
		if !found { // a header names the cluster
			l.Service = serviceOf(name)
			r.add(l)
		}
	}
}
