package stint_test

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/stint-go/stint"
)

// What a Gate decides, on a clock of one's own: one request may run at a time,
// and each takes 100 ms.
func ExampleAdmissionController() {
	c, err := stint.GateOptions{Limit: 1}.Controller()
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	arrive := func(who string, left time.Duration, class stint.Class) {
		in, wait, reason := c.Arrive(now, stint.Hop{Remaining: left, Class: class}, who)
		switch {
		case in:
			fmt.Println(who, "runs")
		case wait > 0:
			fmt.Println(who, "waits, at most", wait)
		default:
			fmt.Println(who, "is refused:", reason)
		}
	}
	arrive("a", time.Second, stint.Critical)
	now = now.Add(100 * time.Millisecond)
	arrive("batch", 400*time.Millisecond, stint.Sheddable)
	arrive("b", 400*time.Millisecond, stint.Critical)
	arrive("c", 400*time.Millisecond, stint.CriticalPlus)
	c.Done(now, 100*time.Millisecond)
	who, _, _ := c.Next(now)
	fmt.Println(who, "is called")
	// Output:
	// a runs
	// batch is refused: full
	// b waits, at most 295.5ms
	// c waits, at most 394ms
	// c is called
}

// One Gate for all that a service answers: ordinary requests share a limit that is
// learned, streams have one of their own, and probes are always answered.
func ExampleGate_LongRunning() {
	gate, err := stint.NewGate("shop", &stint.GateOptions{LongLimit: 1000, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("requests:", gate.Limit(), "until it is learned")
	fmt.Println("streams:", gate.LongRunning().Limit(), "each for", gate.LongRunning().Options().MaxTimeout)
	fmt.Println("probes limited:", gate.Exempt().Limit() != stint.NoLimit)
	// Output:
	// requests: 16 until it is learned
	// streams: 1000 each for 1h0m0s
	// probes limited: false
}

// A route with numbers of its own, behind the same door: its requests are shed
// first, and have more time.
func ExampleGate_With() {
	gate, err := stint.NewGate("shop", &stint.GateOptions{Limit: 100, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	o := gate.Options()
	o.Class, o.MaxTimeout, o.DefaultTimeout = stint.Sheddable, time.Minute, time.Minute
	reports, err := gate.With(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	o = gate.Options()
	o.Limit = 200 // for both
	fmt.Println(gate.SetOptions(o))
	fmt.Println(gate.Limit(), gate.Options().MaxTimeout)
	fmt.Println(reports.Limit(), reports.Options().MaxTimeout)
	// Output:
	// <nil>
	// 200 30s
	// 200 1m0s
}
