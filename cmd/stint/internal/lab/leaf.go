package lab

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// A leaf is the service at the end of a chain: it counts what reaches it, and
// does what the experiment has it do.
type leaf struct {
	serve   http.HandlerFunc
	rec     *record
	replica bool // another one that serves the same
	count   atomic.Int64
}

func (l *leaf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.count.Add(1)
	start := time.Now()
	defer func() { l.rec.visited(l.replica, start, time.Now()) }()
	l.serve(w, r)
}

// unavailable works for a while and answers 503. It stops working when its
// caller has left, as a good handler does, so that what it wastes is not its own
// fault.
func unavailable(s spec, _ *record) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if pause(r.Context(), s.work) {
			http.Error(w, "always unavailable", http.StatusServiceUnavailable)
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
