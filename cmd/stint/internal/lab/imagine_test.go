package lab

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// imagine is what a row would give on a machine on which every hop takes 1 ms
// each way and nothing else takes time: the renderers' fixed input.
func imagine(r row) Result {
	s := r.spec
	res := blank(r)
	const way = time.Millisecond
	owned := false
	var call func(layer int, t time.Duration) time.Duration
	call = func(layer int, t time.Duration) time.Duration {
		if layer == len(s.callers) {
			end := t + s.work
			if s.passContext {
				end = min(end, max(s.deadline, t))
			}
			res.visits = append(res.visits, span{t, end})
			return end
		}
		c := s.callers[layer]
		owner := s.mode == Stint && c.attempts > 1 && !owned
		owned = owned || owner
		for n := 1; ; n++ {
			i := len(res.attempts)
			res.attempts = append(res.attempts, attempt{c.name, false, n, span{t, 0}})
			end := call(layer+1, t+way) + way
			if s.passContext {
				end = min(end, max(s.deadline, t))
			}
			res.attempts[i].end = end
			t = end
			why := stint.Reason(0)
			switch {
			case n == c.attempts:
				why = stint.AttemptsSpent
			case s.passContext && s.deadline-t <= s.guard:
				why = stint.NoTime
			case s.mode == Stint && !owner:
				why = stint.NotOwner
			}
			if why != 0 {
				if s.mode == Stint {
					res.stops[stop{c.name, why}]++
				}
				return t
			}
			t += backoff
		}
	}
	for range s.calls {
		if !s.together {
			res.drawn, res.stops = res.left, make(map[stop]int)
		}
		before := len(res.visits)
		end := call(0, res.drawn)
		res.left, res.ClientStatus, res.clientEnd = min(end, s.deadline), 502, "502"
		if end >= s.deadline && (s.calls == 1 || s.together) {
			res.gaveUp(context.DeadlineExceeded)
		}
		res.perCall = append(res.perCall, len(res.visits)-before)
	}
	for i := range res.attempts {
		if a := &res.attempts[i]; a.layer == s.callers[0].name {
			a.end = min(a.end, a.start+s.deadline)
		}
	}
	return res.sum()
}

// blank is what a row's result starts with.
func blank(r row) Result {
	return Result{Row: r.label, Mode: r.spec.mode, Params: r.spec.params(), row: r, stops: map[stop]int{}}
}

// sum fills in what follows from the times.
func (res Result) sum() Result {
	res.LeafRequests = len(res.visits) + len(res.others)
	res.ElapsedMs, res.WastedMs = term.Millis(res.left), term.Millis(wasted(res.visits, res.left))
	return res
}

func (res *Result) gaveUp(err error) {
	res.ClientStatus, res.clientErr = 0, err
	res.ClientError, res.clientEnd = plain(err), ending(0, err)
}

func (res *Result) had(status int) { res.ClientStatus, res.clientEnd = status, strconv.Itoa(status) }

// imagineDead replaces the counts of the dead experiment, which hang on budget
// and breaker.
func imagineDead(res Result) Result {
	budget, calls := savedRetries(), 0
	res.LeafRequests = 0
	if res.Mode == Stint { // the last call's attempts: one, or none
		cut := slices.IndexFunc(res.attempts, func(a attempt) bool { return a.start >= res.drawn })
		why := stint.BudgetSpent
		if !res.row.spec.breakerOff {
			cut, why = cut-1, stint.BreakerOpen
		}
		res.attempts, res.visits = res.attempts[:cut+1], res.visits[:cut+1]
		res.left = res.drawn + res.attempts[cut].end - res.attempts[cut].start
		res.stops = map[stop]int{{"A", why}: 1}
	}
	for i := range res.perCall {
		n := 3
		if res.Mode == Stint {
			n = 1 + min(2, budget)
			budget -= n - 1
			if calls++; calls > 20 && !res.row.spec.breakerOff {
				n = 0
				res.gaveUp(&stint.Error{Dependency: "C", Reason: stint.BreakerOpen})
			}
		}
		res.perCall[i] = n
		res.LeafRequests += n
	}
	res.ElapsedMs, res.WastedMs = 3*float64(res.LeafRequests), 0
	return res
}

const ms = time.Millisecond

// imagineZombie marks the steps of each visit.
func imagineZombie(res Result) Result {
	for _, v := range res.visits {
		for at := v.start + zombieStep; at <= v.end; at += zombieStep {
			res.marks = append(res.marks, mark{at, zombieDeadline - at})
		}
	}
	if res.Mode == Stint {
		res.stops = map[stop]int{{"A", stint.NoTime}: zombieCalls, {"B", stint.NoTime}: zombieCalls}
	}
	return res
}

func imagineRetryAfter(r row) Result {
	res := blank(r)
	res.attempts, res.visits = []attempt{{layer: "A", number: 1, span: span{0, 2 * ms}}}, []span{{ms, ms}}
	if res.left = 2 * ms; res.Mode == Stint {
		res.had(503)
		res.stops[stop{"A", stint.NoTime}]++
		return res.sum()
	}
	res.left = r.spec.deadline
	res.attempts = append(res.attempts, attempt{layer: "A", span: span{2 * ms, res.left}})
	res.gaveUp(context.DeadlineExceeded)
	return res.sum()
}

func imaginePayment(r row) Result {
	res := blank(r)
	for n := range 3 {
		start := res.left
		res.left = start + 2*ms
		res.attempts = append(res.attempts, attempt{layer: "A", number: n + 1, span: span{start, res.left}})
		res.visits = append(res.visits, span{start + ms, start + ms})
		if n > 0 && r.spec.key != "" {
			res.had(200)
			break
		}
		res.marks = append(res.marks, mark{at: start + ms})
		res.had(503)
		if r.spec.key == "" && res.Mode == Stint {
			res.stops[stop{"A", stint.NotRepeatable}]++
			break
		}
		res.left += backoff
	}
	return res.sum()
}

func imagineSkew(r row) Result {
	res := blank(r)
	res.had(200)
	if r.spec.skew < 0 {
		res.had(504)
	}
	for range r.spec.calls {
		res.visits = append(res.visits, span{res.left + ms, res.left + ms})
		res.marks = append(res.marks, mark{res.left + ms, r.spec.deadline + r.spec.skew - ms})
		res.left += 2 * ms
	}
	return res.sum()
}

func imagineRedirect(r row) Result {
	res := blank(r)
	limit := r.spec.timeout
	if res.Mode == Naive {
		limit = time.Hour
		res.had(200)
	} else {
		res.gaveUp(context.DeadlineExceeded)
	}
	for n := 0; n < r.spec.hops && res.left < limit; n++ {
		start := res.left
		res.left = min(start+r.spec.work+2*ms, limit)
		res.visits = append(res.visits, span{start + ms, min(start+ms+r.spec.work, limit)})
		res.attempts = append(res.attempts, attempt{layer: "client", number: 1, span: span{start, res.left}})
	}
	if res.Mode == Naive {
		res.attempts = []attempt{{layer: "client", number: 1, span: span{0, res.left}}}
	}
	return res.sum()
}

// imagineHedge takes the learned delay for 2 ms.
func imagineHedge(r row) Result {
	res := blank(r)
	res.had(200)
	for n := 1; n <= r.spec.calls; n++ {
		start, took := res.left, 2*ms
		delay := r.spec.hedgeDelay
		if delay == 0 {
			delay = 2 * ms
		}
		switch {
		case n%stallEvery > 0:
		case r.spec.copies > 0 && (n > learnFrom || r.spec.hedgeDelay > 0):
			took = delay + 2*ms
			res.attempts = append(res.attempts, attempt{"A", true, 2, span{start + delay, start + took}})
			res.others = append(res.others, span{start + delay + ms, start + delay + ms})
		default:
			took = stall + 2*ms
			res.marks = append(res.marks, mark{at: start + stall})
		}
		res.drawn, res.left = start, start+took
		res.took = append(res.took, took)
		res.attempts = append(res.attempts, attempt{"A", false, 1, span{start, res.left}})
		res.visits = append(res.visits, span{start + ms, res.left - ms})
	}
	res.P50Ms, res.P99Ms = term.Millis(quantile(res.took, 0.5)), term.Millis(quantile(res.took, 0.99))
	return res.sum()
}

// imagineOverload has the requests wait for the slot that is free first. stint
// refuses what would not be done in time.
func imagineOverload(r row) Result {
	s := r.spec
	res := blank(r)
	type request struct {
		at      time.Duration // at which it is sent
		call, n int
	}
	var due []request
	begins := time.Duration(0)
	for i, p := range s.phases {
		for k := range p.calls() {
			at := begins + time.Duration(k)*time.Second/time.Duration(p.rate)
			due = append(due, request{at, len(res.called), 1})
			res.called = append(res.called, called{span{at, 0}, i, false})
		}
		begins += p.lasts
	}
	free := make([]time.Duration, s.slots)
	for len(due) > 0 {
		q := due[0]
		due = due[1:]
		slot := 0
		for i := range free {
			if free[i] < free[slot] {
				slot = i
			}
		}
		c := &res.called[q.call]
		done := max(q.at+ms, free[slot]) + s.work
		good, end := done+ms <= q.at+overloadDeadline, done+ms
		switch {
		case !good && s.mode == Stint:
			end = q.at + 2*ms
		case !good:
			end = q.at + overloadDeadline
			if done-s.work < begins {
				res.marks = append(res.marks, mark{at: done})
			}
			fallthrough
		default:
			free[slot] = done
			res.visits = append(res.visits, span{q.at + ms, done})
		}
		res.attempts = append(res.attempts, attempt{"A", false, q.n, span{q.at, end}})
		c.end, c.good = end, good
		if again := (request{end + backoff, q.call, q.n + 1}); !good && s.mode == Naive && q.n < fewAttempts {
			i, _ := slices.BinarySearchFunc(due, again, func(a, b request) int { return cmp.Compare(a.at, b.at) })
			due = slices.Insert(due, i, again)
		}
		res.left = max(res.left, end)
	}
	if res.had(200); s.mode == Naive {
		res.gaveUp(context.DeadlineExceeded)
	}
	res = res.sum()
	res.countCalled()
	return res
}

func imagined(o Options) []Report {
	var reports []Report
	for _, e := range experiments(o) {
		one := map[string]func(row) Result{
			"dead":       func(r row) Result { return imagineDead(imagine(r)) },
			"zombie":     func(r row) Result { return imagineZombie(imagine(r)) },
			"retryafter": imagineRetryAfter,
			"payment":    imaginePayment,
			"skew":       imagineSkew,
			"redirect":   imagineRedirect,
			"hedge":      imagineHedge,
			"overload":   imagineOverload,
		}[e.name]
		if one == nil {
			one = imagine
		}
		r := Report{experiment: e}
		for _, row := range e.rows {
			res := one(row)
			e.judge(&res)
			r.Results = append(r.Results, res)
		}
		reports = append(reports, r)
	}
	return reports
}

// imagineStore has every query end with its request, but for those that nobody
// stops.
func imagineStore(st Store) Report {
	e := experiments(Options{Store: st})[0]
	r := Report{experiment: e}
	for _, row := range e.rows {
		res := imagine(row)
		for i, v := range res.visits {
			q := v
			if row.want.least > 0 {
				q.end = q.start + storeWork
			}
			if row.want.least > 0 && !row.spec.silent {
				res.visits[i].end = q.end
			}
			res.queries = append(res.queries, q)
		}
		if res.Mode == Stint {
			res.stops = map[stop]int{{"A", stint.NoTime}: storeCalls, {"B", stint.NoTime}: storeCalls}
		}
		res = res.sum()
		res.countQueries()
		e.judge(&res)
		r.Results = append(r.Results, res)
	}
	return r
}
