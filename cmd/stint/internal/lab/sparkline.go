package lab

import (
	"fmt"
	"strings"
)

// Heights of a sparkline, lowest first.
var sparks = []rune("▁▂▃▄▅▆▇█")

const sparkWidth = 50

// sparklines writes how the requests of a call develop from the first to the
// last one.
func sparklines(b *strings.Builder, st Style, results []Result) {
	highest := 0
	for _, res := range results {
		for _, n := range res.perCall {
			highest = max(highest, n)
		}
	}
	calls := len(results[0].perCall)
	b.WriteString("\n" + st.paint(dim, fmt.Sprintf("  requests in each call, from call 1 to call %d (full height is %d, a dot is 0):", calls, highest)) + "\n")
	for _, res := range results {
		fmt.Fprintf(b, "  %-*s %s\n", labelWidth, res.row.label, st.paint(shadeOf(res.Mode), sparkline(res.perCall, highest)))
	}
}

// sparkline draws the counts in at most sparkWidth columns, each the mean of as
// many counts.
func sparkline(counts []int, highest int) string {
	columns := min(len(counts), sparkWidth)
	var b strings.Builder
	for i := range columns {
		part := counts[i*len(counts)/columns : (i+1)*len(counts)/columns]
		sum := 0
		for _, n := range part {
			sum += n
		}
		if sum == 0 {
			b.WriteRune('·')
			continue
		}
		level := float64(sum) / float64(len(part)*highest) * float64(len(sparks))
		b.WriteRune(sparks[max(0, min(int(level+0.5)-1, len(sparks)-1))])
	}
	return b.String()
}
