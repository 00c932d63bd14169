package policy

import "time"

// A File is the policy of one service: what its Gate lets in, how its deadline
// is spent, and how it calls its dependencies. Load and Parse return it checked,
// value by value; what only shows between values or between services is
// Graph.Check's. Its fields are what the file says: nothing stands for "absent"
// but the zero value, and Policy and GateOptions say what that means.
// A File is not changed by its methods, which may be called at the same time.
type File struct {
	// Service is the service's name: in events, in errors, and as the owner of
	// retries on the wire. 1 to 64 token characters.
	Service string `yaml:"service"`

	// Replicas is how many instances of the service run. Retry budgets, limits
	// and bulkheads are each instance's own, so what reaches a dependency is so
	// many times theirs. Absent: 1.
	Replicas int `yaml:"replicas"`

	// Mesh is what carries the service's calls and may repeat them by itself:
	// none, istio, envoy or linkerd. Absent: none.
	Mesh Mesh `yaml:"mesh"`

	// Entry is the service's Gate. Absent: the file describes a client only.
	Entry *Entry `yaml:"entry"`

	// LatencyBudget is who may spend what of entry.deadline: local is the
	// service's own work, contingency belongs to nobody, every other key is a
	// dependency. With entry.reserve the parts add up to entry.deadline;
	// dependencies that are called in parallel count once. Absent contingency is
	// what is left.
	LatencyBudget map[string]time.Duration `yaml:"latencyBudget"`

	// Dependencies are what the service calls, by name.
	Dependencies map[string]*Dependency `yaml:"dependencies"`

	path      string
	positions map[string]Position
	ignored   []ignore
}

// The keys of File.LatencyBudget that are not dependencies.
const (
	Local       = "local"
	Contingency = "contingency"
)

// An Entry is the Gate of a service.
type Entry struct {
	// Trust is what is believed of requests: peers (the organisation's own
	// services, the whole wire) or edge (strangers: the deadline and the
	// idempotency key only). It has no default.
	Trust Trust `yaml:"trust"`

	// Deadline is that of a request that brings none. Absent: 10s, or
	// maxDeadline if that is less.
	Deadline time.Duration `yaml:"deadline"`

	// MaxDeadline caps every request's. Absent: 30s.
	MaxDeadline time.Duration `yaml:"maxDeadline"`

	// MinUseful is the least time for which a request is worth starting.
	// Absent: 1ms.
	MinUseful time.Duration `yaml:"minUseful"`

	// Reserve is kept back from every request's deadline for the answer:
	// serialization and a safety margin, at most a quarter of what arrived.
	// Absent: 5ms or a tenth of what arrived, whichever is less.
	Reserve time.Duration `yaml:"reserve"`

	// Limit is the number of requests in the handler at once: a number, or
	// adaptive, which has it learned. Absent: adaptive.
	Limit Limit `yaml:"limit"`

	// MinLimit and MaxLimit bound an adaptive limit. Absent: 4 and 1000.
	MinLimit int `yaml:"minLimit"`
	MaxLimit int `yaml:"maxLimit"`

	// ClockSkew has absolute deadlines read, and is how far a caller's clock may
	// be off. Absent: they are not believed.
	ClockSkew time.Duration `yaml:"clockSkew"`

	// ObserveOnly lets everything in and reports what would have been refused.
	ObserveOnly bool `yaml:"observeOnly"`

	// MaxRefused is the largest share of requests that may be refused for load.
	// Absent: 100%.
	MaxRefused Ratio `yaml:"maxRefused"`

	// Exempt are the routes that are answered at any load: health checks.
	// Patterns of net/http's ServeMux, like all routes.
	Exempt []string `yaml:"exempt"`

	// LongRunning are the routes whose requests last: streams, uploads. They
	// have their own places and deadlines of up to an hour.
	LongRunning []string `yaml:"longRunning"`

	// Routes are the routes that differ, by pattern ("POST /reports").
	Routes map[string]*Route `yaml:"routes"`
}

// A Route is what differs for requests of one route.
type Route struct {
	// Deadline is that of a request that brings none. It may be above
	// entry.maxDeadline, and is then this route's cap as well. Absent: the entry's.
	Deadline time.Duration `yaml:"deadline"`

	// MinUseful is the least time for which such a request is worth starting.
	// Absent: the entry's.
	MinUseful time.Duration `yaml:"minUseful"`

	// Class is the criticality of such requests: sheddable, sheddable-plus,
	// critical or critical-plus. One that says it is higher is lowered. Absent:
	// what the request says, where it is believed, or critical.
	Class Class `yaml:"class"`

	// ObserveOnly only reports which of them would have been refused.
	ObserveOnly bool `yaml:"observeOnly"`
}

// A Dependency is how a service calls another, a store, a third party.
type Dependency struct {
	// Kind is what is at the other end: http, grpc, or a store, which is postgres,
	// mariadb, mysql, sqlite, redis or mongodb. A store has no service, no sdk and no
	// idempotency, and of stores only postgres has a hedge. Absent: http or grpc, as the
	// program calls it.
	Kind Kind `yaml:"kind"`

	// Service is the name of the callee's own policy file, which makes the two
	// one graph and the callee a peer. Absent: it is a store, a third party, or has none.
	Service string `yaml:"service"`

	// Timeout bounds one call: all its attempts, and the waits between them.
	// Absent: its share of latencyBudget, which is thereby enforced (divided by
	// calls.perRequest where those are made one after another); without a share,
	// the caller's deadline, or 10s where there is none.
	Timeout time.Duration `yaml:"timeout"`

	// MinUseful is the least time for which an attempt is worth starting.
	// Absent: 1ms.
	MinUseful time.Duration `yaml:"minUseful"`

	// Reserve is kept back from the caller's deadline for what the service still
	// has to do after this call. Absent: nothing.
	Reserve time.Duration `yaml:"reserve"`

	// Calls is when and how often one request calls it: sequential, or
	// {parallelWith: [names], perRequest: N}. Absent: sequential, once.
	Calls Calls `yaml:"calls"`

	// Retry says when a failed attempt is followed by another: none, or a block.
	// Absent: none.
	Retry *Retry `yaml:"retry"`

	// RepeatAfterTimeout says whether an attempt that ran out of time may be
	// repeated: false for what is so heavy that it may be running still. Absent:
	// true.
	RepeatAfterTimeout *bool `yaml:"repeatAfterTimeout"`

	// Safety is what may be said of all its operations, whatever their method:
	// readOnly or idempotent. Absent: what the method says (GET is read only, PUT
	// and DELETE are idempotent), or Redis' command; of other stores nothing is safe.
	Safety Safety `yaml:"safety"`

	// Hedge says when a slow attempt gets a copy beside it. Absent: never.
	Hedge *Hedge `yaml:"hedge"`

	// Breaker stops calls to a dependency that mostly fails: off, or a block.
	// Absent: on, with its defaults.
	Breaker *Breaker `yaml:"breaker"`

	// Concurrency is how many attempts may be under way at once in one instance.
	// Absent: 64.
	Concurrency int `yaml:"concurrency"`

	// Idempotency says whether it honours Idempotency-Key: honoured, ignored, or
	// {keys: honoured, ttl: 24h}. Absent: unknown, which is ignored to a check.
	Idempotency Idempotency `yaml:"idempotency"`

	// HiddenRetries is how often what lies between here and there repeats a call
	// by itself: a mesh, a client library. 0 says that it was looked at. Absent:
	// what mesh and sdk do unless told otherwise, and of a store its client library:
	// 3 times for redis (go-redis), once for mongodb.
	HiddenRetries *int `yaml:"hiddenRetries"`

	// SDK is the client library through which it is called, if that repeats
	// calls by itself: aws, stripe, openai, msresilience. Absent: none.
	SDK SDK `yaml:"sdk"`

	// Distance says how far away it is: datacentre or region. A check holds
	// minUseful against it. Absent: not stated.
	Distance Distance `yaml:"distance"`

	// Busy is the share of its capacity that is used at peak. A check wants to
	// know before copies are sent. Absent: not stated.
	Busy Ratio `yaml:"busy"`

	// Operations are what differs for single operations, by the name that they
	// have in events: a method ("POST"), a route ("GET /heavy-report"), a gRPC
	// method, a statement's first word ("select"), a command of Redis ("get", "xinfo
	// stream"), or what the program calls it (WithOp). What an operation does not say is
	// the dependency's.
	Operations map[string]*Operation `yaml:"operations"`
}

// An Operation is what differs for one operation of a dependency. What is absent
// is the dependency's.
type Operation struct {
	// Timeout bounds one call of this operation.
	Timeout time.Duration `yaml:"timeout"`

	// MinUseful is the least time for which an attempt is worth starting.
	MinUseful time.Duration `yaml:"minUseful"`

	// Retry differs key by key: what it does not say is the dependency's, but for
	// perAttemptTimeout under maxAttempts: 1, where there is no second attempt to
	// leave time for. It has no budget of its own.
	Retry *Retry `yaml:"retry"`

	// RepeatAfterTimeout says whether an attempt that ran out of time may be
	// repeated.
	RepeatAfterTimeout *bool `yaml:"repeatAfterTimeout"`

	// Safety is readOnly or idempotent where the method alone does not say so.
	Safety Safety `yaml:"safety"`

	// Hedge says when a slow attempt gets a copy beside it.
	Hedge *Hedge `yaml:"hedge"`
}

// A Retry says when a failed attempt is followed by another.
type Retry struct {
	// Owner says whether this layer may claim the retries of a call path: auto
	// (unless a layer above has), always, or never. Absent: auto.
	Owner Owner `yaml:"owner"`

	// Retryable are outcomes that may be repeated besides those that always may:
	// what never started, 502, 503, 504, UNAVAILABLE, a reset connection and an
	// attempt that ran out of time. HTTP statuses (429, 500), gRPC codes
	// (RESOURCE_EXHAUSTED), or of a store its own (53, OOM), as Kind.Outcome has them.
	// No entry makes an unsafe call safe.
	Retryable []Code `yaml:"retryable"`

	// MaxAttempts is the most attempts of one call, the first one included.
	// Absent: 1, no retries.
	MaxAttempts int `yaml:"maxAttempts"`

	// PerAttemptTimeout bounds one attempt. Absent: only the call's timeout does.
	PerAttemptTimeout time.Duration `yaml:"perAttemptTimeout"`

	// Backoff is the wait between attempts: exponential, or {base: 50ms, cap: 2s}.
	// It doubles from base up to cap. Absent: exponential from 50ms to 2s.
	Backoff Backoff `yaml:"backoff"`

	// Jitter is how the wait is drawn: full, a random time between zero and the
	// backoff, is the only kind. Absent: full.
	Jitter Jitter `yaml:"jitter"`

	// Budget bounds retries: 10%, "10% of baseline traffic", or {ratio: 10%,
	// ceiling: 10}. Each successful call earns the ratio of a retry, up to ceiling
	// retries are saved. Absent: 10% and 10.
	Budget Budget `yaml:"budget"`
}

// A Hedge says when a slow attempt gets a copy beside it.
type Hedge struct {
	// After is the wait before a copy: p95, which is learned, or a duration.
	// Absent: p95.
	After After `yaml:"after"`

	// Max is the most copies of one call, 1 to 8. Absent: 1.
	Max int `yaml:"max"`
}

// A Breaker stops calls to a dependency that mostly fails.
type Breaker struct {
	// Off says that there is none: written as "breaker: off".
	Off bool `yaml:"-"`

	// FailureRatio is the share of calls that have to fail. Absent: 50%.
	FailureRatio Ratio `yaml:"failureRatio"`

	// MinimumCalls is the least number of calls in the window that says
	// anything. Absent: 20.
	MinimumCalls int `yaml:"minimumCalls"`

	// Window is how far back calls are counted. Absent: 1m.
	Window time.Duration `yaml:"window"`

	// OpenFor is how long it refuses before it probes. Absent: 30s.
	OpenFor time.Duration `yaml:"openFor"`

	// Probes is how many calls have to succeed to close it. Absent: 3.
	Probes int `yaml:"probes"`
}
