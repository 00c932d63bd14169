package policy

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// unsafe reports an operation that its method does not allow to be done twice,
// and that nothing else makes safe: no declaration, no key that is honoured. Of
// MongoDB nothing is known: its server tells a repeated write from another.
func (v view) unsafe() bool {
	if v.Kind.Store() {
		return v.Kind.sql() && v.operation != "" && v.Safety == "" || v.Kind.twice(v.operation)
	}
	return v.operation != "" && v.Safety == "" && Safe(v.operation) == stint.Unrepeatable && v.Idempotency.Keys != Honoured
}

// keys says what is known of idempotency keys at a dependency.
func (v view) keys() string {
	if v.Kind.Store() {
		return "no store reads idempotency keys"
	}
	if v.Idempotency.Keys == Ignored {
		return "it ignores idempotency keys"
	}
	return "nothing says that it honours idempotency keys"
}

// safety is about repeating what may not be done twice.
func (c *checker) safety(e *call, v view) {
	n := v.Retry.tries()
	key := []string{"dependencies", v.name, "operations", v.operation, "retry", "maxAttempts"}
	ways := "safety: idempotent if that is what it is, idempotency: honoured once the receiver keeps keys, or else retry: {maxAttempts: 1} for it"
	switch {
	case v.Kind.Store():
		c.stored(e, v)
	case v.operation == "":
		return
	case v.Safety == Idempotent && Safe(v.operation) == stint.Unrepeatable && v.Idempotency.Keys == Ignored && n > 1:
		c.add(v.f, v.key("safety"), "retry-not-safe",
			fmt.Sprintf("%s is declared idempotent, and the dependency ignores idempotency keys: %d attempts may be carried out %d times", v.title(), n, n),
			"Make the dependency honour keys, or remove the safety and write retry: {maxAttempts: 1} for it.")
	case v.unsafe() && n > 1 && v.Idempotency.Keys == Ignored:
		c.add(v.f, key, "retry-not-safe",
			fmt.Sprintf("%s has %d attempts, and %s: with a key it is carried out up to %d times, without one never repeated", v.title(), n, v.keys(), n),
			"Write "+ways+".")
	case v.unsafe() && n > 1:
		c.warn(v.f, key, "retry-not-safe",
			fmt.Sprintf("%s has %d attempts and is never repeated: its method is not safe, and %s", v.title(), n, v.keys()),
			"Write "+ways+".")
	}
	if !v.unsafe() {
		return
	}
	for _, l := range e.layers {
		if l.owner == "" {
			c.add(v.f, []string{"dependencies", v.name, "operations", v.operation}, "retry-not-safe",
				fmt.Sprintf("%s may be carried out %d times: %s repeats it, and %s", v.title(), l.attempts, l.name, v.keys()),
				"Write attempts: 0 (or its like) there and hiddenRetries: 0 here.")
		}
	}
}

// busiest is the share of capacity up to which copies are no harm.
const busiest = 0.6

// hedge is about copies.
func (c *checker) hedge(v view) {
	if v.Hedge == nil {
		return
	}
	switch {
	case v.Busy == 0:
		c.add(v.f, v.key("hedge"), "hedge-without-capacity",
			fmt.Sprintf("%s gets copies, and the file does not say how busy it is", v.title()),
			fmt.Sprintf("Write busy: the share of its capacity that is used at peak; up to %s is fine.", Ratio(busiest)))
	case v.Busy > busiest:
		c.add(v.f, v.key("hedge"), "hedge-without-capacity",
			fmt.Sprintf("%s gets copies and is %s busy, above %s", v.title(), v.Busy, Ratio(busiest)),
			"Remove the hedge, or add capacity first.")
	}
	if v.unsafe() {
		c.add(v.f, v.key("hedge"), "hedge-not-safe",
			fmt.Sprintf("%s gets copies, %s, and %s", v.title(), map[bool]string{true: "nothing declares it safe", false: "its method is not safe"}[v.Kind.Store()], v.keys()),
			"Hedge reads only: write the hedge at the operations that are.")
	}
}

// keys holds how long a key is remembered against how long a retry may come.
func (c *checker) keys() {
	type most struct {
		deadline time.Duration
		of       *File
	}
	above := make([]most, len(c.n.nodes)) // the longest deadline of the services on a path down to here
	for i, v := range c.n.nodes {
		if v.file != nil && v.file.Entry != nil {
			above[i] = most{v.file.Entry.maxDeadline(), v.file}
		}
	}
	c.n.forward(func(e *call) {
		if from, to := above[e.from.place], &above[e.to.place]; from.deadline > to.deadline {
			*to = from
		}
	})
	for _, e := range c.n.calls {
		ttl := e.d.Idempotency.TTL
		if ttl == 0 {
			continue
		}
		horizon, whence := time.Duration(0), "a call's timeout, in which all its attempts are"
		for _, v := range e.views {
			horizon = max(horizon, v.limit())
		}
		if a := above[e.from.place]; a.deadline > horizon {
			horizon, whence = a.deadline, "entry.maxDeadline of "+a.of.Service
		}
		if ttl < horizon {
			c.add(e.From, e.key("idempotency", "ttl"), "key-forgotten-early",
				fmt.Sprintf("%s remembers a key for %s, and a retry may come after %s (%s)", e.Dependency, dur(ttl), dur(horizon), whence),
				fmt.Sprintf("Have keys kept for more than %s; 24h is usual.", dur(horizon)))
		}
	}
}
