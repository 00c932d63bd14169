package stint

// Safety says whether an operation may be repeated.
type Safety uint8

const (
	// Unrepeatable must not be executed twice. It is the zero value: repeating
	// has to be declared.
	Unrepeatable Safety = iota
	// Idempotent may be executed twice with the effect of once (PUT, DELETE).
	Idempotent
	// ReadOnly has no effect at all (GET, HEAD).
	ReadOnly
)

var safetyNames = [...]string{"unrepeatable", "idempotent", "read_only"}

// String returns the safety as it stands in events.
func (s Safety) String() string { return name(safetyNames[:], int(s)) }

// An Op is one logical operation on a dependency.
type Op struct {
	// Name names the operation for people and metrics. It must come from a
	// bounded set: a method or a route, never an identifier.
	Name string

	// Key is the idempotency key of this logical operation, the same on every
	// attempt. A dependency that honours it makes any operation repeatable, so
	// set it only where it does. One that could not stand on the wire (1 to 255
	// visible ASCII characters without quotes) counts as none.
	Key string

	// Safety says whether it may be repeated. Zero: it must not.
	Safety Safety

	// Class is the operation's criticality; zero inherits that of the request
	// being served. A class above the inherited one is ignored: only a trusted
	// edge raises.
	Class Class

	// OneShot says that the request can't be produced a second time (a stream
	// that has been read), so not even an attempt that never started is
	// followed by another.
	OneShot bool

	// Within says that the operation is a step of something under way that holds
	// what others may be waiting for, as a statement of a transaction does. It takes
	// no bulkhead slot and the breaker does not refuse it, since it would hold what it
	// has all the longer; time alone does. It counts for the breaker all the same.
	Within bool
}

// repeatable reports whether the operation may be executed twice.
func (o Op) repeatable() bool {
	return (o.Safety == Idempotent || o.Safety == ReadOnly || o.keyed()) && !o.OneShot
}

// keyed reports whether the operation has a key that a peer can read.
func (o Op) keyed() bool { return o.Key != "" && validKey(o.Key) }

// Class is the criticality of a request: what is shed first under overload
// (the four levels of Google's SRE book, "Handling Overload").
type Class uint8

const (
	// ClassUnset is treated as Critical and not written to the wire.
	ClassUnset Class = iota
	// Sheddable may be refused often and for long.
	Sheddable
	// SheddablePlus may be refused for a while: batch work.
	SheddablePlus
	// Critical is what users see: the default.
	Critical
	// CriticalPlus is refused last.
	CriticalPlus
)

var classNames = [...]string{"", "sheddable", "sheddable-plus", "critical", "critical-plus"}

// String returns the class as the wire has it; ClassUnset is empty.
func (c Class) String() string { return name(classNames[:], int(c)) }

// lower returns the class of work done on behalf of a request of class c: the
// lower of the two, where zero says nothing.
func (c Class) lower(own Class) Class {
	if own == ClassUnset || (c != ClassUnset && c < own) {
		return c
	}
	return own
}
