// Package lab shows on real HTTP and gRPC servers what the contract of package stint
// changes: each experiment runs a chain of services once as clients and services
// are often written by hand and once with stint, and counts what comes of it:
// in most of them the requests that reach the service at the end.
package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of the options. MaxRequests keeps a run within seconds.
const (
	MaxAttempts = 5
	MaxDepth    = 6
	MaxRequests = 5000
)

// Options say what a run of the lab does.
type Options struct {
	// Only names the experiments to run. Empty means all. The order in which
	// they run is fixed.
	Only []string
	// Attempts is how many attempts each layer of multiply and depth makes, 1
	// to MaxAttempts.
	Attempts int
	// Depth is the number of layers that retry in depth, 1 to MaxDepth.
	Depth int
	// Transport is what the hops go over. Zero is HTTP; over the others there are
	// only the experiments of Names(Transport).
	Transport Transport
	// Store is what the last service asks; with one there is its experiment and no
	// other. Zero is none.
	Store Store
	// DSN is the URL of the Store's server; SQLite has none.
	DSN string
}

// DefaultOptions returns the options of a plain "stint lab".
func DefaultOptions() Options { return Options{Attempts: 3, Depth: 5} }

// Validate reports the first option that can't be meant, by the name of its
// flag: what it is, and what would be right.
func (o Options) Validate() error {
	if err := o.Store.check(o.DSN); err != nil {
		return err
	}
	if o.Store != NoStore && o.Transport != HTTP {
		return fmt.Errorf("-store runs over HTTP only: leave -transport %v out", o.Transport)
	}
	if o.Store != NoStore && len(o.Only) > 0 {
		return errors.New("-store has one experiment of its own: leave -only out")
	}
	for _, name := range o.Only {
		if o.Transport != HTTP && slices.Contains(Names(HTTP), name) && !slices.Contains(Names(o.Transport), name) {
			return fmt.Errorf("-only: experiment %q runs over HTTP only: with -transport %v there are %s",
				name, o.Transport, strings.Join(Names(o.Transport), ", "))
		}
		if !slices.Contains(Names(HTTP), name) {
			return fmt.Errorf("-only: unknown experiment %q: want one or more of %s, separated by commas",
				name, strings.Join(Names(HTTP), ", "))
		}
	}
	if o.Attempts < 1 || o.Attempts > MaxAttempts {
		return fmt.Errorf("-attempts is %d: must be 1 to %d", o.Attempts, MaxAttempts)
	}
	if o.Depth < 1 || o.Depth > MaxDepth {
		return fmt.Errorf("-depth is %d: must be 1 to %d", o.Depth, MaxDepth)
	}
	if n := power(o.Attempts, o.Depth); n > MaxRequests {
		attempts, depth := o.Attempts, o.Depth
		for power(attempts, o.Depth) > MaxRequests {
			attempts--
		}
		for power(o.Attempts, depth) > MaxRequests {
			depth--
		}
		return fmt.Errorf("-attempts %d and -depth %d are %d requests, %d^%d, at the end of the chain: at most %d may be; "+
			"take -attempts %d or -depth %d", o.Attempts, o.Depth, n, o.Attempts, o.Depth, MaxRequests, attempts, depth)
	}
	return nil
}

func power(n, exponent int) int {
	p := 1
	for range exponent {
		p *= n
	}
	return p
}

// A Report is one experiment that has been run.
type Report struct {
	// Results has one for each row of the experiment, in order.
	Results []Result

	experiment experiment
}

// Holds reports whether every row came out as it has to.
func (r Report) Holds() bool {
	return !slices.ContainsFunc(r.Results, func(res Result) bool { return !res.Holds })
}

// Run runs the experiments one after the other. started is called before each
// row, done after each experiment; an error of done ends the run. If ctx ends,
// so does the run, with the context's error and every server closed.
func Run(ctx context.Context, o Options, started func(experiment, row string), done func(Report) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	for _, e := range experiments(o) {
		if len(o.Only) > 0 && !slices.Contains(o.Only, e.name) {
			continue
		}
		report := Report{experiment: e}
		for _, row := range e.rows {
			started(e.name, row.label)
			res, err := e.run(ctx, row)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", e.name, row.label, err)
			}
			report.Results = append(report.Results, res)
		}
		if err := done(report); err != nil {
			return err
		}
	}
	return nil
}
