package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stint-go/stint/policy"
)

func TestTraffic(t *testing.T) {
	parse := func(text string) *policy.File {
		t.Helper()
		f, err := policy.Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a := parse("service: a\ndependencies: {b: {service: b, timeout: 1s, retry: {maxAttempts: 3}}}")
	b := parse("service: b\ndependencies: {db: {hiddenRetries: 1, retry: {maxAttempts: 2}}}")
	back := parse("service: b\ndependencies: {db: {hiddenRetries: 1, retry: {maxAttempts: 2}}, a: {service: a}}")
	for _, c := range []struct {
		b     *policy.File
		stops map[string]float64
		legs  map[string]string
	}{
		{b, map[string]float64{"a": 1, "b": 3, "db": 12}, map[string]string{"a>b": "1s 3 forward", "b>db": "0s 4 forward"}},
		{back, map[string]float64{"a": math.Inf(1), "b": math.Inf(1), "db": math.Inf(1)},
			map[string]string{"a>b": "1s 3 forward", "b>db": "0s 4 forward", "b>a": "0s 1 back"}},
	} {
		g, err := policy.NewGraph(c.b, a)
		if err != nil {
			t.Fatal(err)
		}
		stops, legs := g.Traffic()
		if len(stops) != len(c.stops) || len(legs) != len(c.legs) {
			t.Errorf("%v, %v", stops, legs)
		}
		for _, s := range stops {
			if s.Requests != c.stops[s.Name] || (s.File == nil) != (s.Name == "db") {
				t.Errorf("%s: %v requests, want %v", s.Name, s.Requests, c.stops[s.Name])
			}
		}
		for _, l := range legs {
			way := map[bool]string{true: "forward", false: "back"}[l.Target > l.Source]
			name := stops[l.Source].Name + ">" + stops[l.Target].Name
			if have := fmt.Sprint(time.Duration(l.Timeout), " ", l.Attempts, " ", way); have != c.legs[name] {
				t.Errorf("%s: %s, want %s", name, have, c.legs[name])
			}
		}
	}
}
