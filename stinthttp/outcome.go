package stinthttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
)

// codes are the statuses as text, made once: an outcome is judged per attempt.
var codes = func() (c [600]string) {
	for i := 100; i < len(c); i++ {
		c[i] = strconv.Itoa(i)
	}
	return c
}()

func code(status int) string {
	if status >= 100 && status < len(codes) {
		return codes[status]
	}
	return "other"
}

// responseOutcome judges a response (docs/wire.md has the table). 408, 502, 503
// and 504 may be over at the next try; 429 after the time it names; no other
// 4xx and 5xx is repeated unless the policy lists it.
func responseOutcome(r *http.Response, peer Peer) stint.Outcome {
	o := stint.Outcome{Kind: statusKind(r.StatusCode), Code: code(r.StatusCode)}
	if o.Kind == stint.OK {
		return o
	}
	o.Never = strings.EqualFold(strings.TrimSpace(r.Header.Get(headerRetry)), retryNever)
	o.RetryAfter, o.Hinted = retryAfter(r.Header)
	if why := r.Header.Get(headerNotStarted); why != "" && peer == PeerStint {
		o.NotStarted = true
		switch {
		case why == stint.NoTime.String():
			o.Kind = stint.Refused // there will not be more time at the next try
		case why == stint.Full.String() && (o.Hinted || o.Never):
			o.Kind = stint.Overloaded // it is well, and busy: no reason to open a breaker, which would leave it idle
		}
	}
	return o
}

func statusKind(status int) stint.Kind {
	switch {
	case status < 400:
		return stint.OK
	case status == http.StatusRequestTimeout, status == http.StatusBadGateway, status == http.StatusServiceUnavailable:
		return stint.Transient
	case status == http.StatusGatewayTimeout:
		return stint.TimedOut
	case status == http.StatusTooManyRequests:
		return stint.Overloaded
	case status < 500:
		return stint.Rejected
	}
	return stint.Failed
}

// errorOutcome judges an error of the transport, by its types and never by its
// text. What is not known to be final is the network's, if r could be sent at
// all: net/http has no types for most of that (a server that closes an idle
// connection, a lost HTTP/2 connection).
func errorOutcome(err error, r *http.Request) stint.Outcome {
	var (
		judged    interface{ Outcome() stint.Outcome }
		op        *net.OpError
		dns       *net.DNSError
		network   net.Error
		stream    streamError
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &judged): // a RoundTripper below that knows better, such as a Transport of ours
		return judged.Outcome()
	case errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid),
		errors.As(err, &record), errors.As(err, &alert):
		return stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "tls"}
	case errors.As(err, &dns) && dns.IsNotFound:
		return stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "no_such_host"}
	case r.URL.Scheme != "http" && r.URL.Scheme != "https", r.URL.Host == "", errors.Is(err, errNoResponse):
		return stint.Outcome{Kind: stint.Failed, Code: "error"}
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "connect"}
	case errors.As(err, &stream) && stream.Code == refusedStream:
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "refused_stream"}
	case errors.As(err, &network) && network.Timeout():
		return stint.Outcome{Kind: stint.Transient, Code: "timeout"}
	}
	return stint.Outcome{Kind: stint.Transient, Code: "reset"}
}

// refusedStream is HTTP/2's REFUSED_STREAM: the stream was not processed at all
// (RFC 9113, 8.7).
const refusedStream = 7

// streamError has the shape of golang.org/x/net/http2.StreamError, into which
// net/http's own, which is not exported, turns itself for errors.As.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return "http2 stream error" }
