package stinthttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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

// maxTold is the longest time that a peer is told, as in X-Deadline-Ms.
const maxTold = 24 * time.Hour

// maxFields is the most fields that a Hop has.
const maxFields = 6

// owned are the request headers that are stint's to write: a value that came
// with the request (copied by a reverse proxy, say) does not pass through.
var owned = [...]string{headerDeadline, headerTimeoutMs, headerUntil, "X-Envoy-Expected-Rq-Timeout-Ms",
	"X-Attempt", "X-Retry-Owner", "X-Criticality"}

// header returns the header of an attempt: the request's own, and the Hop's
// fields as far as the peer is told them. The request's is not changed.
func (t *try) header(hop stint.Hop) http.Header {
	x := t.exchange
	var buf [maxFields]stint.Field
	fields := hop.Append(buf[:0])
	h := make(http.Header, len(x.req.Header)+len(fields))
	for name, values := range x.req.Header {
		switch {
		case slices.Contains(owned[:], name):
		case name == headerConnectTimeout:
			h[name] = shrink(name, values, "", hop.Remaining)
		case name == headerGRPCTimeout:
			h[name] = shrink(name, values, "m", hop.Remaining)
		default:
			h[name] = values
		}
	}
	room := t.values[:0]
	for _, f := range fields {
		switch {
		case f.Name == headerDeadline:
		case f.Name == headerKey:
			if h[headerKey] != nil {
				continue // as the request has it, quoted or bare
			}
		case x.peer == PeerExternal:
			continue
		}
		room = append(room, f.Value) // beyond its room it moves, and what the header has stays behind
		h[f.Name] = room[len(room)-1 : len(room) : len(room)]
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
	return []string{strconv.FormatInt(min(left, maxTold).Milliseconds(), 10) + unit}
}

// The names that Transport.AlsoWrite may list.
const (
	headerTimeoutMs   = "X-Timeout-Ms"
	headerGRPCTimeout = "Grpc-Timeout"
	headerUntil       = "X-Request-Deadline"

	headerConnectTimeout = "Connect-Timeout-Ms"
)

// checkAlsoWrite returns an error for a name that stint can't write.
func checkAlsoWrite(names []string) error {
	for _, name := range names {
		switch http.CanonicalHeaderKey(name) {
		case headerTimeoutMs, headerGRPCTimeout, headerUntil:
		default:
			return fmt.Errorf("stinthttp: Transport.AlsoWrite lists %q: must be X-Timeout-Ms, grpc-timeout or X-Request-Deadline", name)
		}
	}
	return nil
}

// alsoWrite says the deadline that h says already in further forms, never more
// and never another one. ctx is the attempt's. A grpc-timeout that the client's
// own protocol has written stays, lowered as it is.
func alsoWrite(ctx context.Context, h http.Header, names []string) {
	for _, name := range names {
		left := h[headerDeadline] // every attempt says it
		switch name = http.CanonicalHeaderKey(name); {
		case name == headerTimeoutMs:
			h[name] = []string{left[0]}
		case name == headerGRPCTimeout && h[name] == nil:
			h[name] = []string{left[0] + "m"} // at most 8 digits, as it has to be
		case name == headerUntil:
			now, within := time.Now(), maxTold
			if ends, ok := ctx.Deadline(); ok {
				within = min(within, ends.Sub(now))
			}
			// By the clock as it is now: it may have been set since ends was made.
			h[name] = []string{strconv.FormatInt(now.Add(within).UnixMilli(), 10)} // rounded down
		}
	}
}
