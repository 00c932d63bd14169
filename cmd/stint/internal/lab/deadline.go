package lab

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// The times: two attempts fit, a third one does not.
const (
	shortDeadline = 300 * time.Millisecond // what the client has
	slowWork      = 120 * time.Millisecond // what the leaf needs
	guard         = 130 * time.Millisecond // the least time with which an attempt starts
	hopTimeout    = 5 * time.Second        // the naive hops' own
)

func deadline() experiment {
	const n = fewAttempts
	build := func(m Mode) spec {
		s := chained(m, n, n)
		s.deadline, s.work = shortDeadline, slowWork
		if m == Naive {
			s.hopTimeout = hopTimeout
		} else {
			s.guard = guard
		}
		return s
	}
	plain := build(Naive) // as it is most often found: a client with a timeout, and no context
	plain.passContext = false
	return experiment{
		shows: "nobody works on for a client that has left",
		setting: fmt.Sprintf("client -> A -> B -> C. The client has %s. C needs %s, then is unavailable. A and B may make %d attempts. "+
			"Each naive hop has a timeout of %s, and in the second row also the request's context. stint's MinUseful is %s.",
			term.Duration(shortDeadline), term.Duration(slowWork), n, term.Duration(hopTimeout), term.Duration(guard)),
		leaf: "C",
		rows: []row{
			{label: "naive, own timeouts", spec: plain, want: exactly(n * n), draw: true},
			// How many these are depends on when each service notices that its caller has left.
			{label: "naive, with context", spec: build(Naive), want: atMost(n*n - 1), draw: true},
			{label: "stint", spec: build(Stint), want: atMost(2), draw: true,
				promise: "no attempt starts that cannot end in time, so C sees at most 2 requests and the client has an error by 400 ms " +
					"(the count decides, the time is only shown)"},
		},
	}
}
