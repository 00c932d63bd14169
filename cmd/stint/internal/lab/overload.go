package lab

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// One request takes so long that the machine has next to nothing to do: what is
// scarce are the service's slots. The overload lasts until a queue without a
// bound has long been longer than anybody waits.
const (
	overloadSlots    = 4
	overloadWork     = 40 * time.Millisecond
	overloadDeadline = 200 * time.Millisecond
	overloadUseful   = 60 * time.Millisecond                         // the work, and some for the way
	capacity         = overloadSlots * int(time.Second/overloadWork) // a second
)

var overloadPhases = []phase{
	{"before", capacity * 3 / 4, 400 * time.Millisecond},
	{"during", capacity * 3 / 2, 1200 * time.Millisecond},
	{"after", capacity * 3 / 4, 800 * time.Millisecond},
}

// Where in the phases the load is above the capacity, and where it is over.
const overloaded, relieved = 1, 2

// A phase is a time in which so many calls begin a second, evenly and whether or
// not the earlier ones have ended.
type phase struct {
	name  string
	rate  int
	lasts time.Duration
}

func (p phase) calls() int { return int(time.Duration(p.rate) * p.lasts / time.Second) }

// What tells the modes apart during the overload, in percent of what C can answer
// while it lasts. Naive has less than half of it, stint nearly all.
const enough = 60

func overload() experiment {
	build := func(m Mode) spec {
		s := direct(m, fewAttempts)
		s.work, s.slots, s.phases, s.serve = overloadWork, overloadSlots, overloadPhases, inSlots
		s.calls = 0
		for _, p := range s.phases {
			s.calls += p.calls()
		}
		if m == Naive {
			s.hopTimeout = overloadDeadline
		} else {
			s.deadline, s.guard, s.gated, s.breakerOff = overloadDeadline, overloadUseful, true, true
		}
		return s
	}
	after := overloadPhases[relieved].calls()
	return experiment{
		shows: "an overloaded service answers as many as it can",
		setting: fmt.Sprintf("A -> C. C works on %d requests at once, %s each, and does not notice when a caller leaves: that is %d a second. A's calls "+
			"begin by schedule: %d a second, then %d, then %d again. Naive: a timeout of %s, %d attempts, and C queues whatever comes. stint: "+
			"the same time for the whole call, %d attempts, no breaker, and a Gate before C with Limit %d and MinUseful %s. Counted "+
			"are the calls that begin after the overload and have a good answer, however late. The last column is those during it: 100 %% is what C can answer in that time.",
			overloadSlots, term.Duration(overloadWork), capacity, overloadPhases[0].rate, overloadPhases[overloaded].rate, overloadPhases[relieved].rate,
			term.Duration(overloadDeadline), fewAttempts, fewAttempts, overloadSlots, term.Duration(overloadUseful)),
		leaf:    "C",
		counted: "good afterwards",
		head:    "good after",
		count:   func(res Result) int { n, _ := res.good(relieved); return n },
		end:     func(res Result) string { return fmt.Sprintf("overload: %d %%", ofCapacity(res)) },
		endHead: "of capacity",
		draw:    drawOverload,
		rows: []row{
			{label: "naive", spec: build(Naive), want: atMost(after / 4), void: lateStart,
				ends:    func(res Result) bool { return ofCapacity(res) < enough },
				promise: "naive: C works on requests that nobody waits for any more, retries treble the load, and so it stays when the overload is over"},
			{label: "stint", spec: build(Stint), want: want{after / 2, after}, void: lateStart,
				ends:    func(res Result) bool { return ofCapacity(res) >= enough },
				promise: "stint: what C cannot answer in time is refused at once, and the rest has an answer"},
		},
	}
}

// inSlots works on so many requests at once. The others wait, first come first
// served, whether or not their callers have left. What is done for nobody is
// marked.
func inSlots(s spec, rec *record) http.HandlerFunc {
	slots := make(chan struct{}, s.slots)
	return func(_ http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			if pause(rec.attended, s.work) && r.Context().Err() != nil {
				rec.marked(0)
			}
			<-slots
		case <-rec.attended.Done(): // the row is over
		}
	}
}

// A called is one call of a schedule.
type called struct {
	span
	phase int
	good  bool
}

// good is how many calls that began in the phase had a good answer, and how many
// they were.
func (res Result) good(phase int) (good, all int) {
	for _, c := range res.called {
		if c.phase == phase {
			all++
			if c.good {
				good++
			}
		}
	}
	return good, all
}

// ofCapacity is how many calls of the overload had a good answer, in percent of
// what the service can answer while it lasts.
func ofCapacity(res Result) int {
	good, _ := res.good(overloaded)
	return good * 100 / phase{rate: capacity, lasts: overloadPhases[overloaded].lasts}.calls()
}

// lateStart reports whether the machine kept calls from beginning on schedule:
// the load was another one.
func lateStart(res Result) bool { return res.late > overloadDeadline/4 }

// failure is the median time after which a call without a good answer ended;
// zero if there was none.
func failure(calls []called) time.Duration {
	var times []time.Duration
	for _, c := range calls {
		if !c.good {
			times = append(times, c.end-c.start)
		}
	}
	return quantile(times, 0.5)
}

// countCalled counts what became of the calls of a schedule, and the work for
// those that had given up. What still waits for a slot in the end is none.
func (res *Result) countCalled() {
	for i := range res.row.spec.phases {
		good, _ := res.good(i)
		res.Good = append(res.Good, good)
	}
	for _, a := range res.attempts {
		if a.number > 0 {
			res.Sent++
		}
	}
	res.FailureMs = term.Millis(failure(res.called))
	res.WastedMs = term.Millis(time.Duration(len(res.marks)) * res.row.spec.work)
}

const overloadStep = 50 * time.Millisecond // a column of the picture

// drawOverload draws the good answers below the load, and writes what became of
// the calls of each phase.
func drawOverload(b *strings.Builder, st Style, results []Result) {
	var load []int
	for _, p := range overloadPhases {
		for range p.lasts / overloadStep {
			load = append(load, p.rate)
		}
	}
	highest := overloadPhases[overloaded].rate
	b.WriteString("\n" + st.paint(dim, fmt.Sprintf("  calls and good answers a second, every %s (full height is %d, a dot is 0):",
		term.Duration(overloadStep), highest)) + "\n")
	fmt.Fprintf(b, "  %-*s %s\n", labelWidth, "load", sparkline(load, highest))
	for _, res := range results {
		rate := make([]int, len(load))
		for _, c := range res.called {
			if i := int(c.end / overloadStep); c.good && i < len(rate) {
				rate[i] += int(time.Second / overloadStep)
			}
		}
		fmt.Fprintf(b, "  %-*s %s\n", labelWidth, res.row.label, st.paint(shadeOf(res.Mode), sparkline(rate, highest)))
	}

	head := fmt.Sprintf("  %-*s", labelWidth, "good, of the calls")
	for _, p := range overloadPhases {
		head += fmt.Sprintf(" %8s", p.name)
	}
	b.WriteString("\n" + st.paint(dim, head+"     sent   wasted  failed in") + "\n")
	for _, res := range results {
		fmt.Fprintf(b, "  %-*s", labelWidth, res.row.label)
		for i := range overloadPhases {
			good, all := res.good(i)
			fmt.Fprintf(b, " %6.0f %%", 100*float64(good)/float64(all))
		}
		fmt.Fprintf(b, " %8d %8s  %9s\n", res.Sent, term.MillisText(res.WastedMs), term.MillisText(res.FailureMs))
	}
}
