package lab

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// One call in forty is slow: more than one in a hundred, so that p99 shows it,
// and few enough for the retry budget, which pays for the copies.
const (
	hedgeCalls = 200
	stallEvery = 40
	stall      = 200 * time.Millisecond
	copyDelay  = 20 * time.Millisecond
	learnFrom  = 100 // attempts, before which there is no learned delay (stint.Hedge.Delay)
)

func hedge() experiment {
	build := func(m Mode, copies int, delay time.Duration) spec {
		s := direct(m, 1)
		s.leaf, s.replica = "C1", "C2"
		s.calls, s.work, s.serve = hedgeCalls, stall, stalls
		s.copies, s.hedgeDelay = copies, delay
		return s
	}
	const slow, early = hedgeCalls / stallEvery, learnFrom / stallEvery
	return experiment{
		shows: "a copy to another replica saves the slow calls",
		setting: fmt.Sprintf("A -> C1, or C2 that serves the same: %d calls, one after the other. C1 takes %s for every %dth request. Counted are the "+
			"calls that had to wait for it. A copy takes a token of the retry budget. The last column is p99 of the calls' times, "+
			"and how many more requests than calls there were.", hedgeCalls, term.Duration(stall), stallEvery),
		leaf:    "C1",
		counted: "slow answers",
		head:    "slow",
		count:   func(res Result) int { return len(res.marks) },
		end: func(res Result) string {
			return fmt.Sprintf("p99 %s +%.0f %%", term.MillisText(res.P99Ms), extraLoad(res))
		},
		endHead: "p99, more load",
		draw:    drawLatencies,
		rows: []row{
			{label: "naive", spec: build(Naive, 0, 0), want: exactly(slow), ends: inBudget, draw: true,
				promise: "naive: one call in forty waits for C1, and that is p99"},
			{label: "stint, after 20 ms", spec: build(Stint, 1, copyDelay), want: atMost(slow / 2), ends: inBudget, draw: true,
				promise: fmt.Sprintf("stint: after %s C2 gets a copy of the request, and answers", term.Duration(copyDelay))},
			{label: "stint, after p95", spec: build(Stint, 1, 0), want: want{early, slow - 1}, ends: inBudget,
				promise: fmt.Sprintf("stint, without Hedge.Delay: after the p95 of the calls so far, from call %d on", learnFrom+1)},
		},
	}
}

// stalls answers at once, but now and then late. Who waited so long is marked.
func stalls(s spec, rec *record) http.HandlerFunc {
	var requests atomic.Int64
	return func(_ http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%stallEvery == 0 && pause(r.Context(), s.work) {
			rec.marked(0)
		}
	}
}

// inBudget reports whether the client has its answer, and the copies are no more
// than the retry budget allows: what was saved up, and a tenth of the calls.
func inBudget(res Result) bool {
	return answered(http.StatusOK)(res) && res.LeafRequests <= res.row.spec.calls+savedRetries()+res.row.spec.calls/10
}

// extraLoad is how many more requests than calls there were.
func extraLoad(res Result) (percent float64) {
	calls := res.row.spec.calls
	return 100 * float64(res.LeafRequests-calls) / float64(calls)
}

// quantile is the time within which so large a part of the calls was answered.
func quantile(times []time.Duration, part float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, min(int(part*float64(len(sorted))+0.5)-1, len(sorted)-1))]
}

// drawLatencies draws the time of each call, and writes what they come to.
func drawLatencies(b *strings.Builder, st Style, results []Result) {
	var highest time.Duration
	for _, res := range results {
		highest = max(highest, quantile(res.took, 1))
	}
	b.WriteString("\n" + st.paint(dim, fmt.Sprintf("  time of each call, 1 to %d, of four the longest (full height is %s):",
		hedgeCalls, term.Duration(highest))) + "\n")
	for _, res := range results {
		fmt.Fprintf(b, "  %-*s %s\n", labelWidth, res.row.label, st.paint(shadeOf(res.Mode), sparkOfHighest(res.took, highest)))
	}
	b.WriteString("\n" + st.paint(dim, fmt.Sprintf("  %-*s %8s %8s %8s %8s   requests", labelWidth, "", "p50", "p90", "p99", "slowest")) + "\n")
	for _, res := range results {
		fmt.Fprintf(b, "  %-*s", labelWidth, res.row.label)
		for _, part := range []float64{0.5, 0.9, 0.99, 1} {
			fmt.Fprintf(b, " %8s", term.Duration(quantile(res.took, part)))
		}
		fmt.Fprintf(b, "   %d: +%.1f %%\n", res.LeafRequests, extraLoad(res))
	}
}
