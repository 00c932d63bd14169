package cli

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stinthttp"
)

// words are outcomes that are neither a status nor a code of gRPC.
var words = map[string]stint.Outcome{
	"timeout":            {Kind: stint.TimedOut, Code: "attempt_timeout"},
	"reset":              {Kind: stint.Transient, Code: "reset"},
	"connection-refused": {Kind: stint.Transient, NotStarted: true, Code: "connect"},
	"deadline":           {Kind: stint.Expired, Code: "deadline"},
	"canceled":           {Kind: stint.Canceled},
}

// grpcKinds are gRPC's codes. UNAVAILABLE alone says "try again"; the wait that
// goes with RESOURCE_EXHAUSTED is its RetryInfo.
var grpcKinds = map[string]stint.Kind{
	"OK":          stint.OK,
	"UNAVAILABLE": stint.Transient, "RESOURCE_EXHAUSTED": stint.Overloaded, "DEADLINE_EXCEEDED": stint.TimedOut,
	"CANCELLED": stint.Failed, "INVALID_ARGUMENT": stint.Rejected, "NOT_FOUND": stint.Rejected,
	"ALREADY_EXISTS": stint.Rejected, "PERMISSION_DENIED": stint.Rejected, "UNAUTHENTICATED": stint.Rejected,
	"FAILED_PRECONDITION": stint.Rejected, "OUT_OF_RANGE": stint.Rejected, "ABORTED": stint.Rejected,
	"UNKNOWN": stint.Failed, "INTERNAL": stint.Failed, "UNIMPLEMENTED": stint.Failed, "DATA_LOSS": stint.Failed,
}

// outcomeOf returns the outcome with such a name at such a dependency, and with the
// wait that the server asked for if it did. An HTTP status is judged by package
// stinthttp.
func outcomeOf(kind policy.Kind, name string, hint time.Duration, hinted bool) (stint.Outcome, error) {
	if o, ok := words[name]; ok {
		if hinted {
			return o, fmt.Errorf("-retry-after goes with an answer, and %q is none", name)
		}
		return o, nil
	}
	if kind.Store() {
		return storeOutcome(kind, name, hinted)
	}
	if kind, ok := grpcKinds[name]; ok {
		return stint.Outcome{Kind: kind, Code: name, Hinted: hinted, RetryAfter: hint}, nil
	}
	status, err := strconv.Atoi(name)
	if err != nil || status < 100 || status > 599 {
		return stint.Outcome{}, fmt.Errorf("-outcome is %q: want an HTTP status from 100 to 599, a gRPC code such as UNAVAILABLE, or %s",
			name, strings.Join(slices.Sorted(maps.Keys(words)), ", "))
	}
	if hint%time.Second != 0 {
		return stint.Outcome{}, fmt.Errorf("-retry-after is %v: HTTP's Retry-After counts whole seconds", hint)
	}
	answer := &http.Response{StatusCode: status, Header: http.Header{}}
	if hinted {
		answer.Header.Set("Retry-After", strconv.FormatInt(int64(hint/time.Second), 10))
	}
	var judged interface{ Outcome() stint.Outcome }
	judged, failed := stinthttp.CheckStatus(answer).(interface{ Outcome() stint.Outcome })
	if !failed {
		return stint.Outcome{Kind: stint.OK, Code: name}, nil
	}
	return judged.Outcome(), nil
}

// storeOutcome returns what a store's answer with such a code means.
func storeOutcome(kind policy.Kind, code string, hinted bool) (stint.Outcome, error) {
	o, ok := kind.Outcome(policy.Code(code))
	switch own := strings.Join(slices.Sorted(maps.Keys(words)), ", "); {
	case ok && hinted:
		return o, fmt.Errorf("-retry-after goes with an answer that names a time, and no store (kind: %s) names one", kind)
	case ok:
		return o, nil
	case answers[kind] == "":
		return o, fmt.Errorf("-outcome is %q: what a store of kind %s answers is judged by the program's own Classify: want one of %s", code, kind, own)
	default:
		return o, fmt.Errorf("-outcome is %q: want %s, or %s", code, answers[kind], own)
	}
}

// answers say what the codes of a store look like.
var answers = map[policy.Kind]string{
	policy.Postgres: "an SQLSTATE that decides about retries (40001), the class of another (23)",
	policy.MariaDB:  "an error's number (1213), other for one that is not known",
	policy.MySQL:    "an error's number (1213), other for one that is not known",
	policy.SQLite:   "a result's name (busy)",
	policy.Redis:    "the first word of an error (LOADING), ERR for one without",
}
