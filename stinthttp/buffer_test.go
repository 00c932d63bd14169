package stinthttp_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

func TestBufferBodyMaxInt64(t *testing.T) {
	got := make(chan string, 1)
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
	}))
	caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute}, stint.CallerOptions{})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: math.MaxInt64}}
	resp, err := client.Post("http://"+rs.hosts[0], "text/plain", io.NopCloser(strings.NewReader("payload")))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if b := <-got; b != "payload" {
		t.Errorf("the server got %q", b)
	}
}

// net/http fails a request whose body is not as long as it says.
func TestBufferBodyLength(t *testing.T) {
	for _, said := range []int64{5, 10} {
		for _, limit := range []int64{0, 100} {
			rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				t.Logf("said %d, limit %d: the server got %q, %v, length %d", said, limit, b, err, r.ContentLength)
			}))
			caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute}, stint.CallerOptions{})
			client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: limit}}
			req, _ := http.NewRequest("PUT", "http://"+rs.hosts[0], io.NopCloser(strings.NewReader("payload")))
			req.ContentLength = said
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
				t.Errorf("said %d, limit %d: %d, want an error: the body has 7 bytes", said, limit, resp.StatusCode)
			} else {
				t.Log(err)
			}
		}
	}
}

func TestBufferBodyWithOp(t *testing.T) {
	var n atomic.Int64
	rs, _ := start(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			rw.WriteHeader(503)
		}
	}))
	caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}}, stint.CallerOptions{})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: 100,
		Op: func(r *http.Request) stint.Op {
			op := stinthttp.RequestOp(r)
			op.Name = "upload"
			return op
		}}}
	req, _ := http.NewRequest("PUT", "http://"+rs.hosts[0], io.NopCloser(strings.NewReader("payload")))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n.Load() != 2 || resp.StatusCode != 200 {
		t.Errorf("%d requests, %d; want the buffered body sent again", n.Load(), resp.StatusCode)
	}
}

func TestBufferBodyTrailers(t *testing.T) {
	for _, protocol := range protocols {
		for _, limit := range []int64{0, 100} {
			got := make(chan string, 1)
			rs, scheme := start(t, protocol, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				io.ReadAll(r.Body)
				got <- r.Trailer.Get("X-Sum")
			}))
			caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute}, stint.CallerOptions{})
			client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: limit}}
			req, _ := http.NewRequest("PUT", scheme+"://"+rs.hosts[0], io.NopCloser(strings.NewReader("payload")))
			req.Trailer = http.Header{"X-Sum": {"7"}}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if v := <-got; v != "7" {
				t.Errorf("%s, BufferBody %d: trailer %q", protocol, limit, v)
			}
		}
	}
}

func TestBufferBodyCallTimeout(t *testing.T) {
	for _, limit := range []int64{0, 100} {
		rs, _ := start(t, "HTTP/1.1", newSlow())
		caller := newCaller(t, "s", stint.Policy{Timeout: 100 * time.Millisecond}, stint.CallerOptions{})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: rs.base, BufferBody: limit}}
		req, _ := http.NewRequest("PUT", "http://"+rs.hosts[0], io.NopCloser(strings.NewReader("payload")))
		_, err := client.Do(req)
		if !errors.Is(err, stint.ErrCallTimeout) {
			t.Errorf("BufferBody %d: %v, want ErrCallTimeout", limit, err)
		}
	}
}
