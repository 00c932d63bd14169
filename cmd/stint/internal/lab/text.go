package lab

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// WriteIntro writes what holds for all experiments.
func WriteIntro(w io.Writer) error {
	_, err := io.WriteString(w, wrap("", fmt.Sprintf("Real HTTP servers on 127.0.0.1, fresh ones for each row. \"naive\" is a retry "+
		"loop written by hand, \"stint\" is the library with as many attempts. Fixed for all: backoff %s (stint: base = cap), "+
		"Reserve 0, TrustPeers, PeerStint. Counts decide whether a promise holds; times are only shown. In the waterfalls an attempt "+
		"shows its number where it starts (# is several), and blocks are requests at the last service.", duration(backoff))))
	return err
}

// WriteText writes a report for people, at most 80 columns wide.
func (r Report) WriteText(w io.Writer, st Style) error {
	var b strings.Builder
	e := r.experiment
	b.WriteString("\n" + st.paint(bold, e.name+": "+e.shows) + "\n")
	if !st.Short {
		b.WriteString(wrap("  ", e.setting))
		b.WriteString("\n")
	}
	r.table(&b, st)
	if !st.Short {
		b.WriteString("\n")
	}
	for _, res := range r.Results {
		if res.row.promise != "" && !(st.Short && res.Holds) {
			b.WriteString(promise(res, e.leaf, st))
		}
	}
	if st.Short {
		_, err := io.WriteString(w, b.String())
		return err
	}
	if len(r.Results) > 0 && r.Results[0].row.spec.calls > 1 {
		sparklines(&b, st, r.Results)
	}
	if pictures := r.pictures(); len(pictures) > 0 {
		waterfalls(&b, st, pictures, e.ownAxes)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSummary writes the last line: what came of all reports together.
func WriteSummary(w io.Writer, results []Result, st Style) error {
	broken := 0
	for _, r := range results {
		if !r.Holds {
			broken++
		}
	}
	text := st.paint(green, "ok") + fmt.Sprintf(": all %d rows came out as they have to.", len(results))
	if broken > 0 {
		text = st.paint(red, "BROKEN") + fmt.Sprintf(": %d of %d rows did not come out as they have to.", broken, len(results))
	}
	_, err := fmt.Fprintf(w, "\n%s\n", text)
	return err
}

// Widths of the table's columns; the bars get what is left.
const (
	labelWidth  = 20
	countWidth  = 6
	wantWidth   = 7
	clientWidth = 15
	barWidth    = width - 2 - labelWidth - 1 - countWidth - 2 - wantWidth - 2 - 2 - clientWidth - 2 - len("BROKEN")
)

// table writes one line for each row: what reached the leaf, what had to, and
// how it ended for the client.
func (r Report) table(b *strings.Builder, st Style) {
	most := 0
	for _, res := range r.Results {
		most = max(most, res.LeafRequests)
	}
	b.WriteString(st.paint(dim, fmt.Sprintf("  %-*s %*s  %-*s  %-*s  %s", labelWidth, "", countWidth, "at "+r.experiment.leaf,
		wantWidth, "want", barWidth, "bar: log scale", "client")) + "\n")
	for _, res := range r.Results {
		verdict := st.paint(green, "ok")
		if !res.Holds {
			verdict = st.paint(red, "BROKEN")
		}
		bar := strings.Repeat("█", barLength(res.LeafRequests, most, barWidth))
		fmt.Fprintf(b, "  %-*s %*d  %-*s  %s  %-*s  %s\n", labelWidth, res.row.label, countWidth, res.LeafRequests,
			wantWidth, res.row.want, st.paint(shadeOf(res.Mode), bar)+strings.Repeat(" ", barWidth-utf8.RuneCountInString(bar)),
			clientWidth, res.clientEnd+" "+millisText(res.ElapsedMs), verdict)
	}
}

// barLength is the length of the bar for n, if most takes columns. The scale is
// logarithmic, so that 3 and 243 can both be seen: 1 is one column, 0 is none.
func barLength(n, most, columns int) int {
	if n <= 0 {
		return 0
	}
	if most <= 1 {
		return 1
	}
	return 1 + int(math.Round(float64(columns-1)*math.Log(float64(n))/math.Log(float64(most))))
}

// promise says in words whether a stint row keeps what it promises.
func promise(res Result, leaf string, st Style) string {
	if res.Holds {
		return strings.Replace(wrap("  ok: ", res.row.promise+"."), "ok", st.paint(green, "ok"), 1)
	}
	text := fmt.Sprintf("%s; but %s saw %d.", res.row.promise, leaf, res.LeafRequests)
	return strings.Replace(wrap("  BROKEN: ", text), "BROKEN", st.paint(red, "BROKEN"), 1)
}

// duration is d as it is printed.
func duration(d time.Duration) string { return millisText(millis(d)) }

// millisText is a time as it is printed: two or three digits are enough.
func millisText(ms float64) string {
	switch {
	case ms >= 1000 && math.Mod(ms, 1000) == 0:
		return fmt.Sprintf("%.0f s", ms/1000)
	case ms >= 9999.5:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 9.95 || ms == math.Trunc(ms):
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
