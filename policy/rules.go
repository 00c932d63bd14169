package policy

import "slices"

// A Rule is a kind of finding.
type Rule struct {
	// Code names it, and stays the same.
	Code string
	// Level is how bad it can be.
	Level Level
	// Title says it in a few words, Why in a sentence.
	Title, Why string
}

// Rules returns what Graph.Check knows, in the order of its subjects: time,
// retries, what is hidden, other limits.
func Rules() []Rule { return slices.Clone(rules) }

var rules = []Rule{
	{"allocation-over-deadline", Error, "latencyBudget and entry.deadline differ",
		"Time that is promised twice is missing at the end, where the answer should be written."},
	{"unknown-share", Error, "a share of the budget belongs to nobody",
		"A share under a name that is no dependency bounds no call."},
	{"timeout-over-share", Error, "a timeout is above its share of the budget",
		"A dependency that uses its whole timeout spends what others were promised."},
	{"path-over-deadline", Error, "the calls of one request take longer than its deadline",
		"If each call takes the time that it is allowed, the last ones start for an answer that nobody waits for."},
	{"child-needs-more", Error, "the callee plans for more time than the caller grants",
		"The caller gives up while the callee is still within its own plan, so its work is lost."},
	{"timeout-order", Error, "a lower layer waits longer than the one above it",
		"The outer layer gives up first, and the inner one works on for nobody: client > gateway > service > database."},
	{"same-timeout", Warning, "one timeout at every layer",
		"Equal timeouts end at the same moment, so that no layer is left to answer for the one below it."},
	{"no-deadline", Error, "a call that nothing bounds",
		"Whoever waits without a bound holds memory, a connection and a place until something else gives way."},
	{"attempts-do-not-fit", Error, "the attempts do not fit into the call's timeout",
		"An attempt for which there is no time left is cut off half-way: load without an answer."},
	{"attempt-over-call", Error, "an attempt may take longer than its call",
		"The call's timeout ends the first attempt, so that there never is a second."},
	{"no-attempt-timeout", Warning, "retries without a timeout for each attempt",
		"An attempt that hangs uses up the whole call and leaves nothing for another."},
	{"too-many-attempts", Warning, "more than three attempts",
		"What failed three times mostly fails again, and each try is load on something that is in trouble."},
	{"budget-never-pays", Warning, "more retries than the budget can hold",
		"The last attempts can never be paid for, so the file promises what does not happen."},
	{"budget-burst", Warning, "retries may exceed what the callee can take",
		"Every instance starts with a full budget and may spend it in the same second, on a callee that is already failing."},
	{"retries-multiply", Error, "several layers of a path repeat",
		"Layers that repeat for themselves multiply, and the one at the bottom gets the product when it is least able to."},
	{"several-owners", Error, "several layers claim the retries of a path",
		"owner: always repeats whoever else does; where two do so, they multiply."},
	{"cycle", Error, "services call each other in a circle",
		"A request may go round as long as its deadline lets it, and each round's retries multiply without bound."},
	{"retry-on-deadline", Warning, "an outcome is listed that no repetition changes",
		"A retry that must fail the same way costs time and load, and delays the error."},
	{"retry-not-safe", Error, "retries of what may not be done twice",
		"An attempt without an answer may have been carried out; done again, its effect is there twice."},
	{"key-forgotten-early", Error, "an idempotency key is forgotten before the last retry",
		"A retry that comes after the key was forgotten is a new order to the receiver."},
	{"hidden-retries", Error, "a layer below repeats, and the file does not say so",
		"Retries that the policy does not know of come on top of its own and obey no owner and no budget."},
	{"mesh-default-forgotten", Warning, "the default retries of a mesh or client library",
		"Silence is not zero there: calls are repeated that nobody asked to have repeated."},
	{"hedge-without-capacity", Warning, "copies without known spare capacity",
		"Copies trade load for latency; a dependency that is busy gets slower by them."},
	{"hedge-not-safe", Error, "copies of what may not be done twice",
		"Two copies of an unsafe operation may both be carried out."},
	{"breaker-window", Warning, "a breaker looks back less far than a call lasts",
		"Slow calls that fail are forgotten before enough of them have ended, and the breaker never opens."},
	{"no-exempt", Warning, "health checks can be refused for load",
		"A full service that refuses its health check is restarted, and the others get its load."},
	{"min-useful-floor", Warning, "minUseful is below what the distance takes",
		"An attempt with less time than the way there and back is sent for nothing."},
}

var ruleOf = func() map[string]Rule {
	m := map[string]Rule{}
	for _, r := range rules {
		m[r.Code] = r
	}
	return m
}()
