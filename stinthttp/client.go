package stinthttp

import (
	"math"
	"net"
	"net/http"
	"time"

	"github.com/stint-go/stint"
)

// backstop is how far above the policy's Timeout http.Client's own lies.
const backstop = time.Second

// NewClient returns an http.Client whose requests go through c to a peer, over
// a NewTransport. A call's time includes redirects: all hops of one Client.Do
// share the first one's deadline.
//
// Its HTTP/2 connections are asked for signs of life so often that a dead one is
// found within three quarters of an attempt, if that has 0.5 s or more.
//
// Client.Timeout is set as a backstop: one second above the policy's Timeout and
// Reserve; where the policy has no Timeout, 10 s and the Reserve, also for a
// caller whose own deadline is later. Of the policies of single operations
// (Policy.Operations) the longest decides here, and the shortest attempt above. It bounds the reading of the body as well,
// and is fixed here: a SetPolicy that raises Timeout needs a new client. It costs
// some 20 allocations a request; &http.Client{Transport: &Transport{...}} does
// without.
func NewClient(c *stint.Caller, peer Peer) *http.Client {
	p := c.Policy()
	ping, pong := signs(p)
	header, timeout := max(p.Timeout, defaultResponseHeader), longest(p)
	for _, o := range p.Operations {
		pi, po := signs(o)
		ping, pong = min(ping, pi), min(pong, po)
		header, timeout = max(header, o.Timeout), max(timeout, longest(o))
	}
	base := NewTransport(&TransportOptions{ResponseHeader: header, Ping: ping, Pong: pong})
	return &http.Client{Transport: &Transport{Caller: c, Base: base, Peer: peer}, Timeout: timeout}
}

// longest is above all that a call can take under p.
func longest(p stint.Policy) time.Duration {
	if p.Timeout > 0 {
		return sum(p.Timeout, backstop, p.Reserve)
	}
	return sum(10*time.Second, p.Reserve)
}

// signs returns when to ask an HTTP/2 connection for a sign of life, so that a dead
// one is found within three quarters of an attempt, if that is 0.5 s or longer:
// asking more often would weigh on idle connections, and a shorter wait for the
// answer would give up peers that only take breath.
func signs(p stint.Policy) (ping, pong time.Duration) {
	attempt := positive(p.Retry.AttemptTimeout, positive(p.Timeout, 10*time.Second))
	return min(max(attempt/4, 100*time.Millisecond), defaultClientPing), min(max(attempt/2, 250*time.Millisecond), defaultClientPong)
}

// sum adds durations, none of them negative; out of range it is the longest.
func sum(ds ...time.Duration) (total time.Duration) {
	for _, d := range ds {
		total += min(d, math.MaxInt64-total)
	}
	return total
}

const (
	defaultResponseHeader = 30 * time.Second
	defaultClientPing     = 2 * time.Second
	defaultClientPong     = time.Second
)

// TransportOptions bound the phases of a connection and of an exchange on it.
// Each lies inside the attempt's time, which always wins. Zero means the
// default; there is no "unlimited".
type TransportOptions struct {
	// Dial bounds making a TCP connection, name look-up included. Zero means
	// 500 ms, for a data centre; across regions 1 s is apt.
	Dial time.Duration
	// TLSHandshake bounds the handshake. Zero means 1 s.
	TLSHandshake time.Duration
	// ResponseHeader bounds the wait from the request's last byte to the
	// response's header; the body's time is not part of it. Zero means 30 s.
	ResponseHeader time.Duration
	// ExpectContinue bounds the wait for "100 Continue" before a body is sent
	// all the same. Zero means 1 s.
	ExpectContinue time.Duration
	// Ping is how long an HTTP/2 connection may be silent before it is asked for a
	// sign of life, in use or not; Pong is how long it then has to answer before it
	// is closed and what is under way on it has failed. Without them a connection
	// whose peer has vanished is found out by the operating system, after minutes,
	// and takes every attempt until then. An attempt whose limit is below the sum of
	// both runs out of time first, and so may the next: set them below it. Zero
	// means 2 s and 1 s.
	Ping, Pong time.Duration
	// Idle is how long an unused connection is kept. Zero means 90 s.
	Idle time.Duration
	// IdleConns is how many unused connections are kept for each host. Zero
	// means 64, the default bulkhead.
	IdleConns int
}

// NewTransport returns an http.Transport with every phase bounded; o may be
// nil. Negative values count as zero.
func NewTransport(o *TransportOptions) *http.Transport {
	if o == nil {
		o = &TransportOptions{}
	}
	ping, pong := positive(o.Ping, defaultClientPing), positive(o.Pong, defaultClientPong)
	return &http.Transport{
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: pong, WriteByteTimeout: sum(ping, pong)},
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: positive(o.Dial, 500*time.Millisecond)}).DialContext,
		TLSHandshakeTimeout:   positive(o.TLSHandshake, time.Second),
		ResponseHeaderTimeout: positive(o.ResponseHeader, defaultResponseHeader),
		ExpectContinueTimeout: positive(o.ExpectContinue, time.Second),
		IdleConnTimeout:       positive(o.Idle, 90*time.Second),
		MaxIdleConnsPerHost:   positive(o.IdleConns, 64),
		ForceAttemptHTTP2:     true,
	}
}

func positive[T int | time.Duration](v, zero T) T {
	if v <= 0 {
		return zero
	}
	return v
}
