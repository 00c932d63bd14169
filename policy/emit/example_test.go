package emit_test

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/policy/emit"
)

func ExampleEmit() {
	f, err := policy.Parse("orders.yaml", []byte(`service: orders
dependencies:
  shop.Price:
    timeout: 300ms
    safety: readOnly
    retry: {maxAttempts: 7, perAttemptTimeout: 120ms}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := emit.Emit(emit.GRPC, f)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range d.Losses() {
		if strings.HasPrefix(l.Code, "X-LOSS-ATTEMPT") {
			fmt.Printf("%v: %s: %s: %s\n", l.Position, l.Key, l.Fidelity, l.Text)
		}
	}
	// Output:
	// orders.yaml:6:26: dependencies.shop.Price.retry.maxAttempts: approximate: 7 attempts are 5 there
	// orders.yaml:6:48: dependencies.shop.Price.retry.perAttemptTimeout: lost: attempts have no limit of their own: one that hangs uses up the call's 300ms
}

func ExampleRead() {
	layers, err := emit.Read("mesh.yaml", []byte(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payout}
spec:
  hosts: [payout]
  http:
    - route: [{destination: {host: payout}}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range layers {
		fmt.Printf("%v: %s repeats calls to %s %d times; stated: %v\n", l.Position, l.Name, l.Service, l.Retries, l.Stated)
	}
	// Output: mesh.yaml:7:7: Istio VirtualService payout repeats calls to payout 2 times; stated: false
}
