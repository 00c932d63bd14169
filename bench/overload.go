package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	vegeta "github.com/tsenart/vegeta/v12/lib"
	shedding "github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// A server is what a load run loads: a handler with so many slots, each held for so long, and so much time to answer.
type server struct {
	slots    int
	service  time.Duration
	deadline time.Duration
}

// loaded is the server of "overload". It sleeps while it holds a slot, so that its capacity is that of the slots, and
// not that of a machine on which the generator works as well.
var loaded = server{slots: 8, service: 20 * time.Millisecond, deadline: 200 * time.Millisecond}

// capacity is how many requests it can answer in a second.
func (s server) capacity() float64 { return float64(s.slots) / s.service.Seconds() }

// overloads are the loads above capacity, as multiples of it.
var overloads = []float64{1.5, 3}

// schedule is a quiet time, and then each overload and what comes after it.
func (s server) schedule() schedule {
	c := s.capacity()
	all := schedule{{c * .5, 3 * time.Second}}
	for _, times := range overloads {
		all = append(all, phase{c * times, 4 * time.Second}, phase{c * .7, 2 * time.Second})
	}
	return all
}

// queue lets so many requests in at once. The others wait in the order of their arrival until their caller has gone:
// nothing else says that an answer is of no use any more. Whoever is in does not look any more.
type queue chan struct{}

func (q queue) before(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case q <- struct{}{}:
			defer func() { <-q }()
			next(w, r)
		case <-r.Context().Done():
		}
	}
}

// handler makes a handler with slots of its own.
func (s server) handler() http.HandlerFunc {
	return make(queue, s.slots).before(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(s.service)
		w.Write(hundred)
	})
}

// admissions are the ways to let requests in.
var admissions = []struct {
	name string
	wrap func(s server, h http.HandlerFunc) (http.Handler, error)
}{
	{"no admission", func(_ server, h http.HandlerFunc) (http.Handler, error) { return h, nil }},
	{"FIFO limit, queue without bound", func(s server, h http.HandlerFunc) (http.Handler, error) {
		return make(queue, s.slots).before(h), nil
	}},
	{"failsafehttp: adaptive limiter", func(_ server, h http.HandlerFunc) (http.Handler, error) {
		return failsafehttp.NewHandler(h, adaptivelimiter.NewWithDefaults[*http.Response]()), nil
	}},
	{"go-zero: shedder", goZero},
	{learnedGate, func(_ server, h http.HandlerFunc) (http.Handler, error) { return gate(0, h) }},
	{fixedGate, func(s server, h http.HandlerFunc) (http.Handler, error) { return gate(s.slots, h) }},
}

const (
	learnedGate = "stint: Gate, limit learned"
	fixedGate   = "stint: Gate, limit of the slots"
)

// gate puts h behind a Gate with that limit; zero: it is learned.
func gate(limit int, h http.Handler) (http.Handler, error) {
	g, err := stint.NewGate("s", &stint.GateOptions{Trust: stint.TrustPeers, Limit: limit, Logger: silent})
	if err != nil {
		return nil, err
	}
	return stinthttp.Handler(g, h), nil
}

// go-zero writes to standard output: a line a minute about the process, as soon as it is linked in, and one for each
// refusal.
func init() { logx.Disable() }

// goZero does what go-zero's own middleware does, which needs the rest of go-zero.
func goZero(_ server, h http.HandlerFunc) (http.Handler, error) {
	s := shedding.NewAdaptiveShedder()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.Allow()
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer p.Pass() // only a handler's own 503 is a failure to it
		h(w, r)
	}), nil
}

// load sends the requests of the schedule to h, each when it is due.
func (s server) load(h http.Handler, plan schedule) (samples, error) {
	url, srv, err := serve(h)
	if err != nil {
		return samples{}, err
	}
	defer srv.Close()
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: url,
		Header: http.Header{"X-Deadline-Ms": {strconv.FormatInt(s.deadline.Milliseconds(), 10)}}})
	total := plan.arrivals()
	list := make([]sample, 0, total)
	began := time.Now()
	for r := range vegeta.NewAttacker(vegeta.Timeout(s.deadline), vegeta.HTTP2(false)).Attack(target, plan, 0, "") {
		sent := r.Timestamp.Sub(began)
		list = append(list, sample{intended: plan.intended(int(r.Seq)), sent: sent, ended: sent + r.Latency, code: int(r.Code)})
	}
	if len(list) != total {
		return samples{}, fmt.Errorf("%d requests were sent, not %d", len(list), total)
	}
	return newSamples(list, s.deadline), nil
}

// An overload is what all ways to let requests in came to.
type overload struct {
	Slots    int           `json:"slots"`
	Service  float64       `json:"service_ms"`
	Deadline float64       `json:"deadline_ms"`
	Capacity float64       `json:"capacity"` // requests a second
	Rows     []overloadRow `json:"rows"`
}

type overloadRow struct {
	Subject string     `json:"subject"`
	Late    float64    `json:"late_ms"` // by how much 99 % of the requests were sent later than intended, at most
	Loads   []loadCell `json:"loads"`
}

// A loadCell is what one overload came to.
type loadCell struct {
	Times   float64  `json:"times"`   // the capacity
	Goodput float64  `json:"goodput"` // as a share of the capacity
	Second  float64  `json:"second"`  // the same in the second half of the overload
	Refused int      `json:"refused"`
	Refusal *float64 `json:"refusal_ms"` // the median's time; null: none was refused
	Back    *float64 `json:"back_ms"`    // until goodput is back; null: not before the next phase
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// row counts what became of the requests of the schedule.
func (s server) row(subject string, plan schedule, all samples) overloadRow {
	r := overloadRow{Subject: subject, Late: milliseconds(all.late())}
	for i, times := range overloads {
		during, after := plan.span(1+2*i), plan.span(2+2*i)
		half := span{(during.from + during.to) / 2, during.to}
		c := loadCell{Times: times, Goodput: all.goodput(during) / s.capacity(), Second: all.goodput(half) / s.capacity()}
		n, median := all.refusals(during)
		if c.Refused = n; n > 0 {
			c.Refusal = new(milliseconds(median))
		}
		if d, ok := all.back(after); ok {
			c.Back = new(milliseconds(d))
		}
		r.Loads = append(r.Loads, c)
	}
	return r
}

// measureOverload loads s behind each of the ways to let requests in, one after the other.
func measureOverload(s server, plan schedule, progress func(string, ...any)) (*overload, error) {
	o := &overload{Slots: s.slots, Service: milliseconds(s.service), Deadline: milliseconds(s.deadline), Capacity: s.capacity()}
	for i, a := range admissions {
		progress("overload: %d of %d, %s, %v", i+1, len(admissions), a.name, plan.span(len(plan)-1).to)
		h, err := a.wrap(s, s.handler())
		if err != nil {
			return nil, err
		}
		all, err := s.load(h, plan)
		if err != nil {
			return nil, fmt.Errorf("overload: %s: %w", a.name, err)
		}
		o.Rows = append(o.Rows, s.row(a.name, plan, all))
	}
	return o, nil
}

func (o *overload) writeText(w io.Writer) {
	fmt.Fprintf(w, "\noverload: %d slots of %v ms, so C = %v requests/s; deadlines of %v ms\n", o.Slots, o.Service, o.Capacity, o.Deadline)
	fmt.Fprintf(w, "  %-31s", "")
	for _, times := range overloads {
		fmt.Fprintf(w, " %32s", fmt.Sprintf("------------------------ %v C", times))
	}
	heads := fmt.Sprintf(" %7s %8s %8s %6s", "goodput", "2nd half", "refusal", "back")
	fmt.Fprintf(w, "\n  %-31s%s\n", "", strings.Repeat(heads, len(overloads)))
	late := 0.0
	for _, r := range o.Rows {
		late = max(late, r.Late)
		fmt.Fprintf(w, "  %-31s", r.Subject)
		for _, c := range r.Loads {
			refusal, back := "none", "not"
			if c.Refusal != nil {
				refusal = fmt.Sprintf("%.1f ms", *c.Refusal)
			}
			if c.Back != nil {
				back = fmt.Sprintf("%.2f s", *c.Back/1000)
			}
			fmt.Fprintf(w, " %7s %8s %8s %6s", percent(c.Goodput), percent(c.Second), refusal, back)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  The generator sent 99 %% of each one's requests at most %.1f ms late.\n", late)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
