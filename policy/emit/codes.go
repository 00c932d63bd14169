package emit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint/policy"
)

// instead is what can be done about each kind of loss. Its keys are all codes.
var instead = map[string]string{
	"X-LOSS-MATCH":             "name the operation as a method, a path or a gRPC method, or keep its policy in the process",
	"X-LOSS-NAME":              "give the dependency the name of the callee's host as its service",
	"X-LOSS-ALL-CALLERS":       "give all callers of it one policy, or limit the route to this one's workload or namespace",
	"X-LOSS-CALLER-DEADLINE":   "let the service pass its context to each call, which then ends no later than its caller's",
	"X-LOSS-DEFAULT-TIMEOUT":   "write a timeout for the dependency",
	"X-LOSS-RETRY-AFTER":       "keep the retries in the process, or make the backoff as long as servers ask for",
	"X-LOSS-NOT-STARTED":       "declare the operation's safety, if it is safe to repeat",
	"X-LOSS-MIN-USEFUL":        "keep a Caller without retries in front of it, which refuses what has no time left",
	"X-LOSS-RESERVE":           "make the timeout shorter by the reserve",
	"X-LOSS-HEDGE":             "keep the dependency's calls under a Caller in the process",
	"X-LOSS-UNSAFE":            "declare the safety of what may be repeated: operations: {name: {safety: idempotent}}",
	"X-LOSS-OWNER":             "let one layer have retries, and write owner: never in the policies of all others",
	"X-LOSS-ATTEMPTS-CUT":      "write 5 attempts or fewer",
	"X-LOSS-ATTEMPT-TIMEOUT":   "bound the attempts in the process, or make the call's timeout short enough for one",
	"X-LOSS-DEADLINE-EXCEEDED": "take it out of retryable; for slow attempts use perAttemptTimeout in the process",
	"X-LOSS-AFTER-TIMEOUT":     "switch the operation's retries off, if a second run at the same time does harm",
	"X-LOSS-CODE":              "name an outcome that both have, such as 503 or UNAVAILABLE",
	"X-LOSS-BACKOFF":           "choose base so that either way of waiting is bearable",
	"X-LOSS-JITTER":            "keep the retries in the process where many clients fail at once",
	"X-LOSS-BUDGET":            "watch the retry rate there, and keep maxAttempts at 2",
	"X-LOSS-BREAKER":           "keep the breaker in the process: a Caller with a breaker and no retries",
	"X-LOSS-CONCURRENCY":       "keep the limit in the process: a Caller with concurrency and no retries",
	"X-LOSS-KIND":              "keep its policy in the process: a Caller under the carrier of that kind",
	"X-LOSS-KEY":               "declare the safety of the operations that carry keys",
	"X-LOSS-EXPERIMENTAL":      "install the experimental channel, and look whether the implementation carries it out",
	"X-LOSS-ROUNDED":           "write whole milliseconds",
}

// code is the entry of retryable that the leaf is.
func (l leaf) code() policy.Code {
	i, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(l.field, "retry.retryable"), "[]"))
	if y := l.route.dep.Retry; err == nil && y != nil && i < len(y.Retryable) {
		return y.Retryable[i]
	}
	return ""
}

func (l leaf) isCode() bool { return strings.HasPrefix(l.field, "retry.retryable[") }

// timeouts are the outcomes that mean that an attempt ran out of time.
var timeouts = []policy.Code{"504", "DEADLINE_EXCEEDED"}

// codes are the outcomes that the route repeats: those that stint always does,
// and those that the file lists.
func (r *route) codes() []policy.Code {
	codes := []policy.Code{"502", "503", "504", "UNAVAILABLE"}
	if r.dep.Retry != nil {
		codes = append(codes, r.dep.Retry.Retryable...)
	}
	if !r.afterTimeout {
		codes = slices.DeleteFunc(codes, func(c policy.Code) bool { return slices.Contains(timeouts, c) })
	}
	return codes
}

// statuses are the HTTP statuses among the codes, sorted.
func (r *route) statuses() []int {
	var n []int
	for _, c := range r.codes() {
		if s, ok := c.HTTP(); ok {
			n = append(n, s)
		}
	}
	slices.Sort(n)
	return slices.Compact(n)
}

// proxyNames are Envoy's words for gRPC codes; it has no others.
var proxyNames = map[policy.Code]string{"CANCELLED": "cancelled", "DEADLINE_EXCEEDED": "deadline-exceeded",
	"INTERNAL": "internal", "RESOURCE_EXHAUSTED": "resource-exhausted", "UNAVAILABLE": "unavailable"}

// proxyRetryOn is Envoy's list of what is repeated, without statuses.
func (r *route) proxyRetryOn() []string {
	on := []string{"connect-failure", "refused-stream"}
	if r.afterTimeout {
		on = append(on, "reset")
	}
	for _, c := range r.codes() {
		if name := proxyNames[c]; name != "" && !slices.Contains(on, name) {
			on = append(on, name)
		}
	}
	return on
}

// proxyVerdict is what Envoy makes of a leaf, by itself or under Istio.
func proxyVerdict(l leaf) (verdict, bool) {
	switch {
	case l.isCode():
		c := l.code()
		if v, ok := l.ruledOut(c); ok {
			return v, true
		}
		if _, ok := c.HTTP(); !ok && proxyNames[c] == "" {
			return lost("X-LOSS-CODE", "%s has no name there; it is not repeated", c), true
		}
		return exact("%s is repeated", c), true
	case l.field == "repeatAfterTimeout" && !l.route.afterTimeout:
		return approximate("X-LOSS-AFTER-TIMEOUT", "neither is a connection that breaks, which can't be told from a timeout there"), true
	case l.field == "retry.maxAttempts" && l.route.retries():
		return exact("retries: %d", l.route.attempts-1), true
	case l.field == "retry.perAttemptTimeout" && !l.route.retries():
		return exact("bounds the call, which is its only attempt"), true
	case l.field == "retry.jitter":
		return exact("full jitter"), true
	case l.field == "retry.budget.ceiling":
		return lost("X-LOSS-BUDGET", "nothing is saved for a burst: the budget is a share of what is under way at the moment"), true
	case l.field == "retry.budget", l.field == "retry.budget.ratio":
		return approximate("X-LOSS-BUDGET", "bounds the retries under way at once to %s %% of the requests, and 1; not how many follow one another", percent(l.call.policy.Retry.BudgetRatio)), true
	case l.field == "breaker" && l.call.policy.Breaker.Off:
		return exact("no host is taken out"), true
	case l.field == "breaker.probes":
		return lost("X-LOSS-BREAKER", "a host comes back at once, without probes"), true
	case l.field == "breaker" || strings.HasPrefix(l.field, "breaker."):
		return approximate("X-LOSS-BREAKER", "single hosts are taken out (outlier detection); calls are not refused"), true
	case l.field == "concurrency":
		return exact("at most %d requests at once, and as many waiting for a connection", l.call.policy.Bulkhead), true
	}
	return verdict{}, false
}

// ruledOut is about codes that repeatAfterTimeout: false takes out of the list.
func (l leaf) ruledOut(c policy.Code) (verdict, bool) {
	if !l.route.afterTimeout && slices.Contains(timeouts, c) {
		return exact("is not repeated, as repeatAfterTimeout says"), true
	}
	return verdict{}, false
}

// timeoutVerdict is about the limit of a call where only whole units of
// milliseconds can be said if coarse.
func (l leaf) timeoutVerdict(coarse bool) verdict {
	t := l.route.timeout
	switch {
	case l.route.whole() < t:
		return exact("%v is written, the sooner limit of its only attempt", l.route.whole())
	case !l.route.stated:
		return approximate("X-LOSS-DEFAULT-TIMEOUT", "%v is written, which also cuts off callers that have more time", t)
	case coarse && t != atLeastMS(t):
		return approximate("X-LOSS-ROUNDED", "%v is %v there", t, atLeastMS(t))
	}
	return exact("%v for the whole call", t)
}
