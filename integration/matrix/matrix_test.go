package matrix

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stint-go/stint"
)

const (
	deadline = 50 * time.Millisecond
	delay    = 200 * time.Millisecond
	runs     = 3  // of each row, at least
	tries    = 20 // to have a good one: a busy machine may be late, or have used up the time before the slow place is reached
)

// A row is a place at which the chain is slow.
type row struct {
	name string
	slow func(time.Duration) // makes it slow; zero ends it
	// reached reports how often the slow place was reached.
	reached func() int
}

// rows are the places of a chain: each handler's own work, each store's, and the
// network before it.
func (c *chain) rows() []row {
	all := []row{c.edge.row("edge"), c.service.row("service")}
	for _, s := range c.stores {
		attempts := func() int { return len(s.rec.Events(stint.AttemptDone)) }
		all = append(all, row{s.name, func(d time.Duration) { s.delay.Store(int64(d)) }, attempts})
		if s.proxy != nil {
			all = append(all, row{"network to " + s.name, s.proxy.Delay, attempts})
		}
	}
	return all
}

func (l *layer) row(name string) row {
	return row{name, func(d time.Duration) { l.delay.Store(int64(d)) }, func() int { return int(l.entered.Load()) }}
}

// A result is what became of a row's requests, from their start on.
type result struct {
	answered, stopped, free span
	faults                  []string
}

// A span is how long something took, request by request.
type span []time.Duration

func (s span) best() time.Duration { return slices.Min(s) }

func (s span) String() string {
	if len(s) == 0 {
		return "-\t-\t"
	}
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("%.1f\t%.1f\t", sorted[len(s)/2].Seconds()*1000, sorted[len(s)-1].Seconds()*1000)
}

func (r *result) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// run makes the requests of a row, until one is in time or so many have reached the slow
// place. How late they are is judged by the best of them: a break in the chain delays
// each, a busy machine does not.
func (c *chain) run(t *testing.T, at row, most int) *result {
	t.Helper()
	r := &result{}
	for range tries {
		c.recover(t)
		before := at.reached()
		at.slow(delay)
		start := time.Now()
		status := c.get(t, deadline)
		answered := time.Since(start)
		stopped := since(t, start, c.running)
		free := since(t, start, c.held)
		at.slow(0)
		if status != http.StatusGatewayTimeout {
			r.fault("answered %d after %v, want 504; the service had: %v", status, answered, c.said.Load())
			return r
		}
		if at.reached() == before {
			continue
		}
		r.answered, r.stopped, r.free = append(r.answered, answered), append(r.stopped, stopped), append(r.free, free)
		if len(r.answered) >= runs && r.answered.best() < delay && r.stopped.best() < delay {
			return r
		}
		if len(r.answered) == most {
			break
		}
	}
	switch {
	case len(r.answered) < runs:
		r.fault("reached by %d requests of %d, want %d: a layer before it gave up", len(r.answered), tries, runs)
	case r.answered.best() >= delay:
		r.fault("answered after %v at best, want it before the delay's end", r.answered.best())
	default:
		r.fault("work for it went on until %v at best, want it stopped before the delay's end", r.stopped.best())
	}
	return r
}

// since waits until there are none, and returns how long after start that is.
func since(t *testing.T, start time.Time, count func() int) time.Duration {
	t.Helper()
	for count() > 0 {
		if time.Since(start) > patience {
			t.Fatalf("not over after %v", patience)
		}
	}
	return time.Since(start)
}

// recover has the chain answer requests that have time: it works, whatever happened
// before, and its connections are open.
func (c *chain) recover(t *testing.T) {
	t.Helper()
	var statuses []int
	for good := 0; good < 2; { // the first may leave what a lost connection was for
		if len(statuses) == tries {
			t.Fatalf("requests with %v for them are answered %v, want 200; the service had: %v", patience, statuses, c.said.Load())
		}
		good++
		status := c.get(t, patience)
		if status != http.StatusOK { // a call to a store has a second, for which a busy machine may stand still
			good = 0
		}
		statuses = append(statuses, status)
	}
}

// TestMatrix: whichever place is slow, the caller has its 504 in time, and nothing goes
// on for it but what can't be stopped, in a Redis. Shown and not judged is when the
// service's connections are free again: a silent network holds one up until pgx has
// asked the server, over the same network, to stop.
func TestMatrix(t *testing.T) {
	for _, h := range hops {
		t.Run(h.name, func(t *testing.T) {
			c := newChain(t, h, postgres(t), redisStore(t), postgresSQL(t), mariadb(t), sqlite(t))
			var table strings.Builder
			w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "slow\tanswered: median\tworst\tnothing runs: median\tworst\tno connection in use: median\tworst\t")
			for _, at := range c.rows() {
				r := c.run(t, at, tries)
				for _, fault := range r.faults {
					t.Errorf("slow %s: %s", at.name, fault)
				}
				fmt.Fprintf(w, "%s\t%v%v%v\n", at.name, r.answered, r.stopped, r.free)
			}
			w.Flush()
			t.Logf("edge -> service over %s -> stores, requests of %v, one place slow by %v; after so many ms:\n%s", h.name, deadline, delay, &table)
			c.fast(t)
		})
	}
}

// fast: with no delay there is an answer within the deadline.
func (c *chain) fast(t *testing.T) {
	t.Helper()
	var statuses []int
	for range tries {
		c.recover(t) // a connection that was lost is not to be made anew in this time
		start := time.Now()
		status := c.get(t, deadline)
		if status == http.StatusOK {
			t.Logf("nothing slow: 200 after %v", time.Since(start))
			return
		}
		statuses = append(statuses, status)
	}
	t.Errorf("nothing slow: answered %v, want 200", statuses)
}

// TestMatrixSeesABreak: a handler that does not pass on its context shows in the
// matrix, at the layer where it stands or below.
func TestMatrixSeesABreak(t *testing.T) {
	c := newChain(t, hops[0], postgres(t))
	rows := c.rows()
	for _, b := range []struct {
		deaf *layer
		slow row
	}{{&c.edge, rows[0]}, {&c.service, rows[1]}, {&c.service, rows[2]}} {
		b.deaf.deaf.Store(true)
		r := c.run(t, b.slow, runs)
		b.deaf.deaf.Store(false)
		if faults := strings.Join(r.faults, "; "); !strings.Contains(faults, "work for it went on until") {
			t.Errorf("slow %s, before a layer that does not pass on its context: found %q", b.slow.name, faults)
		}
	}
}
