package stint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Remaining returns the time left until ctx's deadline, negative once it has
// passed, and whether there is one. Under a Gate that is the time in which the
// handler's work has to be done: the Gate's reserve is not part of it.
func Remaining(ctx context.Context) (time.Duration, bool) {
	d, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(d), true
}

// localWork stands in an error of Require where a Caller's has its dependency.
const localWork = "local work"

// Require returns nil if ctx lives and has at least need left, or no deadline:
// ask it before a step that can't be used half done. Otherwise it returns an
// *Error with Reason NoTime or, if the caller has cancelled, CallerGone.
func Require(ctx context.Context, need time.Duration) error {
	if ctx.Err() != nil {
		return ended(ctx, localWork)
	}
	left, ok := Remaining(ctx)
	if !ok || left >= need {
		return nil
	}
	return &Error{Reason: NoTime, Dependency: localWork, Remaining: left,
		Err: fmt.Errorf("%v left, %v needed", left.Round(time.Microsecond), need)}
}

// ended is the refusal of a call whose context is over already.
func ended(ctx context.Context, dependency string) *Error {
	reason := CallerGone
	if ctx.Err() == context.DeadlineExceeded {
		reason = NoTime
	}
	return &Error{Reason: reason, Dependency: dependency, Err: context.Cause(ctx)}
}

// Detach returns a context for work that goes on after the request that started
// it: it keeps ctx's values (trace, request id, class) but neither its deadline, nor
// its cancellation, nor its retry owner, so calls made under it are a path of
// their own. It is bounded by timeout; zero or less means 30 s, never "no limit".
func Detach(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	d := &detached{Context: context.WithoutCancel(ctx)}
	if p := pathOf(ctx); p != nil {
		d.path = path{id: p.id, requestSeed: p.requestSeed, class: p.class, service: p.service}
	}
	return context.WithTimeout(d, timeout)
}

type detached struct {
	context.Context
	path path
}

func (d *detached) Value(key any) any {
	if key == (pathKey{}) {
		return &d.path
	}
	return d.Context.Value(key)
}

// Cleanup returns a context for what has to be done even when time is up:
// rollback, flush, the answer. Under a Gate it lives until the request's true
// deadline, Reserve after the handler's own context ended, and also when the
// caller has gone. Elsewhere nothing is kept back, and it is ctx itself.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	p := pathOf(ctx)
	if p == nil || p.admission == nil {
		return ctx, func() {}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), p.admission.Deadline())
}

// path is what a context says about the call path that it is part of.
type path struct {
	owner, key, id string // as in a Hop; id is RequestID
	class          Class
	requestSeed    uint64     // makes the id where a Gate had to make one
	service        string     // the Gate's
	admission      *Admission // the Gate's record of this request; nil outside a Gate

	// never is set by a call below whose failure nobody must start over from.
	// Nil where nobody could.
	never *atomic.Bool
}

// newPath starts what is known of a request with what it brought. A request id
// is made where none came.
func newPath(hop Hop) path {
	p := path{owner: hop.Owner, key: hop.Key, id: hop.RequestID, class: hop.Class}
	if p.id == "" {
		p.requestSeed = rand.Uint64() | 1
	}
	return p
}

type pathKey struct{}

func pathOf(ctx context.Context) *path {
	p, _ := ctx.Value(pathKey{}).(*path)
	return p
}

// requestID returns the id, written out only when somebody asks for it.
func (p path) requestID() string {
	if p.id != "" || p.requestSeed == 0 {
		return p.id
	}
	var b [16]byte
	for i := range b {
		b[i] = "0123456789abcdef"[p.requestSeed>>(60-4*i)&15]
	}
	return string(b[:])
}

// scope is a context with a deadline that arms its timer only when somebody
// asks for Done: work that never blocks, and a handler that only computes, pay
// for no timer. It is never reused, so one that outlives its call stays dead.
type scope struct {
	parent   context.Context
	deadline time.Time

	mu    sync.Mutex // guards over, and the making of armed and stop
	armed context.Context
	stop  context.CancelFunc
	ready atomic.Bool // armed is there, to stay: it may be read without the lock
	over  bool
	limit limit // whose the deadline is
}

// bound is the end of a scope's time, and whose limit that is.
type bound struct {
	deadline time.Time
	limit    limit
}

// limit says whose limit a deadline is: what context.Cause names once it has
// passed. It is a byte where an error would be sixteen, in each scope of a call.
type limit uint8

const (
	parentLimit limit = iota // the parent's own, and so is the cause
	plainLimit               // before the parent's, for a reserve: context.DeadlineExceeded
	callLimit
	attemptLimit
)

var limitCauses = [...]error{plainLimit: context.DeadlineExceeded, callLimit: ErrCallTimeout, attemptLimit: ErrAttemptTimeout}

func (s *scope) Deadline() (time.Time, bool) { return s.deadline, true }

func (s *scope) Done() <-chan struct{} { return s.arm().Done() }

func (s *scope) arm() context.Context {
	if s.ready.Load() {
		return s.armed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed == nil {
		if s.limit == parentLimit || s.over { // what was over before its deadline was cancelled
			s.armed, s.stop = context.WithCancel(s.parent)
		} else {
			s.armed, s.stop = context.WithDeadlineCause(s.parent, s.deadline, limitCauses[s.limit])
		}
		if s.over {
			s.stop()
		}
		s.ready.Store(true)
	}
	return s.armed
}

func (s *scope) Err() error {
	if s.ready.Load() {
		return s.armed.Err()
	}
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over || s.parent.Err() != nil || time.Until(s.deadline) <= 0 {
		return s.arm().Err()
	}
	return nil
}

// Value hands on to the armed context, so that the standard library finds it
// there and attaches children to it without a goroutine.
func (s *scope) Value(key any) any {
	if s.ready.Load() {
		return s.armed.Value(key)
	}
	return s.parent.Value(key)
}

// end cancels the scope and frees its timer.
func (s *scope) end() {
	s.mu.Lock()
	s.over = true
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}
