package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

type keeper struct {
	mu            sync.Mutex
	sent, dropped int
	wait          func(copy int) <-chan struct{}
}

func (s *keeper) Send(ctx context.Context, _ stint.Hop, copy int) (any, stint.Outcome, error) {
	s.mu.Lock()
	s.sent++
	s.mu.Unlock()
	if s.wait != nil {
		select {
		case <-s.wait(copy):
		case <-ctx.Done():
			return nil, stint.Outcome{Kind: stint.Transient}, ctx.Err()
		}
	}
	return "result", stint.Outcome{Kind: stint.OK}, nil
}
func (s *keeper) Drop(any, time.Duration) { s.mu.Lock(); s.dropped++; s.mu.Unlock() }

type panicsAt struct {
	on func(e stint.Event, start bool)
}

func (p panicsAt) StartAttempt(ctx context.Context, e stint.Event) context.Context {
	p.on(e, true)
	return ctx
}
func (p panicsAt) Observe(_ context.Context, e stint.Event) { p.on(e, false) }

// An observer that panics when an attempt is reported costs neither slot nor body.
func TestObserverPanicsResult(t *testing.T) {
	c, _ := stint.NewCaller("s", stint.Policy{Timeout: time.Minute, Bulkhead: 1}, &stint.CallerOptions{
		Observer: panicsAt{func(e stint.Event, start bool) {
			if !start && e.Kind == stint.AttemptDone && e.Op == "boom" {
				panic("observer")
			}
		}}})
	s := &keeper{}
	func() {
		defer func() { recover() }()
		var f stint.Flight
		c.Send(t.Context(), stint.Op{Name: "boom"}, s, &f)
	}()
	if s.dropped != 1 {
		t.Errorf("%d results, %d dropped", s.sent, s.dropped)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, stint.Op{}, func(context.Context) error { return nil }); err != nil {
		t.Errorf("the slot is held: %v", err)
	}
}

// One that panics as a copy begins costs no token.
func TestObserverPanicsCopy(t *testing.T) {
	c, _ := stint.NewCaller("s", stint.Policy{Timeout: time.Minute, Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}, &stint.CallerOptions{
		Observer: panicsAt{func(e stint.Event, start bool) {
			if start && e.Copy == 1 {
				panic("observer")
			}
		}}})
	s := &keeper{wait: func(int) <-chan struct{} { return nil }}
	func() {
		defer func() { recover() }()
		var f stint.Flight
		c.Send(t.Context(), stint.Op{Safety: stint.ReadOnly}, s, &f)
	}()
	if b := c.Budget().Balance(); b != 10 {
		t.Errorf("the budget holds %v: the copy never left", b)
	}
}

// Attempts that ran into the call's deadline are slow ones, and learned from.
func TestLearnsFromExpired(t *testing.T) {
	for name, p := range map[string]stint.Policy{
		"attempt timeout": {Timeout: 101 * time.Millisecond, Retry: stint.Retry{AttemptTimeout: 100 * time.Millisecond}},
		"call timeout":    {Timeout: 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			p.Breaker.Off = true
			p.Hedge.Copies = 1
			var rec stinttest.Recorder
			c, err := stint.NewCaller("s", p, &stint.CallerOptions{Observer: &rec})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				if len(rec.Events(stint.AttemptDone)) > i {
					break // the first copy
				}
				stint.Call(t.Context(), c, stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) (int, error) {
					if i%5 == 0 {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					time.Sleep(10 * time.Millisecond)
					return 0, nil
				})
			}
			var first time.Time
			begun := make(map[int]time.Time)
			for _, e := range rec.Events(stint.AttemptDone) {
				if e.Copy > 0 && first.IsZero() {
					first = e.Time.Add(-e.Elapsed)
				}
				begun[e.Attempt] = e.Time.Add(-e.Elapsed)
			}
			if !first.IsZero() {
				es := rec.Events(stint.AttemptDone)
				for _, e := range es[len(es)-2:] {
					t.Logf("%s: attempt %d copy %d elapsed %v", name, e.Attempt, e.Copy, e.Elapsed)
				}
				t.Errorf("%s: a copy was sent though one call in five takes 100ms", name)
			}
			_ = errors.New
		})
	}
}

type chaos struct {
	seed          *rand.Rand
	mu            sync.Mutex
	made, dropped *atomic.Int64
	panics        bool
}

func (s *chaos) draw() (d time.Duration, kind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.seed.IntN(40)) * time.Millisecond, s.seed.IntN(12)
}

type chaosResult struct{ once atomic.Bool }

func (s *chaos) Send(ctx context.Context, _ stint.Hop, copy int) (any, stint.Outcome, error) {
	d, k := s.draw()
	if k == 11 { // ignores its context
		time.Sleep(d * 3)
	} else {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, stint.Outcome{Kind: stint.Transient}, ctx.Err()
		}
	}
	switch k {
	case 0, 1:
		return nil, stint.Outcome{Kind: stint.Transient}, errors.New("reset")
	case 2, 3, 4:
		s.made.Add(1)
		return &chaosResult{}, stint.Outcome{Kind: stint.Transient, Code: "503"}, nil
	case 5:
		s.made.Add(1)
		return &chaosResult{}, stint.Outcome{Kind: stint.Rejected, Code: "404"}, nil
	case 6:
		if s.panics {
			panic("send")
		}
	}
	s.made.Add(1)
	return &chaosResult{}, stint.Outcome{Kind: stint.OK}, nil
}
func (s *chaos) Drop(r any, _ time.Duration) {
	if r.(*chaosResult).once.Swap(true) {
		panic("dropped twice")
	}
	s.dropped.Add(1)
}

type ledger struct {
	mu       sync.Mutex
	open     map[string]int
	callDone map[string]int
}

func (b *ledger) StartAttempt(ctx context.Context, e stint.Event) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[fmt.Sprintf("%s/%d", e.Op, e.Attempt)]++
	return ctx
}
func (b *ledger) Observe(_ context.Context, e stint.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case stint.AttemptDone:
		b.open[fmt.Sprintf("%s/%d", e.Op, e.Attempt)] += 100
	case stint.CallDone:
		b.callDone[e.Op]++
	}
}

// Whatever happens, each call and attempt is reported once, each result delivered or
// dropped, and every slot given back.
func TestChaos(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var made, dropped, kept atomic.Int64
			book := &ledger{open: map[string]int{}, callDone: map[string]int{}}
			p := stint.Policy{Timeout: 100 * time.Millisecond, Bulkhead: 6, Retry: stint.Retry{Attempts: 3, AttemptTimeout: 30 * time.Millisecond, Base: 5 * time.Millisecond, BudgetCeiling: 1 << 20},
				Hedge: stint.Hedge{Copies: 3, Delay: 5 * time.Millisecond}}
			p.Breaker.Off = true
			c, err := stint.NewCaller("s", p, &stint.CallerOptions{Observer: book})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 200 {
				s := &chaos{seed: rand.New(rand.NewPCG(seed, uint64(i))), made: &made, dropped: &dropped, panics: true}
				cancelAt := time.Duration(r.IntN(120)) * time.Millisecond
				startAt := time.Duration(r.IntN(600)) * time.Millisecond
				closeAfter := time.Duration(r.IntN(20)) * time.Millisecond
				wg.Go(func() {
					defer func() {
						if v := recover(); v != nil && v != "send" {
							panic(v)
						}
					}()
					time.Sleep(startAt)
					ctx, cancel := context.WithTimeout(t.Context(), cancelAt)
					if i%2 == 0 {
						cancel()
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(cancelAt, cancel)
					}
					defer cancel()
					var f stint.Flight
					c.Send(ctx, stint.Op{Name: fmt.Sprint(i), Safety: stint.ReadOnly}, s, &f)
					if f.Result() != nil {
						kept.Add(1)
						time.Sleep(closeAfter)
					}
					f.End()
					f.End()
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			for k, n := range book.open {
				if n != 101 {
					t.Errorf("seed %d: attempt %s: %d", seed, k, n)
				}
			}
			for k, n := range book.callDone {
				if n != 1 {
					t.Errorf("call %s: %d CallDone", k, n)
				}
			}
			if len(book.callDone) != 200 {
				t.Errorf("%d CallDone", len(book.callDone))
			}
			if made.Load() != dropped.Load()+kept.Load() {
				t.Errorf("seed %d: %d results, %d dropped, %d kept", seed, made.Load(), dropped.Load(), kept.Load())
			}
			// all slots are free
			in, hold := make(chan struct{}, 10), make(chan struct{})
			var wg2 sync.WaitGroup
			for range 6 {
				wg2.Go(func() {
					c.Do(t.Context(), stint.Op{}, func(context.Context) error { in <- struct{}{}; <-hold; return nil })
				})
			}
			synctest.Wait()
			if len(in) != 6 {
				t.Errorf("seed %d: %d of 6 slots free", seed, len(in))
			}
			close(hold)
			wg2.Wait()
		})
	}
}
