package stinthttp_test

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

func TestHiddenRetries(t *testing.T) {
	three := stint.Policy{Retry: stint.Retry{Attempts: 3}}
	oneOf := stint.Policy{Retry: stint.Retry{Attempts: 3}, Operations: map[string]stint.Policy{"POST": {}}}
	under := func(p stint.Policy, base http.RoundTripper) http.RoundTripper {
		return &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: base}
	}
	var http1, http2 http.Protocols
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	type traced struct{ http.RoundTripper }
	for _, c := range []struct {
		name string
		rt   http.RoundTripper
		want []string // a part of each sentence, in order
	}{
		{"nil", nil, []string{"Nothing counts it", "up to seven times"}},
		{"net/http alone", &http.Transport{}, []string{"HTTP/1, once for each kept-alive connection", "up to seven times"}},
		{"a stranger", traced{http.DefaultTransport}, []string{"_test.traced is not known here"}},
		{"three attempts", under(three, stinthttp.NewTransport(nil)), []string{"what has no body", "a connection that the server ended (GOAWAY): "}},
		{"no Base", under(three, nil), []string{"what has no body", "(GOAWAY): "}},
		{"NewClient", stinthttp.NewClient(newCaller(t, "s", three, stint.CallerOptions{}), 0).Transport, []string{"what has no body", "(GOAWAY): "}},
		{"one attempt", under(stint.Policy{}, nil), []string{"what has no body", "what has a body", "REFUSED_STREAM"}},
		{"one attempt for an operation", under(oneOf, nil), []string{"what has no body", "what has a body", "REFUSED_STREAM"}},
		{"a transport inside", under(stint.Policy{}, under(three, nil)), []string{"what has no body", "(GOAWAY): "}},
		{"a stranger inside", under(three, traced{http.DefaultTransport}), []string{"_test.traced, which hides what it wraps"}},
		{"HTTP/1 only", under(three, &http.Transport{Protocols: &http1}), []string{"what has no body"}},
		{"HTTP/1 only, as of old", under(three, &http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}), []string{"what has no body"}},
		{"HTTP/1 only, by its TLS settings", under(three, &http.Transport{TLSClientConfig: &tls.Config{}}), []string{"what has no body"}},
		{"HTTP/2 only", under(three, &http.Transport{Protocols: &http2}), []string{"(GOAWAY): "}},
		{"new connections", under(three, &http.Transport{Protocols: &http1, DisableKeepAlives: true}), nil},
	} {
		said := stinthttp.HiddenRetries(c.rt)
		ok := len(said) == len(c.want)
		for i := 0; ok && i < len(said); i++ {
			ok = strings.Contains(said[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
	}
}

// Where HiddenRetries is silent, nothing comes but what the Caller sends; where it
// is not, something does.
func TestHiddenRetriesIsRight(t *testing.T) {
	for name, alive := range map[string]bool{"kept alive": true, "new connections": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.base.DisableKeepAlives = !alive
				server := w.serveForgetful("s", 1)
				var rec stinttest.Recorder
				client := w.client("s", unlimited(1), stint.CallerOptions{Observer: &rec})
				for range 2 {
					get(t.Context(), client, "http://s")
				}
				said, hidden := stinthttp.HiddenRetries(client.Transport), server.seen()-len(rec.Events(stint.CallDone))
				if reported := len(rec.Events(stint.Resent)); (len(said) > 0) != alive || (hidden > 0) != alive || reported != hidden {
					t.Errorf("%d requests that nobody asked for, %d reported; told of at start: %q", hidden, reported, said)
				}
			})
		})
	}
}

// It may be asked while the transport works.
func TestHiddenRetriesRaces(t *testing.T) {
	base := stinthttp.NewTransport(nil)
	base.Proxy = func(*http.Request) (*url.URL, error) { return nil, http.ErrAbortHandler }
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://s", nil)
		base.RoundTrip(req)
	}()
	stinthttp.HiddenRetries(base)
	<-done
}
