package stintgrpc

import (
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// cloned returns a request that a copy which lost may still read when the
// caller changes its own.
func cloned(req any) any {
	if m, ok := req.(proto.Message); ok {
		return proto.Clone(m)
	}
	return req
}

// isolate gives a copy places of its own for all that grpc-go writes.
func (t *try) isolate(reply any, opts []grpc.CallOption) {
	if m, ok := reply.(proto.Message); ok {
		t.reply = m.ProtoReflect().New().Interface()
	} else if v := reflect.TypeOf(reply); v != nil && v.Kind() == reflect.Pointer {
		t.reply = reflect.New(v.Elem()).Interface()
	}
	for i, opt := range opts {
		switch opt.(type) {
		case grpc.HeaderCallOption:
			opts[i] = grpc.Header(&t.header)
		case grpc.TrailerCallOption:
			opts[i] = grpc.Trailer(&t.trailer)
		case grpc.PeerCallOption:
			opts[i] = grpc.Peer(&t.peer)
		}
	}
}

// deliver copies what the winner brought to where the caller expects it.
func (u *unaryCall) deliver(t *try) {
	if m, ok := u.reply.(proto.Message); ok {
		proto.Reset(m)
		proto.Merge(m, t.reply.(proto.Message))
	} else if v := reflect.ValueOf(u.reply); v.Kind() == reflect.Pointer {
		v.Elem().Set(reflect.ValueOf(t.reply).Elem())
	}
	for _, opt := range u.opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			*opt.HeaderAddr = t.header
		case grpc.TrailerCallOption:
			*opt.TrailerAddr = t.trailer
		case grpc.PeerCallOption:
			*opt.PeerAddr = t.peer
		}
	}
}
