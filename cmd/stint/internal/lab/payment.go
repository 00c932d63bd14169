package lab

import (
	"fmt"
	"net/http"
	"sync"
)

func payment() experiment {
	build := func(m Mode, key string) spec {
		s := direct(m, fewAttempts)
		s.method, s.key, s.marks, s.serve = http.MethodPost, key, "paid", pay
		return s
	}
	return experiment{
		shows: "what may have been done is not done again",
		setting: fmt.Sprintf("A -> C. A sends POST, in up to %d attempts. C pays, and then answers 503. An Idempotency-Key that C has seen is "+
			"answered 200, and nothing is paid. $ is a payment.", fewAttempts),
		leaf:    "C",
		counted: "payments",
		head:    "payments",
		count:   func(res Result) int { return len(res.marks) },
		end: func(res Result) string {
			return fmt.Sprintf("%s: %s", plural(res.LeafRequests, "request"), res.clientEnd)
		},
		endHead: "requests: answer",
		rows: []row{
			{label: "naive", spec: build(Naive, ""), want: exactly(fewAttempts), draw: true,
				promise: "naive: the customer pays three times, and is told that it failed"},
			{label: "stint", spec: build(Stint, ""), want: exactly(1), draw: true, ends: answered(http.StatusServiceUnavailable),
				promise: "stint: a POST without a key is sent once, and A has the 503"},
			{label: "stint, with a key", spec: build(Stint, "order-4711"), want: exactly(1), draw: true, ends: paid,
				promise: "stint, with a key: it is the same on every attempt, so C can tell: A has a 200"},
		},
	}
}

// paid reports whether the client has a good answer after at most all attempts.
func paid(res Result) bool { return answered(http.StatusOK)(res) && res.LeafRequests <= fewAttempts }

// pay has an effect and answers 503, as a service that breaks down between the
// two. A key that it has seen has its effect already, and is answered 200.
func pay(_ spec, rec *record) http.HandlerFunc {
	var mu sync.Mutex
	seen := make(map[string]bool)
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if seen[key] {
			return
		}
		seen[key] = key != ""
		rec.marked(0)
		http.Error(w, "paid, but broken", http.StatusServiceUnavailable)
	}
}
