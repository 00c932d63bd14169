package lab

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A naiveCaller is the retry loop that many services have around a call: so
// many attempts, a short wait between them or the one that the server asks for,
// and a timeout in the client. Everything that failed is tried again.
type naiveCaller struct {
	layer    string
	attempts int
	query    query
	client   *http.Client
	rec      *record
}

// call returns the last answer's status or, where there was none, the error.
func (n *naiveCaller) call(ctx context.Context) (status int, err error) {
	wait := backoff
	for i := 1; i <= n.attempts; i++ {
		if i > 1 {
			start := time.Now()
			lived := pause(ctx, wait)
			if wait > backoff { // what the server asked for
				n.rec.waited(n.layer, start, time.Now())
			}
			if !lived {
				return 0, ctx.Err()
			}
		}
		start := time.Now()
		resp, e := n.query.send(ctx, n.client)
		n.rec.attempted(n.layer, i, start, time.Now())
		if status, err = 0, e; err == nil {
			status, wait = resp.StatusCode, askedWait(resp)
			if status < 500 {
				break
			}
		}
	}
	return status, err
}

// askedWait is how long to wait after an answer.
func askedWait(resp *http.Response) time.Duration {
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return backoff
}

// naiveLayer answers requests by way of next. Without passContext its calls do
// not notice when its own caller has left: client.Get has no context.
func naiveLayer(next hop, passContext bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.Background()
		if passContext {
			ctx = r.Context()
		}
		if status, err := next.call(ctx); err != nil || status >= 500 {
			http.Error(w, "the next service failed", http.StatusBadGateway)
		}
	})
}

// A query is what a layer asks of the next.
type query struct {
	url         string
	method, key string                             // empty: GET, and no Idempotency-Key
	sign        func(context.Context, http.Header) // writes what else there is to write; may be nil
}

// status sends the query and returns the answer's status.
func (q query) status(ctx context.Context, client *http.Client) (int, error) {
	resp, err := q.send(ctx, client)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

// send makes one request and reads all of the answer, so that the connection is
// used again.
func (q query) send(ctx context.Context, client *http.Client) (*http.Response, error) {
	var body io.Reader
	if q.method == http.MethodPost {
		body = strings.NewReader("amount=100")
	}
	req, err := http.NewRequestWithContext(ctx, q.method, q.url, body)
	if err != nil {
		return nil, err
	}
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	if q.sign != nil {
		q.sign(ctx, req.Header)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return nil, err
	}
	return resp, nil
}
