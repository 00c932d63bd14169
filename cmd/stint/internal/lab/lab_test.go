package lab

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// runLab runs one experiment and checks what is the same in all of them.
func runLab(t *testing.T, o Options) []Result {
	t.Helper()
	var results []Result
	err := Run(t.Context(), o, func(string, string) {}, func(r Report) error {
		if len(r.Results) != len(r.experiment.rows) {
			t.Errorf("%s: %d results of %d rows", r.experiment.name, len(r.Results), len(r.experiment.rows))
		}
		results = append(results, r.Results...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Experiment != o.Only[0] {
			t.Errorf("%s: a row of experiment %q", o.Only[0], r.Experiment)
		}
		if !r.Holds {
			t.Errorf("%s: does not hold: %s: %d, want %v; client: %d, %q",
				r.row.label, r.Counted, r.Count, r.row.want, r.ClientStatus, r.ClientError)
		}
		if r.row.ends == nil && r.ClientStatus < 500 && r.ClientError == "" {
			t.Errorf("%s: the client has no error: status %d", r.row.label, r.ClientStatus)
		}
		if n := len(r.visits) + len(r.others); n != r.LeafRequests {
			t.Errorf("%s: %d visits at the leaf were recorded, %d requests counted", r.row.label, n, r.LeafRequests)
		}
	}
	return results
}

// counts checks the requests at the leaf, row by row.
func counts(t *testing.T, results []Result, naive, owned []int) {
	t.Helper()
	var have [2][]int
	for _, r := range results {
		i := 0
		if r.Mode == Stint {
			i = 1
		}
		have[i] = append(have[i], r.LeafRequests)
	}
	if !slices.Equal(have[0], naive) || !slices.Equal(have[1], owned) {
		t.Errorf("requests at the leaf: naive %v, stint %v; want naive %v, stint %v", have[0], have[1], naive, owned)
	}
}

// made is how many attempts the layer made.
func made(r Result, layer string) (n int) {
	for _, a := range r.attempts {
		if a.layer == layer {
			n++
		}
	}
	return n
}

// overEach runs a test over every transport.
func overEach(t *testing.T, test func(*testing.T, Transport)) {
	for _, over := range []Transport{HTTP, GRPC, Mixed} {
		t.Run(over.String(), func(t *testing.T) { test(t, over) })
	}
}

func TestMultiply(t *testing.T) { overEach(t, testMultiply) }

func testMultiply(t *testing.T, over Transport) {
	for _, c := range []struct {
		attempts     int
		naive, owned []int
	}{
		{1, []int{1, 1, 1}, []int{1}},
		{2, []int{1, 2, 4}, []int{2}},
		{3, []int{1, 3, 9}, []int{3}},
		{5, []int{1, 5, 25}, []int{5}},
	} {
		results := runLab(t, Options{Only: []string{"multiply"}, Attempts: c.attempts, Depth: 1, Transport: over})
		counts(t, results, c.naive, c.owned)

		// The counts could be right for a wrong reason, so: who sent what?
		n := c.attempts
		last := results[len(results)-1]
		for layer, want := range map[string]int{"client": 1, "A": n, "B": n} {
			if have := made(last, layer); have != want {
				t.Errorf("stint, %d attempts: %s made %d, want %d", n, layer, have, want)
			}
		}
		if n > 1 && (last.stops[stop{"A", stint.AttemptsSpent}] != 1 || last.stops[stop{"B", stint.NotOwner}] != n) {
			t.Errorf("stint, %d attempts: the layers stopped for %v, want A once for attempts_spent and B %d times for not_owner", n, last.stops, n)
		}
		nested(t, last)
		naive := results[len(results)-2]
		nested(t, naive)
		for layer, want := range map[string]int{"client": 1, "A": n, "B": n * n} {
			if have := made(naive, layer); have != want {
				t.Errorf("naive, %d attempts: %s made %d, want %d", n, layer, have, want)
			}
		}
	}
}

// nested checks the times: what a request causes happens while it is under way.
func nested(t *testing.T, r Result) {
	t.Helper()
	var request span
	for _, a := range r.attempts {
		if a.layer == "client" {
			request = a.span
		}
	}
	within := func(what string, s span) {
		if s.start < request.start || s.end < s.start || s.end > request.end {
			t.Errorf("%s: %s from %v to %v, the client's request from %v to %v", r.row.label, what, s.start, s.end, request.start, request.end)
		}
	}
	for _, a := range r.attempts {
		within("an attempt of "+a.layer, a.span)
	}
	for _, v := range r.visits {
		within("a request at the leaf", v)
	}
}

func TestDepth(t *testing.T) { overEach(t, testDepth) }

func testDepth(t *testing.T, over Transport) {
	for _, c := range []struct{ attempts, depth, naive int }{{3, 1, 3}, {1, 6, 1}, {2, 4, 16}, {3, 5, 243}} {
		results := runLab(t, Options{Only: []string{"depth"}, Attempts: c.attempts, Depth: c.depth, Transport: over})
		counts(t, results, []int{c.naive}, []int{c.attempts})
	}
}

func TestDeadline(t *testing.T) { overEach(t, testDeadline) }

func testDeadline(t *testing.T, over Transport) {
	results := runLab(t, Options{Only: []string{"deadline"}, Attempts: 1, Depth: 1, Transport: over})
	plain, context, owned := results[0], results[1], results[2]
	if plain.LeafRequests != 9 || plain.ClientStatus != 0 {
		t.Errorf("naive: %d requests at C, client's status %d; want 9, and no answer", plain.LeafRequests, plain.ClientStatus)
	}
	// C works nine times 120 ms, one after the other, and what it did until the
	// client left is at most as long as the client stayed, on any machine.
	if least := term.Millis(9*slowWork - plain.left); plain.WastedMs < least || plain.WastedMs == 0 {
		t.Errorf("naive: %v ms were wasted, want at least %v: nine times %v without the client's %v", plain.WastedMs, least, slowWork, plain.left)
	}
	if context.LeafRequests > 8 || context.ClientStatus != 0 {
		t.Errorf("naive, with context: %d requests at C, client's status %d; want fewer than 9, and no answer", context.LeafRequests, context.ClientStatus)
	}
	if owned.LeafRequests > 2 {
		t.Errorf("stint: %d requests at C, want at most 2", owned.LeafRequests)
	}
	if owned.LeafRequests == 0 && owned.left < shortDeadline-guard {
		t.Errorf("stint: nothing reached C, and the client had its answer after %v", owned.left)
	}
	// In time means that the answer came before the deadline, or that the
	// deadline ended the wait. By the clock that is "soon", so the bound of the
	// clock is only against a hang.
	if owned.ClientStatus == 0 && grpcCode(owned.clientErr) == codes.OK && !strings.Contains(owned.ClientError, "deadline") {
		t.Errorf("stint: the client's error is %q, want an answer or its deadline", owned.ClientError)
	}
	if owned.left > 10*time.Second {
		t.Errorf("stint: the client waited %v with a deadline of %v", owned.left, shortDeadline)
	}
}

func TestDead(t *testing.T) { overEach(t, testDead) }

func testDead(t *testing.T, over Transport) {
	results := runLab(t, Options{Only: []string{"dead"}, Attempts: 1, Depth: 1, Transport: over})
	counts(t, results, []int{900}, []int{310, 30})
	for i, want := range [][]int{{3, 3, 3, 3, 3, 3}, {3, 3, 3, 3, 3, 1}, {3, 3, 3, 3, 3, 1}} {
		r := results[i]
		if len(r.perCall) != 300 || !slices.Equal(r.perCall[:6], want) {
			t.Errorf("%s: %d calls of %v ... requests, want 300 of %v ...", r.row.label, len(r.perCall), r.perCall[:min(6, len(r.perCall))], want)
		}
	}
	last := results[2]
	for i, n := range last.perCall {
		if (n == 0) != (i >= 20) {
			t.Errorf("%s: call %d made %d requests; want the breaker to refuse all but the first 20 calls", last.row.label, i+1, n)
		}
	}
	if n := last.stops[stop{"A", stint.BreakerOpen}]; n != 1 || len(last.stops) != 1 {
		t.Errorf("%s: the last call was stopped by %v, want the breaker", last.row.label, last.stops)
	}
	for i, n := range []int{3, 1, 0} { // only the last call is drawn
		if got := len(results[i].picture().lanes[0].bars); got != n {
			t.Errorf("%s: %d attempts are drawn, want %d", results[i].row.label, got, n)
		}
	}
	if last.clientEnd != "refused" || !strings.Contains(last.ClientError, stint.BreakerOpen.String()) {
		t.Errorf("%s: the last call ended %q with %q, want refused by the breaker", last.row.label, last.clientEnd, last.ClientError)
	}
}

// A row whose count is wrong is seen, and one that ends otherwise at the client
// too.
func TestDoesNotHold(t *testing.T) {
	e := experiments(DefaultOptions())[0]
	r := row{label: "naive, 1 and 2", spec: chained(Naive, 1, 2), want: exactly(3)}
	res, err := e.run(t.Context(), r)
	if err != nil || res.Holds || res.Count != 2 {
		t.Errorf("2 requests where 3 have to be: holds %v, %d requests, error %v", res.Holds, res.Count, err)
	}
	for _, c := range []struct {
		requests, status int
		err              error
		ends             func(Result) bool
		want             bool
	}{
		{3, 502, nil, nil, true}, {3, 0, context.DeadlineExceeded, nil, true}, {3, 200, nil, nil, false}, {2, 502, nil, nil, false},
		{3, 200, nil, answered(200), true}, {3, 503, nil, answered(200), false}, {2, 200, nil, answered(200), false},
		{3, 0, context.DeadlineExceeded, lost, true}, {3, 0, context.Canceled, lost, false}, {3, 503, nil, lost, false},
		{3, 0, io.EOF, answered(0), false}, {3, 200, nil, told, false}, {3, 504, nil, told, true}, {3, 200, nil, paid, true}, {4, 200, nil, paid, false},
	} {
		res := Result{row: row{want: exactly(3), ends: c.ends}, LeafRequests: c.requests, ClientStatus: c.status, clientErr: c.err}
		if e.judge(&res); res.Holds != c.want {
			t.Errorf("%+v: holds %v", c, res.Holds)
		}
	}

	// What shows nothing is run again, and judged in the end.
	runs := 0
	r = row{label: "void", spec: chained(Stint, 2), want: exactly(2), void: func(Result) bool { runs++; return runs < 2 }}
	if res, err := e.run(t.Context(), r); err != nil || runs != 2 || !res.Holds {
		t.Errorf("void once: %d runs, holds %v, error %v", runs, res.Holds, err)
	}
	r.void = func(Result) bool { runs++; return true }
	if res, err := e.run(t.Context(), r); err != nil || runs != 2+tries || res.Experiment == "" {
		t.Errorf("always void: %d runs, judged %v, error %v", runs-2, res.Experiment != "", err)
	}
	if (Report{Results: []Result{{Holds: true}, res}}).Holds() || !(Report{Results: []Result{{Holds: true}}}).Holds() {
		t.Error("a report does not hold just when one of its rows does not")
	}
}

func TestWant(t *testing.T) {
	for _, c := range []struct {
		w    want
		text string
		in   []int
		out  []int
	}{
		{exactly(9), "9", []int{9}, []int{8, 10, 0}},
		{atMost(2), "<= 2", []int{0, 1, 2}, []int{3}},
		{want{300, 310}, "300-310", []int{300, 305, 310}, []int{299, 311}},
	} {
		if c.w.String() != c.text {
			t.Errorf("%v is printed as %q, want %q", c.w, c.w.String(), c.text)
		}
		for _, n := range c.in {
			if !c.w.holds(n) {
				t.Errorf("%v: %d is not in it", c.w, n)
			}
		}
		for _, n := range c.out {
			if c.w.holds(n) {
				t.Errorf("%v: %d is in it", c.w, n)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{DefaultOptions(), {Attempts: 1, Depth: 6}, {Attempts: 5, Depth: 5}, {Attempts: 4, Depth: 6},
		{Only: []string{"dead", "multiply", "dead"}, Attempts: 3, Depth: 5}, {Attempts: 3, Depth: 5, Store: SQLite}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{Attempts: 0, Depth: 5}, []string{"-attempts is 0", "1 to 5"}},
		{Options{Attempts: 6, Depth: 1}, []string{"-attempts is 6", "1 to 5"}},
		{Options{Attempts: 3, Depth: 0}, []string{"-depth is 0", "1 to 6"}},
		{Options{Attempts: 3, Depth: 7}, []string{"-depth is 7", "1 to 6"}},
		{Options{Attempts: 5, Depth: 6}, []string{"15625", "at most 5000", "-attempts 4", "-depth 5"}},
		{Options{Only: []string{"dead", "payment"}, Attempts: 3, Depth: 5, Transport: Mixed}, []string{`-only`, `"payment"`, "over HTTP only", "-transport mixed", "multiply, depth, deadline, dead"}},
		{Options{Attempts: 3, Depth: 5, Store: SQLite, Transport: Mixed}, []string{"-store runs over HTTP only", "-transport mixed"}},
		{Options{Only: []string{"zombie"}, Attempts: 3, Depth: 5, Store: SQLite}, []string{"-store has one experiment", "-only"}},
		{Options{Only: []string{"multiply", "deep"}, Attempts: 3, Depth: 5, Transport: GRPC}, []string{`unknown experiment "deep"`}},
		{Options{Only: []string{"multiply", "deep"}, Attempts: 3, Depth: 5}, []string{`-only`, `"deep"`, "multiply, depth, deadline, dead, zombie, retryafter, payment, skew, redirect, hedge, overload"}},
	} {
		err := c.o.Validate()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %v, want %q in it", c.o, err, want)
			}
		}
		if e := Run(t.Context(), c.o, nil, nil); e == nil {
			t.Errorf("%+v: it ran", c.o)
		}
	}
}

// The order is the catalogue's, whatever the order of the names.
func TestOrder(t *testing.T) {
	o := Options{Only: []string{"depth", "multiply"}, Attempts: 1, Depth: 1}
	var order []string
	if err := Run(t.Context(), o, func(string, string) {}, func(r Report) error {
		order = append(order, r.experiment.name)
		return nil
	}); err != nil || !slices.Equal(order, []string{"multiply", "depth"}) {
		t.Errorf("order %v, error %v", order, err)
	}
	stopped := errors.New("stopped")
	if err := Run(t.Context(), o, func(string, string) {}, func(Report) error { return stopped }); !errors.Is(err, stopped) {
		t.Errorf("an error of done: Run returned %v", err)
	}
}

// An interrupted row ends at once, although its naive loops do not notice that
// their caller has left, and leaves nothing behind.
func TestInterrupt(t *testing.T) {
	for _, s := range []spec{deadline().rows[0].spec, deadline().rows[2].spec, dead().rows[0].spec,
		zombie().rows[0].spec, zombie().rows[2].spec, redirect().rows[0].spec,
		overload().rows[0].spec, overload().rows[1].spec,
		over(GRPC, deadline().rows[0].spec), over(GRPC, deadline().rows[2].spec),
		over(Mixed, deadline().rows[0].spec), over(Mixed, deadline().rows[2].spec),
		storeOf(SQLite, "").rows[0].spec, storeOf(SQLite, "").rows[2].spec} {
		ctx, cancel := context.WithCancel(t.Context())
		s.work = time.Hour // so that it is under way for sure
		s.deadline = time.Hour
		s.hopTimeout, s.timeout = time.Hour, 0
		c, err := newChain(s)
		if err != nil {
			t.Fatal(err)
		}
		called := make(chan error)
		go func() {
			_, err := c.first.call(ctx)
			called <- err
		}()
		arrived(t, c)
		cancel()
		if err := <-called; err == nil {
			t.Errorf("%s: a call that was interrupted has no error", s.mode)
		}
		if err := c.stop(); err != nil {
			t.Errorf("%s: stop: %v", s.mode, err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	started := func(_, row string) {
		if strings.HasPrefix(row, "stint") {
			cancel()
		}
	}
	err := Run(ctx, Options{Only: []string{"dead"}, Attempts: 1, Depth: 1}, started, func(Report) error {
		t.Error("an experiment that was interrupted is reported")
		return nil
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "dead, stint") {
		t.Errorf("Run: %v, want context.Canceled in the row where it happened", err)
	}
}

// over returns the spec over a transport.
func over(t Transport, s spec) spec {
	s.transport = t
	return s
}

// arrived waits until a request has reached the leaf.
func arrived(t *testing.T, c *chain) {
	t.Helper()
	tick, limit := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for c.leaf.count.Load() == 0 {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("no request reached the leaf")
		}
	}
}

// When a row is over, none of its connections is left on either side.
func TestConnections(t *testing.T) {
	for _, s := range []spec{chained(Naive, 3, 3), chained(Stint, 3, 3), over(GRPC, chained(Naive, 3, 3)), over(GRPC, chained(Stint, 3, 3)),
		over(Mixed, chained(Naive, 3, 3)), over(Mixed, chained(Stint, 3, 3)), hedge().rows[0].spec, hedge().rows[1].spec} {
		c, err := newChain(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.first.call(t.Context()); err != nil && grpcCode(err) != codes.Unavailable {
			t.Error(err)
		}
		if err := errors.Join(c.quiet(t.Context()), c.stop()); err != nil {
			t.Error(err)
		}
	}

	// The goroutines of the client's side end soon after.
	tick, limit := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for {
		var stacks strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stacks.String(), "net/http.") && !strings.Contains(stacks.String(), "google.golang.org/grpc") {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("goroutines of net/http or grpc are left:\n%s", &stacks)
		}
	}
}

// What goes over what: the last hop of a mixed chain is gRPC, and they take turns.
func TestCarriers(t *testing.T) {
	for over, want := range map[Transport][]carrier{
		HTTP:  {overHTTP{}, overHTTP{}, overHTTP{}},
		GRPC:  {overGRPC{}, overGRPC{}, overGRPC{}},
		Mixed: {overGRPC{}, overHTTP{}, overGRPC{}},
	} {
		var have []carrier
		for below := range want {
			have = append(have, over.carrier(below))
		}
		if !slices.Equal(have, want) {
			t.Errorf("%v, from the last hop up: %T, want %T", over, have, want)
		}
		s := chained(Stint, 3, 3)
		s.transport = over
		c, err := newChain(s)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range c.servers {
			if _, ok := s.running.(grpcServer); ok != (want[len(c.servers)-1-i] == overGRPC{}) {
				t.Errorf("%v: service %s is a %T", over, s.name, s.running)
			}
		}
		if err := c.stop(); err != nil {
			t.Error(err)
		}
		text, _ := over.MarshalText()
		var back Transport
		if err := back.UnmarshalText(text); err != nil || back != over {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
	if err := new(Transport).UnmarshalText([]byte("")); err == nil || !strings.Contains(err.Error(), "want http, grpc or mixed") {
		t.Errorf("no name at all: %v", err)
	}
}

// How a gRPC answer is told.
func TestEnding(t *testing.T) {
	for want, err := range map[string]error{
		"gRPC 14": status.Error(codes.Unavailable, "always unavailable"),
		"gave up": status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		"error":   io.EOF,
		"refused": &stint.Error{Reason: stint.BreakerOpen},
	} {
		if have := ending(0, err); have != want {
			t.Errorf("%v: %q, want %q", err, have, want)
		}
	}
}

func TestWasted(t *testing.T) {
	visits := []span{{0, 100}, {90, 110}, {100, 100}, {120, 150}}
	for left, want := range map[time.Duration]time.Duration{0: 100 + 20 + 30, 95: 5 + 15 + 30, 100: 10 + 30, 130: 20, 200: 0} {
		if have := wasted(visits, left); have != want {
			t.Errorf("left at %d: %d were wasted, want %d", left, have, want)
		}
	}
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name, have string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("%s: not as expected; if it is right, run the test with -update. Have:\n%s", file, have)
	}
}
