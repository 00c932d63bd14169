package stint

import "time"

// An AdmissionController decides which requests of a service run, which wait, and
// which are refused: all of a Gate that is not plumbing. It holds no goroutine,
// timer or lock, and takes the time as an argument, so that a simulation runs what
// is deployed. Make one with GateOptions.Controller. Its methods must not be called
// at the same time. A time that is a little before the last one does no harm.
//
// A request that finds no place waits in front of the handler, if it can be
// expected to get one while enough of its time is left: the wait in prospect, by
// how long requests take at present, has to fit into a share of what is left
// beyond Reserve and the time that they take (all but 5 %), or MinUseful. The
// queue is bounded by that and not by a length: Q <= C * (D - u) for a capacity of
// C a second, deadlines D and a useful time u. The share is an eighth for Sheddable, three
// eighths for SheddablePlus, three quarters for Critical and all for CriticalPlus,
// so what is to be shed first is refused first. Higher classes are called first,
// in each class first tries before retries, and of those the one whose deadline is
// the earliest.
type AdmissionController struct {
	opts    GateOptions
	limit   limiter
	queue   waitqueue
	running int
	moved   time.Time // when one last began or ended
	recent  arrivals
}

// Controller returns the controller of a Gate with these options, for simulations.
// The error names every bad option.
func (o GateOptions) Controller() (*AdmissionController, error) {
	if err := o.problems().err("gate options"); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	return &AdmissionController{opts: o, limit: newLimiter(&o)}, nil
}

// setOptions goes on under other options, with what it has and knows.
func (c *AdmissionController) setOptions(o *GateOptions) {
	if c.opts.FIFO && !o.FIFO {
		c.queue.promote()
	}
	c.opts = *o
	c.limit.change(o, c.running)
}

// shares are how much of the time that a request can spare it may wait, in
// eighths, by class.
var shares = [...]time.Duration{Sheddable: 1, SheddablePlus: 3, Critical: 6, CriticalPlus: 8}

// Arrive decides about a request that arrives at now: h says the time left until
// its deadline, its class and its attempt. who stands for it in the queue; it must
// be comparable, such as a pointer.
//
// If it is in, it runs, and Done must be called; a reason then says why it would
// have been refused, but for ObserveOnly or MaxRefused. Else, if wait is positive,
// it is queued: Next may call it, and after so long Expire has to be asked. Else it
// is refused for the reason: NoTime or Full.
func (c *AdmissionController) Arrive(now time.Time, h Hop, who any) (in bool, wait time.Duration, r Reason) {
	return c.arrive(now, h, who, &c.opts)
}

// arrive is Arrive through a view, whose o says MinUseful, Reserve and ObserveOnly.
func (c *AdmissionController) arrive(now time.Time, h Hop, who any, o *GateOptions) (in bool, wait time.Duration, r Reason) {
	c.recent.arrived(now, h.Attempt > 1)
	if h.Remaining < o.MinUseful {
		if o.ObserveOnly {
			c.run(now, false)
			return true, 0, NoTime
		}
		return false, 0, NoTime
	}
	if c.limit.allows(c.running) && len(c.queue.list) == 0 {
		c.run(now, false)
		return true, 0, 0
	}
	w := waiter{who: who, urgent: now}
	wait = h.Remaining - o.reserve(h.Remaining) - max(o.MinUseful, c.limit.useful)
	if !c.opts.FIFO {
		class := min(h.Class, CriticalPlus)
		def(&class, Critical)
		wait = wait / 8 * shares[class]
		w.urgent, w.rank = now.Add(h.Remaining), 2*int(class)
		if h.Attempt <= 1 {
			w.rank++
		}
	}
	c.limit.began(now, c.running, true)
	if wait <= 0 || c.prospect(now, w) > wait {
		r = Full
	}
	switch {
	case o.ObserveOnly, r != 0 && !c.recent.refuse(now, c.opts.MaxRefused):
		c.run(now, true)
		return true, 0, r
	case r != 0:
		return false, 0, r
	}
	w.until = now.Add(wait)
	c.queue.add(w)
	return false, wait, 0
}

// prospect returns how long w will wait: those before it are called as often as
// requests end, which nobody knows if none has for longer than usual. Those that
// were let in beyond the limit stand for the queue that there would be.
func (c *AdmissionController) prospect(now time.Time, w waiter) time.Duration {
	every := max(c.limit.interval, now.Sub(c.moved))
	if turn := time.Duration(c.queue.ahead(w) + max(c.running-c.Limit(), 0) + 1); every < forever/turn {
		return turn * every
	}
	return forever
}

func (c *AdmissionController) run(now time.Time, reached bool) {
	c.running++
	c.moved = now
	c.limit.began(now, c.running, reached)
}

// Next takes a request out of the queue. With start it runs from now on, and Done
// must be called; without, it has waited too long, and is refused. ok says whether
// there was one: after Done, and after an Arrive that queued or refused, call Next
// until there is none.
func (c *AdmissionController) Next(now time.Time) (who any, start, ok bool) {
	if !c.limit.allows(c.running) {
		return nil, false, false
	}
	w, ok := c.queue.next()
	if !ok {
		return nil, false, false
	}
	if start = !now.After(w.until) || !c.recent.refuse(now, c.opts.MaxRefused); start {
		c.run(now, true)
	}
	return w.who, start, true
}

// Expire takes a request that has waited as long as it may out of the queue. queued
// says whether it was still there: else Next has called it. It is refused, Full,
// unless it is in: then MaxRefused has it run, and Done must be called.
func (c *AdmissionController) Expire(now time.Time, who any) (in, queued bool) {
	if !c.queue.remove(who) {
		return false, false
	}
	if in = !c.recent.refuse(now, c.opts.MaxRefused); in {
		c.run(now, true)
	}
	return in, true
}

// Leave takes a request whose caller has gone out of the queue, and reports whether
// it was still there: else Next has called it.
func (c *AdmissionController) Leave(who any) bool { return c.queue.remove(who) }

// Done ends a request that ran, which took so long. Zero says nothing about how
// long requests take: it failed at once, say, or was given up.
func (c *AdmissionController) Done(now time.Time, took time.Duration) {
	c.running = max(c.running-1, 0)
	c.moved = now
	c.limit.ended(now, took, c.running)
}

// Never reports whether a refusal for load has to tell everybody above not to try
// again ("Overloaded, don't retry" of Google's SRE book): of the arrivals of the
// last 10 s, more than a tenth, which is what retry budgets allow, were retries.
func (c *AdmissionController) Never(now time.Time) bool { return c.recent.retried(now) }

// Limit returns how many requests may run at once now; NoLimit if there is none.
func (c *AdmissionController) Limit() int { return int(c.limit.now()) }

// Running returns how many requests run.
func (c *AdmissionController) Running() int { return c.running }

// Queued returns how many requests wait.
func (c *AdmissionController) Queued() int { return len(c.queue.list) }
