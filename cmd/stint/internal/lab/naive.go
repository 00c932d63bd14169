package lab

import (
	"context"
	"io"
	"net/http"
	"time"
)

// A naiveCaller is the retry loop that many services have around a call: so
// many attempts, a short wait between them, and a timeout in the client.
// Everything that failed is tried again.
type naiveCaller struct {
	layer    string
	attempts int
	url      string
	client   *http.Client
	rec      *record
}

// call returns the last answer's status or, where there was none, the error.
func (n *naiveCaller) call(ctx context.Context) (status int, err error) {
	for i := 1; i <= n.attempts; i++ {
		if i > 1 {
			select {
			case <-time.After(backoff):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		start := time.Now()
		status, err = get(ctx, n.client, n.url)
		n.rec.attempted(n.layer, i, start, time.Now())
		if err == nil && status < 500 {
			break
		}
	}
	return status, err
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

// get makes one request and returns the answer's status.
func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	resp, err := request(ctx, client, url)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

// request makes one request and reads all of the answer, so that the connection
// is used again.
func request(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
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
