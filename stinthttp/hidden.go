package stinthttp

import (
	"fmt"
	"net/http"

	"github.com/stint-go/stint"
)

// HiddenRetries says what below a Caller sends requests again by itself, a sentence
// each, to be logged at start: who, when, why it stays on, and how it is counted. rt
// is what a client's requests go through (http.Client.Transport); nil stands for
// http.DefaultTransport, as there. Nothing returned means that nobody but the Caller
// repeats. A transport has to have its settings by then; it may be called at any time.
func HiddenRetries(rt http.RoundTripper) []string {
	var caller *stint.Caller
	for {
		if rt == nil {
			rt = http.DefaultTransport
		}
		t, ok := rt.(*Transport)
		if !ok {
			break
		}
		caller, rt = t.Caller, t.Base
	}
	native, ok := rt.(*http.Transport)
	switch {
	case !ok && caller == nil:
		return []string{fmt.Sprintf("A %T is not known here, and hides what it wraps: what it and net/http below it send again "+
			"can't be told, and nothing counts it. Put it below a stinthttp.Transport, as its Base.", rt)}
	case !ok:
		return []string{fmt.Sprintf("The Base of stinthttp.Transport is a %T, which hides what it wraps: what net/http below it sends again "+
			"is reported as the event Resent, if its context gets there, but neither taken over nor counted as an attempt; what it "+
			"repeats by itself can't be told. With an *http.Transport as the Base most of it is taken over.", rt)}
	}
	var said []string
	protocols := protocolsOf(native)
	if protocols.HTTP1() && !native.DisableKeepAlives {
		said = append(said, overHTTP1(caller)...)
	}
	if protocols.HTTP2() || protocols.UnencryptedHTTP2() {
		said = append(said, overHTTP2(caller))
	}
	return said
}

func overHTTP1(caller *stint.Caller) []string {
	const dead = "net/http sends a request again over HTTP/1, once for each kept-alive connection that dies before the answer's first byte: "
	if caller == nil {
		return []string{dead + "GET, HEAD, OPTIONS, TRACE, whatever has an Idempotency-Key (or X-Idempotency-Key), " +
			"and what it had not begun to write. Nothing counts it. Put a stinthttp.Transport around it."}
	}
	said := []string{dead + "what has no body, if its method or an Idempotency-Key says that it may be repeated, or if it had not begun to " +
		"write it. It has no switch but DisableKeepAlives. It is reported as the event Resent, and costs neither an attempt nor a token."}
	if single(caller) {
		said = append(said, dead+"also what has a body that it can produce again, if it has an Idempotency-Key or was not begun, under "+
			"a policy of one attempt. Retry.Attempts of 2 or more has the Caller repeat that in its place. It is reported as the event Resent.")
	}
	return said
}

func overHTTP2(caller *stint.Caller) string {
	const refused = "net/http sends again what an HTTP/2 server says it has not processed"
	if caller == nil {
		return refused + ", whatever the method: up to seven times, from the third on after a second and more; and without end if each " +
			"connection is ended. Nothing counts it. Put a stinthttp.Transport around it."
	}
	how := ", on a connection that the server ended (GOAWAY): it has no switch, and each long-lived connection ends like that. "
	if single(caller) {
		how = ", on a connection that the server ended (GOAWAY), and under a policy of one attempt also where it refused the request " +
			"alone (REFUSED_STREAM): it has no switch. "
	}
	return refused + how + "It does so only while attempts are left, of one once; it is reported as the event Resent, counts as an attempt " +
		"and costs no token. All other refusals are left to the Caller."
}

// single reports whether the Caller makes one attempt at some operation.
func single(c *stint.Caller) bool {
	p := c.Policy()
	for _, o := range p.Operations {
		if o.Retry.Attempts <= 1 {
			return true
		}
	}
	return p.Retry.Attempts <= 1
}

// protocolsOf returns what t speaks. It decides that once, and Clone makes it do so.
func protocolsOf(t *http.Transport) (p http.Protocols) {
	t.Clone()
	if t.Protocols != nil {
		return *t.Protocols
	}
	p.SetHTTP1(true)
	p.SetHTTP2(t.TLSNextProto["h2"] != nil)
	return p
}
