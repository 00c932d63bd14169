package lab

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

const (
	skewed       = 30 * time.Second // how wrong the caller's clock is
	skewDeadline = 2 * time.Second  // nothing waits for it
	skewCalls    = 20
)

func skew() experiment {
	build := func(m Mode, skew time.Duration) spec {
		s := direct(m, 1)
		s.calls, s.deadline, s.skew = skewCalls, skewDeadline, skew
		if s.absolute = m == Naive; s.absolute {
			s.serve = readsAbsolute
		} else {
			s.serve, s.gated = readsContext, true
		}
		return s
	}
	return experiment{
		shows: "a deadline that crosses as a duration knows no clocks",
		setting: fmt.Sprintf("A -> C, %d calls with a deadline of %s each. A's clock is %s wrong: that is added to the time that it writes into the naive "+
			"X-Request-Deadline. stint writes X-Deadline-Ms, the milliseconds left, in which there is no clock to be wrong. Counted are the calls that "+
			"C refused or granted more than A has.", skewCalls, term.Duration(skewDeadline), term.Duration(skewed)),
		leaf:    "C",
		counted: "wrong deadlines",
		head:    "wrong",
		count:   wrongDeadlines,
		end:     func(res Result) string { return grantedText(granted(res)) },
		endHead: "budget at C",
		draw:    drawGranted,
		rows: []row{
			{label: "naive, 30 s behind", spec: build(Naive, -skewed), want: exactly(skewCalls), ends: answered(http.StatusGatewayTimeout),
				promise: "30 s behind: every request has expired when it arrives, and C refuses it"},
			{label: "naive, 30 s ahead", spec: build(Naive, skewed), want: exactly(skewCalls), ends: answered(http.StatusOK),
				promise: "30 s ahead: C may work on for 30 s after A has left"},
			{label: "stint, any clock", spec: build(Stint, 0), want: exactly(0), ends: answered(http.StatusOK),
				promise: "stint: C grants what A has, and refuses none"},
		},
	}
}

const headerAbsolute = "X-Request-Deadline" // Unix time in milliseconds

// absoluteDeadline writes the context's deadline as a caller does whose clock
// is wrong by skew.
func absoluteDeadline(skew time.Duration) func(context.Context, http.Header) {
	return func(ctx context.Context, h http.Header) {
		if deadline, ok := ctx.Deadline(); ok {
			h.Set(headerAbsolute, strconv.FormatInt(deadline.Add(skew).UnixMilli(), 10))
		}
	}
}

// readsAbsolute is a service that reads an absolute deadline: it refuses what
// has expired, and its work has what is left.
func readsAbsolute(s spec, rec *record) http.HandlerFunc {
	serve := readsContext(s, rec)
	return func(w http.ResponseWriter, r *http.Request) {
		at, err := strconv.ParseInt(r.Header.Get(headerAbsolute), 10, 64)
		if err != nil {
			http.Error(w, "no deadline", http.StatusBadRequest)
			return
		}
		left := time.Until(time.UnixMilli(at))
		if left <= 0 {
			rec.marked(left)
			http.Error(w, "too late", http.StatusGatewayTimeout)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), left)
		defer cancel()
		serve(w, r.WithContext(ctx))
	}
}

// readsContext marks how long the work may take.
func readsContext(_ spec, rec *record) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		left, _ := stint.Remaining(r.Context())
		rec.marked(left)
	}
}

// wrongDeadlines is how many calls were refused, or granted more than the
// caller has.
func wrongDeadlines(res Result) int {
	n := res.row.spec.calls
	for _, m := range res.marks {
		if m.left > 0 && m.left <= res.row.spec.deadline {
			n--
		}
	}
	return n
}

// granted is what the last call was granted.
func granted(res Result) time.Duration {
	if len(res.marks) == 0 {
		return 0
	}
	return res.marks[len(res.marks)-1].left
}

func grantedText(d time.Duration) string {
	if d <= 0 {
		return fmt.Sprintf("refused: %.1f s", d.Seconds())
	}
	return fmt.Sprintf("granted %.1f s", d.Seconds())
}

// drawGranted draws what each row's last call was granted, on a line of time on
// which zero is when its request arrives.
func drawGranted(b *strings.Builder, st Style, results []Result) {
	const columns = width - 2 - labelWidth - 1
	at := func(t time.Duration) int {
		return max(0, min(int((t+skewed)*(columns-1)/(2*skewed+skewDeadline)), columns-1))
	}
	axis := []rune(strings.Repeat(" ", columns))
	for _, t := range []time.Duration{-skewed, -skewed / 2, 0, skewed / 2, skewed} {
		text := fmt.Sprintf("%.0f s", t.Seconds())
		copy(axis[min(at(t), columns-len(text)):], []rune(text))
	}
	leaves := at(skewDeadline) + 1
	note := fmt.Sprintf("What C grants. A leaves after %s, at |. ░ is after that, × has passed.", term.Duration(skewDeadline))
	b.WriteString("\n  " + st.paint(dim, note) + "\n\n")
	b.WriteString(st.paint(dim, strings.Repeat(" ", 2+labelWidth+1)+strings.TrimRight(string(axis), " ")) + "\n")
	for _, res := range results {
		left := granted(res)
		cells := make([]term.Cell, max(leaves, at(left))+1)
		for i := range cells {
			switch {
			case i == leaves:
				cells[i] = term.Shaded('|', bold)
			case left < 0 && i == at(left):
				cells[i] = term.Shaded('×', red)
			case i < at(0) || i > at(left):
				cells[i] = term.Cell{Rune: ' '}
			case i > leaves:
				cells[i] = term.Shaded('░', red)
			default:
				cells[i] = term.Shaded('█', shadeOf(res.Mode))
			}
		}
		fmt.Fprintf(b, "  %-*s %s\n", labelWidth, res.row.label, term.Line(st.Color, cells))
	}
}
