package lab

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A leaf is the service at the end of a chain: it counts what reaches it, works
// for a while and answers 503. It stops working when its caller has left, as a
// good handler does, so that what it wastes is not its own fault.
type leaf struct {
	work  time.Duration
	rec   *record
	count atomic.Int64
}

func (l *leaf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.count.Add(1)
	start := time.Now()
	defer func() { l.rec.visited(start, time.Now()) }()
	if l.work > 0 {
		timer := time.NewTimer(l.work)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	http.Error(w, "always unavailable", http.StatusServiceUnavailable)
}
