package stinthttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

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
		if why == stint.NoTime.String() {
			o.Kind = stint.Refused // there will not be more time at the next try
		}
	}
	return o
}

func statusKind(status int) stint.Kind {
	switch {
	case status < 400:
		return stint.OK
	case status == http.StatusRequestTimeout, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return stint.Transient
	case status == http.StatusTooManyRequests:
		return stint.Overloaded
	case status < 500:
		return stint.Rejected
	}
	return stint.Failed
}

// errorOutcome judges an error of the transport, by its types and never by its
// text. What is not known to be the network's is not repeated.
func errorOutcome(err error) stint.Outcome {
	var (
		op        *net.OpError
		dns       *net.DNSError
		network   net.Error
		errno     syscall.Errno
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid),
		errors.As(err, &record), errors.As(err, &alert):
		return stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "tls"}
	case errors.As(err, &dns) && dns.IsNotFound:
		return stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "no_such_host"}
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "connect"}
	case errors.As(err, &network) && network.Timeout():
		return stint.Outcome{Kind: stint.Transient, Code: "timeout"}
	case op != nil, errors.As(err, &errno), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed):
		return stint.Outcome{Kind: stint.Transient, Code: "reset"}
	}
	return stint.Outcome{Kind: stint.Failed, Code: "error"}
}
