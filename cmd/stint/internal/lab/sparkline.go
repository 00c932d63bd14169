package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"
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
	return spark(counts, func(part []int) float64 {
		sum := 0
		for _, n := range part {
			sum += n
		}
		return float64(sum) / float64(len(part)*highest)
	})
}

// sparkOfHighest draws the times in as many columns, each the longest of its own.
func sparkOfHighest(times []time.Duration, highest time.Duration) string {
	return spark(times, func(part []time.Duration) float64 { return float64(slices.Max(part)) / float64(highest) })
}

// spark draws the values in at most sparkWidth columns, whose height is a part
// of the highest one. Zero is a dot.
func spark[T any](values []T, height func([]T) float64) string {
	columns := min(len(values), sparkWidth)
	var b strings.Builder
	for i := range columns {
		h := height(values[i*len(values)/columns : (i+1)*len(values)/columns])
		if h == 0 {
			b.WriteRune('·')
			continue
		}
		level := int(h*float64(len(sparks))+0.5) - 1
		b.WriteRune(sparks[max(0, min(level, len(sparks)-1))])
	}
	return b.String()
}
