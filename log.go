package stint

import (
	"context"
	"log/slog"
	"time"
)

// NewLogObserver returns an Observer that writes one line an event to l (nil:
// slog.Default()). What went well is logged at Debug, but for a Gate's entry
// and exit, which are Info; refusals, failed calls, wasted work, breaker
// changes and what a client sent again by itself are Warn. The keys are the same everywhere; budget_ms is the time
// left, in whole milliseconds rounded down.
func NewLogObserver(l *slog.Logger) Observer {
	if l == nil {
		l = slog.Default()
	}
	return logObserver{l}
}

type logObserver struct{ l *slog.Logger }

func (o logObserver) StartAttempt(ctx context.Context, _ Event) context.Context { return ctx }

func (o logObserver) Observe(ctx context.Context, e Event) {
	level := logLevel(e)
	if !o.l.Enabled(ctx, level) {
		return
	}
	var as [18]slog.Attr
	attrs := as[:0]
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	number := func(key string, n int64) { attrs = append(attrs, slog.Int64(key, n)) }

	if e.Attempt > 0 || e.Kind == CallDone {
		number("attempt", int64(e.Attempt))
	}
	if e.Copy > 0 {
		number("copy", int64(e.Copy))
	}
	if e.Kind != BreakerChanged {
		number("budget_ms", floorMillis(e.Budget))
	}
	text("dependency", e.Dependency)
	if e.Kind == AttemptDone || e.Kind == CallDone || e.Kind == GateLeft {
		text("outcome", e.Outcome.String())
	}
	text("reason", e.Reason.String())
	text("service", e.Service)
	text("op", e.Op)
	text("owner", e.Owner)
	text("class", e.Class.String())
	text("from", e.From)
	text("to", e.To)
	if e.Elapsed > 0 {
		number("elapsed_ms", e.Elapsed.Milliseconds())
	}
	if e.Waited > 0 {
		number("waited_ms", e.Waited.Milliseconds())
	}
	if e.Delay > 0 {
		number("delay_ms", e.Delay.Milliseconds())
	}
	if e.Ignored > 0 {
		number("ignored", int64(e.Ignored))
	}
	if e.Anomalies > 0 {
		number("anomalies", int64(e.Anomalies))
	}
	if e.Skew != 0 {
		number("skew_ms", e.Skew.Milliseconds())
	}
	if e.Observed {
		attrs = append(attrs, slog.Bool("observed", true))
	}
	if e.Err != nil {
		text("error", e.Err.Error())
	}
	text("request_id", e.RequestID)
	o.l.LogAttrs(ctx, level, e.Kind.String(), attrs...)
}

func logLevel(e Event) slog.Level {
	switch e.Kind {
	case WorkWasted, BreakerChanged, Resent:
		return slog.LevelWarn
	case GateEntered:
		if e.Reason != 0 {
			return slog.LevelWarn
		}
		return slog.LevelInfo
	case GateLeft:
		return slog.LevelInfo
	case CallDone:
		if e.Outcome.Kind != OK && e.Outcome.Kind != Rejected && e.Reason != CallerGone {
			return slog.LevelWarn
		}
	}
	return slog.LevelDebug
}

// floorMillis rounds down, also below zero: what is not there is not shown.
func floorMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d < 0 && d%time.Millisecond != 0 {
		ms--
	}
	return ms
}
