package cli

import (
	"context"
	"flag"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stintredis"
)

func explainCommand() *Command {
	cmd := &Command{
		UsageLine: "explain FILE DEPENDENCY -remaining D -outcome O [-json] [flags]",
		Short:     "show why a failed attempt is repeated, or is not",
		Long: `Explain decides one case as the library does (stint.Policy.Decide): an attempt
to call DEPENDENCY under the policy file FILE has ended; is it followed by
another? It prints the numbers in force, each with the line that it stands in,
then the steps of the decision in their order, up to the one that says no.

An outcome is an HTTP status (503), a gRPC code (UNAVAILABLE), or one of these:

  timeout             the attempt ran into its own limit
  reset               the connection broke after the request had been sent
  connection-refused  there was none: provably not started
  deadline            the call's or its caller's deadline ran out
  canceled            the caller gave up

Of a store it is what that answers, as events have it: an SQLSTATE that decides
about retries (40001) or the class of another (23), a number of MariaDB (1213),
a result of SQLite (busy), the first word of a Redis error (LOADING).

Flags may stand before or behind the arguments. An operation that the file does
not name has the dependency's numbers. Without -method, and with an -operation
that begins with none, the operation counts as one that must not be repeated.
The exit code is 0 whatever the verdict.
`,
	}
	c := &explained{attempt: stint.Attempt{BreakerClosed: true, Balance: math.NaN()}, random: 0.5}
	f := &cmd.Flags
	asJSON := f.Bool("json", false, "print numbers, steps and verdict as a JSON object")
	f.DurationVar(&c.attempt.Remaining, "remaining", 0, "the time `D` that is left until the call's deadline: 90ms; required")
	f.StringVar(&c.outcome, "outcome", "", "what became of the attempt, an outcome `O`; required")
	f.IntVar(&c.attempt.Number, "attempt", 1, "the attempt that ended was number `N`, counted from 1")
	f.Func("retry-after", "the wait `D` that the server asked for: 2s", func(s string) (err error) {
		c.attempt.Outcome.Hinted = true
		if c.hint, err = time.ParseDuration(s); err == nil && c.hint < 0 {
			err = fmt.Errorf("want a duration from 0s up")
		}
		return err
	})
	f.StringVar(&c.method, "method", "", "the HTTP `METHOD`: GET is read only, PUT and DELETE idempotent")
	f.StringVar(&c.operation, "operation", "", "the operation's `NAME` in the file; by default the method")
	f.StringVar(&c.attempt.Op.Key, "key", "", "the idempotency `KEY` that goes with the call")
	f.BoolVar(&c.attempt.Owned, "owned", false, "a layer further up owns the retries of this path")
	f.Float64Var(&c.attempt.Balance, "balance", c.attempt.Balance, "the retry budget holds `N` retries; by default its ceiling")
	f.Func("breaker", "the dependency's breaker is `closed` or open; by default closed", func(s string) error {
		if c.attempt.BreakerClosed = s == "closed"; s != "closed" && s != "open" {
			return fmt.Errorf("want closed or open")
		}
		return nil
	})
	f.Float64Var(&c.random, "rand", c.random, "the draw `R` of the jitter, from 0 up to but not 1")
	f.BoolVar(&c.attempt.Outcome.NotStarted, "not-started", false, "it is proven that the attempt's work never began")

	cmd.Run = func(_ context.Context, std *Std, args []string) (int, error) {
		if len(args) != 2 {
			return exitFailed, fmt.Errorf("%s: want a policy file and the name of a dependency in it", plural(len(args), "argument", "arguments"))
		}
		if err := c.check(f); err != nil {
			return exitFailed, err
		}
		file, err := std.load(args[0])
		if err != nil {
			return exitFailed, err
		}
		if err := c.decide(file, args[1]); err != nil {
			return exitFailed, err
		}
		if *asJSON {
			return exitClean, writeJSON(std.Out, c.json())
		}
		c.text(std)
		return exitClean, nil
	}
	return cmd
}

// explained is one case: what is asked about it, and what the policy says.
type explained struct {
	// From the flags. The attempt's Outcome has of them what an outcome does not say.
	attempt           stint.Attempt
	outcome           string
	hint              time.Duration
	method, operation string
	random            float64

	dependency string
	file       *policy.File
	numbers    policy.Dependency
	policy     stint.Policy // with its defaults
	decision   stint.Decision
	wait       time.Duration // before another attempt, should there be one
}

// check reports flags that can't be meant, and finishes what does not need the file.
func (c *explained) check(flags *flag.FlagSet) error {
	a := &c.attempt
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case !given["remaining"]:
		return fmt.Errorf("-remaining is missing: say how much time is left, as in -remaining 90ms")
	case !given["outcome"]:
		return fmt.Errorf("-outcome is missing: say what became of the attempt, as in -outcome 503")
	case a.Number < 1:
		return fmt.Errorf("-attempt is %d: must be 1 or more", a.Number)
	case given["balance"] && !(a.Balance >= 0):
		return fmt.Errorf("-balance is %v: must be 0 or more", a.Balance)
	case !(c.random >= 0 && c.random < 1):
		return fmt.Errorf("-rand is %v: must be from 0 up to but not 1", c.random)
	case c.method != strings.ToUpper(c.method) || strings.ContainsAny(c.method, " \t"):
		return fmt.Errorf("-method is %q: want one HTTP method in capitals, as in -method POST", c.method)
	}
	if c.operation == "" {
		c.operation = c.method
	}
	if method, _, ok := strings.Cut(c.operation, " "); ok && c.method != "" && method != c.method {
		return fmt.Errorf("-operation %q is none of method %s", c.operation, c.method)
	}
	return nil
}

// judge finds out what the outcome is, which depends on who is called.
func (c *explained) judge() error {
	kind, own := c.numbers.Kind, c.attempt.Outcome
	if kind.Store() && c.method != "" {
		return fmt.Errorf("-method is HTTP's, and %s is a store (kind: %s): name the operation, as in -operation select", c.dependency, kind)
	}
	o, err := outcomeOf(kind, c.outcome, c.hint, own.Hinted)
	if err != nil {
		return err
	}
	o.NotStarted = o.NotStarted || own.NotStarted
	c.attempt.Outcome = o
	return nil
}

// decide finds the policy in force, and decides under it.
func (c *explained) decide(file *policy.File, dependency string) error {
	var err error
	c.file, c.dependency = file, dependency
	if c.numbers, err = file.Operation(dependency, c.operation); err != nil {
		return err
	}
	if err := c.judge(); err != nil {
		return err
	}
	p, err := file.OperationPolicy(dependency, c.operation)
	if err != nil {
		return err
	}
	caller, err := stint.NewCaller(dependency, p, nil)
	if err != nil {
		return err
	}
	c.policy = caller.Policy()
	a := &c.attempt
	a.Op.Name = c.operation
	a.Op.Safety = c.safety()
	if math.IsNaN(a.Balance) {
		a.Balance = float64(c.policy.Retry.BudgetCeiling)
	}
	c.decision = c.policy.Decide(*a, c.random)

	// A verdict has its wait only where it comes as far as the time. The same
	// attempt without any other reason to stop always does.
	open := c.policy
	open.Retry.Attempts = math.MaxInt32
	able := *a
	able.Outcome.Kind, able.Outcome.NotStarted, able.Outcome.Never = stint.Transient, true, false
	able.BreakerClosed, able.Balance = true, 1
	c.wait = open.Decide(able, c.random).Delay
	return nil
}

// safety is what the method or the command says of the operation, or the file if that
// is more.
func (c *explained) safety() stint.Safety {
	switch kind := c.numbers.Kind; {
	case kind == policy.Redis:
		return max(stintredis.Safety(c.operation), c.policy.Safety)
	case kind.Store():
		return c.policy.Safety
	}
	named := c.operation
	if c.method != "" {
		named = c.method
	}
	return max(policy.Safe(named), c.policy.Safety)
}

// key is where a number of the operation stands: its own key, or else the
// dependency's; false if it stands nowhere.
func (c *explained) key(key ...string) (policy.Position, bool) {
	of := []string{"dependencies", c.dependency}
	own := append(append(of[:2:2], "operations", c.operation), key...)
	if c.file.Has(own...) {
		return c.file.At(own...), true
	}
	shared := append(of[:2:2], key...)
	return c.file.At(shared...), c.file.Has(shared...)
}
