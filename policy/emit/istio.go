package emit

import (
	"cmp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// istioBody writes a VirtualService and a DestinationRule for each dependency.
func istioBody(p *plan) ([]byte, error) {
	var docs []*yaml.Node
	for _, c := range p.calls {
		var http []*yaml.Node
		for _, r := range c.routes {
			if r.retries() {
				http = append(http, c.istioRoute(r, r.istioMatches(r.repeat), true))
				if r.repeat.all {
					continue
				}
			}
			// What is not repeated says so: a route without retries has the mesh's 2.
			http = append(http, c.istioRoute(r, r.istioMatches(repeat{all: true}), false))
		}
		meta := block("name", objectName(p.file.Service, c.host))
		docs = append(docs,
			block("apiVersion", "networking.istio.io/v1", "kind", "VirtualService", "metadata", meta,
				"spec", block("hosts", flow(c.host), "http", seq(http...))),
			block("apiVersion", "networking.istio.io/v1", "kind", "DestinationRule", "metadata", meta,
				"spec", block("host", c.host, "trafficPolicy", c.istioTraffic())))
	}
	return documents(p.head("Istio"), docs...), nil
}

// istioMatches are the matches of a route, for those of its requests that may be
// repeated; nil: every request.
func (r *route) istioMatches(of repeat) []*yaml.Node {
	var uri, method *yaml.Node
	switch r.match.kind {
	case exactPath:
		uri = block("exact", r.match.path)
	case regexPath:
		uri = block("regex", r.match.path)
	case prefixPath:
		uri = block("prefix", r.match.path)
	}
	switch verbs := r.match.methods(); len(verbs) {
	case 0:
	case 1:
		method = block("exact", verbs[0])
	default:
		method = block("regex", strings.Join(verbs, "|"))
	}
	var matches []*yaml.Node
	if of.all && (uri != nil || method != nil) {
		matches = append(matches, block("uri", uri, "method", method))
	}
	if len(of.methods) > 0 {
		matches = append(matches, block("uri", uri, "method", block("regex", strings.Join(of.methods, "|"))))
	}
	if of.key {
		matches = append(matches, block("uri", uri, "method", method, "headers", block("idempotency-key", block())))
	}
	return matches
}

func (c *call) istioRoute(r *route, matches []*yaml.Node, repeated bool) *yaml.Node {
	var match *yaml.Node
	if matches != nil {
		match = seq(matches...)
	}
	timeout := r.timeout
	retries := block("attempts", 0)
	switch {
	case repeated:
		var perTry *yaml.Node
		if r.perAttempt > 0 {
			perTry = node(seconds(atLeastMS(r.perAttempt)))
		}
		on := r.proxyRetryOn()
		for _, s := range r.statuses() {
			on = append(on, strconv.Itoa(s))
		}
		retries = block("attempts", r.attempts-1, "perTryTimeout", perTry, "retryOn", strings.Join(on, ","), "backoff", seconds(atLeastMS(r.base)))
	case r.perAttempt > 0:
		timeout = min(timeout, r.perAttempt)
	}
	return block("match", match,
		"route", seq(block("destination", block("host", c.host))),
		"timeout", seconds(atLeastMS(timeout)),
		"retries", retries)
}

func (c *call) istioTraffic() *yaml.Node {
	p := c.policy
	var budget, outliers *yaml.Node
	if c.retries() {
		budget = block("percent", plainNumber(percent(p.Retry.BudgetRatio)), "minRetryConcurrency", 1)
	}
	if b := p.Breaker; !b.Off {
		outliers = block(
			"failurePercentageThreshold", wholePercent(b.FailureRatio),
			"consecutive5xxErrors", b.MinCalls,
			"interval", seconds(atLeastMS(b.Window)),
			"baseEjectionTime", seconds(atLeastMS(b.OpenFor)),
			"maxEjectionPercent", 100)
	}
	return block(
		"connectionPool", block("http", block("http1MaxPendingRequests", p.Bulkhead, "http2MaxRequests", p.Bulkhead)),
		"outlierDetection", outliers,
		"retryBudget", budget)
}

func istioVerdict(_ *plan, l leaf) (verdict, bool) {
	r := l.route
	switch l.field {
	case "timeout":
		return l.timeoutVerdict(true), true
	case "retry.perAttemptTimeout":
		if r.retries() && r.perAttempt != atLeastMS(r.perAttempt) {
			return approximate("X-LOSS-ROUNDED", "%v is %v there", r.perAttempt, atLeastMS(r.perAttempt)), true
		}
		if r.retries() {
			return exact("%v", r.perAttempt), true
		}
	case "retry.backoff.cap":
		return lost("X-LOSS-BACKOFF", "the longest wait can't be said; it is ten times the base"), true
	case "retry.backoff.base", "retry.backoff":
		return approximate("X-LOSS-BACKOFF", "from %v up to ten times that, growing from 1 to 3, 7 times the base", atLeastMS(r.base)), true
	case "retry.maxAttempts":
		if r.attempts == 1 {
			return exact("attempts: 0 is written, since a route without retries has the mesh's 2"), true
		}
	case "retry", "retry.owner":
		if r.attempts == 1 {
			return exact("attempts: 0 is written, since a route without retries has the mesh's 2"), true
		}
	case "breaker.minimumCalls":
		if !l.call.policy.Breaker.Off {
			return approximate("X-LOSS-BREAKER", "a host is also taken out after so many failures one after another; how many calls the percentage needs can't be said"), true
		}
	}
	return proxyVerdict(l)
}

// plainNumber is a number that YAML reads as one.
func plainNumber(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: cmp.Or(s, "0")}
}
