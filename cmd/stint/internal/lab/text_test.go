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

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

var update = flag.Bool("update", false, "write the golden files")

// render writes the reports as the command does.
func render(t *testing.T, reports []Report, st Style) string {
	t.Helper()
	var b strings.Builder
	var all []Result
	err := WriteIntro(&b, HTTP)
	for _, r := range reports {
		err = errors.Join(err, r.WriteText(&b, st))
		all = append(all, r.Results...)
	}
	if err := errors.Join(err, WriteSummary(&b, all, st)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func checkWidth(t *testing.T, what string, most int, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > most {
			t.Errorf("%s: %d columns: %s", what, n, line)
		}
	}
}

// Short output has a line for each row, and of the promises only the broken ones.
func TestTextShort(t *testing.T) {
	text := render(t, imagined(DefaultOptions()), Style{Short: true})
	if strings.Contains(text, "  ok: ") || strings.Contains(text, "client 1") || strings.Count(text, " ok\n") != 30 {
		t.Errorf("not a line for each row:\n%s", text)
	}
	reports := imagined(DefaultOptions())
	last := &reports[0].Results[len(reports[0].Results)-1]
	last.Holds, last.Count = false, 5
	if text := render(t, reports, Style{Short: true}); !strings.Contains(text, "BROKEN: ") || !strings.Contains(text, "but requests at C: 5, want 3, and the client: 502") {
		t.Errorf("a broken promise is not told:\n%s", text)
	}
}

func TestText(t *testing.T) {
	golden(t, "report.golden", render(t, imagined(DefaultOptions()), Style{}))
}

func TestTextStore(t *testing.T) {
	for _, st := range []Store{SQLite, Postgres, Redis} {
		reports := []Report{imagineStore(st)}
		text := render(t, reports, Style{})
		checkWidth(t, st.String(), width, text)
		checkWidth(t, st.String()+", short", shortWidth, render(t, reports, Style{Short: true}))
		if st == Postgres {
			golden(t, "store.golden", text)
		}
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, imagineStore(Postgres).Results); err != nil {
		t.Fatal(err)
	}
	golden(t, "store.json", b.String())
}

func TestTextBroken(t *testing.T) {
	reports := imagined(Options{Attempts: 3, Depth: 2})[:1]
	res := &reports[0].Results[3]
	res.Count, res.Holds = 5, false
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
			checkWidth(t, "attempts and depth "+strings.Join([]string{letter(attempts), letter(depth)}, " "), width, plain)
			checkWidth(t, "short", shortWidth, render(t, imagined(o), Style{Short: true}))
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
	checkWidth(t, "a run", width, b.String())
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

// The deadline is on the axis where that does not squeeze all else.
func TestAxis(t *testing.T) {
	at := func(end, deadline time.Duration) term.Axis {
		return axisFor(picture{deadline: deadline, left: end, lanes: []lane{{bars: []bar{{span: span{0, end}}}}}})
	}
	if a := at(time.Second, 300*time.Millisecond); a.End != time.Second || a.Deadline != 20 {
		t.Errorf("a deadline within: %+v", a)
	}
	if a := at(243*time.Millisecond, 300*time.Millisecond); a.End != 306*time.Millisecond || a.Deadline < 60 {
		t.Errorf("a deadline soon after: %+v", a)
	}
	if a := at(10*time.Millisecond, time.Minute); a.End != 10*time.Millisecond || a.Deadline != -1 {
		t.Errorf("a deadline far away: %+v", a)
	}
	if a := at(0, time.Minute); a.End <= 0 || a.Cell(time.Hour) != laneWidth-1 || a.Cell(-1) != 0 {
		t.Errorf("no time at all: %+v", a)
	}
	for end := 20 * time.Microsecond; end < time.Hour; end = end*3/2 + 1 {
		ticks := at(end, 100*time.Hour).Ticks()
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
	a := term.Axis{End: laneWidth, Columns: laneWidth, Deadline: -1}
	attempts := func(bars ...bar) lane { return lane{name: "A", bars: bars} }
	work := func(spans ...span) lane {
		l := lane{name: "C", kind: work}
		for _, s := range spans {
			l.bars = append(l.bars, bar{span: s})
		}
		return l
	}
	for _, c := range []struct {
		name string
		a    term.Axis
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
		{"a wait", a, attempts(bar{span{0, 2}, 1}, bar{span{1, 5}, 0}, bar{span{5, 6}, 2}), 99, "1─···2"},
		{"marks", a, lane{kind: marks, bars: []bar{{span: span{1, 1}}, {span: span{4, 4}}}}, 99, " $  $"},
		{"a deadline", term.Axis{End: laneWidth, Columns: laneWidth, Deadline: 2}, attempts(bar{span{0, 4}, 1}), 99, "1─|──"},
	} {
		cells := c.l.paint(c.a, picture{mode: Naive, left: c.left})
		if have := strings.TrimRight(term.Line(false, cells), " "); have != c.want {
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
	want := []string{"clientError", "clientStatus", "count", "counted", "elapsedMs", "experiment", "holds", "leafRequests", "mode",
		"params", "row", "wantLeast", "wantMost", "wastedMs"}
	for i, row := range back {
		var keys []string
		for k := range row {
			keys = append(keys, k)
		}
		if row["experiment"] == "hedge" {
			keys = slices.DeleteFunc(keys, func(k string) bool { return k == "p50Ms" || k == "p99Ms" })
		}
		if row["experiment"] == "overload" {
			keys = slices.DeleteFunc(keys, func(k string) bool { return k == "good" || k == "sent" || k == "failureMs" })
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
