package emit

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// envoyPort is where the bootstrap listens, on the loopback interface.
const envoyPort = 15001

// envoyBody writes a bootstrap that Envoy loads as it is: one listener for what
// the service sends, a virtual host and a cluster for each dependency.
func envoyBody(p *plan) ([]byte, error) {
	var hosts, clusters []*yaml.Node
	for _, c := range p.calls {
		var routes []*yaml.Node
		for _, r := range c.routes {
			routes = append(routes, block("match", r.envoyMatch(), "route", c.envoyRoute(r)))
		}
		hosts = append(hosts, block("name", c.host, "domains", flow(c.host), "routes", seq(routes...)))
		clusters = append(clusters, c.envoyCluster())
	}
	const hcm = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	const router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
	manager := block("@type", hcm,
		"stat_prefix", p.file.Service,
		"strip_any_host_port", true,
		"route_config", block("name", p.file.Service, "virtual_hosts", seq(hosts...)),
		"http_filters", seq(block("name", "envoy.filters.http.router", "typed_config", block("@type", router))))
	listener := block("name", p.file.Service,
		"address", block("socket_address", block("address", "127.0.0.1", "port_value", envoyPort)),
		"filter_chains", seq(block("filters", seq(block("name", "envoy.filters.network.http_connection_manager", "typed_config", manager)))))
	comment := p.head("Envoy bootstrap") + "# The ports are examples: 15001 is where the service sends its requests, 80 where its callees listen.\n"
	return documents(comment, block("static_resources", block("listeners", seq(listener), "clusters", seq(clusters...)))), nil
}

func (r *route) envoyMatch() *yaml.Node {
	var headers *yaml.Node
	switch verbs := r.match.methods(); len(verbs) {
	case 0:
	case 1:
		headers = seq(block("name", quoted(":method"), "string_match", block("exact", verbs[0])))
	default:
		headers = seq(block("name", quoted(":method"), "string_match", block("safe_regex", block("regex", strings.Join(verbs, "|")))))
	}
	switch r.match.kind {
	case exactPath:
		return block("path", r.match.path, "headers", headers)
	case regexPath:
		return block("safe_regex", block("regex", r.match.path), "headers", headers)
	case prefixPath:
		return block("prefix", r.match.path, "headers", headers)
	}
	return block("prefix", "/", "headers", headers)
}

func (c *call) envoyRoute(r *route) *yaml.Node {
	// A policy that says 0 is there for its reader: Envoy repeats nothing without one.
	retry := block("num_retries", 0)
	if r.retries() {
		var perTry *yaml.Node
		if r.perAttempt > 0 {
			perTry = node(seconds(r.perAttempt))
		}
		base := max(r.base, atLeastMS(r.base))
		retry = block(
			"retry_on", strings.Join(append(r.proxyRetryOn(), "retriable-status-codes"), ","),
			"retriable_status_codes", flow(r.statuses()...),
			"num_retries", r.attempts-1,
			"per_try_timeout", perTry,
			"retry_back_off", block("base_interval", seconds(base), "max_interval", seconds(max(r.cap, base))),
			"rate_limited_retry_back_off", block(
				"reset_headers", seq(block("name", "retry-after", "format", "SECONDS")), "max_interval", seconds(atLeastMS(r.timeout))),
			"retriable_request_headers", r.repeat.envoyHeaders())
	}
	var offset *yaml.Node
	if r.dep.Reserve > 0 {
		offset = node(seconds(r.dep.Reserve))
	}
	return block("cluster", c.host,
		"timeout", seconds(r.whole()),
		"max_stream_duration", block("grpc_timeout_header_max", seconds(r.whole()), "grpc_timeout_header_offset", offset),
		"retry_policy", retry)
}

// envoyHeaders are what a request must have one of to be repeated; nil: nothing.
func (r repeat) envoyHeaders() *yaml.Node {
	var headers []*yaml.Node
	if len(r.methods) > 0 {
		headers = append(headers, block("name", quoted(":method"), "string_match", block("safe_regex", block("regex", strings.Join(r.methods, "|")))))
	}
	if r.key {
		headers = append(headers, block("name", "idempotency-key", "present_match", true))
	}
	if headers == nil {
		return nil
	}
	return seq(headers...)
}

func (c *call) envoyCluster() *yaml.Node {
	p := c.policy
	var budget, outliers *yaml.Node
	if c.retries() {
		budget = block("budget_percent", block("value", plainNumber(percent(p.Retry.BudgetRatio))), "min_retry_concurrency", 1)
	}
	if b := p.Breaker; !b.Off {
		outliers = block(
			"interval", seconds(b.Window),
			"base_ejection_time", seconds(b.OpenFor),
			"max_ejection_percent", 100,
			"enforcing_consecutive_5xx", 0,
			"enforcing_success_rate", 0,
			"failure_percentage_threshold", wholePercent(b.FailureRatio),
			"failure_percentage_request_volume", b.MinCalls,
			"failure_percentage_minimum_hosts", 1,
			"enforcing_failure_percentage", 100)
	}
	return block("name", c.host,
		"type", "STRICT_DNS",
		"load_assignment", block("cluster_name", c.host, "endpoints", seq(block("lb_endpoints", seq(
			block("endpoint", block("address", block("socket_address", block("address", c.host, "port_value", 80)))))))),
		"circuit_breakers", block("thresholds", seq(block(
			"max_requests", p.Bulkhead, "max_pending_requests", p.Bulkhead, "retry_budget", budget))),
		"outlier_detection", outliers)
}

func envoyVerdict(_ *plan, l leaf) (verdict, bool) {
	switch l.field {
	case "timeout":
		return l.timeoutVerdict(false), true
	case "retry.perAttemptTimeout":
		if l.route.retries() {
			return exact("%v", l.route.perAttempt), true
		}
	case "retry.backoff", "retry.backoff.base", "retry.backoff.cap":
		return approximate("X-LOSS-BACKOFF", "from %v up to %v, but it grows from 1 to 3, 7, 15 times the base", max(l.route.base, atLeastMS(l.route.base)), l.route.cap), true
	case callerDeadline:
		return approximate("X-LOSS-CALLER-DEADLINE", "the time that the caller has left is looked at in gRPC requests only, by their grpc-timeout"), true
	case "reserve":
		return approximate("X-LOSS-RESERVE", "%v are kept back of gRPC requests' grpc-timeout only", l.route.dep.Reserve), true
	case retryAfter:
		return approximate("X-LOSS-RETRY-AFTER", "waited for up to %v, even past the deadline; for longer ones the usual wait", l.route.timeout), true
	}
	return proxyVerdict(l)
}
