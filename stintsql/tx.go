package stintsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// tx is a transaction.
type tx struct {
	conn     *conn
	base     driver.Tx
	ctx      context.Context // that it was begun with
	ends     time.Time       // its deadline; zero: none
	life     context.Context // what the driver was given: it ends when we say so
	stop     context.CancelFunc
	readOnly bool
	failed   bool          // only its end can be run
	before   time.Duration // the limit in force before it
	over     bool
}

// BeginTx begins a transaction; see the package.
func (k *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c := k.newCall(beginning, k.connector.op(ctx, "begin"))
	c.begins = o
	c.until, _ = ctx.Deadline()
	t, err := c.do(ctx)
	if err != nil {
		return nil, err
	}
	c.end()
	k.tx = t.(*tx)
	k.tx.ctx = ctx
	k.tx.ends = c.until
	return k.tx, nil
}

// begin makes one attempt. Drivers run COMMIT with the context that they were given here, or
// end the transaction with it, so they get one that lives as long as the transaction.
func (c *call) begin(ctx context.Context) (*tx, error) {
	k := c.conn
	readOnly := c.flight.Op().Safety == stint.ReadOnly
	if readOnly && k.connector.opts.Dialect != None && k.connector.opts.Dialect != SQLite {
		c.begins.ReadOnly = true // so the server finds a wrong declaration
	}
	t := &tx{conn: k, readOnly: readOnly || c.begins.ReadOnly, before: k.set}
	t.life, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, t.stop)
	var err error
	t.base, err = k.beginner.BeginTx(t.life, c.begins)
	if !unlink() && err == nil { // it ended meanwhile
		t.base.Rollback()
		k.broken, err = true, context.Cause(ctx)
	}
	if err != nil {
		t.stop()
		return nil, because(ctx, err)
	}
	if err = c.beginLimit(ctx, t); err != nil {
		if errBack := t.Rollback(); errBack != nil {
			k.broken = true
		}
		return nil, err
	}
	return t, nil
}

// beginLimit limits a PostgreSQL transaction in which nothing happens, as one does whose
// client has gone.
func (c *call) beginLimit(ctx context.Context, t *tx) error {
	k := c.conn
	if k.connector.opts.Dialect != PostgreSQL {
		return nil
	}
	room, err := c.limit.room(ctx, k.connector.opts.Margin)
	if err != nil {
		return err
	}
	ends := c.until
	if ends.IsZero() {
		ends = c.limit.ends
	}
	idle := k.connector.opts.withGrace(ends)
	if k.idle > 0 {
		idle = min(idle, k.idle)
	}
	length := max(room*newTenths/10, time.Millisecond)
	if k.own > 0 {
		length = min(length, k.own)
	}
	k.tx, k.set = t, 0
	defer func() { k.tx = nil }()
	_, err = k.execer.ExecContext(ctx, "set local statement_timeout = "+millis(length)+
		"; set local idle_in_transaction_session_timeout = "+millis(max(idle, time.Millisecond)), nil)
	if err == nil {
		k.set = length.Truncate(time.Millisecond)
	}
	return err
}

// Commit commits, or rolls back and refuses if too little time is left. Its error may be
// ErrOutcomeUnknown.
func (t *tx) Commit() error {
	if t.over {
		return errTxOver
	}
	if t.conn.gone {
		return errors.Join(errGone, t.Rollback())
	}
	c := t.conn.newCall(committing, t.conn.connector.op(t.ctx, "commit"))
	_, err := c.do(t.ctx)
	if err == nil {
		c.end()
	}
	if !t.over { // refused
		if errBack := t.Rollback(); errBack != nil {
			return errors.Join(err, errBack)
		}
		return err
	}
	t.ended()
	return err
}

// commit makes the one attempt to commit.
func (t *tx) commit(ctx context.Context, c *call) error {
	c.limit.ends, _ = ctx.Deadline()
	t.over, c.sent = true, true
	o := &t.conn.connector.opts
	timer := time.AfterFunc(o.withGrace(c.limit.ends), t.stop)
	defer timer.Stop()
	err := t.end("COMMIT", t.base.Commit)
	if err != nil && t.life.Err() != nil {
		return fmt.Errorf("stintsql: no answer to COMMIT %v after the deadline: %w (%v)", o.CommitGrace, context.DeadlineExceeded, err)
	}
	return err
}

// end ends the transaction. MySQL's driver does that without any context, so there it is a
// statement, which has one.
func (t *tx) end(statement string, otherwise func() error) error {
	if t.conn.connector.opts.Dialect.mysql() {
		_, err := t.conn.execer.ExecContext(t.life, statement, nil)
		return err
	}
	return otherwise()
}

var errTxOver = errors.New("stintsql: the transaction is over")

// Rollback rolls back, also when the context has ended. It is no call of the Caller's:
// it must not be refused.
func (t *tx) Rollback() error {
	if t.over {
		return errTxOver
	}
	t.over = true
	within := 2 * t.conn.connector.opts.Margin
	if t.ctx != nil && t.ctx.Err() == nil && !t.ends.IsZero() {
		within = max(within, time.Until(t.ends))
	}
	timer := time.AfterFunc(within, t.stop)
	defer timer.Stop()
	err := t.end("ROLLBACK", t.base.Rollback)
	if d := t.conn.connector.opts.Dialect; t.conn.gone && d == SQLite && d.code(err) == "1" {
		err = nil // there was none left
	}
	if err != nil {
		t.conn.broken = true // nobody knows what it is in
	}
	t.ended()
	return err
}

// ended gives the connection back to its next user.
func (t *tx) ended() {
	t.stop()
	t.conn.tx, t.conn.set, t.conn.gone = nil, t.before, false
}
