package stintpgx

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
)

const (
	defaultMargin      = 5 * time.Millisecond
	defaultCommitGrace = time.Second
	defaultPing        = 250 * time.Millisecond
)

// Options are what a Pool needs to know besides its Caller's policy. The zero
// value is right for a server in the same data centre.
type Options struct {
	// Margin is how much sooner than the caller's deadline the server is to stop,
	// so that its answer arrives in time: the round trip's 99th percentile. Of less
	// than two Margins half is kept. Zero means 5 ms.
	Margin time.Duration

	// CommitGrace is how long beyond the deadline a COMMIT that was sent is waited
	// for; what passes of it is reported as wasted work. Zero means 1 s.
	CommitGrace time.Duration

	// Op describes a statement; ctx is the caller's. A batch is the sql "", the steps
	// of a transaction and of CopyFrom are "begin", "commit" and "copy". A Name that it leaves empty is
	// the statement's first keyword; names must come from a bounded set. It is
	// called at the same time from many goroutines. Nil: every statement is
	// Unrepeatable. What WithOp put into ctx goes before it.
	Op func(ctx context.Context, sql string) stint.Op

	// Pooler says that a transaction pooler (pgbouncer) stands between. Then nothing
	// is ever set for a session, and statements are not prepared beforehand
	// (pgx.QueryExecModeExec in place of CacheStatement and DescribeExec), since the
	// next may run on another server connection. A pooler that was not named is
	// noticed at the first statement, and then nothing is set for a session either.
	Pooler bool
}

// A Pool is a pgxpool.Pool under a stint.Caller. Its methods may be called at the
// same time; they return what pgxpool's return, and errors as the package says.
type Pool struct {
	pool   *pgxpool.Pool
	caller *stint.Caller
	opts   Options
	pooler atomic.Bool
}

// New makes a pool as pgxpool.NewWithConfig does, whose calls are c's. config comes
// from pgxpool.ParseConfig and is copied. New sets its
// ConnConfig.BuildContextWatcherHandler, puts something around what
// ConnConfig.BuildFrontend and BeforeConnect bring, and sets PingTimeout to 250 ms if it is zero,
// which would let a dead connection use up its caller's time. o may be nil. It
// connects to nobody yet; the error says what of the arguments can't be meant.
func New(ctx context.Context, config *pgxpool.Config, c *stint.Caller, o *Options) (*Pool, error) {
	if o == nil {
		o = &Options{}
	}
	p := &Pool{caller: c, opts: *o}
	switch {
	case c == nil:
		return nil, errors.New("stintpgx: Caller is nil: make one with stint.NewCaller")
	case config == nil, config.ConnConfig == nil, config.MaxConns < 1:
		return nil, errors.New("stintpgx: config must come from pgxpool.ParseConfig and have MaxConns of at least 1")
	case o.Margin < 0:
		return nil, fmt.Errorf("stintpgx: Options.Margin is %v: must be positive, or zero for %v", o.Margin, defaultMargin)
	case o.CommitGrace < 0:
		return nil, fmt.Errorf("stintpgx: Options.CommitGrace is %v: must be positive, or zero for %v", o.CommitGrace, defaultCommitGrace)
	}
	if p.opts.Margin == 0 {
		p.opts.Margin = defaultMargin
	}
	if p.opts.CommitGrace == 0 {
		p.opts.CommitGrace = defaultCommitGrace
	}
	config = config.Copy()
	if config.PingTimeout == 0 {
		config.PingTimeout = defaultPing
	}
	if o.Pooler {
		p.pooler.Store(true)
		for _, name := range [...]string{"statement_timeout", "options"} {
			if v, ok := config.ConnConfig.RuntimeParams[name]; ok {
				return nil, fmt.Errorf("stintpgx: %s=%s in the connection string: a transaction pooler refuses it; "+
					"use ALTER ROLE ... SET on the server", name, v)
			}
		}
		switch config.ConnConfig.DefaultQueryExecMode {
		case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec:
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	}
	config.BeforeConnect = p.beforeConnect(config.BeforeConnect)
	var err error
	p.pool, err = pgxpool.NewWithConfig(ctx, config)
	return p, err
}

// Unwrap returns the pool below, for what is not bounded here: its statistics, or
// a connection to keep (LISTEN).
func (p *Pool) Unwrap() *pgxpool.Pool { return p.pool }

// Pooler reports whether a pooler stands between: said by Options, or noticed since
// (the server process is not the one that the connection was told of).
func (p *Pool) Pooler() bool { return p.pooler.Load() }

// Close closes the pool; see pgxpool.Pool.
func (p *Pool) Close() { p.pool.Close() }

// Exec runs a statement. One that PostgreSQL refuses to run in a transaction
// (VACUUM, CREATE INDEX CONCURRENTLY) runs with a limit set for the session, which is
// reset, and fails behind a pooler. Several statements without arguments may stand in
// one text; then each has the limit. Of pgx's options in arguments only a
// pgx.QueryRewriter (pgx.NamedArgs) is allowed; the others have to be the pool's.
func (p *Pool) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	return p.newCall(ctx, sql, arguments).exec()
}

// Query runs a statement and returns its rows when the first is there: until then
// errors are the call's, and repeated if the statement may be. Rows must be closed or
// read to their end, in the time that the call had.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.newCall(ctx, sql, args).query()
}

// QueryRow is Query for at most one row; errors come from Scan, which must be called.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := p.newCall(ctx, sql, args).query()
	return oneRow(rows)
}

// SendBatch sends several statements at once, as one implicit transaction. The call
// is over when the first answer is there; the results must be closed. A batch that
// begins a transaction is an error: use BeginTx, and the transaction's SendBatch.
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return p.newCall(ctx, "", nil).sendBatch(b)
}

// Begin is BeginTx with the server's defaults.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction. Each of its methods is bounded by its own context,
// and by the policy; Rollback always runs, also when ctx has ended. The server ends
// a transaction in which nothing happens for longer than ctx had left here, plus
// CommitGrace; where ctx has no deadline, the policy's time stands for it.
func (p *Pool) BeginTx(ctx context.Context, txOptions pgx.TxOptions) (pgx.Tx, error) {
	return p.newCall(ctx, "begin", nil).begin(txOptions)
}

// CopyFrom copies rows into a table, in a transaction of its own: three round trips
// more than pgxpool's.
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (n int64, err error) {
	err = pgx.BeginFunc(ctx, p, func(t pgx.Tx) error {
		n, err = t.CopyFrom(ctx, table, columns, rows)
		return err
	})
	return n, err
}

// Ping runs a statement that needs nothing.
func (p *Pool) Ping(ctx context.Context) error {
	_, err := p.Exec(ctx, "select 1")
	return err
}
