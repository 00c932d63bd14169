package stinthttp

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// The timer may fire while the handler returns, and get its turn only
// afterwards: by then the ResponseWriter belongs to net/http again.
func TestTimerAfterTheHandler(t *testing.T) {
	for _, c := range []struct {
		name     string
		returned bool
		leaves   bool
	}{{"panic", false, false}, {"panic, caller left", false, true}} {
		g, err := stint.NewGate("s", &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		rec := httptest.NewRecorder()
		w := &writer{under: rec, returned: c.returned, watch: &watch{}}
		w.watch.add(w, time.Now().Add(time.Hour))
		if err := g.Admit(ctx, stint.Hop{}, &w.admission); err != nil {
			t.Fatal(err)
		}
		if c.leaves {
			cancel()
		}
		w.finish()
		w.timeUp()
		w.WriteHeader(204)
		if _, err := w.Write([]byte("x")); err == nil || rec.Code != 200 || rec.Body.Len() > 0 || len(rec.Header()) > 0 || rec.Flushed {
			t.Errorf("%s: written after the end: %v %q (%v)", c.name, rec.Header(), rec.Body, err)
		}
		cancel()
	}
}

// likeNetHTTP turns itself into a streamError for errors.As as net/http's HTTP/2
// errors do. A real REFUSED_STREAM needs a peer that breaks its own limits.
type likeNetHTTP struct{ code uint32 }

func (likeNetHTTP) Error() string { return "stream error" }

func (e likeNetHTTP) As(target any) bool {
	s, ok := target.(*streamError)
	if ok {
		s.Code = e.code
	}
	return ok
}

func TestRefusedStreamNeverStarted(t *testing.T) {
	for code, want := range map[uint32]bool{refusedStream: true, 2: false} {
		o := errorOutcome(likeNetHTTP{code}, httptest.NewRequest("POST", "http://x/", nil))
		if o.Kind != stint.Transient || o.NotStarted != want {
			t.Errorf("code %d: %+v, want transient, not started: %v", code, o, want)
		}
	}
}
