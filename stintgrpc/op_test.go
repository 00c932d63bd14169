package stintgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
)

// shop is a service whose methods say what they are.
func init() {
	method := func(name string, level descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: new(".stintgrpc.test.Nothing"), OutputType: new(".stintgrpc.test.Nothing"),
			Options: &descriptorpb.MethodOptions{IdempotencyLevel: &level}}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("stintgrpc_test.proto"), Package: new("stintgrpc.test"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("Nothing")}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("Shop"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Look", descriptorpb.MethodOptions_NO_SIDE_EFFECTS),
			method("Set", descriptorpb.MethodOptions_IDEMPOTENT),
			method("Buy", descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN),
		}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}

func TestMethodOp(t *testing.T) {
	keyed := func(keys ...string) context.Context {
		return metadata.NewOutgoingContext(t.Context(), metadata.MD{"idempotency-key": keys})
	}
	for _, c := range []struct {
		ctx    context.Context
		method string
		want   stint.Op
	}{
		{t.Context(), "/stintgrpc.test.Shop/Look", stint.Op{Name: "stintgrpc.test.Shop/Look", Safety: stint.ReadOnly}},
		{t.Context(), "/stintgrpc.test.Shop/Set", stint.Op{Name: "stintgrpc.test.Shop/Set", Safety: stint.Idempotent}},
		{t.Context(), "/stintgrpc.test.Shop/Buy", stint.Op{Name: "stintgrpc.test.Shop/Buy"}},
		{t.Context(), "/stintgrpc.test.Shop/Gone", stint.Op{Name: "stintgrpc.test.Shop/Gone"}},
		{t.Context(), "/stintgrpc.test/Shop", stint.Op{Name: "stintgrpc.test/Shop"}}, // a service is no method
		{t.Context(), "/" + unaryCall, stint.Op{Name: unaryCall}},
		{t.Context(), "", stint.Op{}},
		{keyed("k"), "/stintgrpc.test.Shop/Buy", stint.Op{Name: "stintgrpc.test.Shop/Buy", Key: "k"}},
		{keyed(`"k"`), "/stintgrpc.test.Shop/Buy", stint.Op{Name: "stintgrpc.test.Shop/Buy", Key: "k"}},
		{keyed("k", "l"), "/stintgrpc.test.Shop/Buy", stint.Op{Name: "stintgrpc.test.Shop/Buy"}},
	} {
		for range 2 { // the second time from the cache
			if got := stintgrpc.MethodOp(c.ctx, c.method); got != c.want {
				t.Errorf("%q: %+v, want %+v", c.method, got, c.want)
			}
		}
	}
}

// The descriptor, the policy of an operation, and ClientOptions.Op decide how
// often a call is made.
func TestSafetyDecides(t *testing.T) {
	byName := retries(3)
	byName.Operations = map[string]stint.Policy{unaryCall: articlePolicy(2, 0)}
	declared := func(_ context.Context, m string) stint.Op { return stint.Op{Name: m, Safety: stint.Idempotent} }
	for name, c := range map[string]struct {
		method string
		policy stint.Policy
		op     func(context.Context, string) stint.Op
		want   int
	}{
		"reads":          {"/stintgrpc.test.Shop/Look", retries(3), nil, 3},
		"idempotent":     {"/stintgrpc.test.Shop/Set", retries(3), nil, 3},
		"unknown":        {"/stintgrpc.test.Shop/Buy", retries(3), nil, 1},
		"by its policy":  {"/" + unaryCall, byName, nil, 2},
		"by the options": {"/stintgrpc.test.Shop/Buy", retries(3), declared, 3},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			caller := newCaller(t, "s", c.policy, stint.CallerOptions{})
			intercept := stintgrpc.UnaryClientInterceptor(caller, &stintgrpc.ClientOptions{Op: c.op})
			intercept(t.Context(), c.method, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				calls++
				return unavailable
			})
			if calls != c.want {
				t.Errorf("%d calls, want %d", calls, c.want)
			}
		})
	}
}
