package stinttest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Layer is one service of a chain under test.
type Layer struct {
	// Name names the layer in the report.
	Name string

	// Handler builds the service as it is in production, with two things given
	// to it: base, over which its client reaches the next layer at next (for
	// the last layer next is empty), and work, which stands for its own
	// blocking work: a query, a computation. The handler has to call work once
	// with the context that such work would get, before it calls the next layer.
	Handler func(base http.RoundTripper, next string, work func(context.Context)) http.Handler
}

// DelayMatrix sends a request with budget to spend through a chain of services,
// outermost first, once for each layer, and makes that layer's work take delay,
// which must be longer than budget. Each time the caller must have its 504 no
// later than at its deadline, and the slow work must have been told to stop by
// then; else the test fails with the name of the layer where the chain breaks.
// It runs in virtual time, on an in-memory network.
func DelayMatrix(t *testing.T, layers []Layer, budget, delay time.Duration) {
	t.Helper()
	if len(layers) == 0 || budget < time.Millisecond || delay <= budget {
		t.Fatalf("stinttest: DelayMatrix needs layers, a budget of at least 1ms and a delay above it; got %d layers, budget %v, delay %v",
			len(layers), budget, delay)
	}
	for slow := range layers {
		t.Run("slow="+layers[slow].Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, fault := range delayAt(t, layers, slow, budget, delay) {
					t.Error(fault)
				}
			})
		})
	}
}

// run is what one pass of the matrix saw of a layer.
type run struct {
	entered time.Duration // when its work began; negative: never
	stopped time.Duration // when its work ended
}

// delayAt makes one pass and returns what is wrong.
func delayAt(t *testing.T, layers []Layer, slow int, budget, delay time.Duration) []string {
	n := NewNetwork()
	base := n.Transport(t)
	start := time.Now()
	var mu sync.Mutex
	saw := run{entered: -1}
	worked := make(chan struct{})
	var once sync.Once // a layer above may try again
	for i, l := range layers {
		next := ""
		if i+1 < len(layers) {
			next = "http://" + host(i+1)
		}
		work := func(context.Context) {}
		if i == slow {
			work = func(ctx context.Context) {
				defer once.Do(func() { close(worked) })
				mu.Lock()
				saw.entered = time.Since(start)
				mu.Unlock()
				wait(ctx, delay)
				mu.Lock()
				saw.stopped = time.Since(start)
				mu.Unlock()
			}
		}
		n.Serve(t, host(i), l.Handler(base, next, work))
	}

	req, err := http.NewRequest(http.MethodGet, "http://"+host(0), nil)
	if err != nil {
		return []string{err.Error()}
	}
	req.Header.Set("X-Deadline-Ms", strconv.FormatInt(budget.Milliseconds(), 10))
	client := http.Client{Transport: base, Timeout: delay + time.Minute}
	resp, err := client.Do(req)
	took := time.Since(start)
	name := layers[slow].Name
	if err != nil {
		return []string{fmt.Sprintf("%s: no answer: %v", name, err)}
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()

	var faults []string
	if resp.StatusCode != http.StatusGatewayTimeout {
		faults = append(faults, fmt.Sprintf("%s: answered %d after %v, want 504 within %v", layers[0].Name, resp.StatusCode, took, budget))
	} else if took > budget {
		faults = append(faults, fmt.Sprintf("%s: answered 504 after %v, want it within %v", layers[0].Name, took, budget))
	}
	if took < delay { // let the slow work end, to see when it does
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-worked:
		case <-timer.C:
		}
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case saw.entered < 0:
		faults = append(faults, fmt.Sprintf("%s: its work was never called: a layer above it gave up, or its Handler does not call work", name))
	case saw.stopped == 0:
		faults = append(faults, fmt.Sprintf("%s: the chain breaks here: its work did not end", name))
	case saw.stopped > budget:
		faults = append(faults, fmt.Sprintf("%s: the chain breaks here: its work went on until %v under a deadline of %v; pass on the request's context", name, saw.stopped, budget))
	}
	return faults
}

func host(i int) string { return "layer" + strconv.Itoa(i) }

// wait is work that takes d, and obeys its context.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
