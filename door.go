package stint

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// door is what all views of a Gate share: who is inside, and who waits.
type door struct {
	mu     sync.Mutex
	ctrl   *AdmissionController
	inside int // all that Drain waits for: those that run, and those that wait
	long   int // of them, those of the view LongRunning
	closed bool
	empty  chan struct{} // closed when it is closed, and the last one has left
}

func newDoor(c *AdmissionController) *door { return &door{ctrl: c, empty: make(chan struct{})} }

// enter decides about a request, and waits for its place if it has to. A reason
// beside in says that it would have been refused for it; o are the view's options.
// never belongs to a
// refusal: nobody is to try again.
func (d *door) enter(ctx context.Context, k kind, o *GateOptions, h Hop, a *Admission) (in bool, r Reason, never bool) {
	late := h.Remaining < o.MinUseful
	if k == exempt {
		if late {
			r = NoTime
		}
		return !late || o.ObserveOnly, r, false
	}
	d.mu.Lock()
	var wait time.Duration
	switch {
	case d.closed && late && !o.ObserveOnly:
		r = NoTime // elsewhere there will not be more
	case d.closed:
		r = Draining
	case k == ordinary:
		if in, wait, r = d.ctrl.arrive(a.arrived, h, a, o); r == Full && !in {
			never = d.ctrl.Never(a.arrived)
		}
	default:
		if late {
			r = NoTime
		} else if most := d.ctrl.opts.LongLimit; most >= 0 && d.long >= most {
			r = Full
		}
		if in = r == 0 || o.ObserveOnly; in {
			d.long++
		}
	}
	if in || wait > 0 {
		d.inside++
	}
	if wait > 0 {
		a.called = make(chan bool, 1)
	}
	if !in && k == ordinary {
		d.call(a.arrived) // the limit may have grown
	}
	d.mu.Unlock()
	if wait > 0 {
		return d.wait(ctx, a, wait)
	}
	return in, r, never
}

// wait waits in the queue until the request is called, its time is up, or its
// caller has gone.
func (d *door) wait(ctx context.Context, a *Admission, most time.Duration) (in bool, r Reason, never bool) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	called := false
	select {
	case in = <-a.called:
		called = true
	case <-timer.C:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	a.waited = now.Sub(a.arrived)
	gone := ctx.Err() == context.Canceled
	queued := false
	switch {
	case called:
	case gone:
		queued = d.ctrl.Leave(a)
	default:
		in, queued = d.ctrl.Expire(now, a)
	}
	if !called && !queued {
		in = <-a.called // at the same moment; it is there
	}
	switch {
	case in && gone:
		d.ctrl.Done(now, 0)
		d.call(now)
		in, r = false, CallerGone
	case gone:
		r = CallerGone
	case !in:
		r, never = Full, d.ctrl.Never(now)
	case !called && queued:
		r = Full // MaxRefused has it run
	}
	if !in {
		d.left()
	}
	return in, r, never
}

// leave ends a request that was inside; took is zero if it says nothing about how
// long requests take.
func (d *door) leave(k kind, now time.Time, took time.Duration) {
	if k == exempt {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if k == longRunning {
		d.long--
	} else {
		d.ctrl.Done(now, took)
		d.call(now)
	}
	d.left()
}

// call lets those in whose turn it is. d.mu is held.
func (d *door) call(now time.Time) {
	for {
		who, start, ok := d.ctrl.Next(now)
		if !ok {
			return
		}
		who.(*Admission).called <- start
	}
}

// left takes note that one is not inside any more. d.mu is held.
func (d *door) left() {
	if d.inside--; d.inside == 0 && d.closed {
		close(d.empty)
	}
}

// close lets nobody in any more.
func (d *door) close() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		if d.inside == 0 {
			close(d.empty)
		}
	}
	return d.empty
}

// What a request that was refused for load is told to wait: between one and three
// seconds, so that those who obey do not come back as the wall that they were.
// Retry-After can't say less than one.
const (
	leastRetryAfter = time.Second
	mostRetryAfter  = 3 * time.Second
	retryAfters     = 64
)

// refusals are made once, so that refusing costs nothing.
type refusals struct {
	noTime, draining *Error
	full, never      [retryAfters]Error
}

func newRefusals(service string) *refusals {
	s := &refusals{
		noTime:   &Error{Reason: NoTime, Service: service},
		draining: &Error{Reason: Draining, Service: service, after: drainRetryAfter},
	}
	for i := range s.full {
		after := leastRetryAfter + time.Duration(i)*(mostRetryAfter-leastRetryAfter)/(retryAfters-1)
		s.full[i] = Error{Reason: Full, Service: service, after: after}
		s.never[i] = Error{Reason: Full, Service: service, after: after, never: true}
	}
	return s
}

// of returns the error that says r.
func (s *refusals) of(ctx context.Context, service string, r Reason, never bool) *Error {
	switch r {
	case NoTime:
		return s.noTime
	case Draining:
		return s.draining
	case CallerGone:
		return &Error{Reason: CallerGone, Service: service, Err: context.Cause(ctx)}
	}
	i := rand.IntN(retryAfters)
	if never {
		return &s.never[i]
	}
	return &s.full[i]
}
