package stintgrpc

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
)

// The garbage of a call costs more than what makes it, so its states fit into the
// size classes that their comments name; above 512 bytes 8 are the runtime's.
func TestStatesFit(t *testing.T) {
	for _, c := range []struct {
		state any
		most  uintptr
	}{{unaryCall{}, 768 - 8}, {streamCall{}, 768 - 8}, {stint.Admission{}, 288}} {
		if size := reflect.TypeOf(c.state).Size(); size > c.most {
			t.Errorf("%T has %d bytes, want at most %d", c.state, size, c.most)
		}
	}
}

// A call's metadata is read where it is, and by grpc's own copy should grpc keep it
// in another way.
func TestReceived(t *testing.T) {
	sent := metadata.MD{"x-retry-owner": {"shop"}, "x-mine": {"1", "2"}}
	ctx := context.WithValue(metadata.NewIncomingContext(t.Context(), sent), keyhole{}, "a later value")
	where := func(md metadata.MD) uintptr { return reflect.ValueOf(md).Pointer() }
	if got := received(ctx); where(got) != where(sent) {
		t.Errorf("%v is a copy", got)
	}
	if got := received(t.Context()); got != nil {
		t.Errorf("%v, where there is none", got)
	}
	key := incoming.key
	defer func() { incoming.key = key }()
	for _, unknown := range []any{nil, keyhole{}} {
		incoming.key = unknown
		if got := received(ctx); where(got) == where(sent) || !maps.EqualFunc(got, sent, slices.Equal[[]string]) {
			t.Errorf("with the key %v: %v, want a copy of %v", unknown, got, sent)
		}
	}
}

// What a stranger claims is taken out for the handler, however it is spelt, and for
// nobody else.
func TestDisbelievingCopies(t *testing.T) {
	for _, owner := range []string{"x-retry-owner", "X-Retry-Owner"} {
		sent := metadata.MD{owner: {"shop"}, "x-mine": {"1"}}
		ctx := metadata.NewIncomingContext(t.Context(), sent)
		if seen := received(disbelieving(ctx, sent)); len(seen) != 1 || seen["x-mine"] == nil {
			t.Errorf("the handler sees %v", seen)
		}
		sent["x-request-id"] = []string{"r1"}
		if seen := received(disbelieving(ctx, sent)); len(seen) != 2 || seen["x-request-id"][0] == "r1" {
			t.Errorf("the handler sees %v", seen)
		}
		if sent[owner] == nil || sent["x-request-id"][0] != "r1" {
			t.Errorf("the request's own metadata is now %v", sent)
		}
	}
	id := metadata.MD{"x-request-id": {"r1"}} // a claim, too
	if seen := received(disbelieving(metadata.NewIncomingContext(t.Context(), id), id)); seen["x-request-id"][0] == "r1" {
		t.Errorf("the handler sees %v", seen)
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{"x-mine": {"1"}})
	if disbelieving(ctx, received(ctx)) != ctx {
		t.Error("a copy, though nothing is claimed")
	}
}
