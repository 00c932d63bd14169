package stint

import (
	"log/slog"
	"time"
)

// wasteFrom is the least overrun that is reported: below the wire's unit of
// 1 ms it is scheduling, not work.
const wasteFrom = time.Millisecond

// A Gate lets requests into one service: each with a deadline, none that can't
// finish, no more than fit. Its methods may be called at the same time.
type Gate struct {
	service string
	opts    GateOptions
	kind    kind
	door    *door
	refusal *refusals
}

// kind is what a view of a Gate is for.
type kind uint8

const (
	ordinary kind = iota
	longRunning
	exempt
)

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
	g := &Gate{service: service, opts: c.opts, door: newDoor(c), refusal: newRefusals(service)}
	g.log()
	return g, nil
}

func (g *Gate) log() {
	l := g.opts.Logger
	if l == nil {
		l = slog.Default()
	}
	l.Info("stint gate", "service", g.service, "trust", g.opts.Trust.String(), "max_timeout", g.opts.MaxTimeout.String())
}

// WithTrust returns a view of the Gate that believes its callers as t says: for
// a listener or a route of its own. It is the same Gate in all else: places,
// limit and draining are shared. Any t but TrustPeers is TrustDeadlineOnly. A
// route is no wall: where strangers reach the listener, they can ask for every
// path, and so TrustPeers is for routes that something in front keeps from them.
func (g *Gate) WithTrust(t Trust) *Gate {
	view := *g
	view.opts.Trust = TrustDeadlineOnly
	if t == TrustPeers {
		view.opts.Trust = t
	}
	if g.service != "" {
		view.log()
	}
	return &view
}

// LongRunning returns a view of the Gate for requests that last: streams, long
// polls, uploads. They have LongLimit and LongTimeout for themselves, are refused
// at once where no place is free, and say nothing about how long requests take, so
// that neither they nor the others can take the places of the other kind. The Gate
// is the same in all else.
func (g *Gate) LongRunning() *Gate {
	view := *g
	view.kind = longRunning
	view.opts.MaxTimeout, view.opts.DefaultTimeout = g.opts.LongTimeout, g.opts.LongTimeout
	return &view
}

// Exempt returns a view of the Gate for what must be answered at any load, and
// costs next to nothing: whether the process lives, whether it is ready. Such a
// request gets a deadline and a context like any other, but takes no place, and is
// refused neither for load nor while the Gate drains, which does not wait for it.
func (g *Gate) Exempt() *Gate {
	view := *g
	view.kind = exempt
	return &view
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
	switch {
	case g.service == "", g.kind == exempt:
		return NoLimit
	case g.kind == longRunning:
		return g.opts.LongLimit
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
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

// Options returns the options in force, with every default filled in but
// Reserve's, which depends on the request.
func (g *Gate) Options() GateOptions { return g.opts }
