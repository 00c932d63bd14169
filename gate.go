package stint

import (
	"sync/atomic"
	"time"
)

// wasteFrom is the least overrun that is reported: below the wire's unit of
// 1 ms it is scheduling, not work.
const wasteFrom = time.Millisecond

// A Gate lets requests into one service: each with a deadline, none that can't
// finish, no more than fit. Its methods may be called at the same time.
type Gate struct {
	service string
	opts    atomic.Pointer[GateOptions] // with defaults; of the door's part ctrl.opts counts
	kind    kind
	whole   bool // it is no view
	door    *door
	refusal *refusals
}

// NewGate returns a Gate for the named service; opts may be nil. The name is
// this service's on the wire, so it has to be 1 to 64 token characters (RFC 9110,
// 5.6.2: letters, digits, "-", "_", "." and a few more). The error names every bad option.
func NewGate(service string, opts *GateOptions) (*Gate, error) {
	if opts == nil {
		opts = &GateOptions{}
	}
	if err := validName("service", service); err != nil {
		return nil, err
	}
	c, err := opts.Controller()
	if err != nil {
		return nil, err
	}
	g := &Gate{service: service, whole: true, door: newDoor(c), refusal: newRefusals(service)}
	g.opts.Store(new(c.opts))
	g.log()
	return g, nil
}

// Drain lets nobody in from now on, in all views of the Gate but Exempt: a request
// is refused with Draining, and may be sent to another instance at once. Whoever is
// inside, or waits already, goes on within its deadline. The channel is closed when
// nobody is inside any more. There is no way back.
func (g *Gate) Drain() (empty <-chan struct{}) {
	if g.service == "" { // nobody was ever let in
		none := make(chan struct{})
		close(none)
		return none
	}
	return g.door.close()
}

// Limit returns how many requests may be in the handler at once at this moment;
// NoLimit if there is no limit, or this is the view Exempt.
func (g *Gate) Limit() int {
	if g.service == "" || g.kind == exempt {
		return NoLimit
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if g.kind == longRunning {
		return g.door.ctrl.opts.LongLimit
	}
	return g.door.ctrl.Limit()
}

// Running returns how many requests that count against Limit are in the handler.
func (g *Gate) Running() int {
	if g.service == "" || g.kind == exempt {
		return 0
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if g.kind == longRunning {
		return g.door.long
	}
	return g.door.ctrl.Running()
}

// Queued returns how many requests wait for a place; none in the views LongRunning
// and Exempt.
func (g *Gate) Queued() int {
	if g.service == "" || g.kind != ordinary {
		return 0
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	return g.door.ctrl.Queued()
}

// Service returns the service's name.
func (g *Gate) Service() string { return g.service }
