package stint_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

func BenchmarkDo(b *testing.B) {
	c, err := stint.NewCaller("c", stint.Policy{Timeout: time.Second, MinUseful: 20 * time.Millisecond, Retry: stint.Retry{Attempts: 3}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	noop := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		c.Do(ctx, read, noop)
	}
}

// The yardstick for BenchmarkDo: what only the deadline costs by hand.
func BenchmarkWithTimeout(b *testing.B) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, cancel := context.WithTimeout(ctx, time.Second)
		cancel()
	}
}

func BenchmarkRefusal(b *testing.B) {
	c, err := stint.NewCaller("c", stint.Policy{Breaker: stint.Breaker{MinCalls: 1}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	fail := func(context.Context) error { return errors.New("down") }
	c.Do(ctx, read, fail) // opens the breaker
	b.ReportAllocs()
	for b.Loop() {
		c.Do(ctx, read, fail)
	}
}

func BenchmarkDecide(b *testing.B) {
	p := stint.Policy{Retry: stint.Retry{Attempts: 3}}
	a := stint.Attempt{Number: 1, Outcome: stint.Outcome{Kind: stint.Transient, Code: "503"}, Remaining: time.Second,
		Op: read, BreakerClosed: true, Balance: 10}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(a, 0.5)
	}
}

func BenchmarkParseHop(b *testing.B) {
	fields := map[string][]string{"X-Deadline-Ms": {"250"}, "X-Retry-Owner": {"orders"}, "X-Request-Id": {"0123456789abcdef"}}
	b.ReportAllocs()
	for b.Loop() {
		stint.ParseHop(fields)
	}
}

func BenchmarkHopAppend(b *testing.B) {
	h := stint.Hop{Remaining: 250 * time.Millisecond, Owner: "orders", RequestID: "0123456789abcdef"}
	var buf [6]stint.Field
	b.ReportAllocs()
	for b.Loop() {
		h.Append(buf[:0])
	}
}

func BenchmarkAdmit(b *testing.B) {
	g, err := stint.NewGate("s", &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, hop := context.Background(), stint.Hop{Remaining: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		a := new(stint.Admission)
		if g.Admit(ctx, hop, a) == nil {
			a.Finish(stint.Outcome{Kind: stint.OK})
		}
	}
}

func benchGate(b *testing.B, limit int) *stint.Gate {
	g, err := stint.NewGate("s", &stint.GateOptions{Limit: limit, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return g
}

func BenchmarkGateAdmitFull(b *testing.B) {
	g := benchGate(b, 1)
	ctx := context.Background()
	if err := g.Admit(ctx, stint.Hop{Remaining: time.Second}, new(stint.Admission)); err != nil {
		b.Fatal(err)
	}
	var a stint.Admission
	for b.Loop() {
		g.Admit(ctx, stint.Hop{Remaining: time.Millisecond}, &a)
	}
}

// Two goroutines that hand one place to each other through the queue.
func BenchmarkGateAdmitQueued(b *testing.B) {
	g := benchGate(b, 1)
	ctx, hop := context.Background(), stint.Hop{Remaining: 10 * time.Second}
	pass := func() {
		a := new(stint.Admission)
		if err := g.Admit(ctx, hop, a); err != nil {
			b.Error(err)
			return
		}
		for g.Queued() == 0 && !b.Failed() && ctx.Err() == nil { // until the other waits
			runtime.Gosched()
		}
		a.Finish(stint.Outcome{Kind: stint.OK})
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			a := new(stint.Admission)
			if g.Admit(ctx, hop, a) == nil {
				for g.Queued() == 0 && ctx.Err() == nil {
					runtime.Gosched()
				}
				a.Finish(stint.Outcome{Kind: stint.OK})
			}
		}
	}()
	for b.Loop() {
		pass()
	}
	stop()
	<-done
}

func BenchmarkGateAdmitParallel(b *testing.B) {
	g := benchGate(b, 1000)
	hop := stint.Hop{Remaining: time.Second}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a := new(stint.Admission)
			if g.Admit(context.Background(), hop, a) == nil {
				a.Finish(stint.Outcome{Kind: stint.OK})
			}
		}
	})
}
