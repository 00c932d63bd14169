package emit

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxRules is how many rules one HTTPRoute may have; which HTTPRoute a rule is
// in changes nothing, since the narrowest match of all counts.
const maxRules = 16

// gatewayBody writes HTTPRoutes whose parent is the callee's Service (GAMMA).
func gatewayBody(p *plan) ([]byte, error) {
	var docs []*yaml.Node
	for _, c := range p.calls {
		var rules []*yaml.Node
		for _, r := range c.routes {
			if r.retries() {
				rules = append(rules, c.gatewayRule(r, r.gatewayMatches(r.repeat), true))
				if r.repeat.all {
					continue
				}
			}
			rules = append(rules, c.gatewayRule(r, r.gatewayMatches(repeat{all: true}), false))
		}
		i := 0
		for part := range slices.Chunk(rules, maxRules) {
			name := objectName(p.file.Service, c.host)
			if i++; i > 1 {
				name = fmt.Sprintf("%.60s-%d", name, i)
			}
			docs = append(docs, block("apiVersion", "gateway.networking.k8s.io/v1", "kind", "HTTPRoute",
				"metadata", block("name", name),
				"spec", block("parentRefs", seq(block("group", "", "kind", "Service", "name", c.host)), "rules", seq(part...))))
		}
	}
	comment := p.head("Gateway API") + "# retry is a field of the experimental channel. The port is an example: write the Service's.\n"
	return documents(comment, docs...), nil
}

func (r *route) gatewayMatches(of repeat) []*yaml.Node {
	var path *yaml.Node
	switch r.match.kind {
	case exactPath:
		path = block("type", "Exact", "value", r.match.path)
	case regexPath:
		path = block("type", "RegularExpression", "value", r.match.path)
	case prefixPath:
		path = block("type", "PathPrefix", "value", r.match.path)
	}
	verbs := []any{nil}
	if names := r.match.methods(); names != nil {
		verbs = nil
		for _, name := range names {
			verbs = append(verbs, name)
		}
	}
	var matches []*yaml.Node
	for _, method := range verbs {
		if of.all && (path != nil || method != nil) {
			matches = append(matches, block("path", path, "method", method))
		}
	}
	for _, m := range of.methods {
		matches = append(matches, block("path", path, "method", m))
	}
	for _, method := range verbs {
		if of.key {
			key := block("type", "RegularExpression", "name", "idempotency-key", "value", ".+")
			matches = append(matches, block("path", path, "method", method, "headers", seq(key)))
		}
	}
	return matches
}

func (c *call) gatewayRule(r *route, matches []*yaml.Node, repeated bool) *yaml.Node {
	var match, perTry, retry *yaml.Node
	if matches != nil {
		match = seq(matches...)
	}
	timeout := r.timeout
	switch {
	case repeated && r.perAttempt > 0:
		perTry = node(gatewayDuration(r.perAttempt))
	case r.perAttempt > 0:
		timeout = min(timeout, r.perAttempt)
	}
	if repeated {
		retry = block("codes", flow(r.statuses()...), "attempts", r.attempts-1, "backoff", gatewayDuration(atLeastMS(r.base)))
	}
	return block("matches", match,
		"backendRefs", seq(block("name", c.host, "port", 80)),
		"timeouts", block("request", gatewayDuration(timeout), "backendRequest", perTry),
		"retry", retry)
}

func gatewayVerdict(_ *plan, l leaf) (verdict, bool) {
	r := l.route
	switch top, _, _ := strings.Cut(l.field, "."); {
	case l.field == "timeout":
		return l.timeoutVerdict(true), true
	case l.field == "retry.maxAttempts" && r.retries():
		return approximate("X-LOSS-EXPERIMENTAL", "retries: %d, in a field of the experimental channel: the standard one drops it", r.attempts-1), true
	case (l.field == "retry.maxAttempts" || l.field == "retry" || l.field == "retry.owner") && r.attempts == 1:
		return exact("the retry block is left out, since 0 can't be written"), true
	case l.field == "retry.perAttemptTimeout" && !r.retries():
		return exact("bounds the call, which is its only attempt"), true
	case l.field == "retry.perAttemptTimeout":
		return approximate("X-LOSS-ATTEMPT-TIMEOUT", "%s for a request to a backend; that it bounds each attempt is the implementation's choice", gatewayDuration(r.perAttempt)), true
	case l.field == "retry.backoff.cap":
		return lost("X-LOSS-BACKOFF", "the longest wait can't be said"), true
	case strings.HasPrefix(l.field, "retry.backoff"):
		return approximate("X-LOSS-BACKOFF", "%v is the shortest wait; how it grows is the implementation's choice", atLeastMS(r.base)), true
	case l.field == "retry.jitter":
		return lost("X-LOSS-JITTER", "whether waits vary is the implementation's choice"), true
	case strings.HasPrefix(l.field, "retry.budget"):
		return lost("X-LOSS-BUDGET", "nothing bounds the share of retries"), true
	case l.field == "repeatAfterTimeout" && !r.afterTimeout:
		return approximate("X-LOSS-AFTER-TIMEOUT", "504 is not repeated; a request that the implementation itself gave up may be"), true
	case top == "breaker" && l.call.policy.Breaker.Off:
		return exact("there is no breaker"), true
	case top == "breaker":
		return lost("X-LOSS-BREAKER", "nothing stops calls to a dependency that mostly fails"), true
	case l.field == "concurrency":
		return lost("X-LOSS-CONCURRENCY", "nothing limits the requests under way at once"), true
	case l.isCode():
		c := l.code()
		if v, ok := l.ruledOut(c); ok {
			return v, true
		}
		if _, ok := c.HTTP(); !ok {
			return lost("X-LOSS-CODE", "%s can't be said; only HTTP statuses can", c), true
		}
		return exact("%s is repeated", c), true
	}
	return verdict{}, false
}
