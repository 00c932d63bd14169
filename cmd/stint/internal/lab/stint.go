package lab

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// newCaller returns the caller i of the chain, which asks dependency.
func newCaller(s spec, i int, dependency string, rec *record) (*stint.Caller, error) {
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
	return stint.NewCaller(dependency, p, &stint.CallerOptions{Service: s.callers[i].name, Observer: rec})
}

// A stintCaller makes its calls through a client that has a stint.Caller.
type stintCaller struct{ next client }

// call returns the last answer's status or, where there was none, the error.
func (c stintCaller) call(ctx context.Context) (status int, err error) {
	status, _, err = c.next.send(ctx)
	return status, err
}

// stintLayer answers requests by way of next, whose errors keep what the
// service at the other end said.
type stintLayer struct{ next client }

func (l stintLayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := l.next.check(r.Context()); err != nil {
		stinthttp.WriteError(w, r, err)
	}
}

func (l stintLayer) answer(ctx context.Context) error { return l.next.check(ctx) }

// newGate returns the Gate of the service called name. A limit of zero is
// learned.
func newGate(name string, limit int, useful time.Duration) (*stint.Gate, error) {
	return stint.NewGate(name, &stint.GateOptions{
		Trust:     stint.TrustPeers,
		Reserve:   stint.NoReserve,
		Limit:     limit,
		MinUseful: useful,
		Logger:    slog.New(slog.DiscardHandler),
	})
}

// savedRetries is what a retry budget with the default ceiling starts with.
func savedRetries() int { return int(stint.NewRetryBudget(0, 0).Balance()) }
