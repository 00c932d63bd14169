package stint_test

import (
	"context"
	"errors"
	"log/slog"
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
