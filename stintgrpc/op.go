package stintgrpc

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/stint-go/stint"
)

// MethodOp is what a call says of itself. The name is the method's,
// "pkg.Service/Method". Its safety is the option idempotency_level of its
// descriptor, if the process has that (generated code registers it):
// NO_SIDE_EFFECTS is ReadOnly, IDEMPOTENT is Idempotent, and anything else
// Unrepeatable. The key is the idempotency-key of the outgoing metadata.
// fullMethod is as grpc has it, "/pkg.Service/Method". A Policy raises the safety
// of a method that its descriptor says nothing about (Policy.Operations).
func MethodOp(ctx context.Context, fullMethod string) stint.Op {
	op := stint.Op{Name: strings.TrimPrefix(fullMethod, "/"), Safety: safetyOf(fullMethod)}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		if key := md[mdKey]; key != nil {
			op.Key = stint.ParseHop(map[string][]string{mdKey: key}).Key
		}
	}
	return op
}

// safeties has the full methods whose descriptors were found: never more than the
// process has, whatever names a proxy calls. It is replaced as a whole, since a
// sync.Map would allocate at each look.
var (
	safeties  atomic.Pointer[map[string]stint.Safety]
	addSafety sync.Mutex
)

func safetyOf(fullMethod string) stint.Safety {
	if known := safeties.Load(); known != nil {
		if s, ok := (*known)[fullMethod]; ok {
			return s
		}
	}
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return stint.Unrepeatable
	}
	method, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return stint.Unrepeatable
	}
	safety := stint.Unrepeatable
	if options, ok := method.Options().(*descriptorpb.MethodOptions); ok {
		switch options.GetIdempotencyLevel() {
		case descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
			safety = stint.ReadOnly
		case descriptorpb.MethodOptions_IDEMPOTENT:
			safety = stint.Idempotent
		}
	}
	addSafety.Lock()
	defer addSafety.Unlock()
	all := map[string]stint.Safety{fullMethod: safety}
	if known := safeties.Load(); known != nil {
		maps.Copy(all, *known)
	}
	safeties.Store(&all)
	return safety
}
