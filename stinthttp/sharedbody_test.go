package stinthttp_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// rewound is a body whose GetBody rewinds it, as connect-go's is.
type rewound struct{ *strings.Reader }

func (*rewound) Close() error { return nil }

// Copies of a request whose body is one reader would read each other's bytes: it
// has none, unless BufferBody reads it first.
func TestHedgeSharedBody(t *testing.T) {
	const text = "the whole body"
	for _, c := range []struct {
		buffer int64
		shared bool
		want   []string
	}{
		{0, true, []string{text}},
		{100, true, []string{text, text}},
		{0, false, []string{text, text}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			var got []string
			w.Serve(t, "s", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				got = append(got, string(body))
				mu.Unlock()
				time.Sleep(time.Second)
			}))
			p := stint.Policy{Hedge: stint.Hedge{Copies: 1, Delay: 10 * time.Millisecond}, Safety: stint.ReadOnly}
			client := &http.Client{Transport: &stinthttp.Transport{Caller: newCaller(t, "s", p, stint.CallerOptions{}), Base: w.base, BufferBody: c.buffer}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://s", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if c.shared {
				body := &rewound{strings.NewReader(text)}
				req.Body = body
				req.GetBody = func() (io.ReadCloser, error) {
					_, err := body.Seek(0, io.SeekStart)
					return body, err
				}
			}
			resp, err := client.Do(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			resp.Body.Close()
			if mu.Lock(); !slices.Equal(got, c.want) {
				t.Errorf("%+v: the server got %q", c, got)
			}
			mu.Unlock()
		})
	}
}
