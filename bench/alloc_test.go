//go:build !race

package main

import "testing"

// Over gRPC the count is that of the whole process, and some of it is grpc-go's as it likes.
func TestAllocRPC(t *testing.T) {
	s, err := newRPC(same{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	allocs := map[string]float64{}
	for _, sub := range append(s.others, s.yardstick) {
		allocs[sub.name] = testing.AllocsPerRun(1000, func() {
			if err := sub.call(); err != nil {
				t.Fatalf("%s: %v", sub.name, err)
			}
		})
		t.Logf("%s: %v allocations", sub.name, allocs[sub.name])
	}
	if more := allocs["stint: client and server"] - allocs[s.yardstick.name]; more > 18 {
		t.Errorf("stint on both sides: %v allocations more than %s, want at most 18", more, s.yardstick.name)
	}
}

// Allocations are exact, so they are held; times are only shown.
func TestAllocStack(t *testing.T) {
	s, err := newStack()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	allocs := map[string]float64{}
	for _, sub := range append(s.others, s.yardstick) {
		allocs[sub.name] = testing.AllocsPerRun(200, func() {
			if err := sub.call(); err != nil {
				t.Fatalf("%s: %v", sub.name, err)
			}
		})
		t.Logf("%s: %v allocations", sub.name, allocs[sub.name])
	}
	own, four := allocs["stint: Caller.Do"], allocs["failsafe-go: four policies"]
	if own == 0 || own >= allocs[s.yardstick.name] {
		t.Errorf("stint: %v allocations, want less than %s: %v", own, s.yardstick.name, allocs[s.yardstick.name])
	}
	if own > four/2 {
		t.Errorf("stint: %v allocations, want at most half of failsafe-go's %v", own, four)
	}
}
