package policy

import (
	"fmt"
	"slices"
)

// stored is about repeating what is asked of a store: nothing of it is, but what never
// began, what is declared, and the commands of Redis that stintredis knows to be safe.
func (c *checker) stored(e *call, v view) {
	n := v.Retry.tries()
	attempts := v.key("retry", "maxAttempts")
	switch {
	case v.Kind.writes(v.operation) && v.Safety == ReadOnly:
		key := v.key("safety")
		if len(key) < 5 { // inherited: it is this operation that makes it wrong
			key = []string{"dependencies", v.name, "operations", v.operation}
		}
		c.add(v.f, key, "retry-not-safe",
			fmt.Sprintf("%s counts as readOnly, and writes: the server refuses it in a read-only transaction, and elsewhere it may be done %s", v.title(), often(max(n, 2))),
			"Write safety: readOnly at the operations that only read, and not above them.")
	case v.Kind.twice(v.operation) && v.Safety != "" && n > 1:
		c.add(v.f, v.key("safety"), "retry-not-safe",
			fmt.Sprintf("%s counts as %s, and each time that it is done it has its effect again: %d attempts may be carried out %d times", v.title(), v.Safety, n, n),
			"Remove the safety; a command that may be done twice (SET of the new value) can be repeated by itself.")
	case n == 1:
	case v.operation == "" && v.Kind == Redis && v.Safety != "":
		c.warn(v.f, v.key("safety"), "retry-not-safe",
			fmt.Sprintf("%s is %s as a whole, so that INCR, LPUSH and XADD are repeated too, each with its effect again", v.title(), v.Safety),
			"Remove it: stintredis knows which commands may be repeated. Declare only what it can't know: operations: {eval: {safety: readOnly}}.")
	case v.operation == "" && v.Kind != Redis && v.Safety == Idempotent:
		c.warn(v.f, v.key("safety"), "retry-not-safe",
			fmt.Sprintf("%s is idempotent as a whole, so that each INSERT is repeated too", v.title()),
			"Declare the operations of which it is true: operations: {NAME: {safety: idempotent}}.")
	case v.Kind != Redis && v.Safety == "" && !declared(e, v):
		c.warn(v.f, attempts, "retry-not-safe",
			fmt.Sprintf("%s has %d attempts, and nothing says that it may be done twice: what has begun is never repeated, only what never did", v.title(), n),
			"Declare what may be repeated: operations: {select: {safety: readOnly}}, or write retry: none. Accept this where the program declares it, or where only what never began is meant.")
	}
}

// declared reports whether attempts have operations that they are for: those of the
// whole dependency one that is declared safe, those of an operation are the whole's if
// it has none of its own.
func declared(e *call, v view) bool {
	if v.operation != "" {
		return !v.f.Has("dependencies", v.name, "operations", v.operation, "retry", "maxAttempts")
	}
	return slices.ContainsFunc(e.views, func(o view) bool { return o.Safety != "" && o.Retry.tries() > 1 })
}
