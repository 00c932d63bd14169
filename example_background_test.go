package stint_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// A request that is answered "accepted" and whose work goes on. The zero
// Background would do; a service has one, and stops it after its server.
func ExampleBackground() {
	jobs := stint.Background{Timeout: time.Minute, Limit: 10}

	request, answered := context.WithTimeout(context.Background(), 200*time.Millisecond)
	err := jobs.Go(request, func(ctx context.Context) {
		<-ctx.Done() // a job that would take long
		fmt.Println("job:", context.Cause(ctx))
	})
	fmt.Println("accepted:", err == nil)
	answered() // the request's context is over, the job's is not

	stopping, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println("stopped:", jobs.Shutdown(stopping))
	// Output:
	// accepted: true
	// job: stint: told to stop by Background.Shutdown
	// stopped: <nil>
}
