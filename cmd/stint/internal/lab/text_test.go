package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
)

var update = flag.Bool("update", false, "write the golden files")

// imagine is what a row would give on a machine on which every hop takes 1 ms
// each way and nothing else takes time: the renderers' fixed input.
func imagine(r row) Result {
	s := r.spec
	res := Result{Mode: s.mode, Params: s.params(), row: r, stops: map[stop]int{}}
	const way = time.Millisecond
	owned := false
	var call func(layer int, t time.Duration) time.Duration
	call = func(layer int, t time.Duration) time.Duration {
		if layer == len(s.callers) {
			end := t + s.work
			if s.passContext {
				end = min(end, max(s.deadline, t))
			}
			res.visits = append(res.visits, span{t, end})
			return end
		}
		c := s.callers[layer]
		owner := s.mode == Stint && c.attempts > 1 && !owned
		owned = owned || owner
		for n := 1; ; n++ {
			i := len(res.attempts)
			res.attempts = append(res.attempts, attempt{c.name, n, span{t, 0}})
			end := call(layer+1, t+way) + way
			if s.passContext {
				end = min(end, max(s.deadline, t))
			}
			res.attempts[i].end = end
			t = end
			why := stint.Reason(0)
			switch {
			case n == c.attempts:
				why = stint.AttemptsSpent
			case s.passContext && s.deadline-t <= s.guard:
				why = stint.NoTime
			case s.mode == Stint && !owner:
				why = stint.NotOwner
			}
			if why != 0 {
				if s.mode == Stint {
					res.stops[stop{c.name, why}]++
				}
				return t
			}
			t += backoff
		}
	}
	for range s.calls {
		res.drawn, res.stops = res.left, make(map[stop]int)
		before := len(res.visits)
		end := call(0, res.left)
		res.left, res.ClientStatus, res.clientEnd = min(end, s.deadline), 502, "502"
		if end >= s.deadline && s.calls == 1 {
			res.ClientStatus, res.clientEnd, res.ClientError = 0, "gave up", "context deadline exceeded"
		}
		res.perCall = append(res.perCall, len(res.visits)-before)
	}
	res.attempts[0].end = min(res.attempts[0].end, s.deadline)
	res.LeafRequests, res.ElapsedMs, res.WastedMs = len(res.visits), millis(res.left), millis(wasted(res.visits, res.left))
	res.Holds = r.want.holds(res.LeafRequests)
	return res
}

// imagineDead replaces the counts of the dead experiment, which hang on budget
// and breaker.
func imagineDead(res Result) Result {
	budget, calls := savedRetries(), 0
	res.LeafRequests = 0
	if res.Mode == Stint { // the last call's attempts: one, or none
		cut := slices.IndexFunc(res.attempts, func(a attempt) bool { return a.start >= res.drawn })
		why := stint.BudgetSpent
		if !res.row.spec.breakerOff {
			cut, why = cut-1, stint.BreakerOpen
		}
		res.attempts, res.visits = res.attempts[:cut+1], res.visits[:cut+1]
		res.left = res.drawn + res.attempts[cut].end - res.attempts[cut].start
		res.stops = map[stop]int{{"A", why}: 1}
	}
	for i := range res.perCall {
		n := 3
		if res.Mode == Stint {
			n = 1 + min(2, budget)
			budget -= n - 1
			if calls++; calls > 20 && !res.row.spec.breakerOff {
				n, res.ClientStatus, res.clientEnd, res.ClientError = 0, 0, "refused", "stint: C: breaker_open"
			}
		}
		res.perCall[i] = n
		res.LeafRequests += n
	}
	res.ElapsedMs, res.WastedMs, res.Holds = 3*float64(res.LeafRequests), 0, res.row.want.holds(res.LeafRequests)
	return res
}

func imagined(o Options) []Report {
	var reports []Report
	for _, e := range experiments(o) {
		r := Report{experiment: e}
		for _, row := range e.rows {
			res := imagine(row)
			if e.name == "dead" {
				res = imagineDead(res)
			}
			res.Experiment = e.name
			r.Results = append(r.Results, res)
		}
		reports = append(reports, r)
	}
	return reports
}

// render writes the reports as the command does.
func render(t *testing.T, reports []Report, st Style) string {
	t.Helper()
	var b strings.Builder
	var all []Result
	err := WriteIntro(&b)
	for _, r := range reports {
		err = errors.Join(err, r.WriteText(&b, st))
		all = append(all, r.Results...)
	}
	if err := errors.Join(err, WriteSummary(&b, all, st)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func checkWidth(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("%s: %d columns: %s", what, n, line)
		}
	}
}

// Short output has the tables, and of the promises only the broken ones.
func TestTextShort(t *testing.T) {
	text := render(t, imagined(DefaultOptions()), Style{Short: true})
	if strings.Contains(text, "  ok: ") || strings.Contains(text, "client 1") || strings.Count(text, " ok\n") != 12 {
		t.Errorf("not the tables alone:\n%s", text)
	}
	reports := imagined(DefaultOptions())
	last := &reports[0].Results[len(reports[0].Results)-1]
	last.Holds, last.LeafRequests = false, 5
	if text := render(t, reports, Style{Short: true}); !strings.Contains(text, "BROKEN: ") || !strings.Contains(text, "saw 5") {
		t.Errorf("a broken promise is not told:\n%s", text)
	}
}

func TestText(t *testing.T) {
	golden(t, "report.golden", render(t, imagined(DefaultOptions()), Style{}))
}

func TestTextBroken(t *testing.T) {
	reports := imagined(Options{Attempts: 3, Depth: 2})[:1]
	res := &reports[0].Results[3]
	res.LeafRequests, res.Holds = 5, false
	golden(t, "broken.golden", render(t, reports, Style{}))
}

// Whatever the options are, no line is too long, and colours only repeat what
// the text says.
func TestTextWidth(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[[0-9]*m")
	for attempts := 1; attempts <= MaxAttempts; attempts++ {
		for depth := 1; depth <= MaxDepth; depth++ {
			o := Options{Attempts: attempts, Depth: depth}
			if o.Validate() != nil {
				continue
			}
			plain := render(t, imagined(o), Style{})
			checkWidth(t, "attempts and depth "+strings.Join([]string{letter(attempts), letter(depth)}, " "), plain)
			if strings.Contains(plain, "\x1b") {
				t.Error("escapes without colours")
			}
			colored := render(t, imagined(o), Style{Color: true})
			if !strings.Contains(colored, "\x1b[32m") || escape.ReplaceAllString(colored, "") != plain {
				t.Errorf("attempts %d, depth %d: the text with colours is another one", attempts, depth)
			}
			if strings.Count(colored, "\x1b[0m")*2 != strings.Count(colored, "\x1b") {
				t.Errorf("attempts %d, depth %d: a colour is not switched off", attempts, depth)
			}
		}
	}
}

// The real output fits as well: its times are longer than those imagined.
func TestTextOfRun(t *testing.T) {
	var b strings.Builder
	err := Run(t.Context(), Options{Only: []string{"multiply", "deadline"}, Attempts: 2, Depth: 1}, func(string, string) {},
		func(r Report) error { return r.WriteText(&b, Style{}) })
	if err != nil {
		t.Fatal(err)
	}
	checkWidth(t, "a run", b.String())
	for _, want := range []string{"A: attempts_spent; B: not_owner x2", "client gave up after", "C worked on for"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in it:\n%s", want, &b)
		}
	}
}

func TestBarLength(t *testing.T) {
	for _, c := range []struct{ n, most, want int }{
		{0, 0, 0}, {0, 9, 0}, {1, 1, 1}, {1, 9, 1}, {9, 9, 21}, {3, 9, 11}, {243, 243, 21}, {3, 243, 5}, {2, 3125, 3},
	} {
		if have := barLength(c.n, c.most, 21); have != c.want {
			t.Errorf("%d of %d: %d columns, want %d", c.n, c.most, have, c.want)
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		counts []int
		want   string
	}{
		{[]int{3, 2, 1, 0}, "█▅▃·"},
		{slices.Repeat([]int{3, 0}, 50), strings.Repeat("▄", 50)},
		{append(slices.Repeat([]int{0}, 299), 1), strings.Repeat("·", 49) + "▁"},
		{nil, ""},
	} {
		if have := sparkline(c.counts, 3); have != c.want {
			t.Errorf("%v: %s, want %s", c.counts, have, c.want)
		}
	}
}

func TestMillisText(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", 0.42: "0.4 ms", 1: "1 ms", 4.27: "4.3 ms", 9.96: "10 ms", 243.4: "243 ms",
		1000: "1 s", 5698.2: "5698 ms", 60000: "60 s", 12345: "12.3 s"} {
		if have := millisText(ms); have != want {
			t.Errorf("%v: %q, want %q", ms, have, want)
		}
	}
}

func TestWrap(t *testing.T) {
	word := strings.Repeat("x", 39)
	for in, want := range map[string]string{
		"":                                "  a: \n",
		"b":                               "  a: b\n",
		word + " " + word:                 "  a: " + word + "\n     " + word + "\n",
		word + " " + word[:35] + " y":     "  a: " + word + " " + word[:35] + "\n     y\n",
		strings.Repeat("x", 90) + " tail": "  a: " + strings.Repeat("x", 90) + "\n     tail\n",
	} {
		if have := wrap("  a: ", in); have != want {
			t.Errorf("%q: %q, want %q", in, have, want)
		}
	}
}

// The deadline is on the axis where that does not squeeze all else.
func TestAxis(t *testing.T) {
	at := func(end, deadline time.Duration) axis {
		return axisFor(picture{deadline: deadline, left: end, lanes: []lane{{bars: []bar{{span: span{0, end}}}}}})
	}
	if a := at(time.Second, 300*time.Millisecond); a.end != time.Second || a.deadline != 20 {
		t.Errorf("a deadline within: %+v", a)
	}
	if a := at(243*time.Millisecond, 300*time.Millisecond); a.end != 306*time.Millisecond || a.deadline < 60 {
		t.Errorf("a deadline soon after: %+v", a)
	}
	if a := at(10*time.Millisecond, time.Minute); a.end != 10*time.Millisecond || a.deadline != -1 {
		t.Errorf("a deadline far away: %+v", a)
	}
	if a := at(0, time.Minute); a.end <= 0 || a.cell(time.Hour) != laneWidth-1 || a.cell(-1) != 0 {
		t.Errorf("no time at all: %+v", a)
	}
	for end := 20 * time.Microsecond; end < time.Hour; end = end*3/2 + 1 {
		ticks := at(end, 100*time.Hour).ticks()
		times := strings.Fields(strings.Replace(ticks, "0 ms", "0", 1))
		if n := len(times); n < 2 || n > 8 || len(ticks) > laneWidth+1 {
			t.Errorf("%v: %q has %d times, %d columns", end, ticks, n, len(ticks))
			continue
		}
		step, _ := strconv.ParseFloat(times[1], 64)
		for i, text := range times {
			if at, err := strconv.ParseFloat(text, 64); err != nil || math.Abs(at-float64(i)*step) > 1e-6*at {
				t.Errorf("%v: %q: time %d is %s, want %d steps of %v", end, ticks, i, text, i, step)
			}
		}
	}
}

// One column is one nanosecond here.
func TestPaint(t *testing.T) {
	a := axis{end: laneWidth, deadline: -1}
	attempts := func(bars ...bar) lane { return lane{name: "A", bars: bars} }
	work := func(spans ...span) lane {
		l := lane{name: "C", leaf: true}
		for _, s := range spans {
			l.bars = append(l.bars, bar{span: s})
		}
		return l
	}
	for _, c := range []struct {
		name string
		a    axis
		l    lane
		left time.Duration
		want string
	}{
		{"an end is no part of it", a, attempts(bar{span{0, 3}, 1}, bar{span{5, 7}, 2}), 99, "1──  2─"},
		{"no time at all", a, attempts(bar{span{2, 2}, 1}), 99, "  1"},
		{"several in a column", a, attempts(bar{span{0, 0}, 1}, bar{span{0, 0}, 2}, bar{span{1, 2}, 3}), 99, "#3"},
		{"beyond the end", a, attempts(bar{span{laneWidth - 1, 2 * laneWidth}, 1}), 99, strings.Repeat(" ", laneWidth-1) + "1"},
		{"work", a, work(span{0, 3}, span{3, 5}, span{6, 6}), 99, "▐██▐█ ▐"},
		{"work of several in a column", a, work(span{0, 0}, span{0, 2}), 99, "██"},
		{"work for nobody", a, work(span{0, 4}, span{5, 8}), 2, "▐██░ ▒░░"},
		{"a deadline", axis{end: laneWidth, deadline: 2}, attempts(bar{span{0, 4}, 1}), 99, "1─|──"},
	} {
		cells := c.a.paint(c.l, picture{mode: Naive, left: c.left})
		if have := strings.TrimRight(line(Style{}, cells), " "); have != c.want {
			t.Errorf("%s: %q, want %q", c.name, have, c.want)
		}
	}
}

func TestJSON(t *testing.T) {
	var all []Result
	for _, r := range imagined(DefaultOptions()) {
		all = append(all, r.Results...)
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, all); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", b.String())

	var back []map[string]any
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back) != len(all) {
		t.Fatalf("%d rows came back of %d, error %v", len(back), len(all), err)
	}
	want := []string{"clientError", "clientStatus", "elapsedMs", "experiment", "holds", "leafRequests", "mode", "params", "wastedMs"}
	for i, row := range back {
		var keys []string
		for k := range row {
			keys = append(keys, k)
		}
		if slices.Sort(keys); !slices.Equal(keys, want) {
			t.Errorf("row %d has %v, want %v", i, keys, want)
		}
		if _, ok := row["params"].(map[string]any); !ok {
			t.Errorf("row %d: params is no object: %v", i, row["params"])
		}
	}

	b.Reset()
	if err := WriteJSON(&b, nil); err != nil || json.Unmarshal(b.Bytes(), &back) != nil || len(back) != 0 {
		t.Errorf("no results: %q, error %v", &b, err)
	}
}
