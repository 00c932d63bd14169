package stintgrpc

import (
	"context"
	"slices"
	"strconv"
	"strings"

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

// said is the metadata of attempts that say nothing but who owns the retries, and
// a class: the same for call after call, outside of a Gate.
type said struct {
	context.Context // has nothing else
	owner           string
	class           stint.Class
}

// metadata returns a context with nothing but the metadata of an attempt: its
// caller's own, which ctx has, and the Hop's fields as far as the peer is told
// them. The time left is grpc's to write. It is nil if that is what ctx has.
func (c *client) metadata(ctx context.Context, hop stint.Hop) context.Context {
	if c.peer != PeerStint {
		hop = stint.Hop{Key: hop.Key}
	}
	md, given := metadata.FromOutgoingContext(ctx) // a copy
	if !given && hop.Key == "" && hop.RequestID == "" && hop.Attempt <= 1 {
		return c.ownership(hop.Owner, hop.Class)
	}
	for _, name := range owned {
		delete(md, name)
	}
	tell := make([]string, 0, 10)          // names and values
	if hop.Key != "" && md[mdKey] == nil { // else as the caller has it, quoted or bare
		tell = append(tell, mdKey, hop.Key)
	}
	if hop.Attempt > 1 {
		tell = append(tell, mdAttempt, strconv.Itoa(hop.Attempt))
	}
	if hop.RequestID != "" {
		delete(md, mdRequestID)
		tell = append(tell, mdRequestID, hop.RequestID)
	}
	says := context.Background()
	if given {
		says = metadata.NewOutgoingContext(says, md)
	}
	tell = appendOwnership(tell, hop.Owner, hop.Class)
	if len(tell) == 0 {
		return says
	}
	return metadata.AppendToOutgoingContext(says, tell...) // cheaper than a map, if that is all there is
}

// ownership is metadata for attempts that say no more.
func (c *client) ownership(owner string, class stint.Class) context.Context {
	last := c.said.Load()
	if last == nil || last.owner != owner || last.class != class {
		if owner == "" && class == stint.ClassUnset {
			return nil
		}
		tell := appendOwnership(make([]string, 0, 4), owner, class)
		last = &said{metadata.AppendToOutgoingContext(context.Background(), tell...), owner, class}
		c.said.Store(last)
	}
	return last.Context
}

func appendOwnership(tell []string, owner string, class stint.Class) []string {
	if owner != "" {
		tell = append(tell, mdOwner, owner)
	}
	if class != stint.ClassUnset {
		tell = append(tell, mdClass, class.String())
	}
	return tell
}

// received returns the metadata of a call as ctx has it, which nobody may change.
// metadata.FromIncomingContext copies it, for a percent or two of a call; and
// single names, which may be had without, are looked for among all where they are
// not there. So it is asked once for the key by which it looks.
func received(ctx context.Context) metadata.MD {
	if incoming.key != nil {
		if md, ok := ctx.Value(incoming.key).(metadata.MD); ok {
			return md
		}
	}
	md, _ := metadata.FromIncomingContext(ctx) // should grpc-go ever keep it in another way
	return md
}

// incoming has the key by which a context holds a call's metadata.
var incoming = func() *keyhole {
	k := &keyhole{Context: context.Background()}
	metadata.FromIncomingContext(k)
	return k
}()

// keyhole is a context that remembers what it was asked for.
type keyhole struct {
	context.Context
	key any
}

func (k *keyhole) Value(key any) any {
	k.key = key
	return nil
}

// disbelieving returns ctx without what a stranger claims in md, its metadata. What
// a Gate took from it is in ctx.
func disbelieving(ctx context.Context, md metadata.MD) context.Context {
	claims := false
	for name := range md {
		name = strings.ToLower(name) // as it is over HTTP/2; an interceptor may have brought another
		claims = claims || name == mdRequestID || slices.Contains(owned[:], name)
	}
	if !claims {
		return ctx
	}
	md, _ = metadata.FromIncomingContext(ctx) // a copy, in lower case
	for _, name := range owned {
		delete(md, name)
	}
	if md[mdRequestID] != nil {
		md[mdRequestID] = []string{stint.HopFromContext(ctx).RequestID}
	}
	return metadata.NewIncomingContext(ctx, md)
}
