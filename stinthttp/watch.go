package stinthttp

import (
	"net/http"
	"sync"
	"time"
)

// A watch calls the writers of one server when their time is up. One timer does
// for all of them: most requests are answered long before it, and to start and
// stop one for each would be a good part of what a Gate costs.
type watch struct {
	server *http.Server

	mu    sync.Mutex
	first *writer // of a list of those that wait
	timer *time.Timer
	due   time.Time // when the timer goes off; zero: it does not
}

// watches finds the watch of a request's server. A Handler serves one, as a rule.
// A timer must not outlive its server: in a synctest bubble it has no time.
type watches struct {
	mu   sync.Mutex
	last *watch
}

func (ws *watches) of(r *http.Request) *watch {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return &watch{} // called by hand, as tests do
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.last == nil || ws.last.server != server {
		ws.last = &watch{server: server}
	}
	return ws.last
}

// add has g called at that time. g must not be waiting.
func (w *watch) add(g *writer, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.at, g.waits, g.next = at, true, w.first
	if g.next != nil {
		g.next.prev = g
	}
	w.first = g
	if w.due.IsZero() || at.Before(w.due) {
		w.set(at, time.Until(at))
	}
}

// set sets the timer. w.mu is held.
func (w *watch) set(at time.Time, in time.Duration) {
	w.due = at
	if w.timer == nil {
		w.timer = time.AfterFunc(in, w.ring)
	} else {
		w.timer.Reset(in)
	}
}

// remove takes g out, if it waits. It may still be called at this very moment.
func (w *watch) remove(g *writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(g)
}

func (w *watch) unlink(g *writer) {
	if !g.waits {
		return
	}
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		w.first = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	}
	g.waits, g.prev, g.next = false, nil, nil
}

// ring calls those whose time is up, each in a goroutine of its own, since they
// write to their callers, and sets the timer for the next.
func (w *watch) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.due = time.Time{}
	var soonest time.Time
	for g := w.first; g != nil; {
		next := g.next
		if !g.at.After(now) {
			w.unlink(g)
			go g.timeUp()
		} else if soonest.IsZero() || g.at.Before(soonest) {
			soonest = g.at
		}
		g = next
	}
	if !soonest.IsZero() {
		w.set(soonest, soonest.Sub(now))
	}
}
