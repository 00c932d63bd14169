package emit

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stint-go/stint/policy"
)

// maxGRPCAttempts is where grpc-go cuts maxAttempts, silently.
const maxGRPCAttempts = 5

type grpcConfig struct {
	MethodConfig    []grpcMethod  `json:"methodConfig"`
	RetryThrottling *grpcThrottle `json:"retryThrottling,omitempty"`
}

type grpcMethod struct {
	Name        []grpcName `json:"name"`
	Timeout     string     `json:"timeout"`
	RetryPolicy *grpcRetry `json:"retryPolicy,omitempty"`
}

type grpcName struct {
	Service string `json:"service"`
	Method  string `json:"method,omitempty"`
}

type grpcRetry struct {
	MaxAttempts          int      `json:"maxAttempts"`
	InitialBackoff       string   `json:"initialBackoff"`
	MaxBackoff           string   `json:"maxBackoff"`
	BackoffMultiplier    float64  `json:"backoffMultiplier"`
	RetryableStatusCodes []string `json:"retryableStatusCodes"`
}

type grpcThrottle struct {
	MaxTokens  int     `json:"maxTokens"`
	TokenRatio float64 `json:"tokenRatio"`
}

// grpcBody writes a gRPC service config. A config is a channel's, and names of
// services that the channel does not call do nothing, so that one document
// serves the channels to all dependencies.
func grpcBody(p *plan) ([]byte, error) {
	var config grpcConfig
	taken := map[grpcName]string{}
	for _, c := range p.calls {
		services := c.grpcServices()
		for _, r := range c.routes {
			m := grpcMethod{Timeout: seconds(r.timeout), RetryPolicy: r.grpcRetry()}
			for _, s := range services {
				if r.match.service == "" || r.match.service == s {
					m.Name = append(m.Name, grpcName{s, r.match.rpc})
				}
			}
			for _, n := range m.Name {
				if other := taken[n]; other != "" {
					return nil, p.problem(fmt.Sprintf("is the gRPC service %s %s, and so is %s; a method has one policy in a service config", n.Service, n.Method, other), "dependencies", c.name)
				}
				taken[n] = "dependencies." + c.name
			}
			config.MethodConfig = append(config.MethodConfig, m)
		}
	}
	config.RetryThrottling = p.grpcThrottle()
	body, err := json.MarshalIndent(config, "", "  ")
	return append(body, '\n'), err
}

// grpcServices are the gRPC services of a dependency: those that its operations
// name, or what it is called itself.
func (c *call) grpcServices() []string {
	var services []string
	own := true
	for _, r := range c.routes {
		if r.match.service != "" {
			services = append(services, r.match.service)
			own = false
		}
	}
	if own || slices.ContainsFunc(c.routes, func(r *route) bool { return r.match.rpc != "" && r.match.service == "" }) {
		services = append(services, c.host)
	}
	slices.Sort(services)
	return slices.Compact(services)
}

func (r *route) grpcRetry() *grpcRetry {
	if !r.retries() {
		return nil
	}
	return &grpcRetry{MaxAttempts: min(r.attempts, maxGRPCAttempts), InitialBackoff: seconds(r.base), MaxBackoff: seconds(r.cap),
		BackoffMultiplier: 2, RetryableStatusCodes: r.grpcCodes()}
}

// grpcCode is c as a gRPC code; "" where there is none. A gRPC client takes a
// bare 502, 503 or 504 for UNAVAILABLE.
func grpcCode(c policy.Code) string {
	status, ok := c.HTTP()
	switch {
	case !ok:
		return string(c)
	case status == 502, status == 503, status == 504:
		return "UNAVAILABLE"
	case status == 429:
		return "RESOURCE_EXHAUSTED"
	}
	return ""
}

func (r *route) grpcCodes() []string {
	var codes []string
	for _, c := range r.codes() {
		if s := grpcCode(c); s != "" {
			codes = append(codes, s)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// grpcThrottle is the strictest of the dependencies' budgets: a channel has one.
// gRPC stops retries once half of the tokens are gone, so that twice the ceiling
// lets through what the ceiling does.
func (p *plan) grpcThrottle() *grpcThrottle {
	ratio, ceiling := math.Inf(1), math.MaxInt
	for _, c := range p.calls {
		if c.retries() {
			ratio = min(ratio, c.policy.Retry.BudgetRatio)
			ceiling = min(ceiling, c.policy.Retry.BudgetCeiling)
		}
	}
	if ceiling == math.MaxInt {
		return nil
	}
	return &grpcThrottle{2 * min(ceiling, 500), max(math.Round(ratio*1000)/1000, 0.001)}
}

func grpcVerdict(p *plan, l leaf) (verdict, bool) {
	r := l.route
	switch top, _, _ := strings.Cut(l.field, "."); {
	case l.field == "timeout":
		if !r.stated {
			return l.timeoutVerdict(false), true
		}
		return exact("%v for the whole call, all attempts included; a caller's sooner deadline wins", r.timeout), true
	case l.field == "retry.perAttemptTimeout":
		return lost("X-LOSS-ATTEMPT-TIMEOUT", "attempts have no limit of their own: one that hangs uses up the call's %v", r.timeout), true
	case top == "breaker" && l.call.policy.Breaker.Off:
		return exact("there is no breaker"), true
	case top == "breaker":
		return lost("X-LOSS-BREAKER", "nothing stops calls to a dependency that mostly fails"), true
	case l.field == "concurrency":
		return lost("X-LOSS-CONCURRENCY", "nothing limits the calls under way at once"), true
	case l.field == "idempotency" || l.field == "idempotency.keys":
		if r.dep.Idempotency.Keys == policy.Honoured {
			return lost("X-LOSS-KEY", "whether a call carries a key is not looked at"), true
		}
	case l.field == notStarted:
		return exact("gRPC repeats by itself what never left, or was not processed"), true
	case l.field == retryAfter:
		return approximate("X-LOSS-RETRY-AFTER", "only grpc-retry-pushback-ms is waited for, even past the deadline"), true
	case l.field == "retry.maxAttempts" && r.attempts > maxGRPCAttempts && r.retries():
		return approximate("X-LOSS-ATTEMPTS-CUT", "%d attempts are %d there", r.attempts, maxGRPCAttempts), true
	case l.field == "retry.maxAttempts" && r.retries():
		return exact("%d attempts", r.attempts), true
	case l.field == "retry.jitter":
		return approximate("X-LOSS-JITTER", "waits vary by 20 %% only, so that clients come back together"), true
	case strings.HasPrefix(l.field, "retry.backoff"):
		return exact("from %v, doubled up to %v", r.base, r.cap), true
	case strings.HasPrefix(l.field, "retry.budget"):
		t := p.grpcThrottle() // there is one where any call is repeated, and else this leaf is moot
		return approximate("X-LOSS-BUDGET", "one for each server name: retries stop while fewer than half of %d tokens are left; a failure costs 1, a success earns %v", t.MaxTokens, t.TokenRatio), true
	case l.isCode():
		return l.grpcCodeVerdict(), true
	}
	return verdict{}, false
}

func (l leaf) grpcCodeVerdict() verdict {
	c := l.code()
	if v, ok := l.ruledOut(c); ok {
		return v
	}
	switch name := grpcCode(c); {
	case c == "DEADLINE_EXCEEDED":
		return approximate("X-LOSS-DEADLINE-EXCEEDED", "has no effect when the call's own %v are over, since they bound all attempts; only a server's answer is repeated", l.route.timeout)
	case name == "":
		return lost("X-LOSS-CODE", "%s is no gRPC code; it is not repeated", c)
	case c == "503", string(c) == name:
		return exact("%s is repeated", name)
	default:
		return approximate("X-LOSS-CODE", "%s is repeated instead", name)
	}
}
