package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker/v2"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

const (
	deadCalls = 300
	deadDelay = time.Microsecond // between attempts
)

// A deadRow is what 300 calls came to of which none could succeed, each with 3 attempts at most.
type deadRow struct {
	Subject     string `json:"subject"`
	Requests    int64  `json:"requests"`    // that reached the server
	Open        int64  `json:"open"`        // bodies that nobody closed
	Connections int64  `json:"connections"` // that were opened
	CPU         figure `json:"cpu"`         // as a multiple of one attempt a call
	Wall        figure `json:"wall"`        // the same
	Nanos       figure `json:"nanos"`       // CPU a call, in nanoseconds
}

// A deadCaller makes one call; it fails only if the call came to something else than a failure.
type deadCaller func(ctx context.Context, base http.RoundTripper, url string) (func() error, error)

// deads are the ways to call a dependency that is down. The first is the yardstick.
var deads = []struct {
	name string
	make deadCaller
}{
	{"plain net/http, 1 attempt", overHTTP(func(base http.RoundTripper) (http.RoundTripper, error) { return base, nil })},
	{"backoff by hand", handmade(false)},
	{"retryablehttp", func(ctx context.Context, base http.RoundTripper, url string) (func() error, error) {
		c := retryable(base, deadDelay).StandardClient()
		return func() error {
			resp, err := send(ctx, c.Do, url)
			if err == nil {
				resp.Body.Close()
				return errAlive
			}
			return nil // it keeps the response to itself
		}, nil
	}},
	{"failsafehttp: retry with budget", overHTTP(func(base http.RoundTripper) (http.RoundTripper, error) {
		return threePolicies(base, nil, deadDelay), nil
	})},
	{"stint: retry with budget", overStint(stint.Breaker{Off: true})},
	{"gobreaker and backoff by hand", handmade(true)},
	{"failsafehttp: and breaker", overHTTP(func(base http.RoundTripper) (http.RoundTripper, error) {
		return threePolicies(base, failsafeBreaker(), deadDelay), nil
	})},
	{"stint: and breaker", overStint(policy().Breaker)},
}

var errAlive = errors.New("a call to a dead server succeeded")

func send(ctx context.Context, do func(*http.Request) (*http.Response, error), url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(req)
}

// finish reads the last answer to its end, as every client should, and holds that it was the dead server's.
func finish(resp *http.Response) error {
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusServiceUnavailable {
		return errAlive
	}
	return nil
}

// overHTTP makes calls through a RoundTripper, which may refuse.
func overHTTP(wrap func(http.RoundTripper) (http.RoundTripper, error)) deadCaller {
	return func(ctx context.Context, base http.RoundTripper, url string) (func() error, error) {
		rt, err := wrap(base)
		if err != nil {
			return nil, err
		}
		c := &http.Client{Transport: rt}
		return func() error {
			resp, err := send(ctx, c.Do, url)
			if err != nil {
				return nil
			}
			return finish(resp)
		}, nil
	}
}

func overStint(b stint.Breaker) deadCaller {
	return overHTTP(func(base http.RoundTripper) (http.RoundTripper, error) {
		p := policy()
		p.Timeout, p.Breaker = patience, b
		p.Retry.Base, p.Retry.Cap = deadDelay, deadDelay
		caller, err := stint.NewCaller("dead", p, nil)
		return &stinthttp.Transport{Caller: caller, Base: base, Peer: stinthttp.PeerStint}, err
	})
}

// handmade is backoff around a request, with or without gobreaker around that.
func handmade(breaker bool) deadCaller {
	return func(ctx context.Context, base http.RoundTripper, url string) (func() error, error) {
		c := &http.Client{Transport: base}
		call := func(ctx context.Context) (struct{}, error) {
			return backoff.Retry(ctx, func() (struct{}, error) {
				resp, err := send(ctx, c.Do, url)
				if err != nil {
					return struct{}{}, err
				}
				if err := finish(resp); err != nil {
					return struct{}{}, backoff.Permanent(err)
				}
				return struct{}{}, errDown
			}, backoff.WithMaxTries(attempts), backoff.WithBackOff(backoff.NewConstantBackOff(deadDelay)))
		}
		if breaker {
			once, b := call, newByHand().breaker
			call = func(ctx context.Context) (struct{}, error) {
				return b.Execute(func() (struct{}, error) { return once(ctx) })
			}
		}
		return func() error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			_, err := call(ctx)
			if errors.Is(err, errDown) || errors.Is(err, gobreaker.ErrOpenState) {
				return nil
			}
			return fmt.Errorf("%w: %v", errAlive, err)
		}, nil
	}
}

// counted counts what happens between a client and its connections.
type counted struct {
	http.RoundTripper
	open atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.open.Add(1)
		resp.Body = &countedBody{ReadCloser: resp.Body, open: &c.open}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser
	open   *atomic.Int64
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	if !b.closed.Swap(true) {
		b.open.Add(-1)
	}
	return b.ReadCloser.Close()
}

// die makes so many calls in one way, with a server and connections of their own.
func die(call deadCaller, calls int) (deadRow, spent, error) {
	var requests, connections atomic.Int64
	url, srv, err := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		http.Error(w, "down", http.StatusServiceUnavailable)
	}))
	if err != nil {
		return deadRow{}, spent{}, err
	}
	defer srv.Close()
	t := stinthttp.NewTransport(nil)
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connections.Add(1)
		return dial(ctx, network, address)
	}
	defer t.CloseIdleConnections()
	base := &counted{RoundTripper: t}
	once, err := call(context.Background(), base, url)
	if err != nil {
		return deadRow{}, spent{}, err
	}
	s, err := timed(once, calls)
	return deadRow{Requests: requests.Load(), Open: base.open.Load(), Connections: connections.Load()}, s, err
}

// measureDead runs every way after the yardstick, once a round. Of counts that differ the largest stands.
func measureDead(rounds, calls int, progress func(string, ...any)) ([]deadRow, error) {
	rows := make([]deadRow, len(deads))
	type samples struct{ cpu, wall, nanos []float64 }
	all := make([]samples, len(deads))
	for round := range rounds {
		progress("dead: round %d of %d, %d pairs of %d calls", round+1, rounds, len(deads), calls)
		for i, d := range deads {
			_, a, err := die(deads[0].make, calls)
			if err != nil {
				return nil, fmt.Errorf("dead: %s: %w", deads[0].name, err)
			}
			have, b, err := die(d.make, calls)
			if err != nil {
				return nil, fmt.Errorf("dead: %s: %w", d.name, err)
			}
			r, x := &rows[i], &all[i]
			r.Subject = d.name
			r.Requests, r.Open, r.Connections = max(r.Requests, have.Requests), max(r.Open, have.Open), max(r.Connections, have.Connections)
			x.cpu = append(x.cpu, float64(b.cpu)/float64(a.cpu))
			x.wall = append(x.wall, float64(b.wall)/float64(a.wall))
			x.nanos = append(x.nanos, b.per(float64(b.cpu)))
		}
	}
	for i, x := range all {
		rows[i].CPU, rows[i].Wall, rows[i].Nanos = newFigure(x.cpu), newFigure(x.wall), newFigure(x.nanos)
	}
	return rows, nil
}
