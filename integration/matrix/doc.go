// Package matrix tests a chain as an application builds it, from the edge to the
// last hop, over real sockets and with real stores behind it: a request that may take
// 50 ms, and a delay of 200 ms at each layer in turn. All that it has is tests:
// package testenv starts the servers, and scripts/setup-servers.sh gets them.
package matrix
