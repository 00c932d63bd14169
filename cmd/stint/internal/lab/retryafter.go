package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// The wait that the server asks for is longer than the client can wait, and its
// time far longer than an answer needs on the slowest machine.
const (
	askedDeadline = time.Second
	asked         = 5 * time.Second
)

func retryAfter() experiment {
	build := func(m Mode) spec {
		s := direct(m, fewAttempts)
		s.deadline, s.retryAfter, s.serve = askedDeadline, asked, comeBackLater
		return s
	}
	return experiment{
		shows: "a wait that does not fit is not begun",
		setting: fmt.Sprintf("A -> C. C answers 503 with Retry-After: %d. A has %s, may make %d attempts, and waits as long as it is told.",
			asked/time.Second, term.Duration(askedDeadline), fewAttempts),
		leaf: "C",
		rows: []row{
			{label: "naive", spec: build(Naive), want: exactly(1), draw: true, ends: lost,
				promise: "naive: A sleeps into its deadline, and C's 503 is lost: \"context deadline exceeded\""},
			{label: "stint", spec: build(Stint), want: exactly(1), draw: true, ends: answered(http.StatusServiceUnavailable),
				promise: "stint: no retry, no wait: A has C's 503 in hand at once"},
		},
	}
}

// comeBackLater answers 503 with a Retry-After.
func comeBackLater(s spec, _ *record) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(s.retryAfter/time.Second), 10))
		http.Error(w, "come back later", http.StatusServiceUnavailable)
	}
}

// lost reports whether the client has a deadline's error, and no answer.
func lost(res Result) bool {
	return res.ClientStatus == 0 && errors.Is(res.clientErr, context.DeadlineExceeded)
}

// answered is the end of a client that has an answer with the status.
func answered(status int) func(Result) bool {
	return func(res Result) bool { return res.clientErr == nil && res.ClientStatus == status }
}
