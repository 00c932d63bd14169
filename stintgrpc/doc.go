// Package stintgrpc carries stint's contract over gRPC: interceptors for an
// ordinary grpc.ClientConn on the way out, and for an ordinary grpc.Server on
// the way in. DialOptions and ServerOptions install all that belongs together.
//
// What crosses between them is in docs/wire.md: the names are those of HTTP in
// lower case, as metadata, and the deadline is gRPC's own grpc-timeout, which
// grpc-go writes from the context of each attempt. Nothing is trusted that was
// not said to be: see Peer and stint.Trust.
package stintgrpc
