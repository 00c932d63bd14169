package stint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Background runs accepted work: jobs that a request starts and its answer does
// not wait for. A job neither dies with its request nor lives without a limit,
// jobs don't pile up without end, and a service that stops takes its jobs
// along. Its zero value is ready for use. Set its fields before its first use;
// it must not be copied after. Its methods may be called at the same time.
type Background struct {
	// Timeout bounds each job, from its start. Zero means 30 s.
	Timeout time.Duration

	// Limit is the number of jobs that may run at once; none wait for a place.
	// Zero means 256; NoLimit switches it off.
	Limit int

	mu      sync.Mutex
	jobs    map[*context.CancelCauseFunc]struct{} // those that run
	stopped bool
	idle    chan struct{} // closed when the last job is over; nil while nobody waits
}

const defaultBackground = 256

// backgroundWork stands in an error of Go where a Caller's has its dependency.
const backgroundWork = "background work"

var (
	errNoJob    = errors.New("stint: Background.Go without a job: give it a function")
	errStopJobs = errors.New("stint: told to stop by Background.Shutdown")
)

// Go starts job in a goroutine of its own. The job's context keeps ctx's values
// (trace, request id, class) as Detach does, but neither its deadline nor its
// cancellation: it ends after Timeout with context.DeadlineExceeded, and with
// context.Canceled only when Shutdown tells the job to stop. The error, always
// from before the job has begun, is an *Error of Reason Full at the limit and of
// Reason Draining after Shutdown; any other says which field is not valid. A job that
// panics ends the process, as in any goroutine.
func (b *Background) Go(ctx context.Context, job func(context.Context)) error {
	if err := b.validate(); err != nil {
		return err
	}
	if job == nil {
		return errNoJob
	}
	limit := b.Limit
	def(&limit, defaultBackground)

	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped:
		return &Error{Reason: Draining, Dependency: backgroundWork}
	case limit >= 0 && len(b.jobs) >= limit:
		return &Error{Reason: Full, Dependency: backgroundWork}
	}
	ctx, end := Detach(ctx, b.Timeout)
	ctx, stop := context.WithCancelCause(ctx)
	if b.jobs == nil {
		b.jobs = make(map[*context.CancelCauseFunc]struct{})
	}
	b.jobs[&stop] = struct{}{}
	go func() {
		defer func() { // also for a job that panics or calls runtime.Goexit
			end()
			b.ended(&stop)
		}()
		job(ctx)
	}()
	return nil
}

func (b *Background) validate() error {
	var bad problems
	bad.duration("Timeout", b.Timeout, "30s")
	if b.Limit < NoLimit {
		bad.add("Limit is %d: must be positive, zero for %d, or NoLimit", b.Limit, defaultBackground)
	}
	return bad.err("Background")
}

func (b *Background) ended(job *context.CancelCauseFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, job)
	b.wake()
}

// wake tells those who wait in Shutdown that all jobs are over, if they are.
func (b *Background) wake() {
	if b.idle != nil && len(b.jobs) == 0 {
		close(b.idle)
		b.idle = nil
	}
}

// Shutdown takes no further jobs, cancels the context of every running one and
// waits until they have returned. If ctx ends first, the error says how many
// have not, and wraps ctx's cause; they are left running. It may be called again
// to wait on.
func (b *Background) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	b.stopped = true
	for stop := range b.jobs {
		(*stop)(errStopJobs)
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.wake()
	b.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.jobs) == 0 { // the last one returned at the same moment
		return nil
	}
	return fmt.Errorf("stint: Background.Shutdown: %d jobs still running: %w", len(b.jobs), context.Cause(ctx))
}
