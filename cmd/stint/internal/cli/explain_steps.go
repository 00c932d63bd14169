package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A step is one check of Policy.Decide.
type step struct {
	Name  string    `json:"step"`
	State stepState `json:"state"`
	Text  string    `json:"text,omitempty"` // its figures; none if it was not reached
}

type stepState string

const (
	passed     stepState = "passed"
	refused    stepState = "refused"
	notReached stepState = "not reached"
)

// steps are the checks in Decide's order. Which one said no is told by the
// verdict's Reason, so that nothing is decided here a second time.
func (c *explained) steps() []step {
	a, p, o := c.attempt, c.policy, c.attempt.Outcome
	checks := []struct {
		name    string
		reasons []stint.Reason
		text    string
	}{
		{"class of the outcome", []stint.Reason{stint.Final, stint.NeverRetry, stint.CallerGone}, c.class()},
		{"attempts left", []stint.Reason{stint.AttemptsSpent}, fmt.Sprintf("%s, of at most %d", plural(a.Number, "attempt was made", "attempts were made"), p.Retry.Attempts)},
		{"time left", []stint.Reason{stint.NoTime}, c.time()},
		{"safe to repeat", []stint.Reason{stint.NotRepeatable, stint.OneShot}, c.repeatable()},
		{"ownership", []stint.Reason{stint.NotOwner}, c.owner()},
		{"breaker", []stint.Reason{stint.BreakerOpen}, map[bool]string{true: "closed", false: "open: the dependency mostly fails"}[a.BreakerClosed]},
		{"retry budget", []stint.Reason{stint.BudgetSpent}, fmt.Sprintf("it holds %g, and a retry costs 1", a.Balance)},
	}
	no := slices.IndexFunc(checks, func(s struct {
		name    string
		reasons []stint.Reason
		text    string
	}) bool {
		return slices.Contains(s.reasons, c.decision.Reason)
	})
	if o.Kind == stint.Expired {
		no = 0 // no time either, but it is the outcome that says so
	}
	var steps []step
	for i, s := range checks {
		switch {
		case no < 0 || i < no:
			steps = append(steps, step{s.name, passed, s.text})
		case i == no:
			steps = append(steps, step{s.name, refused, s.text})
		default:
			steps = append(steps, step{Name: s.name, State: notReached})
		}
	}
	return steps
}

// kinds say what an outcome's class means for a retry.
var kinds = map[stint.Kind]string{
	stint.OK:         "a success: there is nothing to repeat",
	stint.Transient:  "transient: it may be over at the next try",
	stint.TimedOut:   "an attempt out of time: the next may be quicker",
	stint.Failed:     "a failure that another try would not cure",
	stint.Rejected:   "the request was at fault: another try would be too",
	stint.Expired:    "the call's own time is over",
	stint.Canceled:   "the caller gave up: nobody waits for an answer",
	stint.Refused:    "refused before it started",
	stint.Overloaded: "a refusal for quota",
}

func (c *explained) class() string {
	o := c.attempt.Outcome
	text := o.String() + " is " + kinds[o.Kind]
	if o.Kind == stint.Overloaded && o.Hinted {
		text += " that says when to come back"
	} else if o.Kind == stint.Overloaded {
		text += " that does not say when to come back"
	}
	if c.decision.Reason != stint.Final && (o.Kind == stint.Failed || o.Kind == stint.Rejected || o.Kind == stint.Overloaded && !o.Hinted) {
		text += ", but the policy lists it as retryable"
	}
	return text
}

// time is the sum that has to fit into the time left.
func (c *explained) time() string {
	var asked time.Duration
	var parts []string
	if o := c.attempt.Outcome; o.Hinted {
		asked = o.RetryAfter
		parts = append(parts, fmt.Sprintf("%v that the server asks for", asked))
	}
	bound := "the backoff"
	if c.random > 0 {
		bound = fmt.Sprintf("%g of a backoff of %v", c.random, round(time.Duration(float64(c.wait-asked)/c.random)))
	}
	parts = append(parts, fmt.Sprintf("%v of jitter (%s)", round(c.wait-asked), bound),
		fmt.Sprintf("%v for a useful attempt", c.policy.MinUseful))
	need := c.wait + c.policy.MinUseful
	verb := "fits into"
	if need > c.attempt.Remaining {
		verb = "does not fit into"
	}
	return fmt.Sprintf("%s: %v %s the %v that is left", strings.Join(parts, " + "), round(need), verb, c.attempt.Remaining)
}

// round hides what is below a microsecond.
func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

func (c *explained) repeatable() string {
	a := c.attempt
	name := cmp.Or(a.Op.Name, "an operation without a name")
	p := c.policy
	p.Retry.NotAfterTimeout = false
	unsafe := p.Decide(a, c.random).Reason == stint.NotRepeatable
	switch {
	case a.Outcome.NotStarted:
		return "it provably never started, so any operation may be sent again"
	case c.decision.Reason == stint.NotRepeatable && !unsafe:
		return "repeatAfterTimeout is false: the attempt that ran out of time may be running still"
	case a.Op.Safety == stint.ReadOnly:
		return name + " is read only"
	case a.Op.Safety == stint.Idempotent:
		return name + " is idempotent"
	case a.Op.Key != "" && unsafe:
		return "the key could not stand on the wire (1 to 255 visible ASCII characters without quotes), so it counts as none"
	case a.Op.Key != "":
		return name + " goes with an idempotency key"
	}
	if c.numbers.Kind.Store() {
		return name + " must not be executed twice, and may have been: declare its safety if it may"
	}
	return name + " must not be executed twice, and may have been: declare its safety, or send a key"
}

func (c *explained) owner() string {
	switch o := c.policy.Retry.Owner; {
	case c.attempt.Outcome.NotStarted:
		return "it provably never started, so any layer may send it again"
	case o == stint.OwnerNever:
		return "owner is never: this layer leaves retries to others"
	case o == stint.OwnerAlways && c.attempt.Owned:
		return "a layer above has claimed the retries, and owner is always"
	case c.attempt.Owned:
		return "a layer above has claimed the retries of this path"
	}
	return "no layer above has claimed the retries of this path"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
