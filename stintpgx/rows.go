package stintpgx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

func (c *call) query() (*rows, error) {
	result, err := c.do(runQuery)
	if err != nil {
		c.flight.End()
		return &rows{err: err, over: true}, err
	}
	return result.(*rows), nil
}

func runQuery(ctx context.Context, a *attempt) (any, error) {
	if err := a.query(ctx); err != nil {
		return nil, err
	}
	if !a.rows.first {
		a.free()
	}
	return &a.rows, nil
}

// rows are a statement's rows. They hold the connection, unless they are of a
// transaction or a batch, and the call until they are closed.
type rows struct {
	pgx.Rows // nil if the call failed
	attempt  *attempt
	own      bool // they are the call's result, and not part of somebody's batch
	ahead    bool // the first row has been asked for
	first    bool // and is there
	over     bool
	err      error
}

// finish reads what is left, and returns what went wrong.
func (r *rows) finish() error {
	r.Rows.Close()
	return r.Rows.Err()
}

// Close ends the reading; see pgx.Rows.
func (r *rows) Close() {
	if r.over {
		return
	}
	r.over = true
	if err := r.finish(); err != nil {
		_, r.err = r.attempt.judge(err)
	}
	if r.own {
		r.attempt.free()
		r.attempt.call.flight.End()
	}
}

// abandon is Close for rows that lost to others of the same call.
func (r *rows) abandon() {
	r.finish()
	r.attempt.free()
}

// Next goes to the next row; see pgx.Rows.
func (r *rows) Next() bool {
	switch {
	case r.over:
		return false
	case r.ahead:
		r.ahead = false
		if r.first {
			return true
		}
	case r.Rows.Next():
		return true
	}
	r.Close()
	return false
}

// Scan reads the present row; see pgx.Rows.
func (r *rows) Scan(dest ...any) error {
	if r.Rows == nil {
		return r.err
	}
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

// Values returns the present row; see pgx.Rows.
func (r *rows) Values() ([]any, error) {
	if r.Rows == nil {
		return nil, r.err
	}
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

// Err returns what went wrong; see pgx.Rows.
func (r *rows) Err() error {
	if r.over || r.Rows == nil {
		return r.err
	}
	return r.Rows.Err()
}

// The methods that a call without rows can't pass on.

func (r *rows) CommandTag() pgconn.CommandTag {
	if r.Rows == nil {
		return pgconn.CommandTag{}
	}
	return r.Rows.CommandTag()
}

func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	if r.Rows == nil {
		return nil
	}
	return r.Rows.FieldDescriptions()
}

func (r *rows) RawValues() [][]byte {
	if r.Rows == nil {
		return nil
	}
	return r.Rows.RawValues()
}

func (r *rows) Conn() *pgx.Conn {
	if r.Rows == nil {
		return nil
	}
	return r.Rows.Conn()
}

func (r *rows) TypeMap() *pgtype.Map {
	if r.Rows == nil {
		return nil
	}
	return r.Rows.TypeMap()
}

// row is the one row of QueryRow.
type row rows

// oneRow makes a row of rows, or of the error that they have.
func oneRow(r *rows) pgx.Row { return (*row)(r) }

// Scan reads the row and ends the call; see pgx.Row.
func (one *row) Scan(dest ...any) error {
	r := (*rows)(one)
	defer r.Close()
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errors.New("stintpgx: QueryRow can't scan into *pgtype.DriverBytes, which is of no use when the row is closed")
		}
	}
	if !r.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.Scan(dest...); err != nil {
		return err
	}
	r.Close()
	return r.Err()
}

func (c *call) sendBatch(b *pgx.Batch) pgx.BatchResults {
	if b == nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, errors.New("stintpgx: SendBatch without a batch"))
	}
	for i, q := range b.QueuedQueries {
		if word := keyword(q.SQL); i == 0 && c.tx == nil && (word == "begin" || word == "start") {
			return pgx.FailedBatchResults(b, errors.New("stintpgx: a batch that begins a transaction: use BeginTx and the transaction's SendBatch"))
		}
		if err := options(q.Arguments); err != nil {
			return pgx.FailedBatchResults(b, fmt.Errorf("statement %d of the batch: %w", i+1, err))
		}
	}
	result, err := c.do(func(ctx context.Context, a *attempt) (any, error) { return a.sendBatch(ctx, b) })
	if err != nil {
		c.flight.End()
		return pgx.FailedBatchResults(b, err)
	}
	return result.(*results)
}

// sendBatch sends a batch with a limit before each statement, and reads the answer
// to the first of these.
func (a *attempt) sendBatch(ctx context.Context, b *pgx.Batch) (any, error) {
	var with pgx.Batch
	rest := rest{limit: &a.limit}
	a.limit.early = 2 * time.Millisecond // both sides round
	if tx := a.call.tx; tx != nil {
		rest.since = tx.since
		a.limit.early += tx.unsure
	}
	limited := a.limited()
	for i, q := range b.QueuedQueries {
		switch {
		case !limited:
		case i == 0:
			a.queueLimit(&with)
		default:
			with.Queue(restLimit, rest, a.limit.ceiling())
		}
		with.QueuedQueries = append(with.QueuedQueries, new(*q)) // pgx writes into it
	}
	r := &results{BatchResults: a.conn.SendBatch(ctx, &with), attempt: a, limited: limited, ahead: limited}
	if limited && len(b.QueuedQueries) > 0 {
		if _, err := r.BatchResults.Exec(); err != nil {
			r.BatchResults.Close()
			return nil, err
		}
	}
	return r, nil
}

// results are the results of a batch. They hold the connection, unless they are of
// a transaction, and the call until they are closed.
type results struct {
	pgx.BatchResults
	attempt *attempt
	limited bool // there is a limit before each statement
	ahead   bool // the answer to the next one's has been read
	over    bool
	err     error
}

// next reads the answer to the limit of the next statement.
func (r *results) next() {
	if r.limited && !r.ahead {
		r.BatchResults.Exec() // its error is the statement's as well
	}
	r.ahead = false
}

// Exec reads the next result; see pgx.BatchResults.
func (r *results) Exec() (pgconn.CommandTag, error) {
	if r.over {
		return r.BatchResults.Exec()
	}
	r.next()
	tag, err := r.BatchResults.Exec()
	if err != nil {
		_, err = r.attempt.judge(err)
	}
	return tag, err
}

// Query reads the next result; see pgx.BatchResults.
func (r *results) Query() (pgx.Rows, error) { return r.query() }

func (r *results) query() (*rows, error) {
	if !r.over {
		r.next()
	}
	inner, err := r.BatchResults.Query()
	if err != nil {
		if !r.over {
			_, err = r.attempt.judge(err)
		}
		return &rows{err: err, over: true}, err
	}
	return &rows{Rows: inner, attempt: r.attempt}, nil
}

// QueryRow reads the next result; see pgx.BatchResults.
func (r *results) QueryRow() pgx.Row {
	rows, _ := r.query()
	return oneRow(rows)
}

// Close ends the batch; see pgx.BatchResults.
func (r *results) Close() error {
	if r.over {
		return r.err
	}
	r.over = true
	if err := r.BatchResults.Close(); err != nil {
		_, r.err = r.attempt.judge(err)
	}
	r.attempt.free()
	r.attempt.call.flight.End()
	return r.err
}

// abandon is Close for results that lost to others of the same call.
func (r *results) abandon() {
	r.BatchResults.Close()
	r.attempt.free()
}
