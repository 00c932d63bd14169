package stint_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// logText is a log of which only what does not change is kept: no time.
func logText(b *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func TestLogLines(t *testing.T) {
	ms := time.Millisecond
	tests := []struct {
		name  string
		event stint.Event
		want  string
	}{
		{"attempt", stint.Event{Kind: stint.AttemptDone, Dependency: "c", Attempt: 2, Budget: 171*ms + 999*time.Microsecond,
			Outcome: stint.Outcome{Kind: stint.Transient, Code: "503"}},
			`level=DEBUG msg=attempt attempt=2 budget_ms=171 dependency=c outcome=503`},
		{"attempt, in full", stint.Event{Kind: stint.AttemptDone, Service: "shop", Dependency: "db", Op: "GET /items", RequestID: "r", Owner: "edge",
			Class: stint.Sheddable, Attempt: 1, Budget: 250 * ms, Elapsed: 80 * ms, Delay: 15 * ms,
			Outcome: stint.Outcome{Kind: stint.TimedOut}, Err: errors.New("cut off")},
			`level=DEBUG msg=attempt attempt=1 budget_ms=250 dependency=db outcome=timed_out service=shop op="GET /items" owner=edge class=sheddable elapsed_ms=80 delay_ms=15 error="cut off" request_id=r`},
		{"attempt, a copy that lost", stint.Event{Kind: stint.AttemptDone, Dependency: "c", Attempt: 3, Copy: 1, Budget: 9 * ms,
			Outcome: stint.Outcome{Kind: stint.Canceled, Code: "hedge_lost"}},
			`level=DEBUG msg=attempt attempt=3 copy=1 budget_ms=9 dependency=c outcome=hedge_lost`},
		{"resent", stint.Event{Kind: stint.Resent, Dependency: "c", Attempt: 1, Budget: 9 * ms},
			`level=WARN msg=resent attempt=1 budget_ms=9 dependency=c`},
		{"call, well", stint.Event{Kind: stint.CallDone, Dependency: "db", Attempt: 1, Budget: 20 * ms, Outcome: stint.Outcome{Kind: stint.OK}},
			`level=DEBUG msg=call attempt=1 budget_ms=20 dependency=db outcome=ok`},
		{"call, failed", stint.Event{Kind: stint.CallDone, Dependency: "db", Attempt: 3, Budget: 20 * ms, Elapsed: 1500 * time.Microsecond,
			Reason: stint.AttemptsSpent, Outcome: stint.Outcome{Kind: stint.Transient, Code: "503"}, Err: errors.New("stint: db")},
			`level=WARN msg=call attempt=3 budget_ms=20 dependency=db outcome=503 reason=attempts_spent elapsed_ms=1 error="stint: db"`},
		{"call, refused", stint.Event{Kind: stint.CallDone, Dependency: "db", Budget: 3 * ms, Reason: stint.NoTime,
			Outcome: stint.Outcome{Kind: stint.Refused, Code: "no_time"}},
			`level=WARN msg=call attempt=0 budget_ms=3 dependency=db outcome=no_time reason=no_time`},
		{"call, the request's fault", stint.Event{Kind: stint.CallDone, Dependency: "db", Attempt: 1, Reason: stint.Final,
			Outcome: stint.Outcome{Kind: stint.Rejected, Code: "404"}},
			`level=DEBUG msg=call attempt=1 budget_ms=0 dependency=db outcome=404 reason=final`},
		{"call, the caller left", stint.Event{Kind: stint.CallDone, Dependency: "db", Attempt: 1, Reason: stint.CallerGone,
			Outcome: stint.Outcome{Kind: stint.Canceled}},
			`level=DEBUG msg=call attempt=1 budget_ms=0 dependency=db outcome=canceled reason=caller_gone`},
		{"entry", stint.Event{Kind: stint.GateEntered, Service: "shop", Budget: 250 * ms, RequestID: "r"},
			`level=INFO msg=gate_entered budget_ms=250 service=shop request_id=r`},
		{"entry, of a peer's second attempt", stint.Event{Kind: stint.GateEntered, Service: "shop", Budget: 250 * ms, Attempt: 2, Owner: "edge",
			Class: stint.CriticalPlus, Ignored: 2},
			`level=INFO msg=gate_entered attempt=2 budget_ms=250 service=shop owner=edge class=critical-plus ignored=2`},
		{"entry, of a caller with a wrong clock", stint.Event{Kind: stint.GateEntered, Service: "shop", Budget: 250 * ms, Ignored: 1, Anomalies: 2, Skew: -30*time.Second - 1},
			`level=INFO msg=gate_entered budget_ms=250 service=shop ignored=1 anomalies=2 skew_ms=-30000`},
		{"entry, refused", stint.Event{Kind: stint.GateEntered, Service: "shop", Budget: -1, Reason: stint.NoTime,
			Outcome: stint.Outcome{Kind: stint.Refused, Code: "no_time"}},
			`level=WARN msg=gate_entered budget_ms=-1 reason=no_time service=shop`},
		{"entry, only observed", stint.Event{Kind: stint.GateEntered, Service: "shop", Budget: ms, Reason: stint.Full, Observed: true},
			`level=WARN msg=gate_entered budget_ms=1 reason=full service=shop observed=true`},
		{"exit", stint.Event{Kind: stint.GateLeft, Service: "shop", Budget: 130 * ms, Elapsed: 120 * ms, Outcome: stint.Outcome{Kind: stint.OK, Code: "200"}},
			`level=INFO msg=gate_left budget_ms=130 outcome=200 service=shop elapsed_ms=120`},
		{"exit, overdrawn", stint.Event{Kind: stint.GateLeft, Service: "shop", Budget: -20*ms - 1, Elapsed: 270 * ms, Outcome: stint.Outcome{Kind: stint.Failed, Code: "504"}},
			`level=INFO msg=gate_left budget_ms=-21 outcome=504 service=shop elapsed_ms=270`},
		{"wasted", stint.Event{Kind: stint.WorkWasted, Service: "shop", Budget: -70 * ms, Elapsed: 70 * ms, RequestID: "r", Outcome: stint.Outcome{Kind: stint.OK}},
			`level=WARN msg=work_wasted budget_ms=-70 service=shop elapsed_ms=70 request_id=r`},
		{"breaker", stint.Event{Kind: stint.BreakerChanged, Dependency: "db", From: "closed", To: "open"},
			`level=WARN msg=breaker dependency=db from=closed to=open`},
	}
	for _, c := range tests {
		var b bytes.Buffer
		stint.NewLogObserver(logText(&b, slog.LevelDebug)).Observe(context.Background(), c.event)
		if got := strings.TrimSuffix(b.String(), "\n"); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// What is not there is not shown: the time left is rounded down on both sides
// of zero.
func TestLogFloorsTheBudget(t *testing.T) {
	ms := time.Millisecond
	for budget, want := range map[time.Duration]string{
		0: "0", 1: "0", ms - 1: "0", ms: "1", 2*ms - 1: "1",
		-1: "-1", -ms + 1: "-1", -ms: "-1", -ms - 1: "-2", -1 << 63: "-9223372036855",
	} {
		var b bytes.Buffer
		stint.NewLogObserver(logText(&b, slog.LevelDebug)).Observe(context.Background(), stint.Event{Kind: stint.GateEntered, Budget: budget})
		if !strings.Contains(b.String(), "budget_ms="+want+"\n") {
			t.Errorf("%v: %q, want budget_ms=%s", budget, b.String(), want)
		}
	}
}

func TestLogLevelIsAsked(t *testing.T) {
	var b bytes.Buffer
	o := stint.NewLogObserver(logText(&b, slog.LevelWarn))
	o.Observe(context.Background(), stint.Event{Kind: stint.AttemptDone})
	o.Observe(context.Background(), stint.Event{Kind: stint.GateEntered})
	o.Observe(context.Background(), stint.Event{Kind: stint.GateLeft})
	if b.Len() > 0 {
		t.Errorf("below the level: %q", b.String())
	}
	o.Observe(context.Background(), stint.Event{Kind: stint.WorkWasted})
	if b.Len() == 0 {
		t.Error("at the level: nothing")
	}
	ctx := context.WithValue(context.Background(), ctxAskKey{}, 1)
	if got := o.StartAttempt(ctx, stint.Event{}); got != ctx {
		t.Error("the log changes an attempt's context")
	}
}

// A nil logger is the default one at the time.
func TestLogDefault(t *testing.T) {
	var b bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(logText(&b, slog.LevelInfo))
	stint.NewLogObserver(nil).Observe(context.Background(), stint.Event{Kind: stint.BreakerChanged, To: "open"})
	if want := "level=WARN msg=breaker to=open\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// A request through a Gate and a Caller, as it stands in the log.
func TestLogOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		o := stint.NewLogObserver(logText(&b, slog.LevelDebug))
		g := hopGate(t, stint.GateOptions{Observer: o, Trust: stint.TrustPeers, Reserve: stint.NoReserve})
		c, err := stint.NewCaller("c", stint.Policy{Retry: stint.Retry{Attempts: 2, Base: 20 * time.Millisecond, Cap: time.Second}}, &stint.CallerOptions{
			Observer: o, Rand: func() float64 { return 0.5 },
		})
		if err != nil {
			t.Fatal(err)
		}
		a := new(stint.Admission)
		if err := g.Admit(context.Background(), stint.Hop{Remaining: 300 * time.Millisecond, RequestID: "r"}, a); err != nil {
			t.Fatal(err)
		}
		n := 0
		c.Do(a.Context(), stint.Op{Name: "get", Safety: stint.ReadOnly}, func(context.Context) error {
			time.Sleep(119500 * time.Microsecond)
			if n++; n == 1 {
				return breakerOutcome{Kind: stint.Transient, Code: "503"}
			}
			return nil
		})
		time.Sleep(100 * time.Millisecond)
		a.Finish(stint.Outcome{Kind: stint.OK, Code: "200"})
		want := `level=INFO msg=gate_entered budget_ms=300 service=s request_id=r
level=DEBUG msg=attempt attempt=1 budget_ms=300 dependency=c outcome=503 service=s op=get owner=s elapsed_ms=119 delay_ms=10 error=503 request_id=r
level=DEBUG msg=attempt attempt=2 budget_ms=170 dependency=c outcome=ok service=s op=get owner=s elapsed_ms=119 request_id=r
level=DEBUG msg=call attempt=2 budget_ms=51 dependency=c outcome=ok service=s op=get owner=s elapsed_ms=249 request_id=r
level=INFO msg=gate_left budget_ms=-49 outcome=200 service=s elapsed_ms=349 request_id=r
level=WARN msg=work_wasted budget_ms=-49 service=s elapsed_ms=49 request_id=r
`
		if b.String() != want {
			t.Errorf("the log is\n%swant\n%s", b.String(), want)
		}
	})
}

// Observers tells all of them, in order, and passes on what each makes of an
// attempt's context.
func TestObservers(t *testing.T) {
	var told []string
	os := stint.Observers{&logMark{"a", &told}, &logMark{"b", &told}}
	ctx := os.StartAttempt(context.Background(), stint.Event{})
	if v := ctx.Value(ctxAskKey{}); v != "ab" {
		t.Errorf("the attempt's context carries %v, want ab", v)
	}
	os.Observe(ctx, stint.Event{Kind: stint.CallDone})
	if s := strings.Join(told, " "); s != "a:call b:call" {
		t.Errorf("told %q", s)
	}
	if got := (stint.Observers{}).StartAttempt(ctx, stint.Event{}); got != ctx {
		t.Error("no observers change the context")
	}
}

type logMark struct {
	name string
	told *[]string
}

func (m *logMark) StartAttempt(ctx context.Context, _ stint.Event) context.Context {
	before, _ := ctx.Value(ctxAskKey{}).(string)
	return context.WithValue(ctx, ctxAskKey{}, before+m.name)
}

func (m *logMark) Observe(_ context.Context, e stint.Event) {
	*m.told = append(*m.told, m.name+":"+e.Kind.String())
}
