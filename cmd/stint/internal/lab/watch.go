package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

const (
	look      = 10 * time.Millisecond // between two looks at what a store does
	lookLimit = 5 * time.Second       // of one look, and of opening a store
)

// A watched store answers a leaf's requests by queries, and notes which of them
// run, by what the store says.
type watched struct {
	store
	spec  spec
	rec   *record
	ended context.Context // with the row
	end   context.CancelFunc
	all   sync.WaitGroup

	mu   sync.Mutex
	err  error     // the first that says that a query or a look failed for itself
	idle time.Time // when the last look began that saw no query
}

// openStore opens the store of s, whose name for it no other row has, and begins
// to watch. close must be called.
func openStore(s spec, rec *record) (*watched, error) {
	w := &watched{spec: s, rec: rec}
	w.ended, w.end = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(w.ended, lookLimit)
	defer cancel()
	var err error
	if w.store, err = stores[s.store].open(ctx, s, "stint-lab-"+rand.Text()); err != nil {
		w.end()
		return nil, fmt.Errorf("-store %v: %w", s.store, err)
	}
	w.all.Go(w.watch)
	return w, nil
}

// watch looks at what runs, until the row has ended.
func (w *watched) watch() {
	last := time.Now()
	for pause(w.ended, look) {
		at := time.Now()
		ctx, cancel := context.WithTimeout(w.ended, lookLimit)
		queries, err := w.running(ctx)
		cancel()
		if w.ended.Err() != nil {
			return
		}
		w.failed(err)
		w.rec.looked(queries, last, at)
		if last = at; len(queries) == 0 && err == nil {
			w.mu.Lock()
			w.idle = at
			w.mu.Unlock()
		}
	}
}

// failed keeps an error that no time limit explains.
func (w *watched) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("-store %v: %w", w.spec.store, err)
	}
}

// quiet reports whether no query has been running at since, or an error: that
// the store can't be asked, or that a query failed and was not ended.
func (w *watched) quiet(since time.Time) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle.After(since), w.err
}

// ServeHTTP makes one query. A naive service that does not pass the context on
// has the row's instead, and each has a timeout as long as its client's.
func (w *watched) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if !w.spec.passContext {
		ctx = w.ended
	}
	if w.spec.mode == Naive {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.spec.hopTimeout)
		defer cancel()
	}
	err := w.ask(ctx)
	if err != nil && err != errNothing && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		w.failed(err)
	}
	switch {
	case err == nil:
	case w.spec.mode == Stint && err != errNothing:
		stinthttp.WriteError(rw, r, err)
	default:
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
	}
}

// close ends all queries, and the watch.
func (w *watched) close() error {
	w.end()
	w.all.Wait()
	return w.store.close()
}

// storeCaller is the Caller of the last service, with the naive timeout.
func storeCaller(s spec) (*stint.Caller, error) {
	return stint.NewCaller("store", stint.Policy{Timeout: hopTimeout}, &stint.CallerOptions{Service: s.leaf})
}
