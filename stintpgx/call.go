package stintpgx

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
)

// A call is one logical call: its stint.Sender.
type call struct {
	flight stint.Flight
	pool   *Pool
	tx     *tx      // nil outside of one
	op     stint.Op // as the caller says; flight.Op has what the policy adds
	begins bool     // it begins a transaction
	sql    string
	args   []any

	run func(ctx context.Context, a *attempt) (any, error)
}

func (p *Pool) newCall(ctx context.Context, sql string, args []any) *call {
	return &call{pool: p, op: p.op(ctx, sql), sql: sql, args: args}
}

// do makes the call.
func (c *call) do(ctx context.Context, run func(context.Context, *attempt) (any, error)) (any, error) {
	c.run = run
	if err := c.pool.caller.Send(ctx, c.op, c, &c.flight); err != nil {
		return nil, err
	}
	return c.flight.Result(), nil
}

// Send makes one attempt.
func (c *call) Send(ctx context.Context, _ stint.Hop, _ int) (any, stint.Outcome, error) {
	if err := options(c.args); err != nil {
		return nil, stint.Outcome{Kind: stint.Rejected, NotStarted: true, Code: "client"}, err
	}
	a := &attempt{call: c}
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

// An attempt is one try to run a statement, on one connection.
type attempt struct {
	call  *call
	held  *pgxpool.Conn // to be given back; nil in a transaction
	conn  *pgx.Conn
	know  *session
	limit limit

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
	}
	a.know = sessionOf(a.conn)
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

// queueLimit queues what sets the limit.
func (a *attempt) queueLimit(b *pgx.Batch) {
	readOnly := a.call.tx == nil && a.call.flight.Op().Safety == stint.ReadOnly
	set := setLimit
	switch {
	case !a.know.known && readOnly:
		set = learnReadOnly
	case !a.know.known:
		set = learnLimit
	case readOnly:
		set = setReadOnly
	}
	b.Queue(set, &a.limit)
}

// readLimit reads the answer to that.
func (a *attempt) readLimit(results pgx.BatchResults) error {
	if a.know.known {
		_, err := results.Exec()
		return err
	}
	var pid, most int64
	if err := results.QueryRow().Scan(&pid, &most, nil); err != nil {
		return err
	}
	*a.know = session{known: true, most: time.Duration(most) * time.Millisecond}
	if pid != int64(a.conn.PgConn().PID()) { // a pooler made up the one that it told us
		a.call.pool.pooler.Store(true)
	}
	return nil
}

// send sends the statement with its limit, and reads the answer to the latter.
func (a *attempt) send(ctx context.Context) (pgx.BatchResults, error) {
	var b pgx.Batch
	limited := a.limited()
	if limited {
		a.queueLimit(&b)
	}
	b.Queue(a.call.sql, a.call.args...)
	results := a.conn.SendBatch(ctx, &b)
	if limited {
		if err := a.readLimit(results); err != nil {
			results.Close()
			return nil, err
		}
	}
	return results, nil
}

func (c *call) exec(ctx context.Context) (pgconn.CommandTag, error) {
	result, err := c.do(ctx, func(ctx context.Context, a *attempt) (any, error) {
		tag, err := a.exec(ctx)
		if c.tx == nil && sqlState(err) == "25001" { // active_sql_transaction: it was not begun
			tag, err = a.alone(ctx, err)
		}
		if err != nil {
			return nil, err
		}
		a.free()
		return tag, nil
	})
	c.flight.End()
	tag, _ := result.(pgconn.CommandTag)
	return tag, err
}

func (a *attempt) exec(ctx context.Context) (pgconn.CommandTag, error) {
	results, err := a.send(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	if errClose := results.Close(); err == nil {
		err = errClose
	}
	return tag, err
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
