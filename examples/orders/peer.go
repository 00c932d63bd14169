package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/stint-go/stint/stinthttp"
)

// A peer is a service of the same organisation that is called over HTTP: it is told
// the time left, and who owns the retries.
type peer struct {
	client *http.Client
	url    string
}

func newPeer(name, url string, c contract, log *slog.Logger) (peer, error) {
	caller, err := c.caller(name)
	if err != nil {
		return peer{}, err
	}
	client := stinthttp.NewClient(caller, stinthttp.PeerStint)
	logHidden(log, name, stinthttp.HiddenRetries(client.Transport))
	return peer{client, strings.TrimSuffix(url, "/")}, nil
}

// do makes one request and reads the answer into v, if that is not nil. A 409 or 422 is
// the peer's refusal, which our own caller gets in its words.
func (p peer) do(ctx context.Context, method, path, key string, body []byte, v any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // read or not: it frees the bulkhead's slot
	answer := io.LimitReader(resp.Body, 64<<10)
	if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusUnprocessableEntity {
		text, err := io.ReadAll(answer)
		if err != nil {
			return err
		}
		return &refusal{resp.StatusCode, strings.TrimSpace(string(text))}
	}
	if err := stinthttp.CheckStatus(resp); err != nil {
		return err
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(answer).Decode(v)
}
