package lab

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// WriteIntro writes what holds for all experiments over t.
func WriteIntro(w io.Writer, t Transport) error {
	servers, unavailable := "HTTP servers", "503"
	switch t {
	case GRPC:
		servers, unavailable = "gRPC servers", "gRPC's status 14"
	case Mixed:
		servers, unavailable = "servers, gRPC on the last hop, HTTP on the one before it, and so on by turns,", "gRPC's status 14, or 503"
	}
	left := ""
	if t != HTTP {
		left = fmt.Sprintf(" The experiments that are left out, all but %s, run over HTTP only.", strings.Join(Names(t), ", "))
	}
	_, err := io.WriteString(w, wrap("", fmt.Sprintf("Real "+servers+" on 127.0.0.1, fresh ones for each row. \"naive\" is client "+
		"and service as written by hand, \"stint\" is the library with as many attempts. Unavailable is "+unavailable+". Fixed for all: backoff %s (stint: base = cap), "+
		"Reserve 0, TrustPeers, PeerStint. Counts decide whether a promise holds; times are only shown. In the waterfalls an attempt "+
		"shows its number where it starts (# is several), dots are a wait that a server asks for, and blocks are requests at the last service."+left, term.Duration(backoff))))
	return err
}

// WriteText writes a report for people, at most 80 columns wide, or 100 if it is
// short.
func (r Report) WriteText(w io.Writer, st Style) error {
	var b strings.Builder
	e := r.experiment
	if st.Short {
		r.lines(&b, st)
		_, err := io.WriteString(w, b.String())
		return err
	}
	b.WriteString("\n" + st.paint(bold, e.name+": "+e.shows) + "\n")
	b.WriteString(wrap("  ", e.setting) + "\n")
	r.table(&b, st)
	b.WriteString("\n")
	for _, res := range r.Results {
		if res.row.promise != "" {
			b.WriteString(promise(res, st))
		}
	}
	if e.perCall {
		sparklines(&b, st, r.Results)
	}
	if pictures := r.pictures(); len(pictures) > 0 {
		waterfalls(&b, st, pictures, e.ownAxes)
	}
	if e.draw != nil {
		e.draw(&b, st, r.Results)
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
	labelWidth   = 20
	countWidth   = 6 // or the head's
	wantWidth    = 7
	endWidth     = 16
	verdictWidth = len("BROKEN")
)

// table writes one line for each row: what was counted, what had to be, and how
// it ended.
func (r Report) table(b *strings.Builder, st Style) {
	e := r.experiment
	countWidth := max(countWidth, len(e.head))
	barWidth := width - 2 - labelWidth - 1 - countWidth - 2 - wantWidth - 2 - 2 - endWidth - 1 - verdictWidth
	barHead := "bar: log scale"
	if barWidth < len(barHead) {
		barHead = "log"
	}
	b.WriteString(st.paint(dim, fmt.Sprintf("  %-*s %*s  %-*s  %-*s  %s", labelWidth, "", countWidth, e.head,
		wantWidth, "want", barWidth, barHead, e.endHead)) + "\n")
	for _, res := range r.Results {
		fmt.Fprintf(b, "  %-*s %*d  %-*s  %s  %-*s %s\n", labelWidth, res.row.label, countWidth, res.Count,
			wantWidth, res.row.want, r.bar(res, barWidth, st), endWidth, res.end, verdict(res, st))
	}
}

// Widths of the short output.
const (
	shortWidth   = 100
	nameColumn   = 10
	countedWidth = 15
	shortCount   = 4
	shortBar     = shortWidth - nameColumn - 1 - labelWidth - 1 - countedWidth - 1 - shortCount - 2 - 2 - endWidth - 1 - verdictWidth
)

// lines writes each row in one line that needs no head, and what is broken.
func (r Report) lines(b *strings.Builder, st Style) {
	e := r.experiment
	name := e.name
	for _, res := range r.Results {
		fmt.Fprintf(b, "%s %-*s %-*s %*d  %s  %-*s %s\n", st.paint(bold, name)+strings.Repeat(" ", nameColumn-len(name)), labelWidth, res.row.label,
			countedWidth, e.counted, shortCount, res.Count, r.bar(res, shortBar, st), endWidth, res.end, verdict(res, st))
		name = ""
	}
	for _, res := range r.Results {
		if !res.Holds {
			b.WriteString(promise(res, st))
		}
	}
}

// bar is the row's count as a bar of so many columns.
func (r Report) bar(res Result, columns int, st Style) string {
	most := 0
	for _, res := range r.Results {
		most = max(most, res.Count)
	}
	n := barLength(res.Count, most, columns)
	return st.paint(shadeOf(res.Mode), strings.Repeat("█", n)) + strings.Repeat(" ", columns-n)
}

func verdict(res Result, st Style) string {
	if res.Holds {
		return st.paint(green, "ok")
	}
	return st.paint(red, "BROKEN")
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

// promise says in words what is to be seen in a row, and whether it is.
func promise(res Result, st Style) string {
	if res.Holds {
		return strings.Replace(wrap("  ok: ", res.row.promise+"."), "ok", st.paint(green, "ok"), 1)
	}
	text := fmt.Sprintf("%s; but %s: %d, want %v, and the client: %s.", cmp.Or(res.row.promise, res.row.label),
		res.Counted, res.Count, res.row.want, res.clientEnd)
	return strings.Replace(wrap("  BROKEN: ", text), "BROKEN", st.paint(red, "BROKEN"), 1)
}
