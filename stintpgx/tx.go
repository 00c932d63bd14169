package stintpgx

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
)

// tx is a transaction. Like pgx's it is for one goroutine at a time.
type tx struct {
	pool     *Pool
	held     *pgxpool.Conn
	inner    pgx.Tx
	since    time.Time     // not before the server's transaction_timestamp
	unsure   time.Duration // by how much it may be later
	readOnly bool
	points   int
	closed   bool
}

// begun is what an attempt to begin brings.
type begun struct {
	attempt *attempt
	inner   pgx.Tx
	since   time.Time
	unsure  time.Duration
}

// abandon rolls back: the context that it was begun with has ended.
func (b *begun) abandon() { b.attempt.free() }

func (c *call) begin(options pgx.TxOptions) (pgx.Tx, error) {
	c.begins = true
	result, err := c.do(func(ctx context.Context, a *attempt) (any, error) {
		var b pgx.Batch
		b.BeginTx(options)
		a.queueLimit(&b)
		ends := a.limit.ends
		if theirs, ok := c.ctx.Deadline(); ok { // for all of it, and not for its begin alone
			ends = theirs
		}
		b.Queue(setIdle, millis(min(max(time.Until(ends), 0), maxLimit*time.Millisecond-c.pool.opts.CommitGrace)+c.pool.opts.CommitGrace))
		sent := time.Now()
		results := a.conn.SendBatch(ctx, &b)
		_, err := results.Exec()
		since := time.Now()
		if err == nil {
			_, err = results.Exec()
		}
		if errClose := results.Close(); err == nil {
			err = errClose
		}
		if err != nil {
			return nil, err
		}
		return &begun{a, results.Tx(), since, since.Sub(sent)}, nil
	})
	c.flight.End()
	if err != nil {
		return nil, err
	}
	b := result.(*begun)
	return &tx{pool: c.pool, held: b.attempt.held, inner: b.inner, since: b.since, unsure: b.unsure,
		readOnly: options.AccessMode == pgx.ReadOnly || c.flight.Op().Safety == stint.ReadOnly}, nil
}

// newCall makes a call for a statement: it is never repeated, since what was before
// it in the transaction would be missing.
func (t *tx) newCall(ctx context.Context, sql string, args []any) *call {
	c := t.pool.newCall(ctx, sql, args)
	c.tx = t
	c.op.OneShot, c.op.Within = true, true
	return c
}

// Begin sets a savepoint; see pgx.Tx.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	t.points++
	name := "sp_" + strconv.Itoa(t.points)
	if _, err := t.Exec(ctx, "savepoint "+name); err != nil {
		return nil, err
	}
	return &savepoint{tx: t, name: name}, nil
}

// Commit commits, or rolls back and refuses if too little time is left; see
// BeginTx. Its error may be ErrOutcomeUnknown.
func (t *tx) Commit(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	c := t.newCall(ctx, "commit", nil)
	_, err := c.do(func(ctx context.Context, a *attempt) (any, error) {
		a.commits, t.closed = true, true
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), a.limit.ends.Add(t.pool.opts.CommitGrace))
		defer cancel()
		return struct{}{}, t.inner.Commit(ctx)
	})
	c.flight.End()
	if !t.closed { // refused
		if errRollback := t.Rollback(ctx); errRollback != nil {
			return errors.Join(err, errRollback)
		}
		return err
	}
	t.held.Release()
	return err
}

// Rollback rolls back, also when ctx has ended. It is no call of the Caller's: it
// must not be refused.
func (t *tx) Rollback(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	t.closed = true
	ctx, cancel := t.pool.closing(ctx)
	defer cancel()
	err := t.inner.Rollback(ctx)
	t.held.Release()
	return err
}

// Exec runs a statement; see Pool.Exec.
func (t *tx) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	if t.closed {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.newCall(ctx, sql, arguments).exec()
}

// Query runs a statement; see Pool.Query.
func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.query(ctx, sql, args)
}

func (t *tx) query(ctx context.Context, sql string, args []any) (*rows, error) {
	if t.closed {
		return &rows{err: pgx.ErrTxClosed, over: true}, pgx.ErrTxClosed
	}
	return t.newCall(ctx, sql, args).query()
}

// QueryRow runs a statement; see Pool.QueryRow.
func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.query(ctx, sql, args)
	return oneRow(rows)
}

// SendBatch sends several statements at once; see Pool.SendBatch.
func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.closed {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return t.newCall(ctx, "", nil).sendBatch(b)
}

// CopyFrom copies rows into a table; the limit takes a round trip of its own.
func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	switch {
	case t.closed:
		return 0, pgx.ErrTxClosed
	case source == nil:
		return 0, errors.New("stintpgx: CopyFrom without a source: pgx.CopyFromRows makes one")
	}
	c := t.newCall(ctx, "copy", nil)
	n, err := c.do(func(ctx context.Context, a *attempt) (any, error) {
		if _, err := a.conn.Exec(ctx, setLimit, &a.limit); err != nil {
			return nil, err
		}
		n, err := a.conn.CopyFrom(ctx, table, columns, source)
		return n, err
	})
	c.flight.End()
	copied, _ := n.(int64)
	return copied, err
}

// Prepare prepares a statement. It does no work, so only ctx bounds it.
func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.inner.Prepare(ctx, name, sql)
}

// LargeObjects returns pgx's, whose calls have the limit of the statement before.
func (t *tx) LargeObjects() pgx.LargeObjects { return t.inner.LargeObjects() }

// Conn returns the connection; what runs on it directly is not bounded here.
func (t *tx) Conn() *pgx.Conn { return t.inner.Conn() }

// savepoint is a transaction within one; see pgx.Tx.Begin.
type savepoint struct {
	*tx
	name string
	over bool
}

// Commit releases the savepoint.
func (s *savepoint) Commit(ctx context.Context) error { return s.end(ctx, "release savepoint ") }

// Rollback rolls back to the savepoint, also when ctx has ended.
func (s *savepoint) Rollback(ctx context.Context) error {
	ctx, cancel := s.pool.closing(ctx)
	defer cancel()
	return s.end(ctx, "rollback to savepoint ")
}

func (s *savepoint) end(ctx context.Context, how string) error {
	if s.over || s.closed {
		return pgx.ErrTxClosed
	}
	s.over = true
	_, err := s.tx.Exec(ctx, how+s.name)
	return err
}

// What is over takes no more statements, as with pgx.

func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	if s.over {
		return nil, pgx.ErrTxClosed
	}
	return s.tx.Begin(ctx)
}

func (s *savepoint) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	if s.over {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return s.tx.Exec(ctx, sql, arguments...)
}

func (s *savepoint) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return s.query(ctx, sql, args)
}

func (s *savepoint) query(ctx context.Context, sql string, args []any) (*rows, error) {
	if s.over {
		return &rows{err: pgx.ErrTxClosed, over: true}, pgx.ErrTxClosed
	}
	return s.tx.query(ctx, sql, args)
}

func (s *savepoint) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := s.query(ctx, sql, args)
	return oneRow(rows)
}

func (s *savepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if s.over {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return s.tx.SendBatch(ctx, b)
}

func (s *savepoint) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if s.over {
		return 0, pgx.ErrTxClosed
	}
	return s.tx.CopyFrom(ctx, table, columns, source)
}
