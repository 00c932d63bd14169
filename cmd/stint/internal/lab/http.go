package lab

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// overHTTP is HTTP/1.1.
type overHTTP struct{}

func (overHTTP) serve(l net.Listener, h service, gate *stint.Gate, inside *atomic.Int64) running {
	handler := http.Handler(h)
	if gate != nil {
		handler = stinthttp.Handler(gate, h)
	}
	s := &httpServer{served: make(chan struct{})}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside.Add(1)
			defer inside.Add(-1)
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: patience,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.conns.Add(1)
			case http.StateClosed:
				s.conns.Done()
			}
		},
	}
	go func() {
		defer close(s.served)
		s.http.Serve(l)
	}()
	return s
}

type httpServer struct {
	http   *http.Server
	served chan struct{} // closed when it accepts no more
	conns  sync.WaitGroup
}

func (s *httpServer) shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }
func (s *httpServer) close()                             { s.http.Close() }

func (s *httpServer) wait() {
	<-s.served
	s.conns.Wait()
}

func (overHTTP) dial(s spec, i int, to []*server, c *stint.Caller) (client, func(), error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.MaxIdleConnsPerHost = t.MaxIdleConns // calls that end at once keep their connections
	q := query{url: "http://" + to[0].host + "/", method: s.method, key: s.key}
	if c == nil {
		if i == 0 {
			t.ResponseHeaderTimeout = s.timeout // none, if zero
		}
		if s.absolute {
			q.sign = absoluteDeadline(s.skew)
		}
		return httpClient{q, &http.Client{Transport: t, Timeout: s.hopTimeout}}, t.CloseIdleConnections, nil
	}
	own := &stinthttp.Transport{Caller: c, Base: t, Peer: stinthttp.PeerStint}
	for _, other := range to[1:] {
		own.Alternates = append(own.Alternates, other.host)
	}
	return httpClient{q, &http.Client{Transport: own}}, t.CloseIdleConnections, nil
}

type httpClient struct {
	query  query
	client *http.Client
}

func (c httpClient) send(ctx context.Context) (status int, wait time.Duration, err error) {
	resp, err := c.query.send(ctx, c.client)
	if err != nil {
		return 0, 0, err
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		wait = time.Duration(seconds) * time.Second
	}
	return resp.StatusCode, wait, nil
}

func (c httpClient) check(ctx context.Context) error {
	resp, err := c.query.send(ctx, c.client)
	if err != nil {
		return err
	}
	return stinthttp.CheckStatus(resp)
}

// A query is what a layer asks of the next.
type query struct {
	url         string
	method, key string                             // empty: GET, and no Idempotency-Key
	sign        func(context.Context, http.Header) // writes what else there is to write; may be nil
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
