package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/hashicorp/go-retryablehttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

var silent = slog.New(slog.DiscardHandler)

// size is how many bytes the server answers with.
const size = 100

var hundred = []byte(fmt.Sprintf("%-*s", size, "a body"))

// answer is the handler that does the work.
type answer struct{}

func (answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.Write(hundred) }

// serve serves h on a loopback port of its own.
func serve(h http.Handler) (url string, srv *http.Server, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv = &http.Server{Handler: h}
	go srv.Serve(l)
	return "http://" + l.Addr().String() + "/", srv, nil
}

// get makes one request and reads all of the answer.
func get(ctx context.Context, do func(*http.Request) (*http.Response, error), url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := do(req)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err == nil && (resp.StatusCode != http.StatusOK || n != size) {
		err = fmt.Errorf("%s and %d bytes; want 200 and %d", resp.Status, n, size)
	}
	return err
}

// threePolicies is failsafehttp's timeout, retry with budget and, unless it is nil, breaker, outermost first.
func threePolicies(base http.RoundTripper, breaker failsafe.Policy[*http.Response], delay time.Duration) http.RoundTripper {
	retry := failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(attempts).WithBudget(budget.New()).WithDelay(delay).
		AbortOnErrors(circuitbreaker.ErrOpen).ReturnLastFailure().Build()
	policies := []failsafe.Policy[*http.Response]{timeout.New[*http.Response](patience), retry}
	if breaker != nil {
		policies = append(policies, breaker)
	}
	return failsafehttp.NewRoundTripper(base, policies...)
}

func failsafeBreaker() circuitbreaker.CircuitBreaker[*http.Response] {
	return circuitbreaker.NewBuilder[*http.Response]().
		HandleIf(func(r *http.Response, err error) bool { return err != nil || r.StatusCode >= 500 }).
		WithFailureRateThreshold(.5, minCalls, window).WithDelay(openFor).Build()
}

// patience is the time that every call over HTTP gets, where something sets one: enough on the busiest machine.
const patience = 9 * time.Second

// newHop makes the scenario in which h is asked over HTTP.
func newHop(h http.Handler) (s *scenario, err error) {
	var closers []func()
	s = &scenario{
		name:  "hop",
		title: "a keep-alive GET of 100 bytes over loopback, client and server in one process",
		close: func() {
			for _, c := range closers {
				c()
			}
		},
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// Every subject has connections and a server of its own, and they are all made alike.
	subjectOf := func(name string, h http.Handler, client func(base http.RoundTripper) *http.Client, each func(context.Context) (context.Context, context.CancelFunc)) {
		if err != nil {
			return
		}
		url, srv, serr := serve(h)
		if serr != nil {
			err = serr
			return
		}
		base := stinthttp.NewTransport(nil)
		c := client(base)
		closers = append(closers, func() { base.CloseIdleConnections(); c.CloseIdleConnections(); srv.Close() })
		bg := context.Background()
		call := func() error { return get(bg, c.Do, url) }
		if each != nil {
			call = func() error {
				ctx, cancel := each(bg)
				defer cancel()
				return get(ctx, c.Do, url)
			}
		}
		s.others = append(s.others, subject{name, call})
	}
	over := func(wrap func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) *http.Client {
		return func(base http.RoundTripper) *http.Client { return &http.Client{Transport: wrap(base)} }
	}
	plain := over(func(base http.RoundTripper) http.RoundTripper { return base })
	failsafe3 := over(func(base http.RoundTripper) http.RoundTripper { return threePolicies(base, failsafeBreaker(), 0) })
	otel := over(func(base http.RoundTripper) http.RoundTripper { return otelhttp.NewTransport(base) })

	p := policy()
	p.Timeout = patience
	caller, err := stint.NewCaller("s", p, nil)
	if err != nil {
		return s, err
	}
	gate, err := stint.NewGate("s", &stint.GateOptions{Trust: stint.TrustPeers, Logger: silent})
	if err != nil {
		return s, err
	}
	gated := stinthttp.Handler(gate, h)
	stinted := over(func(base http.RoundTripper) http.RoundTripper {
		return &stinthttp.Transport{Caller: caller, Base: base, Peer: stinthttp.PeerStint}
	})

	subjectOf("plain net/http", h, plain, nil)
	subjectOf("plain, context.WithTimeout", h, plain, func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, patience)
	})
	subjectOf("plain, Client.Timeout", h, func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: base, Timeout: patience}
	}, nil)
	subjectOf("stint: client", h, stinted, nil)
	subjectOf("stint: server", gated, plain, nil)
	subjectOf("stint: both sides", gated, stinted, nil)
	subjectOf("stint: both sides, NewClient", gated, func(http.RoundTripper) *http.Client {
		return stinthttp.NewClient(caller, stinthttp.PeerStint)
	}, nil)
	subjectOf("failsafehttp: client, 3 policies", h, failsafe3, nil)
	subjectOf("failsafehttp: and adaptive limiter", failsafehttp.NewHandler(h, adaptivelimiter.NewWithDefaults[*http.Response]()), failsafe3, nil)
	subjectOf("otelhttp: both sides, no SDK", otelhttp.NewHandler(h, "s"), otel, nil)
	subjectOf("retryablehttp", h, func(base http.RoundTripper) *http.Client {
		return retryable(base, 0).StandardClient()
	}, nil)
	if err != nil {
		return s, err
	}
	s.yardstick, s.others = s.others[0], s.others[1:]
	return s, nil
}

// retryable is hashicorp's client with as many attempts as the others.
func retryable(base http.RoundTripper, delay time.Duration) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	c.RetryMax = attempts - 1
	c.RetryWaitMin, c.RetryWaitMax = delay, delay
	return c
}
