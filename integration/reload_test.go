package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stinthttp"
)

// executed counts, by the id of the request, how often a leaf did its work.
type executed struct {
	mu    sync.Mutex
	total int
	byID  map[string]int
	after map[int]func() // what happens when so many have been done
}

func (e *executed) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.total++
	e.byID[r.Header.Get("X-Id")]++
	if then := e.after[e.total]; then != nil {
		then()
	}
}

// load makes calls, the first half one after another and then eight at once, and says by id which went well.
func load(t *testing.T, c *client, method string, calls int) (ok map[string]bool) {
	t.Helper()
	var mu sync.Mutex
	ok = make(map[string]bool, calls)
	call := func(id string) {
		req, err := http.NewRequestWithContext(t.Context(), method, c.url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("X-Id", id)
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		mu.Lock()
		defer mu.Unlock()
		ok[id] = err == nil && resp.StatusCode == http.StatusOK
		if !ok[id] {
			t.Logf("%s %s: %v", method, id, err)
		}
	}
	for i := range calls / 2 {
		call(fmt.Sprint(i))
	}
	const workers = 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range calls / 2 / workers {
				call(fmt.Sprint(w, "-", i))
			}
		})
	}
	wg.Wait()
	return ok
}

// An nginx that ends connections, with GOAWAY in HTTP/2: every few requests,
// when it reads its configuration anew, and when another one takes over. Every
// GET succeeds all the same; a POST that may have been looked at is not repeated,
// so it may fail, and is never done twice.
func TestNginxClosesConnections(t *testing.T) {
	const calls = 240
	for _, replaced := range []bool{false, true} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(map[bool]string{false: "reloaded", true: "replaced"}[replaced]+" under "+method, func(t *testing.T) {
				eachWay(t, func(t *testing.T, w way) {
					e := &executed{byID: map[string]int{}, after: map[int]func(){}}
					config := w.config("keepalive_requests 10;\n", "", leaf(t, e).Addr)
					socket := testenv.Listen(t)
					defer socket.Close()
					n := testenv.StartNginxOn(t, socket, config)
					if replaced {
						testenv.StartNginxOn(t, socket, config) // both are asked until the first one quits
						e.after[calls/4] = n.Quit
					} else {
						for _, at := range []int{calls / 8, calls / 4, calls * 3 / 4} {
							e.after[at] = n.Reload
						}
					}
					cl := w.client(t, n.Addr, retrying(), stinthttp.PeerStint)
					ok := load(t, cl, method, calls)

					failed := 0
					for id, ok := range ok {
						switch n := e.byID[id]; {
						case ok && n == 0, n > 3, n > 1 && method == http.MethodPost:
							t.Errorf("%s %s: done %d times; it went well: %v", method, id, n, ok)
						case !ok:
							failed++
						}
					}
					if method == http.MethodGet && failed > 0 {
						t.Errorf("%d of %d GETs failed", failed, calls)
					}
					if most := calls * 11 / 10; len(ok) != calls || e.total > most { // the retry budget's tenth
						t.Errorf("%d calls became %d requests at the leaf, want at most %d", len(ok), e.total, most)
					}
					t.Logf("%d of %d failed; %d done, %d attempts, %d connections", failed, calls, e.total, len(cl.attempts()), cl.dials.Load())
					if replaced {
						await(t, "the end of the first nginx", n.Ended())
					}
				})
			})
		}
	}
}
