package stintgrpc

import (
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
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

// apart are places of a copy's own for all that grpc-go writes for its caller.
type apart struct {
	reply           any
	header, trailer metadata.MD
	peer            peer.Peer
}

// from has a copy's options write there, and returns the reply to be filled in.
func (a *apart) from(reply any, opts []grpc.CallOption) any {
	a.reply = reply
	if m, ok := reply.(proto.Message); ok {
		a.reply = m.ProtoReflect().New().Interface()
	} else if v := reflect.TypeOf(reply); v != nil && v.Kind() == reflect.Pointer {
		a.reply = reflect.New(v.Elem()).Interface()
	}
	for i, opt := range opts {
		switch opt.(type) {
		case grpc.HeaderCallOption:
			opts[i] = grpc.Header(&a.header)
		case grpc.TrailerCallOption:
			opts[i] = grpc.Trailer(&a.trailer)
		case grpc.PeerCallOption:
			opts[i] = grpc.Peer(&a.peer)
		}
	}
	return a.reply
}

// deliver copies what the winner brought to where the caller expects it.
func (u *unaryCall) deliver(t *try) {
	won := t.apart
	if m, ok := u.reply.(proto.Message); ok {
		proto.Reset(m)
		proto.Merge(m, won.reply.(proto.Message))
	} else if v := reflect.ValueOf(u.reply); v.Kind() == reflect.Pointer {
		v.Elem().Set(reflect.ValueOf(won.reply).Elem())
	}
	for _, opt := range u.opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			*opt.HeaderAddr = won.header
		case grpc.TrailerCallOption:
			*opt.TrailerAddr = won.trailer
		case grpc.PeerCallOption:
			*opt.PeerAddr = won.peer
		}
	}
}
