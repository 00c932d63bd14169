package lab

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// The times of zombie: the client leaves after a fifth of the leaf's work, when
// its request has reached the leaf on the slowest machine too.
const (
	zombieDeadline = 400 * time.Millisecond
	zombieStep     = 50 * time.Millisecond
	zombieSteps    = 40
	zombieCalls    = 10
)

func zombie() experiment {
	build := func(m Mode) spec {
		s := chained(m, 1, 1)
		s.calls, s.together, s.deadline = zombieCalls, true, zombieDeadline
		s.steps, s.work, s.serve = zombieSteps, zombieSteps*zombieStep, inSteps
		if m == Naive {
			s.hopTimeout = hopTimeout
		} else {
			s.gated = true
		}
		return s
	}
	plain := build(Naive)
	plain.passContext = false
	const all = zombieCalls * zombieSteps
	return experiment{
		shows: "the last service stops when the first caller leaves",
		setting: fmt.Sprintf("client -> A -> B -> C, %d calls at once. The client leaves after %s, C works %s, in %d steps of %s with a look at its "+
			"context before each. Counted are the steps that end when the client has left, of %d. Each naive hop has a timeout of %s, "+
			"and in the second row also the request's context.", zombieCalls, term.Duration(zombieDeadline), term.Duration(zombieSteps*zombieStep),
			zombieSteps, term.Duration(zombieStep), all, term.Duration(hopTimeout)),
		leaf:    "C",
		counted: "wasted steps",
		head:    "wasted steps",
		count:   wastedSteps,
		end:     func(res Result) string { return term.MillisText(res.WastedMs) + " wasted" },
		endHead: "work at C",
		rows: []row{
			{label: "naive, own timeouts", spec: plain, want: want{all / 2, all}, draw: true,
				promise: "naive: A, B and C work on for a client that left long ago"},
			// A closed connection takes its time from hop to hop.
			{label: "naive, with context", spec: build(Naive), want: atMost(all / 4), draw: true,
				promise: "with the context passed on in every layer, one closed connection after the other tells C"},
			{label: "stint", spec: build(Stint), want: atMost(all / 20), ends: told, draw: true,
				promise: "stint: C had the client's deadline from the start, and stopped at it"},
		},
	}
}

// inSteps works in steps, each of which is marked when it is done.
func inSteps(s spec, rec *record) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		for range s.steps {
			if r.Context().Err() != nil || !pause(r.Context(), s.work/time.Duration(s.steps)) {
				return
			}
			left, _ := stint.Remaining(r.Context())
			rec.marked(left)
		}
	}
}

// told reports whether the leaf knew its caller's deadline, and the client had
// no good answer.
func told(res Result) bool {
	return failed(res) && !slices.ContainsFunc(res.marks, func(m mark) bool { return m.left == 0 })
}

// wastedSteps is how many steps were done after the last client had left.
func wastedSteps(res Result) (n int) {
	for _, m := range res.marks {
		if m.at > res.left {
			n++
		}
	}
	return n
}
