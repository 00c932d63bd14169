package stintsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// A step is what a call does.
type step uint8

const (
	querying step = iota
	executing
	preparing
	beginning
	committing
	pinging
	connecting
)

// A call is one logical call: its stint.Sender, and the rows that it brings. It is all
// on one connection, so its attempts are one after the other.
type call struct {
	flight stint.Flight
	conn   *conn
	step   step
	op     stint.Op // as the caller says; flight.Op has what the policy adds
	query  string
	args   []driver.NamedValue
	stmt   *stmt            // the prepared one; nil where it is in query
	begins driver.TxOptions // of a transaction to begin
	until  time.Time        // its caller's deadline; zero: none
	cancel context.CancelFunc
	rows   rows

	past   resend // what was before it on other connections; its attempts are counted there
	before error  // of the attempt before

	// Of the present attempt.
	limit limit
	tries int  // the attempts until now
	sent  bool // the driver has been given the statement
	dead  bool // it is database/sql's to give to another connection
}

// newCall makes a call. In a transaction it is a step of it, and never repeated, since
// what was before it would be missing.
func (k *conn) newCall(s step, op stint.Op) *call {
	c := &call{conn: k, step: s, op: op}
	if k.tx != nil || k.raw {
		c.op.OneShot, c.op.Within = true, true
	}
	return c
}

func (k *conn) statement(ctx context.Context, s step, query string, args []driver.NamedValue) *call {
	c := k.newCall(s, k.connector.op(ctx, query))
	c.query, c.args = query, args
	return c
}

// do makes the call. On an error it is over.
func (c *call) do(ctx context.Context) (any, error) {
	n := c.conn.connector
	theirs := ctx
	if t := c.conn.tx; t != nil { // database/sql rolls it back then, whatever runs
		ctx = c.by(ctx, t.ends)
	} else if c.past = n.resends.take(ctx, c.step, c.query); c.past.times > 0 {
		ctx = c.by(ctx, c.past.ends.Add(n.caller.PolicyFor(c.op).Reserve)) // which the Caller keeps back again
	}
	err := n.caller.Send(ctx, c.op, c, &c.flight)
	if err == nil {
		return c.flight.Result(), nil
	}
	if c.dead {
		c.past.ctx, c.past.step, c.past.query, c.past.ends = theirs, c.step, c.query, c.flight.Deadline()
		c.past.times++
		n.resends.add(c.past)
	}
	c.end()
	if c.past.unknown && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if !c.dead && errors.Is(err, driver.ErrBadConn) {
		err = &final{err}
	}
	return nil, err
}

// by bounds the call by a further deadline; zero is none.
func (c *call) by(ctx context.Context, ends time.Time) context.Context {
	if d, ok := ctx.Deadline(); !ends.IsZero() && (!ok || d.After(ends)) {
		ctx, c.cancel = context.WithDeadline(ctx, ends)
	}
	return ctx
}

// end says that the result has been read.
func (c *call) end() {
	c.flight.End()
	if c.cancel != nil {
		c.cancel()
	}
	if c.step != connecting {
		c.conn.used = time.Now()
	}
}

// final is an error that is no driver.ErrBadConn, whatever the driver says, so that
// database/sql does not repeat what it stands for.
type final struct{ err error }

func (f *final) Error() string { return f.err.Error() }

// Is reports what the error is, but for driver.ErrBadConn.
func (f *final) Is(target error) bool {
	return target != driver.ErrBadConn && errors.Is(f.err, target)
}

// As finds what is in the error.
func (f *final) As(target any) bool { return errors.As(f.err, target) }

var errCopy = errors.New("stintsql: a copy needs a connection of its own")

// Send makes one attempt.
func (c *call) Send(ctx context.Context, hop stint.Hop, copy int) (any, stint.Outcome, error) {
	if copy > 0 { // a policy that got its hedge later
		return nil, stint.Outcome{Kind: stint.Refused, NotStarted: true, Code: "copy"}, errCopy
	}
	if c.tries++; c.tries == 1 {
		c.flight.Follows(c.past.made)
	}
	c.limit, c.sent, c.dead = limit{}, false, false
	result, err := c.run(ctx)
	if err != nil {
		o, err := c.judge(ctx, err)
		if o.Code != "bad_conn" {
			c.past.made++
		}
		if c.dead {
			c.flight.Resent(ctx, hop.Attempt)
		}
		c.before = err
		return nil, o, err
	}
	return result, stint.Outcome{Kind: stint.OK}, nil
}

// Drop throws a result away.
func (c *call) Drop(result any, _ time.Duration) {
	switch r := result.(type) {
	case *rows:
		r.abandon()
	case *conn:
		r.base.Close()
	case *tx:
		r.Rollback()
	case driver.Stmt:
		r.Close()
	}
}

var errGone = errors.New("stintsql: the database has rolled the transaction back: begin another")

// run does what the attempt is for.
func (c *call) run(ctx context.Context) (any, error) {
	k := c.conn
	if k.broken {
		return nil, driver.ErrBadConn
	}
	switch c.step {
	case connecting:
		return k, k.connector.open(ctx, k)
	case pinging:
		return k, k.base.(driver.Pinger).Ping(ctx)
	case preparing:
		return k.preparer.PrepareContext(ctx, c.query)
	case beginning:
		return c.begin(ctx)
	case committing:
		return k.tx, k.tx.commit(ctx, c)
	}
	if k.gone && !ends(keyword(c.query)) {
		return nil, errGone
	}
	text, err := k.bound(ctx, c)
	if err != nil {
		return nil, err
	}
	var result any = &c.rows
	if c.step == executing {
		result, err = c.exec(ctx, text)
	} else {
		err = c.rows.open(ctx, c, text)
	}
	k.note(c.query, err)
	return result, err
}

func (c *call) exec(ctx context.Context, text string) (driver.Result, error) {
	if c.stmt != nil {
		s, err := c.stmt.executor()
		if err != nil {
			return nil, err
		}
		c.sent = true
		return s.ExecContext(ctx, c.args)
	}
	c.sent = true
	result, err := c.conn.execer.ExecContext(ctx, text, c.args)
	if err != driver.ErrSkip {
		return result, err
	}
	c.sent = false
	s, err := c.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	c.sent = true
	return s.ExecContext(ctx, c.args)
}

// prepare prepares a statement that the driver can't run in one go, for this call.
func (c *call) prepare(ctx context.Context, text string) (s boundStmt, err error) {
	if s.Stmt, err = c.conn.preparer.PrepareContext(ctx, text); err != nil {
		return s, err
	}
	if err = s.split(); err == nil {
		err = s.check(c.args)
	}
	if err != nil {
		s.Close()
	}
	return s, err
}

// doQuery makes a call that brings rows, doExec one that brings a count.
func (c *call) doQuery(ctx context.Context) (driver.Rows, error) {
	r, err := c.do(ctx)
	if err != nil {
		return nil, err
	}
	return r.(*rows), nil
}

func (c *call) doExec(ctx context.Context) (driver.Result, error) {
	r, err := c.do(ctx)
	if err != nil {
		return nil, err
	}
	c.end()
	return r.(driver.Result), nil
}

// because is an error of the driver's that came of ctx's end, without the
// context.Canceled of a context that was made here.
func because(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %v", context.Cause(ctx), err)
}
