package policy_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

const orders = `
service: orders
entry:
  trust: peers
  deadline: 760ms
  reserve: 90ms
latencyBudget: {local: 80ms, inventory: 260ms}
dependencies:
  inventory:
    retry: {maxAttempts: 3, perAttemptTimeout: 120ms, budget: 10% of baseline traffic}
    operations:
      "GET /heavy-report": {retry: none}
`

// A file gives a Caller for each dependency and a Gate for the service itself.
func Example() {
	f, err := policy.Parse("orders.yaml", []byte(orders))
	if err != nil {
		log.Fatal(err)
	}
	inventory, err := f.Caller("inventory", nil)
	if err != nil {
		log.Fatal(err)
	}
	gate, err := f.Gate(&stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	tries := 0
	err = inventory.Do(context.Background(), stint.Op{Name: "GET", Safety: stint.ReadOnly}, func(context.Context) error {
		tries++
		return nil
	})
	fmt.Println(tries, err, inventory.Policy().Timeout, gate.Options().DefaultTimeout)
	// Output: 1 <nil> 260ms 760ms
}

// Every mistake of a file is reported, each with its place.
func ExampleParse() {
	_, err := policy.Parse("orders.yaml", []byte(`service: orders
dependencies:
  inventory: {timeout: 260, retry: {maxAtempts: 3}}
`))
	fmt.Println(err)
	// Output:
	// orders.yaml:3:24: dependencies.inventory.timeout: 260 has no unit; write 260ms or 260s
	// orders.yaml:3:37: dependencies.inventory.retry.maxAtempts: is an unknown key; did you mean maxAttempts?
}
