package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// A report is all that a run found.
type report struct {
	Go       string    `json:"go"`
	Versions []string  `json:"versions"` // of the libraries
	Rounds   int       `json:"rounds"`
	Each     string    `json:"each"` // time of a subject in a round
	Costs    []costs   `json:"costs"`
	Dead     []deadRow `json:"dead"`
	Overload *overload `json:"overload"`
}

// costs are the rows of a scenario. The first is the yardstick against itself.
type costs struct {
	Scenario  string `json:"scenario"`
	title     string
	Yardstick string `json:"yardstick"`
	Rows      []row  `json:"rows"`
}

func goVersion() string {
	return fmt.Sprintf("%s %s/%s, GOMAXPROCS %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
}

// peers are the modules whose versions a report names.
var peers = []string{
	"github.com/failsafe-go/failsafe-go",
	"github.com/sony/gobreaker/v2",
	"github.com/cenkalti/backoff/v5",
	"github.com/hashicorp/go-retryablehttp",
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp",
	"google.golang.org/grpc",
	"github.com/zeromicro/go-zero",
	"github.com/tsenart/vegeta/v12",
}

func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	built := map[string]string{}
	for _, m := range info.Deps {
		built[m.Path] = m.Version
	}
	var list []string
	for _, p := range peers {
		if v := built[p]; v != "" {
			list = append(list, shortName(p)+" "+v)
		}
	}
	return list
}

// shortName is a module's path without its owner and its major version.
func shortName(path string) string {
	parts := strings.Split(path, "/")
	last := parts[len(parts)-1]
	if _, err := strconv.Atoi(last[1:]); err == nil && last[0] == 'v' {
		last = parts[len(parts)-2]
	}
	return last
}

func (r report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// writeText prints tables of at most 100 columns.
func (r report) writeText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Go)
	for some := range slices.Chunk(r.Versions, 5) {
		fmt.Fprintf(&b, "%s\n", strings.Join(some, ", "))
	}
	if len(r.Costs)+len(r.Dead) > 0 {
		fmt.Fprintf(&b, "Each beside the yardstick, by turns, on one thread: medians of %d rounds of %s for each\nof both, and the middle half of the rounds in brackets.\n", r.Rounds, r.Each)
	}
	for _, c := range r.Costs {
		fmt.Fprintf(&b, "\n%s: %s\n", c.Scenario, c.title)
		fmt.Fprintf(&b, "  %-40s %-17s %-16s %8s %6s %6s\n", "", "CPU", "wall", "CPU/call", "allocs", "bytes")
		for i, x := range c.Rows {
			name := x.Subject
			if i == 0 {
				name += " = 1"
			}
			fmt.Fprintf(&b, "  %-40s %-17s %-16s %8s %6.0f %6.0f\n", name, multiple(x.CPU), multiple(x.Wall), nanos(x.Nanos.Median), x.Allocs.Median, x.Bytes.Median)
		}
	}
	if len(r.Dead) > 0 {
		fmt.Fprintf(&b, "\ndead: %d calls, one after the other, to a server that answers 503, of up to %d attempts each\n", deadCalls, attempts)
		fmt.Fprintf(&b, "  %-34s %-18s %-18s %8s %6s %6s\n", "", "CPU", "wall", "requests", "bodies", "conns")
		for i, x := range r.Dead {
			name := x.Subject
			if i == 0 {
				name += " = 1"
			}
			fmt.Fprintf(&b, "  %-34s %-18s %-18s %8s %6d %6d\n", name, multiple(x.CPU), multiple(x.Wall),
				fmt.Sprintf("%d %.2gx", x.Requests, float64(x.Requests)/deadCalls), x.Open, x.Connections)
		}
	}
	if r.Overload != nil {
		r.Overload.writeText(&b)
	}
	if lines := r.promises(); len(lines) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(lines, "\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func multiple(f figure) string {
	digits := 2
	switch {
	case f.High >= 100:
		digits = 0
	case f.High >= 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, f.Median, digits, f.Low, digits, f.High)
}

func nanos(ns float64) string {
	if ns < 10_000 {
		return fmt.Sprintf("%.0f ns", ns)
	}
	return fmt.Sprintf("%.1f µs", ns/1000)
}

// promises says which of the things that are to hold did in this run.
func (r report) promises() (lines []string) {
	find := func(subject string) *row {
		for i := range r.Costs {
			for j := range r.Costs[i].Rows {
				if x := &r.Costs[i].Rows[j]; x.Subject == subject {
					return x
				}
			}
		}
		return nil
	}
	say := func(ok bool, format string, args ...any) {
		word := "no: "
		if ok {
			word = "ok: "
		}
		lines = append(lines, word+fmt.Sprintf(format, args...))
	}
	if own, other := find("stint: Caller.Do"), find("failsafe-go: four policies"); own != nil && other != nil {
		say(own.CPU.Median < 1, "the call stack costs less CPU than the one by hand: %.2f of it", own.CPU.Median)
		part := own.CPU.Median / other.CPU.Median
		say(part <= .5, "the call stack costs at most half the CPU of failsafe-go's: %.2f of it", part)
	}
	if both := find("stint: both sides"); both != nil {
		say(both.CPU.Median <= 1.13, "a hop with stint on both sides costs at most 13 %% CPU above plain net/http: %+.1f %%", 100*(both.CPU.Median-1))
	}
	if both := find("stint: client and server"); both != nil {
		say(both.CPU.Median <= 1.05, "both interceptors cost at most 5 %% CPU above plain grpc-go with a deadline: %+.1f %%", 100*(both.CPU.Median-1))
	}
	if r.Overload != nil {
		for _, x := range r.Overload.Rows {
			if x.Subject != learnedGate && x.Subject != fixedGate {
				continue
			}
			ok, shares := true, []string{}
			for _, c := range x.Loads {
				ok = ok && c.Goodput >= .9
				shares = append(shares, fmt.Sprintf("%s at %v C", percent(c.Goodput), c.Times))
			}
			say(ok, "%s: goodput of 90 %% of C or more: %s", x.Subject, strings.Join(shares, ", "))
		}
	}
	return lines
}
