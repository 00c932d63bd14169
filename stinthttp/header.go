package stinthttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint"
)

// Header names of the wire (docs/wire.md).
const (
	headerDeadline   = "X-Deadline-Ms"
	headerKey        = "Idempotency-Key"
	headerRequestID  = "X-Request-Id"
	headerNotStarted = "X-Not-Started"
	headerRetry      = "X-Retry"
	headerRetryAfter = "Retry-After"
	headerRetryMs    = "Retry-After-Ms"

	retryNever = "never"
)

// maxFields is the most fields that a Hop has.
const maxFields = 6

// owned reports whether a request header is stint's to write: a value that came
// with the request (copied by a reverse proxy, say) does not pass through.
func owned(name string) bool {
	switch name {
	case headerDeadline, "X-Timeout-Ms", "X-Request-Deadline", "X-Envoy-Expected-Rq-Timeout-Ms",
		"X-Attempt", "X-Retry-Owner", "X-Criticality":
		return true
	}
	return false
}

// header returns the header of an attempt: the request's own, and the Hop's
// fields as far as the peer is told them. The request's is not changed.
func (x *exchange) header(hop stint.Hop) http.Header {
	var buf [maxFields]stint.Field
	fields := hop.Append(buf[:0])
	h := make(http.Header, len(x.req.Header)+len(fields))
	for name, values := range x.req.Header {
		switch {
		case owned(name):
		case name == "Connect-Timeout-Ms":
			h[name] = shrink(name, values, "", hop.Remaining)
		case name == "Grpc-Timeout":
			h[name] = shrink(name, values, "m", hop.Remaining)
		default:
			h[name] = values
		}
	}

	values := x.first[:]
	if hop.Attempt > 1 {
		values = make([]string, maxFields) // the first attempt's may still be being written
	}
	for i, f := range fields {
		switch {
		case f.Name == headerDeadline:
		case f.Name == headerKey:
			if h[headerKey] != nil {
				continue // as the request has it, quoted or bare
			}
		case x.peer == PeerExternal:
			continue
		}
		values[i] = f.Value
		h[f.Name] = values[i : i+1 : i+1]
	}
	return h
}

// shrink keeps a further deadline that the client's own protocol has written
// (Connect, gRPC over net/http) at or below the time left.
func shrink(name string, own []string, unit string, left time.Duration) []string {
	switch said := stint.ParseHop(map[string][]string{name: own}).Remaining; {
	case said < 0:
		return own // it has expired: the peer is to see that
	case said > 0:
		left = min(left, said)
	}
	return []string{strconv.FormatInt(min(left, 24*time.Hour).Milliseconds(), 10) + unit}
}
