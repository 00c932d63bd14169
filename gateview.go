package stint

import (
	"log/slog"
	"time"
)

// kind is what a view of a Gate is for.
type kind uint8

const (
	ordinary kind = iota
	longRunning
	exempt
)

// view returns a view of the Gate with options of its own.
func (g *Gate) view(k kind, own GateOptions) *Gate {
	v := &Gate{service: g.service, kind: k, door: g.door, refusal: g.refusal}
	if g.service != "" {
		v.opts.Store(own.following(k))
	}
	return v
}

// following returns the options as a view of that kind keeps them: in LongRunning a
// zero stands for LongTimeout, which belongs to the door and may change.
func (o GateOptions) following(k kind) *GateOptions {
	if k == longRunning {
		if o.MaxTimeout == o.LongTimeout {
			o.MaxTimeout = 0
		}
		if o.DefaultTimeout == o.LongTimeout {
			o.DefaultTimeout = 0
		}
	}
	return &o
}

// bounds returns the DefaultTimeout and the MaxTimeout in force.
func (g *Gate) bounds(o *GateOptions) (none, most time.Duration) {
	if g.kind != longRunning {
		return o.DefaultTimeout, o.MaxTimeout
	}
	g.door.mu.Lock()
	long := g.door.ctrl.opts.LongTimeout
	g.door.mu.Unlock()
	return o.lasting(long)
}

// lasting is bounds of a view that is for what lasts.
func (o *GateOptions) lasting(long time.Duration) (none, most time.Duration) {
	none, most = o.DefaultTimeout, o.MaxTimeout
	def(&most, long)
	most = min(most, long)
	def(&none, most)
	return min(none, most), most
}

// WithTrust returns a view of the Gate that believes its callers as t says: for
// a listener or a route of its own. It is the same Gate in all else: places,
// limit and draining are shared. Any t but TrustPeers is TrustDeadlineOnly. A
// route is no wall: where strangers reach the listener, they can ask for every
// path, and so TrustPeers is for routes that something in front keeps from them.
func (g *Gate) WithTrust(t Trust) *Gate {
	own := g.Options()
	own.Trust = TrustDeadlineOnly
	if t == TrustPeers {
		own.Trust = t
	}
	view := g.view(g.kind, own)
	if g.service != "" {
		view.log()
	}
	return view
}

// LongRunning returns a view of the Gate for requests that last: streams, long
// polls, uploads. They have LongLimit and LongTimeout for themselves, are refused
// at once where no place is free, and say nothing about how long requests take, so
// that neither they nor the others can take the places of the other kind. The Gate
// is the same in all else.
func (g *Gate) LongRunning() *Gate {
	own := g.Options()
	own.MaxTimeout, own.DefaultTimeout = own.LongTimeout, own.LongTimeout
	return g.view(longRunning, own)
}

// IsLongRunning reports whether this is a view LongRunning, or a view of one.
func (g *Gate) IsLongRunning() bool { return g.kind == longRunning }

// Exempt returns a view of the Gate for what must be answered at any load, and
// costs next to nothing: whether the process lives, whether it is ready. Such a
// request gets a deadline and a context like any other, but takes no place, and is
// refused neither for load nor while the Gate drains, which does not wait for it.
func (g *Gate) Exempt() *Gate { return g.view(exempt, g.Options()) }

// With returns a view of the Gate for a route: o says its DefaultTimeout,
// MaxTimeout, MinUseful, Reserve, Class, ObserveOnly, Trust, ClockSkew, Observer and
// Logger. What belongs to the door that all views share must be the Gate's: Limit,
// MinLimit, MaxLimit, FIFO, MaxRefused, LongLimit and LongTimeout. So o is usually
// Options with something changed. The view keeps what it was made with, whatever
// SetOptions later says to the Gate, but for the door's part. The error names every
// bad option.
//
// Of the view LongRunning it makes another such view, where a zero MaxTimeout, or
// one that is LongTimeout, follows LongTimeout.
func (g *Gate) With(o GateOptions) (*Gate, error) {
	if g.service == "" {
		return nil, errUnmadeGate
	}
	g.door.mu.Lock()
	own, err := o.within(g.kind, &g.door.ctrl.opts)
	g.door.mu.Unlock()
	if err != nil {
		return nil, err
	}
	view := g.view(g.kind, own)
	if own.Trust != g.opts.Load().Trust {
		view.log()
	}
	return view, nil
}

// SetOptions changes the options from the next request on. Who runs or waits
// already goes on as before, and what was learned stays: a learned limit is brought
// between the new MinLimit and MaxLimit, a fixed one that is to be learned begins
// where it was, and where the limit grows, those who wait come in at once. Views made
// before keep their own options, and get the door's (see With). On a view it changes
// that view alone, and the door's part must be the Gate's. A bad set is an error that
// names every bad option, and the old one stays.
func (g *Gate) SetOptions(o GateOptions) error {
	if g.service == "" {
		return errUnmadeGate
	}
	before := g.opts.Load().Trust
	if err := g.set(o); err != nil {
		return err
	}
	if o.Trust != before {
		g.log()
	}
	return nil
}

func (g *Gate) set(o GateOptions) error {
	d := g.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if !g.whole {
		own, err := o.within(g.kind, &d.ctrl.opts)
		if err == nil {
			g.opts.Store(own.following(g.kind))
		}
		return err
	}
	if err := o.problems().err("gate options"); err != nil {
		return err
	}
	o = o.withDefaults()
	g.opts.Store(&o)
	d.ctrl.setOptions(&o)
	d.call(time.Now()) // the limit may have grown
	return nil
}

// within returns the options of a view, with defaults, behind a door with these.
func (o GateOptions) within(k kind, door *GateOptions) (GateOptions, error) {
	if k == longRunning {
		def(&o.MaxTimeout, door.LongTimeout)
		def(&o.DefaultTimeout, o.MaxTimeout)
	}
	bad := o.problems()
	if len(bad) == 0 {
		o = o.withDefaults()
		for _, f := range [...]struct {
			name      string
			own, door any
		}{
			{"Limit", o.Limit, door.Limit}, {"MinLimit", o.MinLimit, door.MinLimit}, {"MaxLimit", o.MaxLimit, door.MaxLimit},
			{"FIFO", o.FIFO, door.FIFO}, {"MaxRefused", o.MaxRefused, door.MaxRefused},
			{"LongLimit", o.LongLimit, door.LongLimit}, {"LongTimeout", o.LongTimeout, door.LongTimeout},
		} {
			if f.own != f.door {
				bad.add("%s is %v: must be %v, as all views of a Gate share its door; begin with Gate.Options", f.name, f.own, f.door)
			}
		}
	}
	return o, bad.err("gate options")
}

// share takes over what belongs to the door.
func (o *GateOptions) share(door *GateOptions) {
	o.Limit, o.MinLimit, o.MaxLimit, o.FIFO = door.Limit, door.MinLimit, door.MaxLimit, door.FIFO
	o.MaxRefused, o.LongLimit, o.LongTimeout = door.MaxRefused, door.LongLimit, door.LongTimeout
}

// Options returns the options in force, with every default filled in but
// Reserve's, which depends on the request.
func (g *Gate) Options() GateOptions {
	if g.service == "" {
		return GateOptions{}
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	o, door := *g.opts.Load(), &g.door.ctrl.opts
	o.share(door)
	if g.kind == longRunning {
		o.DefaultTimeout, o.MaxTimeout = o.lasting(door.LongTimeout)
	}
	return o
}

func (g *Gate) log() {
	o := g.Options()
	l := o.Logger
	if l == nil {
		l = slog.Default()
	}
	l.Info("stint gate", "service", g.service, "trust", o.Trust.String(), "max_timeout", o.MaxTimeout.String())
}
