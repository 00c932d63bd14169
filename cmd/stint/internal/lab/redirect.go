package lab

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// The times of redirect: three hops fit, the fourth one does not end in time.
const (
	redirectTimeout = 600 * time.Millisecond
	redirectWork    = 150 * time.Millisecond
	redirectHops    = 10 // the most that net/http follows
)

func redirect() experiment {
	build := func(m Mode) spec {
		s := chained(m)
		s.hopTimeout = 0 // the subject is the other one
		s.timeout, s.work, s.hops, s.serve = redirectTimeout, redirectWork, redirectHops, passOn
		return s
	}
	const fit = int((redirectTimeout + redirectWork - 1) / redirectWork)
	return experiment{
		shows: "redirects share one timeout",
		setting: fmt.Sprintf("client -> A. A takes %s for each answer: %d redirects, and then 200. The client's timeout is %s, in the naive row "+
			"http.Transport's ResponseHeaderTimeout.", term.Duration(redirectWork), redirectHops-1, term.Duration(redirectTimeout)),
		leaf:    "A",
		counted: "hops at A",
		head:    "hops at A",
		rows: []row{
			{label: "naive", spec: build(Naive), want: exactly(redirectHops), ends: answered(http.StatusOK), void: failed, draw: true,
				promise: fmt.Sprintf("naive: each hop has a timeout of its own, and %s became %s", term.Duration(redirectTimeout), term.Duration(redirectHops*redirectWork))},
			{label: "stint", spec: build(Stint), want: atMost(fit), draw: true,
				promise: fmt.Sprintf("stint: all hops together have %s, and the others are never asked", term.Duration(redirectTimeout))},
		},
	}
}

// passOn works for a while and answers with a redirect to itself, the last hop
// with 200.
func passOn(s spec, _ *record) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		hop, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/")) // the first has none
		if pause(r.Context(), s.work) && hop < s.hops-1 {
			http.Redirect(w, r, "/"+strconv.Itoa(hop+1), http.StatusFound)
		}
	}
}
