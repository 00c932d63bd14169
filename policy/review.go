package policy

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint"
)

// An Answer is one question of a review, as far as policy files can answer it.
type Answer struct {
	// Position is where in the files the answer stands; empty if nowhere.
	Position
	// List is the list that the question is from.
	List string
	// Question is what a reviewer asks, Answer what the files say, with places.
	Question, Answer string
	// Answerable is false if files can't say; Answer then names where to look.
	Answerable bool
}

// The lists of questions.
const (
	listDesign   = "design review"
	listCalls    = "calling other services"
	listShipping = "before shipping"
)

// Review answers the questions that a review of deadlines and retries asks: who
// owns what (design review), what each call needs (calling other services), what
// carries the deadline (before shipping). What depends on code or on measurement
// is marked as not answerable, with what to look at.
func (g *Graph) Review() []Answer {
	r := &reviewer{g: g, n: g.network(), found: map[string][]Finding{}}
	for _, f := range g.Check(nil) {
		r.found[f.Code] = append(r.found[f.Code], f)
	}
	r.design()
	r.calls()
	r.shipping()
	return r.answers
}

type reviewer struct {
	g       *Graph
	n       *network
	found   map[string][]Finding
	answers []Answer
}

func (r *reviewer) say(list, question string, at []Position, answer string) {
	a := Answer{List: list, Question: question, Answer: answer, Answerable: true}
	if len(at) > 0 {
		a.Position = at[0]
	}
	r.answers = append(r.answers, a)
}

func (r *reviewer) look(list, question, at string) {
	r.answers = append(r.answers, Answer{List: list, Question: question, Answer: "not answerable from here: " + at})
}

// noted is "a 1ms (file:1:2), b ..." of up to six, and where they stand.
type noted struct {
	texts []string
	at    []Position
}

func (n *noted) add(text string, at Position) {
	n.texts, n.at = append(n.texts, fmt.Sprintf("%s (%s)", text, at)), append(n.at, at)
}

func (n *noted) String() string {
	const shown = 6
	if len(n.texts) > shown {
		return strings.Join(n.texts[:shown], ", ") + fmt.Sprintf(" and %d more", len(n.texts)-shown)
	}
	return strings.Join(n.texts, ", ")
}

// orNone is the list, or what it means that there is none.
func (n *noted) orNone(none string) string {
	if len(n.texts) == 0 {
		return none
	}
	return n.String()
}

// findings are what Check found of some kinds.
func (r *reviewer) findings(codes ...string) *noted {
	var n noted
	for _, code := range codes {
		for _, f := range r.found[code] {
			n.add(f.Code, f.Position)
		}
	}
	return &n
}

// each notes the calls for which f has a text.
func (r *reviewer) each(f func(e *call) (text string, key []string)) *noted {
	var n noted
	for _, e := range r.n.calls {
		if text, key := f(e); text != "" {
			n.add(text, e.From.At(key...))
		}
	}
	return &n
}

func (r *reviewer) design() {
	var deadlines noted
	for _, v := range r.n.nodes {
		if v.file != nil && v.entry() && v.file.Entry != nil && v.file.Entry.Deadline > 0 {
			deadlines.add(v.name+" "+dur(v.file.Entry.Deadline), v.file.At("entry", "deadline"))
		}
	}
	r.say(listDesign, "Which deadline that a user would notice is protected?", deadlines.at,
		deadlines.orNone("none: no service that is called from outside states entry.deadline"))

	told := r.peers()
	r.say(listDesign, "How does the time left get to the next service, over each protocol and through queues?", told.at,
		fmt.Sprintf("%d of %d calls go to a service whose file is here, and tell it the time left: %s%s. Queues are not in the files: look at what consumers do with X-Request-Deadline",
			len(told.texts), len(r.n.calls), told.orNone("none"), r.stores("; of a store each command has its limit: %s")))

	owners := r.each(func(e *call) (string, []string) {
		for _, l := range e.layers {
			return fmt.Sprintf("%s, %d", l.name, l.attempts), l.key
		}
		return "", nil
	})
	worst := "nothing is repeated"
	if len(r.n.circles) > 0 {
		worst = "without bound: services call each other in a circle"
	} else if a := r.g.Amplification(0.99); len(a) > 0 && a[0].Worst > 1 {
		worst = fmt.Sprintf("at worst %s requests reach %s for one, %s while the owner's mark is passed on", count(a[0].Worst), a[0].Leaf, count(a[0].Owned))
	}
	r.say(listDesign, "Who owns the retries of each path, and what keeps them from multiplying?", owners.at,
		worst+"; what repeats: "+owners.orNone("nothing"))

	keys := r.each(func(e *call) (string, []string) {
		if e.d.Idempotency.Keys != Honoured {
			return "", nil
		}
		text := e.name() + " honours keys"
		if ttl := e.d.Idempotency.TTL; ttl > 0 {
			text += " for " + dur(ttl)
		}
		return text, e.key("idempotency")
	})
	r.say(listDesign, "Which operations with an effect have an idempotency key that outlives the retries?", keys.at,
		keys.orNone("none: no file says idempotency: honoured"))
	r.look(listDesign, "What becomes of work whose caller has gone?",
		"look at whether handlers pass their context on, and at the wasted time in events")
	r.look(listDesign, "Can healthy retries be told from retries that are the overload?",
		"look at attempts per call, and at retries that the budget refused, next to the rate of successes")
}

// peers are the calls that tell the time left.
func (r *reviewer) peers() *noted {
	return r.each(func(e *call) (string, []string) {
		if e.d.Service == "" || e.To == nil {
			return "", nil
		}
		return e.name(), e.key("service")
	})
}

// stores names them in a text; empty where there are none.
func (r *reviewer) stores(text string) string {
	stores := r.each(func(e *call) (string, []string) {
		if !e.d.Kind.Store() {
			return "", nil
		}
		return fmt.Sprintf("%s, %s", e.name(), e.d.Kind), e.key("kind")
	})
	if len(stores.texts) == 0 {
		return ""
	}
	return fmt.Sprintf(text, stores)
}

func (r *reviewer) calls() {
	bounded := r.each(func(e *call) (string, []string) {
		if e.timeout == 0 {
			return "", nil
		}
		return e.name() + " " + dur(e.timeout), e.timeoutKey()
	})
	r.say(listCalls, "Has every call a timeout, taken from what the dependency really takes?", bounded.at,
		fmt.Sprintf("%d of %d calls have one of their own: %s. Whether it fits the latencies is to be measured; unbounded: %s",
			len(bounded.texts), len(r.n.calls), bounded.orNone("none"), r.findings("no-deadline").orNone("none")))
	r.look(listCalls, "Does the request's context reach every call?",
		"look for context.Background and contexts without a parent below handlers")
	unsafe := r.findings("retry-not-safe", "hedge-not-safe", "retry-on-deadline", "key-forgotten-early")
	r.say(listCalls, "Is only repeated what is safe to repeat, after what a repetition can change?", unsafe.at,
		unsafe.orNone("yes, as far as operations are named: "+r.operations()))
	many := r.findings("too-many-attempts", "attempts-do-not-fit", "attempt-over-call", "no-attempt-timeout")
	r.say(listCalls, "Do waits grow, with full jitter, over few attempts?", many.at,
		"waits double and are drawn between zero and their bound, always; attempts: "+many.orNone("at most "+fmt.Sprint(mostTries)+" everywhere, and they fit"))
	layers := r.findings("retries-multiply", "several-owners", "hidden-retries", "mesh-default-forgotten", "budget-burst", "budget-never-pays", "cycle")
	r.say(listCalls, "Does one layer of a path retry, within a budget?", layers.at, layers.orNone("yes; each dependency has one budget, in each instance"))
	off := r.each(func(e *call) (string, []string) {
		if e.d.Breaker == nil || !e.d.Breaker.Off {
			return "", nil
		}
		return e.name(), e.key("breaker")
	})
	r.say(listCalls, "Has each dependency that can fail for long a breaker?", off.at, off.orNone("yes, none is off"))
}

// operations counts those that are named, by what they are.
func (r *reviewer) operations() string {
	var named, safe int
	for _, e := range r.n.calls {
		for _, v := range e.views[1:] {
			if v.Kind == Redis {
				continue // the command says it
			}
			if named++; v.Safety != "" || Safe(v.operation) != stint.Unrepeatable {
				safe++
			}
		}
	}
	return fmt.Sprintf("%d of %d are safe by themselves", safe, named)
}

func (r *reviewer) shipping() {
	r.look(listShipping, "Is the context passed from the handler to the last query?",
		"look at every call that takes a context, and at those that could and do not")
	told := r.peers()
	r.say(listShipping, "Is the deadline written into requests, and read at the entry?", told.at,
		fmt.Sprintf("%d of %d calls go to a service with a file, and carry it%s; to others the time limit alone is told, which they may not read",
			len(told.texts), len(r.n.calls), r.stores("; each command to a store has it as its limit: %s")))
	least := r.each(func(e *call) (string, []string) {
		if e.d.MinUseful == 0 {
			return "", nil
		}
		return e.name() + " " + dur(e.d.MinUseful), e.key("minUseful")
	})
	r.say(listShipping, "Does nothing start for which too little time is left?", least.at,
		fmt.Sprintf("%d of %d calls state minUseful, the others have %s: %s; below what the distance takes: %s", len(least.texts), len(r.n.calls),
			dur(defaults.MinUseful), least.orNone("none"), r.findings("min-useful-floor").orNone("none")))
	r.look(listShipping, "Is the answer to a missed deadline 504, and not 500?",
		"look at what handlers write for context.DeadlineExceeded; stinthttp.WriteError writes 504")
	r.look(listShipping, "Do goroutines that work for a request end with it?",
		"look at go statements below handlers, and at work that is handed to a pool")
	r.look(listShipping, "Do database calls take the context?",
		"look for Query, Exec and the like without Context, and at the server's own statement timeout"+r.stores("; stores are %s"))
	r.look(listShipping, "Is there a test in which the deadline ends in the middle of a request?",
		"look for a test with a short deadline and a slow layer; stinttest makes layers slow")
}
