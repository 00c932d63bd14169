package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stintpgx"
)

// What a policy file knows of PostgreSQL's answers is what stintpgx makes of them, for
// each class that there could be.
func TestPolicyKnowsAnswers(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, raises)
	s := open(t, pg.DSN(name), 1, stint.Policy{Breaker: stint.Breaker{Off: true}}, nil)

	states := strings.Fields("40001 40P01 55P03 53300 57P01 57P02 57P03 57014 42601 40003")
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, a := range "01234567FHPXZ" { // what classes begin with, and a letter that none does
		for _, b := range letters {
			if class := string(a) + string(b); class != "00" { // a success can't be raised
				states = append(states, class+"999")
			}
		}
	}
	own, listed := 0, map[string]bool{}
	for _, state := range states {
		s.rec.Reset()
		if _, err := s.Exec(within(t, patience), "select raises($1)", state); err == nil {
			t.Fatalf("%s is no error", state)
		}
		got := s.rec.Events(stint.AttemptDone)[0].Outcome
		if want, ok := policy.Postgres.Outcome(policy.Code(got.Code)); !ok || got != want {
			t.Errorf("%s is %+v, and the policy has %+v for %s", state, got, want, got.Code)
		}
		if got.Code == "other" {
			if o, ok := policy.Postgres.Outcome(policy.Code(state[:2])); ok {
				t.Errorf("%s is \"other\", and the policy has %+v for its class", state, o)
			}
		} else {
			own++
		}
		if listed[got.Code] {
			continue
		}
		listed[got.Code] = true
		if _, err := policy.Parse("f.yaml", []byte(fmt.Sprintf("service: a\ndependencies: {x: {kind: postgres, retry: {retryable: [%q]}}}\n", got.Code))); err != nil {
			t.Errorf("%s is what stintpgx says, and a file can't list it: %v", got.Code, err)
		}
	}
	if own < 45 {
		t.Errorf("%d of %d states have a code of their own", own, len(states))
	}
}

// raises is a function that fails with an SQLSTATE.
const raises = `create function raises(state text) returns int language plpgsql as
	$$ begin raise exception using errcode = state; end $$`

// A file's numbers hold for a database: its operations by the statement's first word
// or by WithOp, what they may repeat, and after which answers.
func TestPolicyFile(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, raises)
	f, err := policy.Parse("orders.yaml", []byte(`
service: orders
dependencies:
  database:
    kind: postgres
    timeout: 20s
    breaker: off
    retry: {maxAttempts: 3, backoff: {base: 1ms, cap: 1ms}, retryable: [40001, 53]}
    operations:
      select: {safety: readOnly}
      report: {safety: readOnly, timeout: 100ms, retry: none}
      with: {minUseful: 15s}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Policy("database")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, pg.DSN(name), 1, p, nil)
	report := func(ctx context.Context) context.Context { return stintpgx.WithOp(ctx, stint.Op{Name: "report"}) }
	plain := func(ctx context.Context) context.Context { return ctx }
	short := func(context.Context) context.Context { return within(t, patience/2) }
	for _, c := range []struct {
		what, sql string
		with      func(context.Context) context.Context
		attempts  int
		reason    stint.Reason
	}{
		{"declared, and listed", "select raises('53100')", plain, 3, stint.AttemptsSpent},
		{"declared, and not listed", "select raises('58030')", plain, 1, stint.Final},
		{"listed, and not declared", "call raises('53100')", plain, 1, stint.Final}, // no procedure: 42
		{"not declared, and listed", "values (raises('53100'))", plain, 1, stint.NotRepeatable},
		{"not declared, and never began", "values (raises('40001'))", plain, 3, stint.AttemptsSpent},
		{"an operation of its own", "select raises('40001')", report, 1, stint.AttemptsSpent},
		{"its time", "select pg_sleep(20)", report, 1, stint.NoTime},
		{"too little time", "with x as (select 1) select * from x", short, 0, stint.NoTime},
	} {
		s.rec.Reset()
		_, err := s.Exec(c.with(within(t, patience)), c.sql)
		e, ok := errors.AsType[*stint.Error](err)
		if !ok {
			t.Errorf("%s: the error is %v", c.what, err)
			continue
		}
		if got := len(s.rec.Events(stint.AttemptDone)); got != c.attempts || e.Reason != c.reason {
			t.Errorf("%s: %d attempts, %s, want %d, %s: %v", c.what, got, e.Reason, c.attempts, c.reason, err)
		}
		if late := c.reason == stint.NoTime; errors.Is(err, context.DeadlineExceeded) != late {
			t.Errorf("%s: the error is %v", c.what, err)
		}
	}
}
