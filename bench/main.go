// Command bench does the same work through stint, through others' libraries and by hand, in one process, each by
// turns with a yardstick, and prints what each costs as a multiple of a yardstick. docs/performance.md says how far to trust that.
//
//	go run ./bench              all scenarios, some seven minutes
//	go run ./bench -short hop   one of them, quickly
//
// It needs getrusage, so it runs on Unix only.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// options are what the command line says.
type options struct {
	rounds int
	each   time.Duration // for each subject in each round
	json   bool
	only   []string // names of scenarios; empty: all
}

func (o options) wants(scenario string) bool {
	return len(o.only) == 0 || slices.Contains(o.only, scenario)
}

// names of the scenarios, in the order in which they run.
var names = []string{"stack", "refusal", "hop", "grpc", "dead", "overload"}

// builders make the scenarios whose subjects work by turns.
var builders = map[string]func() (*scenario, error){
	"stack":   newStack,
	"refusal": newRefusal,
	"hop":     func() (*scenario, error) { return newHop(answer{}) },
	"grpc":    func() (*scenario, error) { return newRPC(same{}) },
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var short bool
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: bench [flags] [scenario...]\nscenarios, all by default: %s\n", strings.Join(names, ", "))
		flags.PrintDefaults()
	}
	flags.IntVar(&o.rounds, "rounds", 20, "how often each subject is measured, `1 to 100`; overload: once")
	flags.DurationVar(&o.each, "d", 250*time.Millisecond, "how long each subject works in a round, `10ms to 1m`; overload: 15 s")
	flags.BoolVar(&o.json, "json", false, "print JSON instead of tables")
	flags.BoolVar(&short, "short", false, "the same as -rounds 8 -d 100ms")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, usageError{err}
	}
	if short {
		o.rounds, o.each = 8, 100*time.Millisecond
	}
	o.only = flags.Args()
	if o.rounds < 1 || o.rounds > 100 {
		return o, usageError{fmt.Errorf("-rounds is %d: must be between 1 and 100", o.rounds)}
	}
	if o.each < 10*time.Millisecond || o.each > time.Minute {
		return o, usageError{fmt.Errorf("-d is %v: must be between 10ms and 1m", o.each)}
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, usageError{fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))}
		}
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	progress := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	r := report{Go: goVersion(), Versions: versions(), Rounds: o.rounds, Each: o.each.String()}
	for _, name := range names {
		build := builders[name]
		if build == nil || !o.wants(name) {
			continue
		}
		s, err := build()
		if err != nil {
			return err
		}
		rows, err := s.measure(o, progress)
		s.close()
		if err != nil {
			return err
		}
		r.Costs = append(r.Costs, costs{Scenario: s.name, title: s.title, Yardstick: s.yardstick.name, Rows: rows})
	}
	if o.wants("dead") {
		if r.Dead, err = measureDead(o.rounds, deadCalls, progress); err != nil {
			return err
		}
	}
	if o.wants("overload") {
		if r.Overload, err = measureOverload(loaded, loaded.schedule(), progress); err != nil {
			return err
		}
	}
	if o.json {
		return r.writeJSON(stdout)
	}
	return r.writeText(stdout)
}
