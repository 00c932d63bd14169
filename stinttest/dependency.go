package stinttest

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// A Step is what a Dependency does with one request.
type Step struct {
	// Latency passes before the answer; a caller that leaves meanwhile ends it.
	Latency time.Duration
	// Status is the answer's; zero means 200.
	Status int
	// Header is added to the answer's.
	Header http.Header
	// Body is the answer's body.
	Body string
	// Reset closes the connection instead of answering. On a connection that
	// has been used before, net/http itself sends a GET once more: that is the
	// next step's.
	Reset bool
	// Stall never answers: it waits until the caller has left.
	Stall bool
}

// An Arrival is one request that reached a Dependency.
type Arrival struct {
	At     time.Time
	Method string
	Header http.Header
	Body   []byte
	// Left is when the caller was seen to have left before it was answered;
	// zero if it stayed.
	Left time.Time
}

// A Dependency is an http.Handler that does what its script says, one step a
// request, and counts what reaches it. Its methods may be called at the same time.
type Dependency struct {
	mu       sync.Mutex
	script   []Step
	arrivals []*Arrival
}

// NewDependency returns a Dependency that follows script and then repeats its
// last step for ever. Without a script it answers 200.
func NewDependency(script ...Step) *Dependency {
	if len(script) == 0 {
		script = []Step{{}}
	}
	return &Dependency{script: script}
}

// ServeHTTP does the next step.
func (d *Dependency) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a caller that leaves halfway has been counted all the same
	a := &Arrival{At: time.Now(), Method: r.Method, Header: r.Header.Clone(), Body: body}
	d.mu.Lock()
	step := d.script[min(len(d.arrivals), len(d.script)-1)]
	d.arrivals = append(d.arrivals, a)
	d.mu.Unlock()

	if !d.wait(a, r, step) {
		return
	}
	if step.Reset {
		panic(http.ErrAbortHandler)
	}
	for name, values := range step.Header {
		w.Header()[name] = values
	}
	if step.Status != 0 {
		w.WriteHeader(step.Status)
	}
	io.WriteString(w, step.Body)
}

// wait reports false if the caller left.
func (d *Dependency) wait(a *Arrival, r *http.Request, step Step) bool {
	var answer <-chan time.Time
	if !step.Stall {
		if step.Latency <= 0 {
			return true
		}
		timer := time.NewTimer(step.Latency)
		defer timer.Stop()
		answer = timer.C
	}
	select {
	case <-answer:
		return true
	case <-r.Context().Done():
		d.mu.Lock()
		a.Left = time.Now()
		d.mu.Unlock()
		return false
	}
}

// Count returns how many requests have arrived.
func (d *Dependency) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.arrivals)
}

// Arrivals returns the requests so far, in order.
func (d *Dependency) Arrivals() []Arrival {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Arrival, len(d.arrivals))
	for i, a := range d.arrivals {
		all[i] = *a
	}
	return all
}
