package lab

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A leaf is the service at the end of a chain: it counts what reaches it, and
// does what the experiment has it do.
type leaf struct {
	serve   http.HandlerFunc
	work    time.Duration // over gRPC, before it answers UNAVAILABLE
	rec     *record
	replica bool // another one that serves the same
	count   atomic.Int64
}

func (l *leaf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer l.visit()()
	l.serve(w, r)
}

// answer is what unavailable is over HTTP.
func (l *leaf) answer(ctx context.Context) error {
	defer l.visit()()
	if !pause(ctx, l.work) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unavailable, alwaysUnavailable)
}

// visit counts a request. To be called when it is over.
func (l *leaf) visit() (over func()) {
	l.count.Add(1)
	start := time.Now()
	return func() { l.rec.visited(l.replica, start, time.Now()) }
}

const alwaysUnavailable = "always unavailable"

// unavailable works for a while and answers 503. It stops working when its
// caller has left, as a good handler does, so that what it wastes is not its own
// fault.
func unavailable(s spec, _ *record) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if pause(r.Context(), s.work) {
			http.Error(w, alwaysUnavailable, http.StatusServiceUnavailable)
		}
	}
}

// pause takes d, and reports whether ctx lived so long.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
