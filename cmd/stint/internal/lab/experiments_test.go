package lab

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// one runs an experiment of three or two rows.
func one(t *testing.T, name string) []Result {
	t.Helper()
	return runLab(t, Options{Only: []string{name}, Attempts: 1, Depth: 1})
}

func TestZombie(t *testing.T) {
	results := one(t, "zombie")
	plain, owned := results[0], results[2]
	if plain.LeafRequests == zombieCalls && len(plain.marks) != zombieCalls*zombieSteps {
		t.Errorf("naive: %d steps of %d were done", len(plain.marks), zombieCalls*zombieSteps)
	}
	// A step takes its time, and is not begun after the deadline that C was told:
	// at most so many of a call fit before it, on any machine.
	if most := zombieCalls * int(zombieDeadline/zombieStep); len(owned.marks) > most {
		t.Errorf("stint: %d steps were done, want at most %d", len(owned.marks), most)
	}
	for _, r := range results {
		if r.ClientStatus == 200 {
			t.Errorf("%s: the client has an answer", r.Row)
		}
		if r.perCall != nil {
			t.Errorf("%s: requests were counted for each of calls that are made at once", r.Row)
		}
	}
	if plain.WastedMs < term.Millis(zombieStep) {
		t.Errorf("naive: %v ms of work were wasted, and %d steps", plain.WastedMs, plain.Count)
	}
}

func TestRetryAfter(t *testing.T) {
	results := one(t, "retryafter")
	naive, owned := results[0], results[1]
	if naive.clientEnd != "gave up" || naive.ClientError != "context deadline exceeded" {
		t.Errorf("naive: %q, %q; want the deadline's error and nothing of the 503", naive.clientEnd, naive.ClientError)
	}
	if naive.left < askedDeadline {
		t.Errorf("naive: over after %v, want all of the %v slept away", naive.left, askedDeadline)
	}
	if made(naive, "A") != 2 { // an attempt, and the wait for the next
		t.Errorf("naive: recorded %v, want an attempt and a wait", naive.attempts)
	}
	if owned.stops[stop{"A", stint.NoTime}] != 1 || made(owned, "A") != 1 {
		t.Errorf("stint: stopped by %v after %d attempts, want no_time after one", owned.stops, made(owned, "A"))
	}
}

func TestPayment(t *testing.T) {
	results := one(t, "payment")
	counts(t, results, []int{3}, []int{1, 2})
	for i, want := range []int{3, 1, 1} {
		if results[i].Count != want || results[i].Count != len(results[i].marks) {
			t.Errorf("%s: %d payments, want %d", results[i].Row, results[i].Count, want)
		}
	}
	if why := results[1].stops; why[stop{"A", stint.NotRepeatable}] != 1 {
		t.Errorf("stint: stopped by %v, want not_repeatable", why)
	}
}

func TestSkew(t *testing.T) {
	results := one(t, "skew")
	for i, want := range []struct{ most, least time.Duration }{
		{skewDeadline - skewed, -math.MaxInt64}, {skewed + skewDeadline, skewed}, {skewDeadline, 1},
	} {
		r := results[i]
		if len(r.marks) != skewCalls || r.LeafRequests != skewCalls {
			t.Fatalf("%s: %d calls of %d reached C, %d had a deadline", r.Row, r.LeafRequests, skewCalls, len(r.marks))
		}
		for _, m := range r.marks {
			if m.left > want.most || m.left < want.least {
				t.Errorf("%s: granted %v, want %v to %v", r.Row, m.left, want.least, want.most)
			}
		}
	}
}

func TestRedirect(t *testing.T) {
	results := one(t, "redirect")
	naive, owned := results[0], results[1]
	if naive.left < redirectHops*redirectWork {
		t.Errorf("naive: over after %v, want no less than %d hops take", naive.left, redirectHops)
	}
	if !strings.Contains(owned.ClientError, "no_time") {
		t.Errorf("stint: %q, want no_time", owned.ClientError)
	}
}

func TestHedge(t *testing.T) {
	results := one(t, "hedge")
	for _, r := range results {
		copies := 0
		for _, a := range r.attempts {
			if a.copy {
				copies++
			}
		}
		// Who loses may be called back before it is sent.
		if n := len(r.visits); n > hedgeCalls || n < hedgeCalls-copies {
			t.Errorf("%s: C1 had %d requests of %d calls, and %d copies were made", r.Row, n, hedgeCalls, copies)
		}
		if len(r.others) > copies {
			t.Errorf("%s: C2 had %d requests, and %d copies were made", r.Row, len(r.others), copies)
		}
	}
	if naive := results[0]; len(naive.others) != 0 || naive.P99Ms < term.Millis(stall) {
		t.Errorf("naive: %d requests at C2 and a p99 of %v ms, want none and that of the slow calls", len(naive.others), naive.P99Ms)
	}
	fixed, learned := results[1], results[2]
	if len(fixed.others) == 0 || len(learned.others) == 0 {
		t.Errorf("stint: %d and %d requests at C2, want some", len(fixed.others), len(learned.others))
	}
	// What the first calls take is what the delay is learned from.
	for i := range learnFrom / stallEvery {
		if n := (i+1)*stallEvery - 1; learned.took[n] < stall {
			t.Errorf("stint, after p95: call %d took %v, want at least %v: nothing was known yet", n+1, learned.took[n], stall)
		}
	}
}

func TestOverload(t *testing.T) {
	results := one(t, "overload")
	naive, owned := results[0], results[1]
	for _, r := range results {
		begins, n := time.Duration(0), 0
		for i, p := range overloadPhases {
			good, all := r.good(i)
			if all != p.calls() || good != r.Good[i] {
				t.Errorf("%s: %d calls %s the overload, %d of them good; want %d, and %v", r.Row, all, p.name, good, p.calls(), r.Good)
			}
			for k := range all {
				c := r.called[n]
				if due := begins + time.Duration(k)*time.Second/time.Duration(p.rate); c.start < due || c.phase != i {
					t.Errorf("%s: call %d began at %v in phase %d, and is due at %v", r.Row, n+1, c.start, c.phase, due)
				}
				if c.good && c.end-c.start < overloadWork {
					t.Errorf("%s: call %d had its answer after %v, before the work was done", r.Row, n+1, c.end-c.start)
				}
				n++
			}
			begins += p.lasts
		}
		if r.Sent < n || r.Sent > n*fewAttempts || r.Sent < r.LeafRequests {
			t.Errorf("%s: %d requests were sent for %d calls, and %d were at C", r.Row, r.Sent, n, r.LeafRequests)
		}
	}
	// A call that fails has waited for all its attempts.
	if least := fewAttempts * overloadDeadline; naive.FailureMs < term.Millis(least) {
		t.Errorf("naive: calls failed after %v ms, want at least %v", naive.FailureMs, least)
	}
	if most := owned.row.spec.calls*11/10 + savedRetries(); owned.Sent > most {
		t.Errorf("stint: %d requests were sent, want at most %d", owned.Sent, most)
	}
	for i, v := range owned.visits { // in the order in which they start
		at := 0
		for _, other := range owned.visits[:i+1] {
			if other.end > v.start {
				at++
			}
		}
		if at > overloadSlots {
			t.Fatalf("stint: %d requests were at C at once, want at most %d", at, overloadSlots)
		}
	}
}

// A row holds by the calls after the overload and by those during it.
func TestOverloadJudged(t *testing.T) {
	of := func(r row, during, after int) Result {
		res := Result{row: r}
		for i, good := range []int{0, during, after} {
			for n := range overloadPhases[i].calls() {
				res.called = append(res.called, called{phase: i, good: n < good})
			}
		}
		e := overload()
		e.judge(&res)
		return res
	}
	rows := overload().rows
	for _, c := range []struct {
		row                        row
		during, after, wantPercent int
		want                       bool
	}{
		{rows[0], 71, 15, 59, true}, {rows[0], 72, 15, 60, false}, {rows[0], 71, 16, 59, false},
		{rows[1], 72, 30, 60, true}, {rows[1], 71, 30, 59, false}, {rows[1], 72, 29, 60, false}, {rows[1], 135, 60, 112, true},
	} {
		res := of(c.row, c.during, c.after)
		if res.Holds != c.want || res.Count != c.after || ofCapacity(res) != c.wantPercent {
			t.Errorf("%s, %d good answers during and %d after: holds %v, counts %d, %d %% of capacity", c.row.label, c.during, c.after,
				res.Holds, res.Count, ofCapacity(res))
		}
	}
	if lateStart(Result{late: 50 * ms}) || !lateStart(Result{late: 51 * ms}) {
		t.Error("a start that is a quarter of the deadline late does not void a row, or less does")
	}
}

// A count that is wrong is seen in each experiment: here each has the other
// mode's handlers and callers.
func TestJudges(t *testing.T) {
	for _, e := range experiments(DefaultOptions()) {
		last := e.rows[len(e.rows)-1]
		res := Result{row: last, LeafRequests: last.want.most + 1, ClientStatus: 418}
		if e.judge(&res); res.Holds {
			t.Errorf("%s, %s: holds with %s: %d and the client's status 418", e.name, last.label, e.counted, res.Count)
		}
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i))
	}
	for part, want := range map[float64]time.Duration{0.5: 100, 0.99: 198, 1: 200, 0: 1} {
		if have := quantile(times, part); have != want {
			t.Errorf("%v of 1 to 200: %d, want %d", part, have, want)
		}
	}
	if times[0] != 200 || quantile(nil, 0.5) != 0 {
		t.Error("the times are sorted in place, or no times are not 0")
	}
}
