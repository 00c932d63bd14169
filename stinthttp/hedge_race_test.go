package stinthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// A copy that failed with a slow body does not keep the winner waiting.
func TestFailedCopyDelaysWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(30 * time.Millisecond)
		}))
		w.Serve(t, "b", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(503)
			for r.Context().Err() == nil {
				rw.Write([]byte("drip"))
				rw.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}))
		caller := newCaller(t, "s", stint.Policy{Timeout: time.Minute, Hedge: stint.Hedge{Copies: 1, Delay: 10 * time.Millisecond}}, stint.CallerOptions{})
		client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: w.base, Alternates: []string{"b"}}}
		begun := time.Now()
		if err := get(context.Background(), client, "http://s"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d != 30*time.Millisecond {
			t.Errorf("took %v, though the first attempt answered after 30ms", d)
		}
	})
}

type justInTime struct{}

func (justInTime) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("X-Attempt") == "" { // the first attempt answers just as its copy starts
		time.Sleep(time.Millisecond)
	} else {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// A request may be changed and sent again once its response's body is closed
// (http.RoundTripper); a copy that lost must not look at it any more.
func TestRequestReused(t *testing.T) {
	p := stint.Policy{Timeout: time.Minute, Retry: stint.Retry{BudgetCeiling: 1 << 20}, Hedge: stint.Hedge{Copies: 1, Delay: time.Millisecond}}
	caller := newCaller(t, "s", p, stint.CallerOptions{})
	tr := &stinthttp.Transport{Caller: caller, Base: justInTime{}, Peer: stinthttp.PeerStint}
	req, _ := http.NewRequest("GET", "http://s", nil)
	for i := range 60 {
		req.Header.Set(fmt.Sprint("X-", i), "v")
	}
	for i := range 400 {
		req.Header.Set("X-User", fmt.Sprint(i))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}
