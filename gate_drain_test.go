package stint_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

func gateEmpty(empty <-chan struct{}) bool {
	select {
	case <-empty:
		return true
	default:
		return false
	}
}

// Who is inside goes on, nobody else gets in, and the end is told.
func TestGateDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec stinttest.Recorder
		g := gateNew(t, stint.GateOptions{Observer: &rec})
		ctx := context.Background()
		first, second := gateAdmit(t, g, ctx, stint.Hop{}), gateAdmit(t, g.WithTrust(stint.TrustPeers), ctx, stint.Hop{})
		empty := g.Drain()
		rec.Reset()
		for _, view := range []*stint.Gate{g, g.WithTrust(stint.TrustPeers)} {
			e := gateRefused(t, view, ctx, stint.Hop{Owner: "edge"}, stint.Draining)
			if o := e.Outcome(); o.Kind != stint.Transient || !o.NotStarted || !o.Hinted || o.RetryAfter != gateTick || o.Code != "draining" {
				t.Errorf("outcome %+v, want transient, not started, and a wait of 1ms: another instance takes it", o)
			}
		}
		for _, e := range rec.Events(stint.GateEntered) {
			if e.Reason != stint.Draining || e.Outcome.Kind != stint.Refused || !e.Outcome.NotStarted || e.Outcome.Code != "draining" {
				t.Errorf("event %+v, want a refusal like any other", e)
			}
		}
		if n := len(rec.Events()); n != 2 {
			t.Errorf("%d events, want one a refusal", n)
		}
		gateRefused(t, g, ctx, stint.Hop{Remaining: -1}, stint.NoTime) // elsewhere there will not be more
		gone, cancel := context.WithCancel(ctx)
		cancel()
		gateRefused(t, g, gone, stint.Hop{}, stint.CallerGone)

		if first.Context().Err() != nil {
			t.Error("draining ended the work inside")
		}
		first.Finish(gateOK)
		first.Finish(gateOK)
		if gateEmpty(empty) {
			t.Error("empty, with one still inside")
		}
		second.Finish(gateOK)
		if !gateEmpty(empty) || !gateEmpty(g.Drain()) || !gateEmpty(g.WithTrust(stint.TrustPeers).Drain()) {
			t.Error("not empty, with nobody inside")
		}
	})
}

func TestGateDrainsWhenEmpty(t *testing.T) {
	g := gateNew(t, stint.GateOptions{})
	for range 2 {
		if !gateEmpty(g.Drain()) {
			t.Error("a Gate with nobody inside is not empty")
		}
	}
	var unmade stint.Gate
	if !gateEmpty(unmade.Drain()) || unmade.WithTrust(stint.TrustPeers).Admit(t.Context(), stint.Hop{}, new(stint.Admission)) == nil {
		t.Error("a Gate that NewGate did not make let somebody in")
	}
}

// ObserveOnly is about overload, not about the end.
func TestGateDrainsUnderObserveOnly(t *testing.T) {
	g := gateNew(t, stint.GateOptions{ObserveOnly: true, Limit: 1})
	a, b := gateAdmit(t, g, t.Context(), stint.Hop{}), gateAdmit(t, g, t.Context(), stint.Hop{Remaining: -1})
	empty := g.Drain()
	gateRefused(t, g, t.Context(), stint.Hop{}, stint.Draining)
	a.Finish(gateOK)
	if gateEmpty(empty) {
		t.Error("empty, with one inside that was only observed")
	}
	if b.Finish(gateOK); !gateEmpty(empty) {
		t.Error("not empty")
	}
}

// However arrivals and the end meet, nobody is inside once the channel is closed.
func TestGateDrainsInARace(t *testing.T) {
	for range 200 {
		g := gateNew(t, stint.GateOptions{})
		var inside atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					a := new(stint.Admission)
					if g.Admit(context.Background(), stint.Hop{}, a) != nil {
						return
					}
					inside.Add(1)
					runtime.Gosched()
					inside.Add(-1)
					a.Finish(gateOK)
				}
			})
		}
		<-g.Drain()
		if n := inside.Load(); n != 0 {
			t.Fatalf("%d inside after the end", n)
		}
		wg.Wait()
	}
}

// A view shares everything but what it believes.
func TestGateWithTrust(t *testing.T) {
	var rec stinttest.Recorder
	var lines bytes.Buffer
	internal, err := stint.NewGate("shop", &stint.GateOptions{Trust: stint.TrustPeers, Limit: 2, Observer: &rec, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	edge := internal.WithTrust(stint.TrustDeadlineOnly)
	if internal.Options().Trust != stint.TrustPeers || edge.Options().Trust != stint.TrustDeadlineOnly || edge.Service() != "shop" ||
		edge.Options().Limit != 2 || edge.WithTrust(stint.TrustPeers).Options().Trust != stint.TrustPeers {
		t.Errorf("internal %+v, edge %+v", internal.Options(), edge.Options())
	}
	if edge.WithTrust(99).Options().Trust != stint.TrustDeadlineOnly {
		t.Error("a Trust that there is not is more than none")
	}
	if n := bytes.Count(lines.Bytes(), []byte("trust=deadline_only")); n != 2 {
		t.Errorf("%d lines name the edge's trust, want one for each view:\n%s", n, &lines)
	}
	claims := stint.Hop{Owner: "stranger", Attempt: 2, Remaining: time.Second}
	a, b := gateAdmit(t, internal, t.Context(), claims), gateAdmit(t, edge, t.Context(), claims)
	if a.Hop().Owner != "stranger" || b.Hop().Owner != "" || b.Hop().Remaining != time.Second || b.Hop().Ignored != 2 {
		t.Errorf("believed inside %+v, at the edge %+v", a.Hop(), b.Hop())
	}
	gateRefused(t, internal, t.Context(), claims, stint.Full)
	gateRefused(t, edge, t.Context(), claims, stint.Full)
	b.Finish(gateOK)
	gateAdmit(t, internal, t.Context(), claims).Finish(gateOK)
	a.Finish(gateOK)
	if n := len(rec.Events(stint.GateLeft)); n != 3 {
		t.Errorf("%d left, want all views' 3", n)
	}
}
