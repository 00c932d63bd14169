package stintpgx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
)

// A call is one logical call: its stint.Sender.
type call struct {
	flight stint.Flight
	ctx    context.Context // the caller's
	pool   *Pool
	tx     *tx      // nil outside of one
	op     stint.Op // as the caller says; flight.Op has what the policy adds
	begins bool     // it begins a transaction
	sql    string
	args   []any

	run   func(ctx context.Context, a *attempt) (any, error)
	first attempt     // part of the call, so that both are one allocation
	taken atomic.Bool // first is in use, or has been
}

func (p *Pool) newCall(ctx context.Context, sql string, args []any) *call {
	return &call{ctx: ctx, pool: p, op: p.op(ctx, sql), sql: sql, args: args}
}

// do makes the call.
func (c *call) do(run func(context.Context, *attempt) (any, error)) (any, error) {
	c.run = run
	if err := c.pool.caller.Send(c.ctx, c.op, c, &c.flight); err != nil {
		return nil, err
	}
	return c.flight.Result(), nil
}

// Send makes one attempt.
func (c *call) Send(ctx context.Context, _ stint.Hop, _ int) (any, stint.Outcome, error) {
	if err := options(c.args); err != nil {
		return nil, stint.Outcome{Kind: stint.Rejected, NotStarted: true, Code: "client"}, err
	}
	a := &c.first
	if c.taken.Swap(true) { // an attempt before, or a copy
		a = new(attempt)
	}
	a.call = c
	ctx = a.borrow(ctx)
	if o, err := a.take(ctx); err != nil {
		a.free()
		return nil, o, err
	}
	result, err := c.run(ctx, a)
	if err != nil {
		o, err := a.judge(err)
		a.free()
		return nil, o, err
	}
	return result, stint.Outcome{Kind: stint.OK}, nil
}

// Drop throws a result away. Its context ends when Drop has returned, and that
// ends the reading.
func (c *call) Drop(result any, _ time.Duration) {
	if r, ok := result.(interface{ abandon() }); ok {
		go r.abandon()
	}
}

// options refuses pgx's options that a batch can't have.
func options(args []any) error {
	if len(args) > 0 {
		switch args[0].(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return fmt.Errorf("stintpgx: %T as an argument: it has to hold for the whole pool: set ConnConfig.DefaultQueryExecMode", args[0])
		}
	}
	return nil
}

// borrowed is an attempt's context that ends with the caller's. An attempt that may
// last as long as the caller waits, and has no copies, needs no end of its own: that
// would be a context more, and a tenth of what a quick query takes the client.
type borrowed struct {
	context.Context // the attempt's, for its values
	caller          context.Context
}

func (b *borrowed) Done() <-chan struct{} { return b.caller.Done() }
func (b *borrowed) Err() error            { return b.caller.Err() }

func (a *attempt) borrow(ctx context.Context) context.Context {
	c := a.call
	mine, _ := ctx.Deadline()
	if theirs, ok := c.ctx.Deadline(); !ok || !theirs.Equal(mine) || c.pool.caller.Hedges() {
		return ctx
	}
	a.ctx = borrowed{ctx, c.ctx}
	return &a.ctx
}

// An attempt is one try to run a statement, on one connection.
type attempt struct {
	call  *call
	held  *pgxpool.Conn // to be given back; nil in a transaction
	conn  *pgx.Conn
	know  *session
	limit limit
	ctx   borrowed
	rows  rows              // of a query
	tag   pgconn.CommandTag // of another statement

	commits bool // it is a COMMIT
}

var errPoolWait = fmt.Errorf("stintpgx: the wait for a connection left too little time: %w", context.DeadlineExceeded)

// take takes a connection, and guards what is left after waiting for it.
func (a *attempt) take(ctx context.Context) (stint.Outcome, error) {
	c := a.call
	a.limit.ends, _ = ctx.Deadline()
	a.limit.margin = c.pool.opts.Margin
	if c.tx != nil {
		a.conn = c.tx.held.Conn()
	} else {
		var err error
		if a.held, err = c.pool.pool.Acquire(ctx); err != nil {
			return connectOutcome(err), fmt.Errorf("stintpgx: getting a connection: %w", err)
		}
		a.conn = a.held.Conn()
		if time.Until(a.limit.ends) < c.flight.MinUseful() {
			return stint.Outcome{Kind: stint.Expired, NotStarted: true, Code: "pool_wait"}, errPoolWait
		}
		a.limit.readOnly = c.flight.Op().Safety == stint.ReadOnly
	}
	a.know = sessionOf(a.conn)
	if !a.know.known {
		if err := c.pool.ask(ctx, a.conn, a.know); err != nil {
			return connectOutcome(err), fmt.Errorf("stintpgx: the first use of a connection: %w", err)
		}
	}
	a.limit.most = a.know.most
	return stint.Outcome{}, nil
}

// free gives the connection back. The pool closes it if it is of no use any more.
func (a *attempt) free() {
	if a.held != nil {
		a.held.Release()
		a.held = nil
	}
}

// limited reports whether a limit is sent before the statement. In a transaction
// that has failed only its end can be run, and that is quick.
func (a *attempt) limited() bool { return a.conn.PgConn().TxStatus() != 'E' }

// queueLimit queues what sets the limit, for a batch.
func (a *attempt) queueLimit(b *pgx.Batch) {
	set := setLimit
	if a.limit.readOnly {
		set = setReadOnly
	}
	b.Queue(set, &a.limit)
}

// arm has the limit go out with the next statement, unless the session's own is
// shorter anyway. Behind a pooler nobody knows whose session it is; in a
// transaction the limit before may be in force.
func (a *attempt) arm() error {
	if !a.limited() {
		return nil
	}
	if err := a.limit.check(); err != nil {
		return err
	}
	if !a.limit.foreign || a.limit.readOnly || a.call.tx != nil || a.call.pool.pooler.Load() {
		a.know.wire.arm(&a.limit)
	}
	return nil
}

// mistaken reports whether err says that the server does not know the limit's
// statement (after DISCARD ALL), or does (of a session that a pooler passed on):
// then nothing has run, and it can be sent again.
func (a *attempt) mistaken(err error) bool {
	code := sqlState(err)
	if w := a.know.wire; !w.refused || (code != "26000" && code != "42P05") {
		return false
	} else if w.prepared = [2]bool{}; code == "42P05" {
		w.prepared[w.which] = true
	}
	return a.call.tx == nil // else the transaction has failed
}

// query runs the statement with its limit, up to its first row or its end.
func (a *attempt) query(ctx context.Context) error {
	err := a.queryOnce(ctx)
	if err != nil && a.mistaken(err) {
		err = a.queryOnce(ctx)
	}
	return err
}

func (a *attempt) queryOnce(ctx context.Context) error {
	if err := a.arm(); err != nil {
		return err
	}
	inner, _ := a.conn.Query(ctx, a.call.sql, a.call.args...) // its error is the rows' as well
	a.know.wire.disarm()
	a.rows = rows{Rows: inner, attempt: a, own: true, ahead: true}
	if a.rows.first = inner.Next(); !a.rows.first {
		return a.rows.finish()
	}
	return nil
}

func (c *call) exec() (pgconn.CommandTag, error) {
	result, err := c.do(runExec)
	c.flight.End()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return result.(*attempt).tag, nil
}

func runExec(ctx context.Context, a *attempt) (any, error) {
	bare, inTx := len(a.call.args) == 0, a.call.tx != nil
	var err error
	if bare && inTx && strings.Contains(strings.TrimRight(a.call.sql, "; \t\r\n"), ";") { // the refusal would end the transaction
		err = a.script(ctx)
	} else if err = a.exec(ctx); bare && !inTx && severalStatements(err) {
		err = a.script(ctx)
	}
	if !inTx && sqlState(err) == "25001" { // active_sql_transaction: it was not begun
		a.tag, err = a.alone(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	a.free()
	return a, nil
}

func (a *attempt) exec(ctx context.Context) error {
	err := a.query(ctx)
	if err == nil {
		err = a.rows.finish()
	}
	a.tag = a.rows.CommandTag()
	return err
}

// severalStatements reports whether PostgreSQL refused to prepare more than one statement.
func severalStatements(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42601" && pg.Routine == "exec_parse_message"
}

// script runs several statements in one text, each of which has the limit.
func (a *attempt) script(ctx context.Context) (err error) {
	if err := a.arm(); err != nil {
		return err
	}
	a.tag, err = a.conn.Exec(ctx, a.call.sql)
	a.know.wire.disarm()
	return err
}

// alone runs a statement that PostgreSQL refused to run in a transaction, with the
// limit set for the session.
func (a *attempt) alone(ctx context.Context, refused error) (tag pgconn.CommandTag, err error) {
	if a.call.pool.pooler.Load() {
		return tag, fmt.Errorf("stintpgx: behind a pooler this can't run with a limit, which would have to be set for the session: "+
			"connect to the server itself: %w", refused)
	}
	length, err := a.limit.Value()
	if err != nil {
		return tag, err
	}
	if _, err = a.conn.Exec(ctx, "set statement_timeout = "+length.(string)); err != nil {
		return tag, err
	}
	tag, err = a.conn.Exec(ctx, a.call.sql, a.call.args...)
	if !a.conn.IsClosed() {
		ctx, cancel := a.call.pool.closing(ctx)
		defer cancel()
		if _, errReset := a.conn.Exec(ctx, "reset statement_timeout"); errReset != nil {
			a.conn.Close(ctx) // nobody else is to have that limit
		}
	}
	return tag, err
}

// closing returns a context for what has to be done whether or not ctx has ended,
// and takes no time if the network is there.
func (p *Pool) closing(ctx context.Context) (context.Context, context.CancelFunc) {
	within := 2 * p.opts.Margin
	if ends, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		within = max(within, time.Until(ends))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), within)
}
