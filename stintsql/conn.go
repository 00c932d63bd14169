package stintsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// conn is a connection. Like every driver.Conn it is for one goroutine at a time.
type conn struct {
	connector *Connector
	base      driver.Conn

	// What base can do. queryer and execer may be nil, both.
	preparer driver.ConnPrepareContext
	beginner driver.ConnBeginTx
	queryer  driver.QueryerContext
	execer   driver.ExecerContext
	honest   bool

	own  time.Duration // the session's own limit; zero: none
	idle time.Duration // and that for an idle transaction
	set  time.Duration // the limit in force; zero: unknown
	id   int64         // the server's name for the connection, for a kill

	tx     *tx  // nil outside of one
	raw    bool // somebody began a transaction by a statement
	gone   bool // the database has rolled the transaction back by itself
	broken bool // it is of no use any more
	used   time.Time
	looked time.Time // the last look that was bounded
}

var errContexts = errors.New("stintsql: only the methods with a context are there: use them")

// Unwrap returns the driver's connection, for sql.Conn.Raw. What runs on it is not
// bounded here, and finds the limit of the statement before.
func (k *conn) Unwrap() driver.Conn { return k.base }

// Prepare is not there: it has no context.
func (k *conn) Prepare(string) (driver.Stmt, error) { return nil, errContexts }

// Begin is not there: it has no context.
func (k *conn) Begin() (driver.Tx, error) { return nil, errContexts }

// Close closes the connection. One that is broken its driver may take seconds to close, for which
// database/sql would have a caller wait: then it goes on by itself.
func (k *conn) Close() error {
	if !k.broken {
		return k.base.Close()
	}
	closed := make(chan error, 1)
	go func() { closed <- k.base.Close() }()
	timer := time.NewTimer(2 * k.connector.opts.Margin)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return nil
	}
}

// IsValid reports whether the connection may be used again.
func (k *conn) IsValid() bool {
	if v, ok := k.base.(driver.Validator); ok && !v.IsValid() {
		k.broken = true
	}
	k.broken = k.broken || k.gone && k.raw // its user has not ended the transaction
	return !k.broken
}

const (
	look  = 250 * time.Millisecond // bounds a driver's look at a connection before it is used again
	fresh = 900 * time.Millisecond // so long after a look drivers do not ask the server again
)

// ResetSession has the driver look at the connection before it is used again. The first look at all may
// ask the server, as pgx's does, and the caller may have no deadline.
func (k *conn) ResetSession(ctx context.Context) error {
	r, ok := k.base.(driver.SessionResetter)
	if !ok {
		return nil
	}
	if now := time.Now(); now.Sub(k.looked) > fresh {
		k.looked = now
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, look)
		defer cancel()
	}
	err := r.ResetSession(ctx)
	if err != nil && ctx.Err() != nil {
		err = driver.ErrBadConn // of any other database/sql would use the connection
	}
	k.broken = k.broken || errors.Is(err, driver.ErrBadConn)
	return err
}

// Ping asks the server for a sign of life, if the driver can.
func (k *conn) Ping(ctx context.Context) error {
	if _, ok := k.base.(driver.Pinger); !ok {
		return nil
	}
	c := k.newCall(pinging, stint.Op{Name: "ping", Safety: stint.ReadOnly})
	_, err := c.do(ctx)
	if err == nil {
		c.end()
	}
	return err
}

// CheckNamedValue checks an argument as the driver does.
func (k *conn) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := k.base.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	if k.queryer == nil {
		return nil // it will be prepared, and the statement checks
	}
	return driver.ErrSkip
}

// QueryContext runs a query; see the package.
func (k *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if k.queryer == nil {
		return nil, driver.ErrSkip
	}
	c := k.statement(ctx, querying, query, args)
	return c.doQuery(ctx)
}

// ExecContext runs a statement; see the package.
func (k *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if k.execer == nil {
		return nil, driver.ErrSkip
	}
	return k.statement(ctx, executing, query, args).doExec(ctx)
}

// PrepareContext prepares a statement, as a call of its own.
func (k *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c := k.newCall(preparing, stint.Op{Name: "prepare", Safety: stint.ReadOnly})
	var limited bool
	c.query, limited = k.connector.opts.Dialect.preparable(query)
	s, err := c.do(ctx)
	if err != nil {
		return nil, err
	}
	c.end()
	return &stmt{Stmt: s.(driver.Stmt), conn: k, query: query, limited: limited}, nil
}

// note takes note of what a statement, which failed with err, may have done to the session.
func (k *conn) note(query string, err error) {
	switch word := keyword(query); word {
	case "begin", "start":
		k.raw = k.raw || err == nil && begins(query)
		k.forget()
	case "commit", "rollback", "end", "abort":
		d := k.connector.opts.Dialect
		goesOn := err != nil && d == SQLite && d.code(err) == "5"         // busy: it waits for readers, and may be asked for again
		if !goesOn && !strings.Contains(strings.ToLower(query), " to ") { // not to a savepoint
			k.raw = false
			k.gone = k.gone && k.tx != nil
		}
		if k.tx != nil {
			k.tx.failed = false
		}
		k.forget() // a savepoint undoes SET LOCAL
	case "set", "reset", "discard", "call", "do", "other":
		k.forget()
	default:
		if several(query) { // one of them may be such a one
			k.forget()
		}
	}
}

// forget forgets the limit in force.
func (k *conn) forget() {
	k.set = 0
	if k.tx != nil {
		k.tx.before = 0
	}
}
