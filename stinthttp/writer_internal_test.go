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
	}{{"caller left", true, true}, {"panic", false, false}, {"panic, caller left", false, true}} {
		g, err := stint.NewGate("s", &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		rec := httptest.NewRecorder()
		w := &writer{under: rec, timer: time.NewTimer(time.Hour), returned: c.returned}
		if err := g.Admit(ctx, stint.Hop{}, &w.admission); err != nil {
			t.Fatal(err)
		}
		if c.leaves {
			cancel()
		}
		w.finish()
		w.answerInPlace()
		if _, err := w.Write([]byte("x")); err == nil || rec.Body.Len() > 0 || len(rec.Header()) > 0 || rec.Flushed {
			t.Errorf("%s: written after the end: %v %q (%v)", c.name, rec.Header(), rec.Body, err)
		}
		cancel()
	}
}
