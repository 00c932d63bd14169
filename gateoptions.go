package stint

import (
	"fmt"
	"log/slog"
	"time"
)

// Trust says how much of what a request claims a Gate believes.
type Trust uint8

const (
	// TrustDeadlineOnly is for callers that anybody can be: a stranger may
	// shorten its own deadline and bring an idempotency key, nothing else.
	// Owner, class, attempt and request id are ignored and counted. It is the
	// zero value.
	TrustDeadlineOnly Trust = iota
	// TrustPeers believes the whole wire: for listeners that only the
	// organisation's own services reach.
	TrustPeers
)

var trustNames = [...]string{"deadline_only", "peers"}

// String returns the trust as NewGate logs it.
func (t Trust) String() string { return name(trustNames[:], int(t)) }

const (
	defaultMaxTimeout = 30 * time.Second
	defaultReserve    = 5 * time.Millisecond
	defaultLongLimit  = 256
	defaultLongTime   = time.Hour

	// Another instance can take the request at once. In Retry-After it is
	// rounded up to 1 s, for those who don't read the finer field.
	drainRetryAfter = time.Millisecond
)

// GateOptions are the numbers of a Gate. No field's zero means "unlimited".
type GateOptions struct {
	// Trust is what is believed of a request. Zero is TrustDeadlineOnly.
	Trust Trust

	// DefaultTimeout is the deadline of a request that names none, or none that
	// can be read. Zero means 10 s, or MaxTimeout if that is less.
	DefaultTimeout time.Duration

	// MaxTimeout caps every request's deadline. Zero means 30 s.
	MaxTimeout time.Duration

	// ClockSkew has the absolute deadline X-Request-Deadline read, from requests
	// that name no relative one, and is how far a caller's clock may be off this
	// one's: what is further off is ignored and reported (Event.Skew). Zero means
	// that the header is not believed at all, and counted as ignored.
	ClockSkew time.Duration

	// MinUseful is the least time for which a request is worth starting; with
	// less it is refused. Zero means 1 ms.
	MinUseful time.Duration

	// Reserve is kept back from the request's deadline for writing the answer:
	// the handler's context ends so much earlier. It never takes more than a
	// quarter of the time that arrived. Zero means 5 ms or a tenth of what
	// arrived, whichever is less; NoReserve keeps nothing back.
	Reserve time.Duration

	// Limit is the number of requests that may be in the handler at once; more wait
	// in front of it as long as their deadlines allow (see AdmissionController).
	// Zero means that it is learned from how long requests take, from 16 on: it is
	// lowered while they wait for each other, and raised while it is reached and
	// they do not. NoLimit switches it off, and the queue with it.
	Limit int
	// MinLimit and MaxLimit bound a learned limit, which begins at 16 or MinLimit:
	// raise that where many slow requests run from the start. Zero means 4 and 1000.
	MinLimit, MaxLimit int

	// FIFO calls waiting requests in the order of their arrival, whatever their
	// class, attempt and deadline: to compare.
	FIFO bool

	// LongLimit is the number of requests of the view LongRunning that may be in
	// their handlers at once, beside the others. Zero means 256; NoLimit switches it off.
	LongLimit int
	// LongTimeout is what MaxTimeout and DefaultTimeout are to that view. Zero means
	// 1 h, or MaxTimeout if that is more.
	LongTimeout time.Duration

	// Class is the class of the requests here: one that names none, or is not
	// believed, has it, and one that names a higher is lowered to it. Zero changes
	// nothing.
	Class Class

	// ObserveOnly lets every request in and only reports which would have been
	// refused. One that came with too little time then runs under DefaultTimeout.
	// A Gate that drains refuses all the same.
	ObserveOnly bool

	// MaxRefused is the largest share, 0 to 1, of the arrivals of the last 10 s that
	// may be refused because the service is full; beyond it requests are let in, and
	// reported as with ObserveOnly. It is the step between that and a Gate that
	// protects: what it lets in is overload. Zero means 1, all of them.
	MaxRefused float64

	// Observer is told of every event. Nil: nobody is.
	Observer Observer

	// Logger gets one line that says which Trust is in force, from NewGate and
	// WithTrust, and from With and SetOptions where it changes. Nil means
	// slog.Default().
	Logger *slog.Logger
}

func (o GateOptions) problems() problems {
	var bad problems
	bad.wire("DefaultTimeout", o.DefaultTimeout, "10s")
	bad.wire("MaxTimeout", o.MaxTimeout, "30s")
	bad.wire("ClockSkew", o.ClockSkew, "that absolute deadlines are not believed")
	bad.wire("MinUseful", o.MinUseful, "1ms")
	if o.Reserve != NoReserve {
		bad.duration("Reserve", o.Reserve, "5ms or a tenth of what arrived; NoReserve for nothing")
	}
	if o.Limit < NoLimit {
		bad.add("Limit is %d: must be positive, zero to have it learned, or NoLimit", o.Limit)
	}
	if o.MinLimit < 0 || o.MaxLimit < 0 {
		bad.add("MinLimit is %d and MaxLimit %d: must be positive, or zero for %d and %d", o.MinLimit, o.MaxLimit, defaultFloor, defaultCeil)
	}
	if o.Limit != 0 && (o.MinLimit != 0 || o.MaxLimit != 0) {
		bad.add("Limit is %d: must be zero where MinLimit or MaxLimit bound it", o.Limit)
	}
	if o.LongLimit < NoLimit {
		bad.add("LongLimit is %d: must be positive, zero for %d, or NoLimit", o.LongLimit, defaultLongLimit)
	}
	bad.wire("LongTimeout", o.LongTimeout, "1h")
	if !(o.MaxRefused >= 0 && o.MaxRefused <= 1) {
		bad.add("MaxRefused is %v: must be a share from 0 to 1, zero for 1", o.MaxRefused)
	}
	if o.Class > CriticalPlus {
		bad.add("Class is %d: must be Sheddable, SheddablePlus, Critical, CriticalPlus, or zero", o.Class)
	}
	if o.Trust > TrustPeers {
		bad.add("Trust is %d: must be TrustDeadlineOnly or TrustPeers", o.Trust)
	}
	if len(bad) == 0 {
		d := o.withDefaults()
		if d.DefaultTimeout > d.MaxTimeout {
			bad.add("DefaultTimeout %v is above MaxTimeout %v: it would be cut", d.DefaultTimeout, d.MaxTimeout)
		}
		if d.MinLimit > d.MaxLimit {
			bad.add("MinLimit %d is above MaxLimit %d", d.MinLimit, d.MaxLimit)
		}
		if d.LongTimeout < d.MaxTimeout {
			bad.add("LongTimeout %v is below MaxTimeout %v", d.LongTimeout, d.MaxTimeout)
		}
		if d.MinUseful > d.DefaultTimeout {
			bad.add("MinUseful %v is above DefaultTimeout %v: a request that names no limit could never start", d.MinUseful, d.DefaultTimeout)
		}
	}
	return bad
}

// validName reports a name that could not stand on the wire.
func validName(what, s string) error {
	if validOwner(s) {
		return nil
	}
	return fmt.Errorf("stint: invalid %s name %q: must be 1 to 64 letters, digits, or any of !#$%%&'*+-.^_`|~", what, s)
}

func (o GateOptions) withDefaults() GateOptions {
	def(&o.MaxTimeout, defaultMaxTimeout)
	def(&o.DefaultTimeout, min(defaultTimeout, o.MaxTimeout))
	def(&o.MinUseful, defaultMinUseful)
	if o.Limit == 0 {
		def(&o.MaxLimit, max(defaultCeil, o.MinLimit))
		def(&o.MinLimit, min(defaultFloor, o.MaxLimit))
	}
	def(&o.LongLimit, defaultLongLimit)
	def(&o.LongTimeout, max(defaultLongTime, o.MaxTimeout))
	def(&o.MaxRefused, 1)
	return o
}

// reserve returns how much of the time that arrived is kept back.
func (o *GateOptions) reserve(arrived time.Duration) time.Duration {
	switch o.Reserve {
	case NoReserve:
		return 0
	case 0:
		return min(defaultReserve, arrived/10)
	}
	return min(o.Reserve, arrived/4)
}
