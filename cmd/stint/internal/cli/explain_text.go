package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/term"
	"github.com/stint-go/stint/policy"
)

// A number is one of the policy's, and where it stands.
type number struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Where is file:line; "default" if it stands nowhere.
	Where string `json:"where"`
}

// numbersInForce are the policy's numbers that the decision depends on.
func (c *explained) numbersInForce() []number {
	r := c.policy.Retry
	timeout := "the caller's deadline"
	if c.policy.Timeout > 0 {
		timeout = c.policy.Timeout.String()
	}
	perAttempt := "as long as the call"
	if r.AttemptTimeout > 0 {
		perAttempt = r.AttemptTimeout.String()
	}
	var all []number
	if k := c.numbers.Kind; k != "" {
		all = append(all, c.number("kind", string(k), "kind"))
	}
	first := len(all)
	all = append(all,
		c.number("timeout", timeout, "timeout"),
		c.number("minUseful", c.policy.MinUseful.String(), "minUseful"),
		c.number("retry.maxAttempts", fmt.Sprint(r.Attempts), "retry", "maxAttempts"),
		c.number("retry.perAttemptTimeout", perAttempt, "retry", "perAttemptTimeout"),
		c.number("retry.backoff", fmt.Sprintf("%v, doubled up to %v", r.Base, r.Cap), "retry", "backoff"),
		c.number("retry.owner", [...]string{"auto", "always", "never"}[r.Owner], "retry", "owner"),
		c.number("retry.budget", fmt.Sprintf("%v of successes, at most %d", policy.Ratio(r.BudgetRatio), r.BudgetCeiling), "retry", "budget"),
	)
	if all[first].Where == byDefault && c.file.Has("latencyBudget", c.dependency) {
		all[first].Where = where(c.file.At("latencyBudget", c.dependency))
	}
	if len(r.Codes) > 0 {
		all = append(all, c.number("retry.retryable", strings.Join(r.Codes, ", "), "retry", "retryable"))
	}
	if r.NotAfterTimeout {
		all = append(all, c.number("repeatAfterTimeout", "false", "repeatAfterTimeout"))
	}
	if s := c.numbers.Safety; s != "" {
		all = append(all, c.number("safety", string(s), "safety"))
	}
	if k := c.numbers.Idempotency.Keys; k != "" {
		all = append(all, c.number("idempotency", string(k), "idempotency"))
	}
	return all
}

const byDefault = "default"

func (c *explained) number(name, value string, key ...string) number {
	if p, ok := c.key(key...); ok {
		return number{name, value, where(p)}
	}
	return number{name, value, byDefault}
}

// where is file:line. The file's directory is known to whoever named it.
func where(p policy.Position) string { return fmt.Sprintf("%s:%d", filepath.Base(p.File), p.Line) }

// verdict is the decision in words.
func (c *explained) verdict() string {
	d := c.decision
	if d.Retry {
		return fmt.Sprintf("retry after %v", round(d.Delay))
	}
	return "no retry: " + d.Reason.String()
}

// text writes the case for people.
func (c *explained) text(std *Std) {
	w, columns, colors := std.Out, std.columns(), std.color()
	operation := "an operation without a name"
	if c.operation != "" {
		operation = "operation " + c.operation
	}
	fmt.Fprint(w, term.Wrap("", fmt.Sprintf("%s calls %s, %s, under %s:", c.file.Service, c.dependency, operation, c.file.Path()), columns), "\n")
	for _, n := range c.numbersInForce() {
		line := fmt.Sprintf("  %-24s %-29s %s", n.Key, n.Value, n.Where)
		if utf8.RuneCountInString(line) > columns {
			line = strings.TrimSuffix(term.Wrap(fmt.Sprintf("  %-24s ", n.Key), n.Value+" "+n.Where, columns), "\n")
		}
		fmt.Fprintln(w, term.Paint(colors && n.Where == byDefault, term.Dim, line))
	}
	a := c.attempt
	fmt.Fprint(w, "\n", term.Wrap("", fmt.Sprintf("Attempt %d ended with %s, and %v is left of the call's time. Is there another?",
		a.Number, a.Outcome, a.Remaining), columns), "\n")
	for i, s := range c.steps() {
		mark, shade := "yes", term.Green
		switch s.State {
		case refused:
			mark, shade = "NO ", term.Red
		case notReached:
			mark, shade, s.Text = " - ", term.Dim, "not reached"
		}
		line := term.Wrap(fmt.Sprintf("  %d  %s  %-20s  ", i+1, mark, s.Name), s.Text, columns)
		fmt.Fprint(w, strings.Replace(line, mark, term.Paint(colors, shade, mark), 1))
	}
	fmt.Fprintln(w, "\nverdict:", term.Paint(colors, term.Bold, c.verdict()))
	for _, note := range c.notes() {
		fmt.Fprint(w, term.Wrap("note: ", note, columns))
	}
}

// notes say what a verdict alone would hide.
func (c *explained) notes() []string {
	var notes []string
	a, d := c.attempt, c.decision
	if d.Reason == stint.NoTime && a.Outcome.Hinted && a.Outcome.RetryAfter > a.Remaining {
		notes = append(notes, "the wait that a server asks for is never cut short; the caller gets its answer now, and "+
			"passes the hint on to whoever has the time.")
	}
	if a.Outcome.Code == "DEADLINE_EXCEEDED" {
		notes = append(notes, "it is taken for the attempt's own limit. Of a peer that had more time left it is a failure, which is not repeated.")
	}
	if t := c.policy.Timeout; t > 0 && a.Remaining > t {
		notes = append(notes, fmt.Sprintf("the timeout of %v bounds the call, so that %v is never left of it.", t, a.Remaining))
	}
	if a.Op.Key != "" && c.numbers.Idempotency.Keys != policy.Honoured {
		notes = append(notes, fmt.Sprintf("the file does not say that %s honours idempotency keys. One that ignores them "+
			"executes a repeated call twice.", c.dependency))
	}
	return notes
}

// explainedJSON is the case for programs. Times are in milliseconds.
type explainedJSON struct {
	Service    string   `json:"service"`
	Dependency string   `json:"dependency"`
	Operation  string   `json:"operation"`
	Policy     []number `json:"policy"`
	Attempt    struct {
		Number       int     `json:"number"`
		Outcome      string  `json:"outcome"`
		Kind         string  `json:"kind"`
		NotStarted   bool    `json:"notStarted"`
		RetryAfterMs float64 `json:"retryAfterMs,omitempty"`
		RemainingMs  float64 `json:"remainingMs"`
		Safety       string  `json:"safety"`
		Owned        bool    `json:"owned"`
		Breaker      bool    `json:"breakerClosed"`
		Balance      float64 `json:"balance"`
	} `json:"attempt"`
	Steps   []step   `json:"steps"`
	Retry   bool     `json:"retry"`
	DelayMs float64  `json:"delayMs"`
	Reason  string   `json:"reason,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

func (c *explained) json() explainedJSON {
	a := c.attempt
	j := explainedJSON{Service: c.file.Service, Dependency: c.dependency, Operation: c.operation, Policy: c.numbersInForce(),
		Steps: c.steps(), Retry: c.decision.Retry, DelayMs: ms(c.decision.Delay), Reason: c.decision.Reason.String(), Notes: c.notes()}
	j.Attempt.Number, j.Attempt.Outcome, j.Attempt.Kind, j.Attempt.NotStarted = a.Number, a.Outcome.String(), a.Outcome.Kind.String(), a.Outcome.NotStarted
	j.Attempt.RetryAfterMs, j.Attempt.RemainingMs, j.Attempt.Safety = ms(a.Outcome.RetryAfter), ms(a.Remaining), a.Op.Safety.String()
	j.Attempt.Owned, j.Attempt.Breaker, j.Attempt.Balance = a.Owned, a.BreakerClosed, a.Balance
	return j
}

func ms(d time.Duration) float64 { return term.Millis(d) }
