package stint

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// The names of the wire, in the canonical form of HTTP headers. gRPC metadata
// has the same names in lower case. docs/wire.md is the full specification.
const (
	wireDeadline  = "X-Deadline-Ms"
	wireAttempt   = "X-Attempt"
	wireOwner     = "X-Retry-Owner"
	wireClass     = "X-Criticality"
	wireKey       = "Idempotency-Key"
	wireRequestID = "X-Request-Id"
	wireUntil     = "X-Request-Deadline" // read only
)

// A Hop is what crosses from one service to the next with a request, and
// nothing else does.
type Hop struct {
	// Remaining is the time left when the Hop is written, or was read. Zero
	// says that nobody named a limit (a Gate then sets its own default);
	// negative, that a limit was named and has passed.
	Remaining time.Duration
	// Until is the deadline that a request named as an instant of its sender's
	// clock; the zero time if it did not. It is only read, never written: a Gate
	// with ClockSkew makes Remaining of it, and every Gate clears it.
	Until time.Time
	// Attempt is the number of the attempt, 1-based; zero if not said.
	Attempt int
	// Owner is the service that owns the retries of this path; empty if none.
	Owner string
	// Class is the request's criticality.
	Class Class
	// Key is the idempotency key of the logical operation; empty if none.
	Key string
	// RequestID is the same on every hop of one request; empty if none.
	RequestID string
	// Ignored counts the values that a reader did not use: malformed, or more
	// than one where one is allowed, or from somebody not trusted with them.
	Ignored int
	// Anomalies counts what a reader did use and somebody should look at: each
	// relative time limit of more than 24 hours (a clock's reading, most likely),
	// and one if the limits differ by more than a fifth of the smallest.
	Anomalies int
}

// A Field is one name and value of the wire.
type Field struct{ Name, Value string }

// maxWrite is the longest time written: 24 hours, and so at most 8 digits,
// which every peer can hold.
const maxWrite = 24 * time.Hour

// Append appends the fields that say h, in the form of the wire, and returns
// the extended slice. The time left is rounded down to whole milliseconds and
// never written as 0: below 1 ms, as with no limit, the field is left out, and
// the request must not be sent (a Caller never does). A first attempt is not
// numbered: absent means 1. The texts are written as they are: a Caller and
// ParseHop put only valid ones there.
func (h Hop) Append(fields []Field) []Field {
	if h.Remaining >= time.Millisecond {
		fields = append(fields, Field{wireDeadline, formatMillis(min(h.Remaining, maxWrite))})
	}
	if h.Attempt > 1 {
		fields = append(fields, Field{wireAttempt, strconv.Itoa(h.Attempt)})
	}
	if h.Owner != "" {
		fields = append(fields, Field{wireOwner, h.Owner})
	}
	if h.Class != ClassUnset {
		fields = append(fields, Field{wireClass, h.Class.String()})
	}
	if h.Key != "" {
		fields = append(fields, Field{wireKey, h.Key})
	}
	if h.RequestID != "" {
		fields = append(fields, Field{wireRequestID, h.RequestID})
	}
	return fields
}

// ParseHop reads a Hop from the fields of a request: http.Header and gRPC's
// metadata.MD convert to the parameter's type as they are. It accepts anything:
// what is malformed is ignored and counted, never an error. Of several time
// limits, under whatever name, the smallest wins, so that nothing enlarges. The
// absolute one is kept apart, in Until: only a Gate may be told to believe a clock.
func ParseHop(fields map[string][]string) Hop {
	var h Hop
	limit := timeLimit{left: forever}
	var singles [fieldCount - fieldAttempt]only
	for name, values := range fields {
		switch f := fieldOf(name); {
		case f < 0:
		case f < fieldAttempt:
			for _, line := range values {
				limit.read(&limitForms[f], line)
			}
		default:
			singles[f-fieldAttempt].add(values)
		}
	}
	if limit.said {
		h.Remaining = limit.left
		if limit.left < time.Millisecond {
			h.Remaining = -1
		}
	}
	h.Until, h.Ignored, h.Anomalies = limit.until, limit.malformed, limit.anomalies()
	for i := range singles {
		if o := &singles[i]; o.n > 1 || o.n == 1 && !h.readSingle(i+fieldAttempt, trim(o.value)) {
			h.Ignored += o.n
		}
	}
	return h
}

// The fields that a Hop is read from. The first name its time limit.
const (
	fieldDeadline = iota
	fieldTimeout
	fieldGRPC
	fieldConnect
	fieldEnvoy
	fieldUntil
	fieldAttempt // from here on there may be one value
	fieldOwner
	fieldClass
	fieldKey
	fieldRequestID
	fieldCount
)

// fieldOf returns which field a name is, in either spelling; negative: none. One
// pass over what a request has is cheaper than a look-up for each name.
func fieldOf(name string) int {
	switch name {
	case wireDeadline, "x-deadline-ms":
		return fieldDeadline
	case "X-Timeout-Ms", "x-timeout-ms":
		return fieldTimeout
	case "Grpc-Timeout", "grpc-timeout":
		return fieldGRPC
	case "Connect-Timeout-Ms", "connect-timeout-ms":
		return fieldConnect
	case "X-Envoy-Expected-Rq-Timeout-Ms", "x-envoy-expected-rq-timeout-ms":
		return fieldEnvoy
	case wireUntil, "x-request-deadline":
		return fieldUntil
	case wireAttempt, "x-attempt":
		return fieldAttempt
	case wireOwner, "x-retry-owner":
		return fieldOwner
	case wireClass, "x-criticality":
		return fieldClass
	case wireKey, "idempotency-key":
		return fieldKey
	case wireRequestID, "x-request-id":
		return fieldRequestID
	}
	return -1
}

// only is a field that may have one value: two owners say nothing.
type only struct {
	value string
	n     int
}

func (o *only) add(values []string) {
	if len(values) > 0 {
		o.value = values[0]
		o.n += len(values)
	}
}

// readSingle reads the value of a field that may have one, and reports whether
// it could.
func (h *Hop) readSingle(field int, v string) (ok bool) {
	switch field {
	case fieldAttempt:
		n, digital := digits(v, 4)
		h.Attempt = int(min(n, 1000)) // 0 if it is no number
		return n > 0 && digital
	case fieldOwner:
		if ok = validOwner(v); ok {
			h.Owner = v
		}
	case fieldClass:
		h.Class = parseClass(v)
		return h.Class != ClassUnset
	case fieldKey:
		h.Key, ok = unquote(v)
	case fieldRequestID:
		if ok = visible(v, 128); ok {
			h.RequestID = v
		}
	}
	return ok
}

// HopFromContext returns what ctx says about the call path: under a Gate what
// the request brought, as far as it is trusted, and under a Caller what its
// attempts send on. Remaining is the time left now, zero without a deadline.
func HopFromContext(ctx context.Context) Hop {
	var h Hop
	if p := pathOf(ctx); p != nil {
		if a := p.admission; a != nil && p == &a.ctx.path {
			h = a.Hop()
		}
		h.Owner, h.Class, h.Key, h.RequestID = p.owner, p.class, p.key, p.requestID()
	}
	h.Remaining = 0
	if left, ok := Remaining(ctx); ok {
		if h.Remaining = left; left <= 0 {
			h.Remaining = -1
		}
	}
	return h
}

func parseClass(s string) Class {
	if !visible(s, 16) { // EqualFold folds letters of other scripts into ours
		return ClassUnset
	}
	for c := Sheddable; c <= CriticalPlus; c++ {
		if strings.EqualFold(s, classNames[c]) {
			return c
		}
	}
	return ClassUnset
}

// validOwner reports whether s is 1 to 64 token characters (RFC 9110, 5.6.2).
func validOwner(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// unquote returns an idempotency key that came bare or as a quoted string, and
// whether it is 1 to 255 visible ASCII characters without quotes inside.
func unquote(s string) (key string, ok bool) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if !validKey(s) {
		return "", false
	}
	return s, true
}

func validKey(s string) bool { return visible(s, 255) && !strings.ContainsRune(s, '"') }

// visible reports whether s is 1 to most visible ASCII characters.
func visible(s string, most int) bool {
	if len(s) == 0 || len(s) > most {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// trim is strings.Trim for the two characters that may stand around a value.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
