package lab

import "fmt"

const deadCalls = 300

func dead() experiment {
	const n = fewAttempts
	build := func(m Mode) spec {
		s := direct(m, n)
		s.calls = deadCalls
		return s
	}
	budget := build(Stint)
	budget.breakerOff = true
	most := deadCalls + savedRetries()
	return experiment{
		shows:   "a dependency that is down is left alone",
		setting: fmt.Sprintf("A -> C. C is always unavailable. A makes %d calls, one after the other, each of up to %d attempts.", deadCalls, n),
		leaf:    "C",
		perCall: true,
		rows: []row{
			{label: "naive", spec: build(Naive), want: exactly(n * deadCalls), draw: true},
			{label: "stint, budget only", spec: budget, want: want{deadCalls, most}, draw: true,
				promise: fmt.Sprintf("with the breaker off, the retry budget allows the %d retries that were saved up and no more: C sees %d to %d requests",
					savedRetries(), deadCalls, most)},
			{label: "stint, defaults", spec: build(Stint), want: atMost(30), draw: true,
				promise: "the breaker opens, and C sees at most 30 requests"},
		},
	}
}
