package stintpgx_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintpgx"
	"github.com/stint-go/stint/stinttest"
)

// The shapes are pgx's, so that one line changes.
type shapes interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	Begin(context.Context) (pgx.Tx, error)
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
	Ping(context.Context) error
	Close()
}

var _, _ shapes = (*pgxpool.Pool)(nil), (*stintpgx.Pool)(nil)

func config(t *testing.T, dsn string) *pgxpool.Config {
	t.Helper()
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func caller(t *testing.T, p stint.Policy, o stint.Observer) *stint.Caller {
	t.Helper()
	c, err := stint.NewCaller("database", p, &stint.CallerOptions{Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	good, c := config(t, "host=db.invalid"), caller(t, stint.Policy{}, nil)
	for _, x := range []struct {
		name   string
		config *pgxpool.Config
		caller *stint.Caller
		o      *stintpgx.Options
		want   string
	}{
		{"no Caller", good, nil, nil, "NewCaller"},
		{"no config", nil, c, nil, "ParseConfig"},
		{"a config from elsewhere", &pgxpool.Config{}, c, nil, "ParseConfig"},
		{"a negative margin", good, c, &stintpgx.Options{Margin: -1}, "Margin is -1ns: must be positive"},
		{"a negative grace", good, c, &stintpgx.Options{CommitGrace: -1}, "CommitGrace is -1ns: must be positive"},
		{"a session limit behind a pooler", config(t, "host=db.invalid statement_timeout=100"), c, &stintpgx.Options{Pooler: true}, "ALTER ROLE"},
	} {
		if p, err := stintpgx.New(context.Background(), x.config, x.caller, x.o); err == nil {
			p.Close()
			t.Errorf("%s: no error", x.name)
		} else if !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error %q, want it to say %q", x.name, err, x.want)
		}
	}
}

func TestNewCopiesItsConfig(t *testing.T) {
	given := config(t, "host=db.invalid")
	p, err := stintpgx.New(context.Background(), given, caller(t, stint.Policy{}, nil), &stintpgx.Options{Pooler: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if given.PingTimeout != 0 || given.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		t.Error("the config that was given has been changed")
	}
	own := p.Unwrap().Config()
	if own.PingTimeout != 250*time.Millisecond || own.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeExec || !p.Pooler() {
		t.Errorf("PingTimeout %v, mode %v, pooler %v: want 250ms, exec, true", own.PingTimeout, own.ConnConfig.DefaultQueryExecMode, p.Pooler())
	}
}

// nowhere is a pool whose every connection is refused, and counts them.
func nowhere(t *testing.T, p stint.Policy, o *stintpgx.Options) (pool *stintpgx.Pool, dials *int, rec *stinttest.Recorder) {
	t.Helper()
	dials, rec = new(int), &stinttest.Recorder{}
	c := config(t, "host=127.0.0.1 sslmode=disable")
	c.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		*dials++
		return nil, errors.New("refused")
	}
	pool, err := stintpgx.New(context.Background(), c, caller(t, p, rec), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, dials, rec
}

// TestGuard: with too little time left no connection is asked for.
func TestGuard(t *testing.T) {
	pool, dials, rec := nowhere(t, stint.Policy{MinUseful: 50 * time.Millisecond}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, errExec := pool.Exec(ctx, "select 1")
	rows, errQuery := pool.Query(ctx, "select 1")
	rows.Close()
	_, errBegin := pool.Begin(ctx)
	for what, err := range map[string]error{"Exec": errExec, "Query": errQuery, "rows.Err": rows.Err(), "QueryRow": pool.QueryRow(ctx, "select 1").Scan(),
		"SendBatch": pool.SendBatch(ctx, &pgx.Batch{}).Close(), "Begin": errBegin} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v, want a deadline", what, err)
		}
	}
	if *dials != 0 {
		t.Errorf("%d connections were tried, want none", *dials)
	}
	if n := rec.Refused()[stint.NoTime]; n != 5 {
		t.Errorf("%d calls refused for want of time, want 5", n)
	}
}

// TestRowsOfAFailedCall may be asked for anything.
func TestRowsOfAFailedCall(t *testing.T) {
	pool, _, _ := nowhere(t, stint.Policy{}, nil)
	rows, err := pool.Query(context.Background(), "select 1")
	if err == nil {
		t.Fatal("no error")
	}
	defer rows.Close()
	if rows.Next() || rows.Scan() != err || rows.Err() != err || rows.FieldDescriptions() != nil || rows.RawValues() != nil ||
		rows.Conn() != nil || rows.TypeMap() != nil || rows.CommandTag() != (pgconn.CommandTag{}) {
		t.Error("rows of a failed call have something")
	}
	if _, errValues := rows.Values(); errValues != err {
		t.Errorf("Values: %v, want %v", errValues, err)
	}
}

// TestOp: who describes a statement, and that what never had a connection may be
// repeated whatever it is.
func TestOp(t *testing.T) {
	ctx := context.Background()
	byOptions := &stintpgx.Options{Op: func(_ context.Context, sql string) stint.Op {
		if sql == "select 1" {
			return stint.Op{Name: "ping"}
		}
		return stint.Op{}
	}}
	for _, c := range []struct {
		ctx  context.Context
		o    *stintpgx.Options
		sql  string
		want string
	}{
		{ctx, nil, "update t set n = 1", "update"},
		{ctx, byOptions, "select 1", "ping"},
		{ctx, byOptions, "select 2", "select"},
		{stintpgx.WithOp(ctx, stint.Op{Name: "orders"}), byOptions, "select 1", "orders"},
		{stintpgx.WithOp(ctx, stint.Op{Safety: stint.ReadOnly}), byOptions, "select 1", "select"},
	} {
		pool, dials, rec := nowhere(t, stint.Policy{Retry: stint.Retry{Attempts: 2, Base: time.Microsecond, Cap: time.Microsecond}}, c.o)
		_, err := pool.Exec(c.ctx, c.sql)
		if errors.Is(err, stintpgx.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, but nothing was sent", c.sql, err)
		}
		if e := rec.Events(stint.CallDone)[0]; e.Op != c.want || e.Attempt != 2 || !e.Outcome.NotStarted {
			t.Errorf("%s: %q, %d attempts, %+v: want %q, 2, not started", c.sql, e.Op, e.Attempt, e.Outcome, c.want)
		}
		if *dials < 2 {
			t.Errorf("%s: %d connections were tried, want 2", c.sql, *dials)
		}
	}
}

// TestRefusedArguments: what can't be done is refused before a connection is taken.
func TestRefusedArguments(t *testing.T) {
	pool, dials, _ := nowhere(t, stint.Policy{}, nil)
	ctx := context.Background()
	_, err := pool.Exec(ctx, "select 1", pgx.QueryExecModeExec)
	var begins, option pgx.Batch
	begins.BeginTx(pgx.TxOptions{})
	option.Queue("select 1", pgx.QueryExecModeExec)
	for want, err := range map[string]error{
		"stintpgx: pgx.QueryExecMode": err,
		"use BeginTx":                 pool.SendBatch(ctx, &begins).Close(),
		"statement 1 of the batch":    pool.SendBatch(ctx, &option).Close(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
	if *dials != 0 {
		t.Errorf("%d connections were tried, want none", *dials)
	}
}
