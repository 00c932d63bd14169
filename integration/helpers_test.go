package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
	"github.com/stint-go/stint/stinttest"
)

func TestMain(m *testing.M) {
	if err := testenv.Installed(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// patience bounds a test that hangs; nothing is measured with it.
const patience = 20 * time.Second

// A way is the protocol between our client and nginx.
type way struct{ name, listen string }

var (
	http1 = way{"http1", ""}
	h2c   = way{"h2c", "http2"} // with prior knowledge: an nginx of this version can't do both on one port
	h2    = way{"h2", "ssl http2"}
)

// eachVersion runs a test once for each version of HTTP.
func eachVersion(t *testing.T, test func(t *testing.T, w way)) { each(t, test, http1, h2c) }

// eachWay is eachVersion, and HTTP/2 over TLS as well.
func eachWay(t *testing.T, test func(t *testing.T, w way)) { each(t, test, http1, h2c, h2) }

func each(t *testing.T, test func(t *testing.T, w way), ways ...way) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// nginx starts one between our client and the servers of ours. Of several it
// asks the first that it has not seen fail. extra are further directives of the
// location, http those of the block http.
func (w way) nginx(t *testing.T, http, extra string, leaves ...string) *testenv.Nginx {
	t.Helper()
	return testenv.StartNginx(t, w.config(http, extra, leaves...))
}

func (w way) config(http, extra string, leaves ...string) testenv.NginxConfig {
	return testenv.NginxConfig{
		Listen: w.listen,
		HTTP:   http + upstream("leaf", leaves...),
		Server: location("/", "leaf", extra),
	}
}

func upstream(name string, leaves ...string) string {
	return fmt.Sprintf("upstream %s { server %s; keepalive 32; }\n", name, strings.Join(leaves, "; server "))
}

func location(path, upstream, extra string) string {
	return fmt.Sprintf("location %s { proxy_pass http://%s; proxy_http_version 1.1; proxy_set_header Connection ''; %s }\n", path, upstream, extra)
}

// once is what an nginx has to say under an owner of the retries.
const once = "proxy_next_upstream off;"

// A client is an http.Client of stinthttp.NewClient, and what the test sees of it.
type client struct {
	*http.Client
	url   string
	rec   stinttest.Recorder
	dials atomic.Int64
	// afterFirst is called when a first attempt has ended, before anything else happens.
	afterFirst func()
}

// StartAttempt and Observe make a client the observer of its own calls.
func (c *client) StartAttempt(ctx context.Context, _ stint.Event) context.Context { return ctx }

func (c *client) Observe(ctx context.Context, e stint.Event) {
	c.rec.Observe(ctx, e)
	if c.afterFirst != nil && e.Kind == stint.AttemptDone && e.Attempt == 1 {
		c.afterFirst()
	}
}

// client calls nginx at addr; there is no jitter.
func (w way) client(t *testing.T, addr string, p stint.Policy, peer stinthttp.Peer) *client {
	t.Helper()
	c := &client{url: "http://" + addr}
	caller, err := stint.NewCaller("nginx", p, &stint.CallerOptions{Observer: c, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	c.Client = stinthttp.NewClient(caller, peer)
	base := c.Transport.(*stinthttp.Transport).Base.(*http.Transport)
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.dials.Add(1)
		return dial(ctx, network, addr)
	}
	switch w {
	case h2c:
		base.Protocols = new(http.Protocols)
		base.Protocols.SetUnencryptedHTTP2(true)
	case h2:
		c.url = "https://" + addr
		base.TLSClientConfig = testenv.ClientTLS()
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// retrying allows three attempts, a millisecond apart at most.
func retrying() stint.Policy {
	return stint.Policy{Timeout: patience, Retry: stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond}}
}

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	proto  int // HTTP's major version
	err    error
}

func (c *client) get(ctx context.Context) answer { return c.do(ctx, http.MethodGet, "", "") }

// do makes one call; key may be empty.
func (c *client) do(ctx context.Context, method, key, body string) answer {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url, rd)
	if err != nil {
		return answer{err: err}
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), resp.ProtoMajor, err}
}

// attempts are the outcomes of the client's attempts so far, in order.
func (c *client) attempts() (codes []string) {
	for _, e := range c.rec.Events(stint.AttemptDone) {
		codes = append(codes, e.Outcome.String())
	}
	return codes
}

// want checks what became of the client's only call: status, the attempts' outcomes, and why there was no further one.
func (c *client) want(t *testing.T, a answer, status int, reason stint.Reason, codes ...string) {
	t.Helper()
	calls := c.rec.Events(stint.CallDone)
	if len(calls) != 1 {
		t.Fatalf("%d calls ended, want 1", len(calls))
	}
	if a.status != status || a.err != nil || calls[0].Reason != reason || !slices.Equal(c.attempts(), codes) {
		t.Errorf("status %d, error %v, attempts %q, reason %q; want %d, no error, %q, %q",
			a.status, a.err, c.attempts(), calls[0].Reason, status, codes, reason)
	}
}

// leaf serves h behind a Gate that believes its callers.
func leaf(t *testing.T, h http.Handler) *testenv.Leaf {
	t.Helper()
	return testenv.StartLeaf(t, stinthttp.Handler(gate(t, "leaf", stint.GateOptions{}), h))
}

func gate(t *testing.T, name string, o stint.GateOptions) *stint.Gate {
	t.Helper()
	o.Trust = stint.TrustPeers
	o.Logger = slog.New(slog.DiscardHandler)
	g, err := stint.NewGate(name, &o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// count checks how many requests reached each leaf.
func count(t *testing.T, want []int, leaves ...*stinttest.Dependency) {
	t.Helper()
	var got []int
	for _, l := range leaves {
		got = append(got, l.Count())
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests at the leaves: %d, want %d", got, want)
	}
}

// headers are the values of one header in the requests that reached the leaf.
func headers(d *stinttest.Dependency, name string) (values []string) {
	for _, a := range d.Arrivals() {
		values = append(values, a.Header.Get(name))
	}
	return values
}

// await waits for what must happen, and fails the test if it does not.
func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: nothing after %v", what, patience)
	}
	return v
}
