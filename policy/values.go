package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ratio is a share of a whole: 0.1 is written as 10%.
type Ratio float64

// String returns the ratio as it is written: 10%.
func (r Ratio) String() string {
	// The shortest digits that are this number, the point moved: times 100 would round.
	whole, part, _ := strings.Cut(strconv.FormatFloat(float64(r), 'f', -1, 64), ".")
	part += strings.Repeat("0", max(2-len(part), 0))
	whole = strings.TrimLeft(whole+part[:2], "0")
	if part = part[2:]; part != "" {
		part = "." + part
	}
	return cmp.Or(whole, "0") + part + "%"
}

func parseRatio(s string) (Ratio, error) {
	digits, ok := strings.CutSuffix(s, "%")
	digits = strings.TrimSpace(digits)
	v, err := strconv.ParseFloat(digits, 64)
	share, _ := strconv.ParseFloat(digits+"e-2", 64)
	switch {
	case err != nil || !plainNumber(digits):
		return 0, fmt.Errorf("%q is no percentage; write it as 10%%", s)
	case !ok && v > 0 && v <= 1:
		return 0, fmt.Errorf("%s has no unit; write %s", s, Ratio(v))
	case !ok:
		return 0, fmt.Errorf("%s has no unit; write %s%%", s, s)
	case !(share > 0 && v <= 100):
		return 0, fmt.Errorf("%s is outside of what it can be; write a percentage above 0%% and up to 100%%", s)
	}
	return Ratio(share), nil
}

// plainNumber reports a number as people write them: ParseFloat takes more.
func plainNumber(s string) bool {
	return strings.Trim(strings.TrimSpace(s), "0123456789.") == ""
}

func parseDuration(s string) (time.Duration, error) {
	if s != "" && plainNumber(s) {
		return 0, fmt.Errorf("%s has no unit; write %sms or %ss", s, s, s)
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration; write it as 120ms, 2s or 1m30s", s)
	case d < 0:
		return 0, fmt.Errorf("%s is negative; a duration is above zero", s)
	}
	return d, nil
}

// A word is a value out of a closed list.
type word interface{ words() []string }

// Trust is what a Gate believes of requests.
type Trust string

// The kinds of Trust.
const (
	TrustPeers Trust = "peers" // the organisation's own services
	TrustEdge  Trust = "edge"  // strangers
)

func (Trust) words() []string { return []string{string(TrustPeers), string(TrustEdge)} }

// Mesh is what carries a service's calls.
type Mesh string

// The meshes whose habits are known.
const (
	NoMesh  Mesh = "none"
	Istio   Mesh = "istio"
	Envoy   Mesh = "envoy"
	Linkerd Mesh = "linkerd"
)

func (Mesh) words() []string {
	return []string{string(NoMesh), string(Istio), string(Envoy), string(Linkerd)}
}

// HiddenRetries is how often the mesh repeats a call that nobody told it about:
// Istio twice; Envoy and Linkerd only where a retry policy exists.
func (m Mesh) HiddenRetries() int {
	if m == Istio {
		return 2
	}
	return 0
}

// SDK is a client library that repeats calls by itself.
type SDK string

// The client libraries whose habits are known, and how many attempts they make.
const (
	AWS          SDK = "aws"          // 3 attempts
	Stripe       SDK = "stripe"       // 3 attempts
	OpenAI       SDK = "openai"       // 3 attempts
	MSResilience SDK = "msresilience" // 4 attempts: .NET's standard handler
)

func (SDK) words() []string {
	return []string{string(AWS), string(Stripe), string(OpenAI), string(MSResilience)}
}

// HiddenRetries is how often the library repeats a call unless it is told not to.
func (s SDK) HiddenRetries() int {
	switch s {
	case AWS, Stripe, OpenAI:
		return 2
	case MSResilience:
		return 3
	}
	return 0
}

// Class is the criticality of requests, as the wire has it.
type Class string

func (Class) words() []string {
	return []string{"sheddable", "sheddable-plus", "critical", "critical-plus"}
}

// Owner says whether a layer may claim the retries of a path.
type Owner string

// The kinds of Owner.
const (
	OwnerAuto   Owner = "auto"
	OwnerAlways Owner = "always"
	OwnerNever  Owner = "never"
)

func (Owner) words() []string {
	return []string{string(OwnerAuto), string(OwnerAlways), string(OwnerNever)}
}

// Safety is what is declared of an operation beyond its method.
type Safety string

// The kinds of Safety.
const (
	ReadOnly   Safety = "readOnly"
	Idempotent Safety = "idempotent"
)

func (Safety) words() []string { return []string{string(ReadOnly), string(Idempotent)} }

// Distance is how far away a dependency is.
type Distance string

// The distances, and the least time in which an attempt over them is useful.
const (
	Datacentre Distance = "datacentre" // 20ms
	Region     Distance = "region"     // 100ms
)

func (Distance) words() []string { return []string{string(Datacentre), string(Region)} }

// Jitter is how a wait is drawn.
type Jitter string

func (Jitter) words() []string { return []string{"full"} }

// Limit is a number of requests; zero is a limit that is learned.
type Limit int

const adaptive = "adaptive"

func (l *Limit) setText(s string) error {
	if s == adaptive {
		*l = 0
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("%q is no limit; write a number from 1 up, or %s", s, adaptive)
	}
	*l = Limit(n)
	return nil
}

func (l Limit) text() string {
	if l == 0 {
		return adaptive
	}
	return strconv.Itoa(int(l))
}

// Calls is when and how often one request calls a dependency.
type Calls struct {
	// ParallelWith names the dependencies that are called at the same time; its
	// own name says that its own calls are. Absent: one after another.
	ParallelWith []string `yaml:"parallelWith"`

	// PerRequest is how many calls one request makes, in the worst ordinary case.
	// Absent: 1.
	PerRequest int `yaml:"perRequest"`
}

const sequential = "sequential"

func (c *Calls) setText(s string) error {
	if s != sequential {
		return fmt.Errorf("%q is unknown; write %s, or {parallelWith: [names], perRequest: N}", s, sequential)
	}
	*c = Calls{}
	return nil
}

func (c Calls) text() string {
	if c.ParallelWith == nil && c.PerRequest == 0 {
		return sequential
	}
	return ""
}

func (r *Retry) setText(s string) error {
	if s != "none" {
		return fmt.Errorf("%q is unknown; write none, or {maxAttempts: 3, perAttemptTimeout: 120ms, ...}", s)
	}
	*r = Retry{MaxAttempts: 1}
	return nil
}

func (r Retry) text() string { return "" }

const off = "off"

func (b *Breaker) setText(s string) error {
	if s != off {
		return fmt.Errorf("%q is unknown; write off, or {failureRatio: 50%%, minimumCalls: 20, ...}", s)
	}
	*b = Breaker{Off: true}
	return nil
}

func (b Breaker) text() string {
	if b.Off {
		return off
	}
	return ""
}

// Backoff is the wait between attempts: base, doubled each time up to cap.
type Backoff struct {
	// Base is the bound of the first wait. Absent: 50ms, or cap if that is less.
	Base time.Duration `yaml:"base"`
	// Cap is the bound of the longest. Absent: 2s.
	Cap time.Duration `yaml:"cap"`
}

const exponential = "exponential"

func (b *Backoff) setText(s string) error {
	if s != exponential {
		return fmt.Errorf("%q is unknown; write %s, or {base: 50ms, cap: 2s}, which is exponential too", s, exponential)
	}
	*b = Backoff{}
	return nil
}

func (b Backoff) text() string {
	if b == (Backoff{}) {
		return exponential
	}
	return ""
}

// Budget bounds retries by successes.
type Budget struct {
	// Ratio is what part of a retry each successful call earns. Absent: 10%.
	Ratio Ratio `yaml:"ratio"`
	// Ceiling is the most retries saved: the burst. Absent: 10.
	Ceiling int `yaml:"ceiling"`
}

// ofTraffic may stand behind the ratio: it is how people say it.
const ofTraffic = " of baseline traffic"

func (b *Budget) setText(s string) error {
	r, err := parseRatio(strings.TrimSuffix(s, ofTraffic))
	if err != nil {
		return fmt.Errorf("%q is no budget; write 10%%, 10%%%s, or {ratio: 10%%, ceiling: 10}", s, ofTraffic)
	}
	*b = Budget{Ratio: r}
	return nil
}

func (b Budget) text() string {
	if b.Ceiling == 0 && b.Ratio != 0 {
		return b.Ratio.String()
	}
	return ""
}

// Idempotency says whether a dependency honours idempotency keys.
type Idempotency struct {
	// Keys says whether it does: honoured or ignored.
	Keys Keys `yaml:"keys"`
	// TTL is how long it remembers a key. Absent: not stated.
	TTL time.Duration `yaml:"ttl"`
}

// Keys is what happens to an idempotency key.
type Keys string

// What can happen to a key.
const (
	Honoured Keys = "honoured"
	Ignored  Keys = "ignored"
)

func (Keys) words() []string { return []string{string(Honoured), string(Ignored)} }

func (i *Idempotency) setText(s string) error {
	if !slices.Contains(i.Keys.words(), s) {
		return fmt.Errorf("%q is unknown; write %s, %s, or {keys: %s, ttl: 24h}", s, Honoured, Ignored, Honoured)
	}
	*i = Idempotency{Keys: Keys(s)}
	return nil
}

func (i Idempotency) text() string {
	if i.TTL == 0 {
		return string(i.Keys)
	}
	return ""
}

// After is the wait before a copy; zero is the learned 95th percentile.
type After time.Duration

const learned = "p95"

func (a *After) setText(s string) error {
	if s == learned {
		*a = 0
		return nil
	}
	d, err := parseDuration(s)
	if err != nil || d < time.Millisecond {
		return fmt.Errorf("%q is no wait; write %s, or a duration from 1ms up", s, learned)
	}
	*a = After(d)
	return nil
}

func (a After) text() string {
	if a == 0 {
		return learned
	}
	return time.Duration(a).String()
}

// Code is an outcome in a protocol's own words: an HTTP status, a gRPC code, or what
// a store answers, as Kind.Outcome has it.
type Code string

// grpcCodes are gRPC's failures, by number - 1.
var grpcCodes = []string{"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// HTTP returns the code as an HTTP status; false if it is none.
func (c Code) HTTP() (status int, ok bool) {
	n, err := strconv.Atoi(string(c))
	return n, err == nil && len(c) == 3 && n >= 400 && n <= 599
}

func (c *Code) setText(s string) error {
	if _, ok := Code(s).HTTP(); !ok && !slices.Contains(grpcCodes, s) && !storeCode(Code(s)) {
		return fmt.Errorf("%q is no outcome; write an HTTP status from 400 to 599, a gRPC code such as UNAVAILABLE, or of a store its own code", s)
	}
	*c = Code(s)
	return nil
}

func (c Code) text() string { return string(c) }
