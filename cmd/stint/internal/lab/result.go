package lab

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
)

// A Result is what came of one row. Its JSON form is the lab's -json output.
type Result struct {
	Experiment string `json:"experiment"`
	Row        string `json:"row"`
	Mode       Mode   `json:"mode"`
	Params     Params `json:"params"`
	// Counted says what Count is the number of. It has to be from WantLeast to
	// WantMost.
	Counted   string `json:"counted"`
	Count     int    `json:"count"`
	WantLeast int    `json:"wantLeast"`
	WantMost  int    `json:"wantMost"`
	// LeafRequests is how many requests reached the leaf, whoever waited for them.
	LeafRequests int `json:"leafRequests"`
	// ElapsedMs is how long the client waited, for all its calls.
	ElapsedMs float64 `json:"elapsedMs"`
	// WastedMs is how long the leaf worked after the client had left.
	WastedMs float64 `json:"wastedMs"`
	// ClientStatus is the HTTP status of the answer to the client's last call;
	// zero if there was none, and over gRPC.
	ClientStatus int `json:"clientStatus"`
	// ClientError says why there was no answer; empty if there was one,
	// whatever its status. Over gRPC it has the status, too.
	ClientError string `json:"clientError"`
	// Holds says whether the count is what it has to be, and the client's end
	// too: in a naive row what is predicted, in a stint row what stint promises.
	Holds bool `json:"holds"`

	// P50Ms and P99Ms are quantiles of the calls' times (hedge).
	P50Ms float64 `json:"p50Ms,omitempty"`
	P99Ms float64 `json:"p99Ms,omitempty"`

	// Queries is how many queries reached the store, QueryMs for how long they ran
	// there after the client had left, and LastQueryMs when the last one ended, both
	// as the lab saw it (store).
	Queries     int     `json:"queries,omitempty"`
	QueryMs     float64 `json:"queryMs,omitempty"`
	LastQueryMs float64 `json:"lastQueryMs,omitempty"`

	// Good is how many calls of each Load had a good answer, Sent how many
	// requests were sent for all of them, and FailureMs the median time after which
	// a call ended that had none (overload).
	Good      []int   `json:"good,omitempty"`
	Sent      int     `json:"sent,omitempty"`
	FailureMs float64 `json:"failureMs,omitempty"`

	// For the pictures only.
	row       row
	clientErr error
	clientEnd string
	end       string          // of the row, as the table has it
	drawn     time.Duration   // when the call started that is drawn: the last one
	left      time.Duration   // when the client had its answer, or gave up
	perCall   []int           // requests at the leaf
	took      []time.Duration // each call's time
	called    []called        // by schedule
	late      time.Duration   // the most by which one began after its time
	attempts  []attempt
	visits    []span
	others    []span
	marks     []mark
	stops     map[stop]int
	queries   []span        // in the store
	gap       time.Duration // the longest time without a look at them
}

// Params are a row's numbers. Times are in milliseconds.
type Params struct {
	// Transport is what the hops go over; without it, HTTP.
	Transport Transport `json:"transport,omitempty"`
	// Attempts is the most attempts of each layer that retries, outermost first.
	Attempts []int `json:"attempts"`
	// Depth is how many layers that is.
	Depth int `json:"depth"`
	// Calls is how many calls the client makes, one after the other.
	Calls int `json:"calls"`
	// DeadlineMs is the client's, for each call.
	DeadlineMs int64 `json:"deadlineMs"`
	// WorkMs is how long the leaf works before it answers.
	WorkMs int64 `json:"workMs"`

	// HopTimeoutMs and PassContext are a naive row's: the timeout of each
	// layer's client, and whether the request's context goes to the next call.
	HopTimeoutMs int64 `json:"hopTimeoutMs,omitempty"`
	PassContext  *bool `json:"passContext,omitempty"`

	// MinUsefulMs, RetryBudget (the retries saved up at the start) and Breaker
	// are a stint row's.
	MinUsefulMs int64 `json:"minUsefulMs,omitempty"`
	RetryBudget int   `json:"retryBudget,omitempty"`
	Breaker     *bool `json:"breaker,omitempty"`

	// What only one experiment has: Steps in which the leaf works (zombie),
	// RetryAfterMs that it asks for (retryafter), Keyed for a request with an
	// Idempotency-Key (payment), SkewMs of the caller's clock, negative if it is
	// behind (skew), Hops that the redirects make and TimeoutMs of the client
	// (redirect), Copies of one call and HedgeDelayMs before them, without which
	// the delay is learned (hedge).
	Steps        int   `json:"steps,omitempty"`
	RetryAfterMs int64 `json:"retryAfterMs,omitempty"`
	Keyed        bool  `json:"keyed,omitempty"`
	SkewMs       int64 `json:"skewMs,omitempty"`
	Hops         int   `json:"hops,omitempty"`
	TimeoutMs    int64 `json:"timeoutMs,omitempty"`
	Copies       int   `json:"copies,omitempty"`
	HedgeDelayMs int64 `json:"hedgeDelayMs,omitempty"`

	// Store that the leaf asks, and Silent for a network before it that falls silent
	// (store).
	Store  Store `json:"store,omitempty"`
	Silent bool  `json:"silent,omitempty"`

	// Slots of the leaf, and the Load on it (overload).
	Slots int    `json:"slots,omitempty"`
	Load  []Load `json:"load,omitempty"`
}

// A Load is so many calls a second, begun by schedule, for so long.
type Load struct {
	PerSecond int   `json:"perSecond"`
	Ms        int64 `json:"ms"`
}

// WriteJSON writes the results as one array with a line for each.
func WriteJSON(w io.Writer, results []Result) error {
	var b bytes.Buffer
	b.WriteString("[")
	for i, r := range results {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  ")
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		b.Write(line)
	}
	b.WriteString("\n]\n")
	_, err := w.Write(b.Bytes())
	return err
}
