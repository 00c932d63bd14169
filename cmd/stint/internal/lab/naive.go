package lab

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A naiveCaller is the retry loop that many services have around a call: so
// many attempts, a short wait between them or the one that the server asks for,
// and a timeout in the client. Everything that failed is tried again.
type naiveCaller struct {
	layer    string
	attempts int
	next     client
	rec      *record
}

// call returns the last answer's status or, where there was none, the error.
func (n *naiveCaller) call(ctx context.Context) (status int, err error) {
	wait := backoff
	for i := 1; i <= n.attempts; i++ {
		if i > 1 {
			start := time.Now()
			lived := pause(ctx, wait)
			if wait > backoff { // what the server asked for
				n.rec.waited(n.layer, start, time.Now())
			}
			if !lived {
				return 0, ctx.Err()
			}
		}
		start := time.Now()
		var asked time.Duration
		status, asked, err = n.next.send(ctx)
		n.rec.attempted(n.layer, i, start, time.Now())
		if err == nil {
			if wait = asked; wait == 0 {
				wait = backoff
			}
			if status < 500 {
				break
			}
		}
	}
	return status, err
}

// naiveLayer answers requests by way of next. Without passContext its calls do
// not notice when its own caller has left: client.Get has no context.
type naiveLayer struct {
	next        hop
	passContext bool
}

func (l naiveLayer) failed(ctx context.Context) bool {
	if !l.passContext {
		ctx = context.Background()
	}
	status, err := l.next.call(ctx)
	return err != nil || status >= 500
}

const nextFailed = "the next service failed"

func (l naiveLayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.failed(r.Context()) {
		http.Error(w, nextFailed, http.StatusBadGateway)
	}
}

func (l naiveLayer) answer(ctx context.Context) error {
	if l.failed(ctx) {
		return status.Error(codes.Unavailable, nextFailed)
	}
	return nil
}
