package stint_test

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

func TestPolicyZeroValueIsValid(t *testing.T) {
	if err := (stint.Policy{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestPolicyPresetsAreValid(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		policy                                stint.Policy
		timeout, useful, attempt, base, limit time.Duration
		attempts                              int
	}{
		"InDatacentre": {stint.InDatacentre(), 0, 20 * ms, 0, 10 * ms, 250 * ms, 1},
		"CrossRegion":  {stint.CrossRegion(), 0, 100 * ms, 0, 50 * ms, 2000 * ms, 1},
		"Interactive":  {stint.Interactive(), 800 * ms, 30 * ms, 300 * ms, 20 * ms, 100 * ms, 2},
	} {
		caller, err := stint.NewCaller("d", c.policy, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// What its doc comment says, once defaults are in.
		p := caller.Policy()
		got := []any{p.Timeout, p.MinUseful, p.Retry.AttemptTimeout, p.Retry.Base, p.Retry.Cap, p.Retry.Attempts}
		if want := []any{c.timeout, c.useful, c.attempt, c.base, c.limit, c.attempts}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestPolicyDefaults(t *testing.T) {
	c, err := stint.NewCaller("d", stint.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := stint.Policy{
		Timeout:   0, // the caller's deadline, or 10 s
		MinUseful: time.Millisecond,
		Retry: stint.Retry{Attempts: 1, Base: 50 * time.Millisecond, Cap: 2 * time.Second,
			BudgetRatio: 0.1, BudgetCeiling: 10, Owner: stint.OwnerAuto},
		Breaker:  stint.Breaker{FailureRatio: 0.5, MinCalls: 20, Window: time.Minute, OpenFor: 30 * time.Second, Probes: 3},
		Bulkhead: 64,
	}
	if got := c.Policy(); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults\n%+v, want\n%+v", got, want)
	}
	if c.Dependency() != "d" {
		t.Errorf("dependency %q", c.Dependency())
	}
	synctest.Test(t, func(t *testing.T) {
		err := c.Do(context.Background(), stint.Op{}, func(ctx context.Context) error {
			if left, ok := stint.Remaining(ctx); left != 10*time.Second || !ok {
				t.Errorf("without a limit of anybody, a call has %v, want 10s", left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.Do(ctx, stint.Op{}, func(ctx context.Context) error {
			if left, _ := stint.Remaining(ctx); left != time.Minute {
				t.Errorf("under a deadline, a call has %v, want its minute", left)
			}
			return nil
		})
	})
	// A Cap below the default Base pulls that down with it.
	if err := c.SetPolicy(stint.Policy{Retry: stint.Retry{Cap: 10 * time.Millisecond}}); err != nil {
		t.Error(err)
	} else if b := c.Policy().Retry.Base; b != 10*time.Millisecond {
		t.Errorf("base %v under a cap of 10ms", b)
	}
}

// policyBad are values that can't be meant, with what the error has to say.
var policyBad = []struct {
	name   string
	policy stint.Policy
	want   []string
}{
	{"negative timeout", stint.Policy{Timeout: -time.Second}, []string{"Timeout", "-1s", "negative", "10s"}},
	{"timeout below the wire's unit", stint.Policy{Timeout: time.Millisecond - 1}, []string{"Timeout", "999.999µs", "1ms"}},
	{"negative minimum", stint.Policy{MinUseful: -1}, []string{"MinUseful", "-1ns", "negative", "1ms"}},
	{"minimum below the wire's unit", stint.Policy{MinUseful: time.Microsecond}, []string{"MinUseful", "1µs", "1ms"}},
	{"negative reserve", stint.Policy{Reserve: -time.Millisecond}, []string{"Reserve", "-1ms", "negative"}},
	{"the Gate's NoReserve", stint.Policy{Reserve: stint.NoReserve}, []string{"Reserve", "-1ns", "zero means nothing kept back"}},
	{"negative attempt timeout", stint.Policy{Retry: stint.Retry{AttemptTimeout: -1}}, []string{"Retry.AttemptTimeout", "-1ns", "negative"}},
	{"attempt timeout below the wire's unit", stint.Policy{Retry: stint.Retry{AttemptTimeout: 1}}, []string{"Retry.AttemptTimeout", "1ns", "1ms"}},
	{"negative base", stint.Policy{Retry: stint.Retry{Base: -1}}, []string{"Retry.Base", "-1ns", "50ms"}},
	{"negative cap", stint.Policy{Retry: stint.Retry{Cap: -1}}, []string{"Retry.Cap", "-1ns", "2s"}},
	{"negative attempts", stint.Policy{Retry: stint.Retry{Attempts: -1}}, []string{"Retry.Attempts", "-1", "zero means 1"}},
	{"too many attempts", stint.Policy{Retry: stint.Retry{Attempts: math.MaxInt32 + 1}}, []string{"Retry.Attempts", "2147483648", "2147483647"}},
	{"negative budget ratio", stint.Policy{Retry: stint.Retry{BudgetRatio: -0.1}}, []string{"Retry.BudgetRatio", "-0.1", "between 0 and 1", "zero means 0.1"}},
	{"budget ratio above 1", stint.Policy{Retry: stint.Retry{BudgetRatio: 1.01}}, []string{"Retry.BudgetRatio", "1.01"}},
	{"budget ratio NaN", stint.Policy{Retry: stint.Retry{BudgetRatio: math.NaN()}}, []string{"Retry.BudgetRatio", "NaN"}},
	{"budget ratio Inf", stint.Policy{Retry: stint.Retry{BudgetRatio: math.Inf(1)}}, []string{"Retry.BudgetRatio", "Inf"}},
	{"budget ratio -Inf", stint.Policy{Retry: stint.Retry{BudgetRatio: math.Inf(-1)}}, []string{"Retry.BudgetRatio", "-Inf"}},
	{"negative budget ceiling", stint.Policy{Retry: stint.Retry{BudgetCeiling: -1}}, []string{"Retry.BudgetCeiling", "-1", "zero means 10"}},
	{"negative copies", stint.Policy{Hedge: stint.Hedge{Copies: -1}}, []string{"Hedge.Copies", "-1", "zero means no hedging"}},
	{"too many copies", stint.Policy{Hedge: stint.Hedge{Copies: 9}}, []string{"Hedge.Copies", "9", "between 0 and 8"}},
	{"negative hedge delay", stint.Policy{Hedge: stint.Hedge{Copies: 1, Delay: -1}}, []string{"Hedge.Delay", "-1ns", "95th percentile"}},
	{"hedge delay without copies", stint.Policy{Hedge: stint.Hedge{Delay: time.Second}}, []string{"Hedge.Delay", "1s", "set Copies"}},
	{"unknown owner", stint.Policy{Retry: stint.Retry{Owner: 3}}, []string{"Retry.Owner", "3", "OwnerAuto", "OwnerAlways", "OwnerNever"}},
	{"negative failure ratio", stint.Policy{Breaker: stint.Breaker{FailureRatio: -1}}, []string{"Breaker.FailureRatio", "-1", "zero means 0.5"}},
	{"failure ratio in per cent", stint.Policy{Breaker: stint.Breaker{FailureRatio: 50}}, []string{"Breaker.FailureRatio", "50", "between 0 and 1"}},
	{"failure ratio NaN", stint.Policy{Breaker: stint.Breaker{FailureRatio: math.NaN()}}, []string{"Breaker.FailureRatio", "NaN"}},
	{"negative calls", stint.Policy{Breaker: stint.Breaker{MinCalls: -1}}, []string{"Breaker.MinCalls", "-1", "zero means 20"}},
	{"negative probes", stint.Policy{Breaker: stint.Breaker{Probes: -1}}, []string{"Breaker.Probes", "-1", "zero means 3"}},
	{"too many probes", stint.Policy{Breaker: stint.Breaker{Probes: math.MaxUint32 + 1}}, []string{"Breaker.Probes", "4294967296"}},
	{"negative window", stint.Policy{Breaker: stint.Breaker{Window: -1}}, []string{"Breaker.Window", "-1ns", "1m"}},
	{"negative open time", stint.Policy{Breaker: stint.Breaker{OpenFor: -1}}, []string{"Breaker.OpenFor", "-1ns", "30s"}},
	{"bad numbers of a breaker that is off", stint.Policy{Breaker: stint.Breaker{Off: true, Probes: -1}}, []string{"Breaker.Probes"}},
	{"bulkhead", stint.Policy{Bulkhead: -2}, []string{"Bulkhead", "-2", "64", "NoLimit"}},
	{"minimum above the timeout", stint.Policy{Timeout: 10 * time.Millisecond, MinUseful: 20 * time.Millisecond}, []string{"MinUseful", "20ms", "Timeout", "10ms"}},
	{"minimum above the attempt timeout", stint.Policy{MinUseful: 20 * time.Millisecond, Retry: stint.Retry{AttemptTimeout: 10 * time.Millisecond}}, []string{"MinUseful", "20ms", "Retry.AttemptTimeout", "10ms"}},
	{"base above cap", stint.Policy{Retry: stint.Retry{Base: 2 * time.Second, Cap: time.Second}}, []string{"Retry.Base", "2s", "Retry.Cap", "1s"}},
	{"base above the default cap", stint.Policy{Retry: stint.Retry{Base: 3 * time.Second}}, []string{"Retry.Base", "3s", "Retry.Cap", "2s"}},
}

func TestPolicyValidateNamesWhatIsWrong(t *testing.T) {
	for _, c := range policyBad {
		err := c.policy.Validate()
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, w := range append(c.want, "stint") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", c.name, err, w)
			}
		}
		if _, err := stint.NewCaller("payments", c.policy, nil); err == nil || !strings.Contains(err.Error(), "payments") || !strings.Contains(err.Error(), c.want[0]) {
			t.Errorf("%s: NewCaller says %v, want the dependency and the field", c.name, err)
		}
	}
}

// Values at the edges of what is allowed.
func TestPolicyValidateAccepts(t *testing.T) {
	for name, p := range map[string]stint.Policy{
		"no limit":                       {Bulkhead: stint.NoLimit},
		"the least times":                {Timeout: time.Millisecond, MinUseful: time.Millisecond, Retry: stint.Retry{AttemptTimeout: time.Millisecond}},
		"minimum is the timeout":         {Timeout: time.Second, MinUseful: time.Second},
		"minimum is the attempt timeout": {MinUseful: time.Second, Retry: stint.Retry{AttemptTimeout: time.Second}},
		"ratios of one":                  {Retry: stint.Retry{BudgetRatio: 1}, Breaker: stint.Breaker{FailureRatio: 1}},
		"base is cap":                    {Retry: stint.Retry{Base: time.Second, Cap: time.Second}},
		"the least waits":                {Retry: stint.Retry{Base: 1, Cap: 1}},
		"an attempt longer than a call":  {Timeout: time.Second, Retry: stint.Retry{AttemptTimeout: time.Minute}},
		"an owner":                       {Retry: stint.Retry{Owner: stint.OwnerNever}},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever mends a configuration hears of all that is wrong at once.
func TestPolicyValidateReportsAll(t *testing.T) {
	p := stint.Policy{
		Timeout: -1, MinUseful: -1, Reserve: -1, Bulkhead: -9,
		Retry:   stint.Retry{Attempts: -1, AttemptTimeout: -1, Base: -1, Cap: -1, BudgetRatio: -1, BudgetCeiling: -1, Owner: 9},
		Breaker: stint.Breaker{FailureRatio: 2, MinCalls: -1, Window: -1, OpenFor: -1, Probes: -1},
	}
	err := p.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	fields := []string{"Timeout", "MinUseful", "Reserve", "Bulkhead", "Retry.Attempts", "Retry.AttemptTimeout", "Retry.Base", "Retry.Cap",
		"Retry.BudgetRatio", "Retry.BudgetCeiling", "Retry.Owner", "Breaker.FailureRatio", "Breaker.MinCalls", "Breaker.Window", "Breaker.OpenFor", "Breaker.Probes"}
	for _, f := range fields {
		if !strings.Contains(err.Error(), f+" is ") {
			t.Errorf("%s is not named", f)
		}
	}
	if len(lines) != len(fields) {
		t.Errorf("%d lines for %d problems:\n%v", len(lines), len(fields), err)
	}
	p = stint.Policy{Timeout: 5 * time.Millisecond, MinUseful: 20 * time.Millisecond, Retry: stint.Retry{AttemptTimeout: 10 * time.Millisecond, Base: 3 * time.Second}}
	if n := strings.Count(p.Validate().Error(), " is above "); n != 3 {
		t.Errorf("%d of 3 relations named: %v", n, p.Validate())
	}
}

func TestNewCallerRefuses(t *testing.T) {
	if _, err := stint.NewCaller("", stint.Policy{}, nil); err == nil || !strings.Contains(err.Error(), "name") {
		t.Errorf("without a dependency: %v", err)
	}
	for _, service := range []string{"a b", "a/b", "ä", "a\n", strings.Repeat("a", 65)} {
		_, err := stint.NewCaller("d", stint.Policy{}, &stint.CallerOptions{Service: service})
		if err == nil || !strings.Contains(err.Error(), "service") || !strings.Contains(err.Error(), "64") {
			t.Errorf("service %q, which could not stand on the wire: %v", service, err)
		}
	}
	if _, err := stint.NewCaller("d", stint.Policy{}, &stint.CallerOptions{Service: strings.Repeat("a", 64)}); err != nil {
		t.Errorf("a name of 64: %v", err)
	}
}

func TestSetPolicyRefusesAndKeepsTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := stint.NewCaller("payments", stint.Policy{Timeout: time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := c.Policy()
		for _, bad := range policyBad {
			bad.policy.Bulkhead = min(bad.policy.Bulkhead, 0) // the one it would have would show
			err := c.SetPolicy(bad.policy)
			if err == nil || !strings.Contains(err.Error(), "payments") || !strings.Contains(err.Error(), bad.want[0]) {
				t.Errorf("%s: %v, want the dependency and the field", bad.name, err)
			}
			if !reflect.DeepEqual(c.Policy(), before) {
				t.Fatalf("%s: it was refused, but the policy is now %+v", bad.name, c.Policy())
			}
		}
		if err := c.SetPolicy(stint.Policy{Timeout: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c.Do(context.Background(), stint.Op{}, func(ctx context.Context) error {
			if left, _ := stint.Remaining(ctx); left != 2*time.Second {
				t.Errorf("under the new policy a call has %v, want 2s", left)
			}
			// A call under way keeps the policy with which it started.
			if err := c.SetPolicy(stint.Policy{Timeout: 3 * time.Second}); err != nil {
				t.Error(err)
			}
			if left, _ := stint.Remaining(ctx); left != 2*time.Second {
				t.Errorf("a call under way has %v now", left)
			}
			return nil
		})
	})
}

// A policy belongs to the Caller from then on: nobody changes it from outside.
func TestPolicyIsCopied(t *testing.T) {
	codes := []string{"500"}
	c, err := stint.NewCaller("d", stint.Policy{Retry: stint.Retry{Codes: codes}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	codes[0] = "x"
	c.Policy().Retry.Codes[0] = "y"
	if got := c.Policy().Retry.Codes; len(got) != 1 || got[0] != "500" {
		t.Errorf("codes %q, want 500", got)
	}
}

// What passes Validate works, however odd: no number that is accepted makes a
// later call panic or hang.
func TestPolicyExtremesWork(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for name, p := range map[string]stint.Policy{
		"timeout":         {Timeout: most},
		"attempt timeout": {Retry: stint.Retry{AttemptTimeout: most}},
		"minimum":         {Timeout: most, MinUseful: most},
		"base and cap":    {Retry: stint.Retry{Attempts: 3, Base: most, Cap: most}},
		"cap":             {Retry: stint.Retry{Attempts: math.MaxInt32, Cap: most}},
		"counts":          {Retry: stint.Retry{BudgetCeiling: math.MaxInt32}, Breaker: stint.Breaker{MinCalls: math.MaxInt32, Probes: math.MaxInt32}},
		"bulkhead":        {Bulkhead: math.MaxInt},
		"least ratios":    {Retry: stint.Retry{BudgetRatio: math.SmallestNonzeroFloat64}, Breaker: stint.Breaker{FailureRatio: math.SmallestNonzeroFloat64}},
		"longest window":  {Breaker: stint.Breaker{Window: most}},
		"window":          {Breaker: stint.Breaker{Window: most - most/20}},
		"shortest window": {Breaker: stint.Breaker{Window: 1}},
		"odd window":      {Breaker: stint.Breaker{Window: 19}},
		"open for long":   {Breaker: stint.Breaker{MinCalls: 1, OpenFor: most}},
		"hardly open":     {Breaker: stint.Breaker{MinCalls: 1, OpenFor: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("a policy that was accepted panics: %v", p)
					}
				}()
				c, err := stint.NewCaller("d", p, &stint.CallerOptions{Rand: func() float64 { return 0.5 }})
				if err != nil {
					return // refusing is as good
				}
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				for _, ctx := range []context.Context{ctx, context.Background()} {
					for _, fail := range []error{nil, context.DeadlineExceeded, breakerOutcome{Kind: stint.Transient}} {
						start := time.Now()
						c.Do(ctx, stint.Op{Safety: stint.ReadOnly}, func(context.Context) error { return fail })
						if took := time.Since(start); ctx.Done() != nil && took > 100*time.Millisecond {
							t.Errorf("a call took %v under a deadline of 100ms", took)
						}
					}
				}
				if err := c.SetPolicy(p); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The reserve for the caller's own work is taken off its deadline, never off
// what the call's own limit says.
func TestPolicyReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := time.Millisecond
		for _, c := range []struct{ ctx, timeout, reserve, want time.Duration }{
			{100 * ms, 0, 30 * ms, 70 * ms},
			{100 * ms, 50 * ms, 30 * ms, 50 * ms},
			{100 * ms, 80 * ms, 30 * ms, 70 * ms},
			{100 * ms, 70 * ms, 30 * ms, 70 * ms},
			{0, 50 * ms, 30 * ms, 50 * ms},
			{0, 0, 30 * ms, 10 * time.Second},
		} {
			caller, err := stint.NewCaller("d", stint.Policy{Timeout: c.timeout, Reserve: c.reserve}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			if c.ctx > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.ctx)
			}
			err = caller.Do(ctx, stint.Op{}, func(ctx context.Context) error {
				if left, _ := stint.Remaining(ctx); left != c.want {
					t.Errorf("%+v: %v for the call", c, left)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			cancel()
		}
		caller, err := stint.NewCaller("d", stint.Policy{Reserve: 30 * ms}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*ms)
		defer cancel()
		if err := caller.Do(ctx, stint.Op{}, nil); bulkReason(err) != stint.NoTime || ctx.Err() != nil {
			t.Errorf("with nothing but the reserve left: %v, want no_time", err)
		}
	})
}
