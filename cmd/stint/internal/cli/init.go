package cli

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/stint-go/stint/policy"
)

func initCommand() *Command {
	cmd := &Command{
		UsageLine: "init [-service NAME] [-dependency A,B] [-deadline D] [-json] [-o F]",
		Short:     "write a policy file to begin with",
		Long: `Init writes a policy file in which every key is explained: those that a service
needs with numbers, the others commented out, with their defaults or an example.
The numbers follow from the deadline: a tenth of it is the service's own work, a
tenth is kept back for the answer, six tenths are divided among the
dependencies, the rest is nobody's. "stint check" has nothing to say about it.

A file that exists already is left as it is, and the exit code is 2.
`,
	}
	service := cmd.Flags.String("service", "my-service", "the `NAME` of the service")
	dependencies := cmd.Flags.String("dependency", "backend", "the names `A,B` of what it calls, separated by commas")
	deadline := cmd.Flags.Duration("deadline", 800*time.Millisecond, "the deadline `D` of a request that brings none")
	out := cmd.Flags.String("o", "stint.yaml", "write to this file `F`; - is standard output")
	asJSON := cmd.Flags.Bool("json", false, "print the numbers as a JSON object")
	cmd.Run = func(_ context.Context, std *Std, args []string) (int, error) {
		if len(args) > 0 {
			return exitFailed, unexpected(args)
		}
		if *asJSON && *out == "-" {
			return exitFailed, errors.New("-json and -o - both write to standard output: choose one")
		}
		var names []string
		for name := range strings.SplitSeq(*dependencies, ",") {
			names = append(names, strings.TrimSpace(name))
		}
		p, err := newPlan(*service, names, *deadline)
		if err != nil {
			return exitFailed, err
		}
		text, err := p.file(*out)
		if err != nil {
			return exitFailed, err
		}
		if *out == "-" {
			_, err := std.Out.Write(text)
			return exitClean, err
		}
		if err := std.writeNew(*out, text); err != nil {
			return exitFailed, err
		}
		fmt.Fprintf(std.Err, "%s written; \"stint check %s\" holds it against the rules\n", *out, *out)
		if *asJSON {
			return exitClean, writeJSON(std.Out, p.json(*out))
		}
		return exitClean, nil
	}
	return cmd
}

// A plan is how a deadline is spent.
type plan struct {
	Service      string
	Dependencies []string

	Deadline, MinUseful                time.Duration
	Local, Reserve, Share, Contingency time.Duration
	AttemptTimeout, Base, Cap          time.Duration
	CallMinUseful                      time.Duration
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)
	//go:embed init.yaml.tmpl
	initText     string
	initTemplate = template.Must(template.New("init").Parse(initText))
)

// leastShare is the least time that a dependency's two attempts and the wait
// between them are worth dividing.
const leastShare = 10 * time.Millisecond

// longestDeadline is entry.maxDeadline where the file does not say it.
const longestDeadline = 30 * time.Second

// newPlan divides the deadline.
func newPlan(service string, dependencies []string, deadline time.Duration) (plan, error) {
	for _, name := range append([]string{service}, dependencies...) {
		if !plainName.MatchString(name) {
			return plan{}, fmt.Errorf("%q is no name: want a letter, then letters, digits, dots, dashes and underscores, 64 at most", name)
		}
	}
	sorted := slices.Sorted(slices.Values(dependencies))
	if once := slices.Compact(slices.Clone(sorted)); len(once) < len(sorted) {
		return plan{}, errors.New("-dependency names one twice")
	}
	for _, own := range []string{policy.Local, policy.Contingency} {
		if slices.Contains(dependencies, own) {
			return plan{}, fmt.Errorf("%q is a key of latencyBudget with a meaning of its own: call the dependency something else", own)
		}
	}
	if deadline > longestDeadline {
		return plan{}, fmt.Errorf("-deadline is %v: take at most %v, above which entry.maxDeadline has to be raised too", deadline, longestDeadline)
	}
	n := time.Duration(len(dependencies))
	unit := 10 * time.Millisecond // numbers that people would write
	if deadline < 500*time.Millisecond*n {
		unit = time.Millisecond
	}
	p := plan{Service: service, Dependencies: dependencies, Deadline: deadline,
		Local: (deadline / 10).Truncate(unit), Reserve: (deadline / 10).Truncate(unit), Share: (deadline * 6 / 10 / n).Truncate(unit)}
	if least := (leastShare*n*10/6 + time.Millisecond).Truncate(time.Millisecond); p.Share < leastShare {
		return plan{}, fmt.Errorf("-deadline is %v, of which each of the %s would get %v: take at least %v",
			deadline, plural(len(dependencies), "dependency", "dependencies"), p.Share, least)
	}
	p.Contingency = deadline - p.Local - p.Reserve - n*p.Share
	p.AttemptTimeout = (p.Share * 4 / 10).Truncate(time.Millisecond)
	p.Base, p.Cap = (p.Share / 20).Truncate(100*time.Microsecond), (p.Share / 10).Truncate(100*time.Microsecond)
	p.MinUseful = max((deadline / 20).Truncate(time.Millisecond), time.Millisecond)
	p.CallMinUseful = min(20*time.Millisecond, max((p.AttemptTimeout/2).Truncate(time.Millisecond), time.Millisecond))
	return p, nil
}

// file is the plan as a policy file, which can be read again.
func (p plan) file(path string) ([]byte, error) {
	var b strings.Builder
	if err := initTemplate.Execute(&b, p); err != nil {
		return nil, err
	}
	_, err := policy.Parse(path, []byte(b.String()))
	return []byte(b.String()), err
}

// planJSON is a plan for programs. Times are in milliseconds.
type planJSON struct {
	File          string             `json:"file"`
	Service       string             `json:"service"`
	DeadlineMs    float64            `json:"deadlineMs"`
	ReserveMs     float64            `json:"reserveMs"`
	LatencyBudget map[string]float64 `json:"latencyBudgetMs"`
}

func (p plan) json(file string) planJSON {
	j := planJSON{file, p.Service, ms(p.Deadline), ms(p.Reserve),
		map[string]float64{policy.Local: ms(p.Local), policy.Contingency: ms(p.Contingency)}}
	for _, name := range p.Dependencies {
		j.LatencyBudget[name] = ms(p.Share)
	}
	return j
}
