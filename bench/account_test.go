package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestSchedule(t *testing.T) {
	s := schedule{{100, 40 * ms}, {1000, 3 * ms}, {50, 20 * ms}}
	want := []time.Duration{0, 10 * ms, 20 * ms, 30 * ms, 40 * ms, 41 * ms, 42 * ms, 43 * ms}
	if s.arrivals() != len(want) {
		t.Errorf("%d arrivals, want %d", s.arrivals(), len(want))
	}
	for i, at := range want {
		if have := s.intended(i); have != at {
			t.Errorf("request %d: at %v, want %v", i, have, at)
		}
		// However late it is, it is neither left out nor put off.
		for _, elapsed := range []time.Duration{at - ms, at, at + time.Hour} {
			if wait, stop := s.Pace(elapsed, uint64(i)); wait != at-elapsed || stop {
				t.Errorf("request %d, after %v: wait %v, stop %v", i, elapsed, wait, stop)
			}
		}
	}
	if _, stop := s.Pace(0, uint64(len(want))); !stop {
		t.Error("no end")
	}
	if have, want := s.span(1), (span{40 * ms, 43 * ms}); have != want {
		t.Errorf("span %v, want %v", have, want)
	}
	if s.Rate(40*ms) != 1000 || s.Rate(63*ms) != 0 {
		t.Errorf("rates %v and %v, want 1000 and 0", s.Rate(40*ms), s.Rate(63*ms))
	}
}

func TestGoodput(t *testing.T) {
	in := span{1000 * ms, 3000 * ms}
	for name, c := range map[string]struct {
		x    sample
		want float64 // a second
	}{
		"in time":                     {sample{1500 * ms, 1500 * ms, 1700 * ms, 200}, .5},
		"too late":                    {sample{1500 * ms, 1500 * ms, 1701 * ms, 200}, 0},
		"quick, but sent late":        {sample{1500 * ms, 1690 * ms, 1701 * ms, 200}, 0},
		"refused":                     {sample{1500 * ms, 1500 * ms, 1501 * ms, 503}, 0},
		"no answer":                   {sample{1500 * ms, 1500 * ms, 1501 * ms, 0}, 0},
		"from before":                 {sample{900 * ms, 900 * ms, 1000 * ms, 200}, .5},
		"before":                      {sample{900 * ms, 900 * ms, 999 * ms, 200}, 0},
		"out of the queue, afterward": {sample{2900 * ms, 2900 * ms, 3000 * ms, 200}, 0},
	} {
		if have := newSamples([]sample{c.x}, 200*ms).goodput(in); have != c.want {
			t.Errorf("%s: %v, want %v", name, have, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	in := span{1000 * ms, 2000 * ms}
	list := []sample{
		{1000 * ms, 1004 * ms, 1005 * ms, 503}, // sent late, which counts
		{1100 * ms, 1100 * ms, 1101 * ms, 429},
		{1999 * ms, 1999 * ms, 2099 * ms, 503},
		{1200 * ms, 1200 * ms, 1399 * ms, 504}, // it was let in
		{1300 * ms, 1300 * ms, 1320 * ms, 200},
		{999 * ms, 999 * ms, 1001 * ms, 503},
		{2000 * ms, 2000 * ms, 2001 * ms, 503},
	}
	if n, median := newSamples(list, 200*ms).refusals(in); n != 3 || median != 5*ms {
		t.Errorf("%d refused in %v, want 3 in 5ms", n, median)
	}
	if n, median := newSamples(list[3:5], 200*ms).refusals(in); n != 0 || median != 0 {
		t.Errorf("%d refused in %v, want none", n, median)
	}
}

func TestBack(t *testing.T) {
	// A request every 10 ms from 0 to 2 s, so 25 a window, and one of them may fail; what counts begins at 1 s.
	in := span{1000 * ms, 2000 * ms}
	for name, c := range map[string]struct {
		bad  func(at time.Duration) bool
		want time.Duration // negative: never
	}{
		"at once":             {func(at time.Duration) bool { return at < 1000*ms }, 0},
		"one may fail":        {func(at time.Duration) bool { return at == 1100*ms }, 0},
		"two may not":         {func(at time.Duration) bool { return at == 1100*ms || at == 1110*ms }, 110 * ms},
		"one left behind":     {func(at time.Duration) bool { return at < 1300*ms }, 290 * ms},
		"again and again":     {func(at time.Duration) bool { return at%(100*ms) == 0 }, -1},
		"afterwards":          {func(at time.Duration) bool { return at < 2000*ms }, -1},
		"in the last window":  {func(at time.Duration) bool { return at < 1760*ms }, 750 * ms},
		"too late to be seen": {func(at time.Duration) bool { return at < 1770*ms }, -1},
	} {
		var list []sample
		for at := time.Duration(0); at < 3000*ms; at += 10 * ms {
			x := sample{at, at, at + 20*ms, 200}
			if c.bad(at) {
				x.ended = at + 201*ms
			}
			list = append(list, x)
		}
		slices.Reverse(list) // they come in any order
		have, ok := newSamples(list, 200*ms).back(in)
		if ok != (c.want >= 0) || ok && have != c.want {
			t.Errorf("%s: after %v, %v; want %v", name, have, ok, c.want)
		}
	}
}

func TestLate(t *testing.T) {
	var list []sample
	for i := range 101 {
		list = append(list, sample{intended: 0, sent: time.Duration(i) * ms, ended: time.Hour})
	}
	if have := newSamples(list, ms).late(); have != 99*ms {
		t.Errorf("late by %v, want 99ms", have)
	}
}

// A server that answers as many as it can and refuses the others has all of its capacity as goodput.
func TestRow(t *testing.T) {
	plan := loaded.schedule()
	var list []sample
	for i := range plan.arrivals() {
		at := plan.intended(i)
		x := sample{at, at, at + 20*ms, 200}
		switch {
		case plan.span(1).has(at) && i%3 == 0, plan.span(3).has(at) && i%3 != 0:
			x.ended, x.code = at+2*ms, 503
		case plan.span(3).has(at) && at < plan.span(3).from+2*time.Second:
			x.code = 0
		case plan.span(4).has(at):
			x.code = 0
		}
		list = append(list, x)
	}
	r := loaded.row("s", plan, newSamples(list, loaded.deadline))
	if len(r.Loads) != 2 || r.Subject != "s" || r.Late != 0 {
		t.Fatalf("%+v", r)
	}
	near := func(have, want float64) bool { return have > want-.02 && have < want+.02 }
	for i, want := range []loadCell{{1.5, 1, 1, 800, new(2.0), new(0.0)}, {3, .5, 1, 3200, new(2.0), nil}} {
		have := r.Loads[i]
		if have.Times != want.Times || !near(have.Goodput, want.Goodput) || !near(have.Second, want.Second) || have.Refused != want.Refused ||
			*have.Refusal != *want.Refusal || (have.Back == nil) != (want.Back == nil) || have.Back != nil && *have.Back != *want.Back {
			t.Errorf("%+v, want %+v", have, want)
		}
	}
}

// Nobody refuses what there is room for, and all are asked the same. There are so few requests that whoever goes by the
// CPU of a busy machine has no reason to refuse one either.
func TestEveryAdmissionAnswers(t *testing.T) {
	s := server{slots: 8, service: ms, deadline: patience}
	plan := schedule{{200, 10 * ms}, {400, 5 * ms}}
	for _, a := range admissions {
		var told atomic.Int64
		work := s.handler()
		h, err := a.wrap(s, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Deadline-Ms") == "9000" {
				told.Add(1)
			}
			work(w, r)
		})
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.load(h, plan)
		if err != nil {
			t.Fatal(err)
		}
		if len(all.list) != 4 || told.Load() != 4 {
			t.Errorf("%s: %d requests, and %d told their deadline; want 4", a.name, len(all.list), told.Load())
		}
		for i, x := range all.list {
			if x.code != 200 || x.intended != plan.intended(i) || x.sent < x.intended || x.ended < x.sent+s.service {
				t.Errorf("%s: request %d: %+v", a.name, i, x)
			}
		}
	}
}

// Who waits goes with its caller; who is in stays.
func TestQueue(t *testing.T) {
	q := make(queue, 1)
	ctx, cancel := context.WithCancel(context.Background())
	inside := 0
	var h http.HandlerFunc
	h = q.before(func(w http.ResponseWriter, r *http.Request) {
		if inside++; inside == 1 {
			cancel()
			h(w, r)
		}
	})
	h(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if inside != 1 || len(q) != 0 {
		t.Errorf("%d were in, and %d still are; want 1 and 0", inside, len(q))
	}
}
