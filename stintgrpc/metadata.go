package stintgrpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
)

// Metadata names of the wire (docs/wire.md).
const (
	mdAttempt    = "x-attempt"
	mdOwner      = "x-retry-owner"
	mdClass      = "x-criticality"
	mdKey        = "idempotency-key"
	mdRequestID  = "x-request-id"
	mdNotStarted = "x-not-started"
	mdRetry      = "x-retry"
	mdPushback   = "grpc-retry-pushback-ms" // gRPC's own (proposal A6)

	retryNever = "never"
	// entered beside a reason takes the reason back: two values say nothing.
	entered = "entered"
)

// owned is the request metadata that is stint's or grpc's to write: what a
// handler copied from its own request does not pass through.
var owned = [...]string{"x-deadline-ms", "x-timeout-ms", "x-request-deadline", "x-envoy-expected-rq-timeout-ms",
	"connect-timeout-ms", "grpc-timeout", mdAttempt, mdOwner, mdClass}

// outgoing adds to ctx the metadata of an attempt: the caller's own, and the
// Hop's fields as far as the peer is told them. The time left is grpc's to write.
func outgoing(ctx context.Context, hop stint.Hop, peer Peer) context.Context {
	md, given := metadata.FromOutgoingContext(ctx) // a copy
	for _, name := range owned {
		delete(md, name)
	}
	tell := make([]string, 0, 10)          // names and values
	if hop.Key != "" && md[mdKey] == nil { // else as the caller has it, quoted or bare
		tell = append(tell, mdKey, hop.Key)
	}
	if peer == PeerStint {
		if hop.Attempt > 1 {
			tell = append(tell, mdAttempt, strconv.Itoa(hop.Attempt))
		}
		if hop.Owner != "" {
			tell = append(tell, mdOwner, hop.Owner)
		}
		if hop.Class != stint.ClassUnset {
			tell = append(tell, mdClass, hop.Class.String())
		}
		if hop.RequestID != "" {
			delete(md, mdRequestID)
			tell = append(tell, mdRequestID, hop.RequestID)
		}
	}
	if given {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	if len(tell) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, tell...) // cheaper than a map, if that is all there is
}

// believed removes from md, which is its own copy, what a stranger claims
// there, and reports whether there was any. What a Gate took from it is in ctx.
func believed(ctx context.Context, md metadata.MD) (claims bool) {
	for _, name := range owned {
		if md[name] != nil {
			claims = true
			delete(md, name)
		}
	}
	if md[mdRequestID] != nil {
		claims = true
		md[mdRequestID] = []string{stint.HopFromContext(ctx).RequestID}
	}
	return claims
}
