package stintpgx

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stint-go/stint"
)

func TestStateOutcome(t *testing.T) {
	for code, want := range map[string]stint.Outcome{
		"40001": {Kind: stint.Transient, NotStarted: true, Code: "40001"},
		"40P01": {Kind: stint.Transient, NotStarted: true, Code: "40P01"},
		"55P03": {Kind: stint.Transient, NotStarted: true, Code: "55P03"},
		"53300": {Kind: stint.Transient, NotStarted: true, Code: "53300"},
		"57P03": {Kind: stint.Transient, NotStarted: true, Code: "57P03"},
		"57P01": {Kind: stint.Transient, Code: "57P01"},
		"08006": {Kind: stint.Transient, Code: "08"},
		"57014": {Kind: stint.Failed, Code: "57014"},
		"53100": {Kind: stint.Failed, Code: "53"},
		"XX000": {Kind: stint.Failed, Code: "XX"},
		"23505": {Kind: stint.Rejected, Code: "23"},
		"42P01": {Kind: stint.Rejected, Code: "42"},
		"P0001": {Kind: stint.Rejected, Code: "P0"},
		"25006": {Kind: stint.Rejected, Code: "25"},
		"U1234": {Kind: stint.Rejected, Code: "other"},
		"":      {Kind: stint.Rejected, Code: "other"},
	} {
		if have := stateOutcome(code); have != want {
			t.Errorf("%q: %+v, want %+v", code, have, want)
		}
	}
}

func TestConnectOutcome(t *testing.T) {
	for _, c := range []struct {
		err  error
		want stint.Outcome
	}{
		{errors.New("connection refused"), stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "connect"}},
		{&pgconn.PgError{Code: "53300"}, stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "53300"}},
		{fmt.Errorf("connect: %w", &pgconn.PgError{Code: "28P01"}), stint.Outcome{Kind: stint.Failed, NotStarted: true, Code: "28"}},
		{context.DeadlineExceeded, stint.Outcome{Kind: stint.Expired, NotStarted: true, Code: "pool_wait"}},
	} {
		if have := connectOutcome(c.err); have != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, have, c.want)
		}
	}
}
