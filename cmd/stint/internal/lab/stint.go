package lab

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// A stintCaller makes its calls through a stint.Caller.
type stintCaller struct {
	query  query
	client *http.Client
}

// newStintCaller returns the caller i of the chain, which asks dependency q.
func newStintCaller(s spec, i int, dependency string, q query, base http.RoundTripper, replicas []*server, rec *record) (*stintCaller, error) {
	p := stint.Policy{
		Retry:   stint.Retry{Attempts: s.callers[i].attempts, Base: backoff, Cap: backoff},
		Breaker: stint.Breaker{Off: s.breakerOff},
	}
	if i == 0 {
		p.Timeout = s.timeout
		p.Hedge = stint.Hedge{Copies: s.copies, Delay: s.hedgeDelay}
	}
	if s.callers[i].attempts > 1 { // the client only waits, and has no use for a guard
		p.MinUseful = s.guard
	}
	c, err := stint.NewCaller(dependency, p, &stint.CallerOptions{Service: s.callers[i].name, Observer: rec})
	if err != nil {
		return nil, err
	}
	t := &stinthttp.Transport{Caller: c, Base: base, Peer: stinthttp.PeerStint}
	for _, other := range replicas {
		t.Alternates = append(t.Alternates, other.host)
	}
	return &stintCaller{q, &http.Client{Transport: t}}, nil
}

// call returns the last answer's status or, where there was none, the error.
func (c *stintCaller) call(ctx context.Context) (status int, err error) {
	return c.query.status(ctx, c.client)
}

// check makes the same call as a handler does: a bad answer is an error that
// keeps what it said.
func (c *stintCaller) check(ctx context.Context) error {
	resp, err := c.query.send(ctx, c.client)
	if err != nil {
		return err
	}
	return stinthttp.CheckStatus(resp)
}

// stintLayer is the service called name behind a Gate: it answers requests by
// way of next.
func stintLayer(name string, next *stintCaller) (http.Handler, error) {
	return gated(name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := next.check(r.Context()); err != nil {
			stinthttp.WriteError(w, r, err)
		}
	}), 0, 0)
}

// gated is h behind the Gate of the service called name. A limit of zero is
// learned.
func gated(name string, h http.Handler, limit int, useful time.Duration) (http.Handler, error) {
	gate, err := stint.NewGate(name, &stint.GateOptions{
		Trust:     stint.TrustPeers,
		Reserve:   stint.NoReserve,
		Limit:     limit,
		MinUseful: useful,
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return stinthttp.Handler(gate, h), nil
}

// savedRetries is what a retry budget with the default ceiling starts with.
func savedRetries() int { return int(stint.NewRetryBudget(0, 0).Balance()) }
