package stint_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// A slow read gets a second copy after 20 ms, and the faster one counts.
func ExampleHedge() {
	c, err := stint.NewCaller("search", stint.Policy{
		Timeout: time.Second,
		Hedge:   stint.Hedge{Copies: 1, Delay: 20 * time.Millisecond},
	}, nil)
	if err != nil {
		panic(err)
	}
	var runs atomic.Int32
	answer, err := stint.Call(context.Background(), c, stint.Op{Safety: stint.ReadOnly}, func(ctx context.Context) (string, error) {
		if runs.Add(1) == 1 {
			<-ctx.Done() // a replica that has got stuck; it is told when the other has answered
			return "", ctx.Err()
		}
		return "from the second replica", nil
	})
	fmt.Println(answer, err, c.Budget().Balance())
	// Output: from the second replica <nil> 9.1
}
