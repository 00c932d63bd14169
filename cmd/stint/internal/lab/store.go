package lab

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// The times of store: the client leaves after a fifth of the query, when it has
// reached the store on the slowest machine too. storeGrace is what a cancel may take
// through all layers on such a machine. With what is out of time by no more than
// storeSlack, a query that nobody stops is still seen so long after.
const (
	storeDeadline = 400 * time.Millisecond
	storeWork     = 2 * time.Second
	storeGrace    = time.Second
	storeSlack    = (storeWork - storeDeadline - storeGrace) / 3
	storeCalls    = 10
)

// storeOf is the experiment store.
func storeOf(st Store, dsn string) experiment {
	about := stores[st]
	build := func(m Mode, passContext, silent bool) spec {
		s := chained(m, 1, 1)
		s.calls, s.together, s.deadline = storeCalls, true, storeDeadline
		s.work, s.store, s.dsn, s.silent = storeWork, st, dsn, silent
		if s.passContext = passContext; m == Naive {
			s.hopTimeout = hopTimeout
		} else {
			s.gated = true
		}
		return s
	}
	e := experiment{
		shows: "the last service's queries end when the first caller leaves",
		setting: fmt.Sprintf("client -> A -> B -> C -> %s, %d calls at once. The client leaves after %s, C's query takes %s: %s. Counted are the "+
			"queries that still run %s later, by what %s says every %s; the last column is how long all of them together ran "+
			"after the client had left. Each naive hop, C's query too, has a timeout of %s, and in the rows below the first also the request's context.",
			about.title, storeCalls, term.Duration(storeDeadline), term.Duration(storeWork), about.query,
			term.Duration(storeGrace), about.seen, term.Duration(look), term.Duration(hopTimeout)),
		leaf:    "C",
		counted: "running on",
		head:    "running on",
		count:   runningOn,
		end:     func(res Result) string { return term.MillisText(res.QueryMs) + " wasted" },
		endHead: about.title,
	}
	add := func(label string, s spec, w want, promise string) {
		e.rows = append(e.rows, row{label: label, spec: s, want: w, ends: queried, void: unseen, draw: true, promise: promise})
	}
	all, few, none := exactly(storeCalls), atMost(storeCalls/5), exactly(0) // few: a closed connection takes its time from hop to hop
	add("naive, own timeouts", build(Naive, false, false), all, "naive: "+about.title+" works on for clients that left long ago")
	switch st {
	case SQLite:
		add("naive, with context", build(Naive, true, false), few,
			"with the context passed on in every layer the driver interrupts SQLite, which is in the same process: as good as stint")
		add("stint", build(Stint, true, false), none, "stint: C knows the client's deadline, and SQLite is interrupted at it")
	case Postgres:
		add("naive, with context", build(Naive, true, false), few,
			"with the context passed on in every layer pgx asks PostgreSQL to stop, over a further connection: as good as stint, on a network that carries it")
		add("naive, net silent", build(Naive, true, true), all,
			"the same, but when all queries run the network between C and PostgreSQL falls silent: nothing that pgx says arrives")
		add("stint", build(Stint, true, false), none, "stint: each statement has the client's deadline with it, and PostgreSQL stops by itself")
		add("stint, net silent", build(Stint, true, true), none, "stint: so PostgreSQL needs no network to stop")
	case Redis:
		add("naive, with context", build(Naive, true, false), all,
			"with the context and ContextTimeoutEnabled go-redis obeys a deadline, but no cancel, and a cancel is all that C hears over plain HTTP")
		add("stint", build(Stint, true, false), none, "stint: C knows the client's deadline, and has Redis wait no longer; 150 ms less, for the answer")
	}
	return e
}

// runningOn is how many queries were seen so long after the client had left.
func runningOn(res Result) (n int) {
	for _, q := range res.queries {
		if q.end >= res.left+storeGrace {
			n++
		}
	}
	return n
}

// countQueries sums up what was seen of the queries.
func (res *Result) countQueries() {
	res.Queries, res.QueryMs = len(res.queries), term.Millis(wasted(res.queries, res.left))
	for _, q := range res.queries {
		res.LastQueryMs = max(res.LastQueryMs, term.Millis(q.end))
	}
}

// queried reports whether every call's query reached the store, so that its end
// says something, and the client had no good answer.
func queried(res Result) bool { return failed(res) && len(res.queries) == res.row.spec.calls }

// unseen reports whether the machine stood still: queries came too late, or were
// not looked at for a time in which they may have ended.
func unseen(res Result) bool {
	return len(res.queries) != res.row.spec.calls || res.gap > storeSlack || res.left > storeDeadline+storeSlack
}
