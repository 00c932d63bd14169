package policy_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

const watched = `service: orders
entry:
  trust: peers
  deadline: 1s
  limit: 8
  exempt: [/livez]
  longRunning: [/events]
  routes: {"POST /reports": {deadline: 2s, class: sheddable}}
dependencies:
  inventory:
    timeout: 260ms
    retry: {maxAttempts: 3, budget: {ceiling: 10}}
    breaker: {minimumCalls: 2}
`

// A watch is a file under a Watcher, in a bubble.
type watch struct {
	*policy.Watcher
	t    *testing.T
	path string
	told []error // by Changed
}

func newWatch(t *testing.T) *watch {
	t.Helper()
	w := &watch{t: t, path: filepath.Join(t.TempDir(), "orders.yaml")}
	w.write(watched)
	var err error
	w.Watcher, err = policy.Watch(t.Context(), w.path, &policy.WatchOptions{
		Every:   time.Second,
		Changed: func(_ *policy.File, err error) { w.told = append(w.told, err) },
		Gate:    &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watch) write(data string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(data), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// becomes writes the file with some of its text changed, and waits until it has
// been read, and once more, so that what is told twice is seen.
func (w *watch) becomes(oldnew ...string) {
	w.t.Helper()
	w.write(strings.NewReplacer(oldnew...).Replace(watched))
	time.Sleep(2500 * time.Millisecond)
	synctest.Wait()
}

func (w *watch) lastly(want string) {
	w.t.Helper()
	if n := len(w.told); n == 0 || w.told[n-1] == nil || !strings.Contains(w.told[n-1].Error(), want) {
		w.t.Errorf("told %v, want at last %q", w.told, want)
	}
}

func caller(t *testing.T, w *watch) *stint.Caller {
	t.Helper()
	c, err := w.Caller("inventory")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A new file takes effect, and breaker, budget and limiter know what they knew.
func TestWatchKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t)
		c := caller(t, w)
		g, err := w.Gate()
		if err != nil {
			t.Fatal(err)
		}
		routes, err := w.Routes()
		if err != nil {
			t.Fatal(err)
		}
		fail := func(context.Context) error { return errors.New("down") }
		for range 2 {
			c.Do(t.Context(), stint.Op{}, fail)
		}
		for range 4 {
			c.Budget().Withdraw()
		}
		var inside stint.Admission
		if err := g.Admit(t.Context(), stint.Hop{}, &inside); err != nil {
			t.Fatal(err)
		}
		defer inside.Finish(stint.Outcome{Kind: stint.OK})

		w.becomes("260ms", "300ms", "deadline: 1s", "deadline: 1500ms", "deadline: 2s", "deadline: 3s", "limit: 8", "limit: 9")

		if len(w.told) != 1 || w.told[0] != nil {
			t.Fatalf("told %v, want one change", w.told)
		}
		if again := caller(t, w); again != c || c.Policy().Timeout != 300*time.Millisecond {
			t.Errorf("another Caller, or Timeout %v", c.Policy().Timeout)
		}
		if err := c.Do(t.Context(), stint.Op{}, fail); !reasonIs(err, stint.BreakerOpen) {
			t.Errorf("the breaker forgot that it is open: %v", err)
		}
		if b := c.Budget().Balance(); b != 6 {
			t.Errorf("the budget holds %v, want 6", b)
		}
		if g.Running() != 1 || g.Limit() != 9 || g.Options().DefaultTimeout != 1500*time.Millisecond {
			t.Errorf("%d run of %d, deadline %v", g.Running(), g.Limit(), g.Options().DefaultTimeout)
		}
		if o := routes["POST /reports"].Options(); o.DefaultTimeout != 3*time.Second || o.Class != stint.Sheddable || o.Limit != 9 {
			t.Errorf("the route's options are %+v", o)
		}
		if o := routes["/events"].Options(); o.MaxTimeout != time.Hour || o.DefaultTimeout != time.Hour || o.Limit != 9 {
			t.Errorf("the options of what lasts are %+v", o)
		}
		if f := w.File(); f.Timeout("inventory") != 300*time.Millisecond {
			t.Errorf("File is the old one")
		}
	})
}

func reasonIs(err error, r stint.Reason) bool {
	e, ok := errors.AsType[*stint.Error](err)
	return ok && e.Reason == r
}

// A bad file is reported once, and changes nothing; a good one after it does.
func TestWatchBadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t)
		c := caller(t, w)
		if _, err := w.Routes(); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			change []string
			want   string
		}{
			{[]string{"260ms", "260"}, "orders.yaml:11:14: dependencies.inventory.timeout: 260 has no unit"},
			{[]string{"service: orders", "service: order"}, "the service was orders and is order; restart the service for that"},
			{[]string{"inventory:", "stock:"}, "dependency inventory is in use, and gone; restart the service for that"},
			{[]string{"/livez", "/healthz"}, "the routes of entry are others than before; restart the service for that"},
			{[]string{"exempt: [/livez]", "longRunning: [/livez]", "longRunning: [/events]", "exempt: [/events]"}, "the routes of entry are others than before"},
			{[]string{watched[strings.Index(watched, "entry"):strings.Index(watched, "dependencies")], ""}, "entry is in use, and gone"},
			{[]string{watched, ""}, "the file is empty"},
		} {
			n := len(w.told)
			w.becomes(append(test.change, "maxAttempts: 3", "maxAttempts: 2")...)
			w.lastly(test.want)
			if len(w.told) != n+1 {
				t.Errorf("%s: told %d times", test.want, len(w.told)-n)
			}
			if c.Policy().Retry.Attempts != 3 || w.File().Service != "orders" {
				t.Errorf("%s: and it took effect", test.want)
			}
		}
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(w.told); n != 8 || !errors.Is(w.told[n-1], fs.ErrNotExist) {
			t.Errorf("told %v of a file that is gone", w.told)
		}
		w.becomes("maxAttempts: 3", "maxAttempts: 2")
		if n := len(w.told); n != 9 || w.told[n-1] != nil || c.Policy().Retry.Attempts != 2 {
			t.Errorf("a good file after bad ones: told %v, attempts %d", w.told, c.Policy().Retry.Attempts)
		}
	})
}

// What nobody uses may change as it likes.
func TestWatchUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t)
		w.becomes("inventory:", "stock:", "/livez", "/healthz")
		if len(w.told) != 1 || w.told[0] != nil {
			t.Errorf("told %v", w.told)
		}
		if _, err := w.Caller("stock"); err != nil {
			t.Error(err)
		}
	})
}

func TestWatchRefuses(t *testing.T) {
	if _, err := policy.Watch(t.Context(), "testdata/none.yaml", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if _, err := policy.Watch(t.Context(), "testdata/issue.yaml", &policy.WatchOptions{Every: -1}); err == nil {
		t.Error("it looks at the file every -1ns")
	}
	w, err := policy.Watch(t.Context(), "testdata/article.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Gate(); err == nil {
		t.Error("a Gate without entry")
	}
	if _, err := w.Routes(); err == nil {
		t.Error("routes without entry")
	}
	if _, err := w.Caller("nobody"); err == nil {
		t.Error("a Caller for nobody")
	}
}
