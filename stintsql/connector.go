package stintsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stint-go/stint"
)

const (
	defaultMargin      = 5 * time.Millisecond
	defaultCommitGrace = time.Second
)

// Options are what a Connector needs to know besides its Caller's policy. Only
// Dialect must be set.
type Options struct {
	// Dialect is the database's, and so how it is told the limit. Zero is an error:
	// whether anybody but the client keeps the limit is not to be an accident.
	Dialect Dialect

	// Margin is how much sooner than the caller's deadline the server is to stop,
	// so that its answer arrives in time: the round trip's 99th percentile. Of less
	// than two Margins half is kept. Zero means 5 ms.
	Margin time.Duration

	// CommitGrace is how long beyond the deadline a COMMIT that was sent is waited
	// for; what passes of it is reported as wasted work. Zero means 1 s.
	CommitGrace time.Duration

	// Op describes a statement; ctx is the caller's. The steps of a transaction are the
	// queries "begin" and "commit". A Name that it leaves empty is the statement's
	// first keyword; names must come from a bounded set. It is called at the same time
	// from many goroutines. Nil: every statement is Unrepeatable. What WithOp put into
	// ctx goes before it.
	Op func(ctx context.Context, query string) stint.Op

	// Pooler says that a transaction pooler (pgbouncer) stands between. Then nothing
	// is ever set for a session: statements of a transaction are limited by the
	// server as ever, and one outside of a transaction by the client alone. It says
	// nothing to other dialects than PostgreSQL but that Kill can't be meant.
	Pooler bool

	// Kill has a MySQL or MariaDB told by a connection of its own to stop what its
	// caller no longer waits for, since its driver only hangs up, which the server does
	// not notice while it works. It must not be set where a proxy shares server
	// connections among clients (ProxySQL): it would hit another's work.
	Kill bool
}

// A Connector is a driver.Connector under a stint.Caller, for sql.OpenDB. Its methods
// may be called at the same time.
type Connector struct {
	base    driver.Connector
	caller  *stint.Caller
	opts    Options
	kills   chan struct{} // holds the kills under way
	resends resends
}

// NewConnector puts base under c. The driver must have the variants of its methods
// that take a context (driver.ConnPrepareContext, ConnBeginTx, and so on): one that
// has not fails the first Connect. It connects to nobody yet; the error says what of
// the arguments can't be meant.
func NewConnector(base driver.Connector, c *stint.Caller, o *Options) (*Connector, error) {
	if o == nil {
		o = &Options{}
	}
	n := &Connector{base: base, caller: c, opts: *o, kills: make(chan struct{}, mostKills)}
	switch {
	case base == nil:
		return nil, errors.New("stintsql: the driver's Connector is nil: use Open where a driver has none")
	case c == nil:
		return nil, errors.New("stintsql: Caller is nil: make one with stint.NewCaller")
	case c.Hedges():
		return nil, fmt.Errorf("stintsql: the policy of %s has a hedge: a copy needs a connection of its own, which database/sql gives to nobody: "+
			"take Hedge out, or use stintpgx", c.Dependency())
	case o.Dialect == 0:
		return nil, errors.New("stintsql: Options.Dialect is not set: PostgreSQL, MariaDB, MySQL, SQLite, or None where only the client is to keep the limit")
	case int(o.Dialect) >= len(dialectNames):
		return nil, fmt.Errorf("stintsql: Options.Dialect is %d: must be PostgreSQL, MariaDB, MySQL, SQLite or None", o.Dialect)
	case o.Margin < 0:
		return nil, fmt.Errorf("stintsql: Options.Margin is %v: must be positive, or zero for %v", o.Margin, defaultMargin)
	case o.CommitGrace < 0:
		return nil, fmt.Errorf("stintsql: Options.CommitGrace is %v: must be positive, or zero for %v", o.CommitGrace, defaultCommitGrace)
	case o.Kill && !o.Dialect.mysql():
		return nil, fmt.Errorf("stintsql: Options.Kill with Dialect %v: only MySQL and MariaDB need it", o.Dialect)
	case o.Kill && o.Pooler:
		return nil, errors.New("stintsql: Options.Kill with Pooler: it would hit the work of others, who share the server's connections")
	}
	if n.opts.Margin == 0 {
		n.opts.Margin = defaultMargin
	}
	if n.opts.CommitGrace == 0 {
		n.opts.CommitGrace = defaultCommitGrace
	}
	return n, nil
}

// Open is sql.Open under c, for a driver that is registered by its name. Who wants to log
// HiddenRetries takes NewConnector.
func Open(driverName, dsn string, c *stint.Caller, o *Options) (*sql.DB, error) {
	plain, err := sql.Open(driverName, dsn) // the one way to a driver by its name; it connects to nobody
	if err != nil {
		return nil, err
	}
	d := plain.Driver()
	plain.Close()
	base := driver.Connector(byName{d, dsn})
	if d, ok := d.(driver.DriverContext); ok {
		if base, err = d.OpenConnector(dsn); err != nil {
			return nil, err
		}
	}
	n, err := NewConnector(base, c, o)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(n), nil
}

// byName is the Connector of a driver that has none.
type byName struct {
	driver driver.Driver
	dsn    string
}

func (b byName) Connect(context.Context) (driver.Conn, error) { return b.driver.Open(b.dsn) }
func (b byName) Driver() driver.Driver                        { return b.driver }

// Connect opens a connection, as a call of the Caller's.
func (n *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	k := &conn{connector: n}
	c := k.newCall(connecting, stint.Op{Name: "connect", Safety: stint.ReadOnly})
	if _, err := c.do(ctx); err != nil {
		return nil, err
	}
	c.end()
	return k, nil
}

// open makes one attempt to connect.
func (n *Connector) open(ctx context.Context, k *conn) (err error) {
	if k.base, err = n.base.Connect(ctx); err != nil {
		return err
	}
	if err = k.learn(ctx); err != nil {
		k.base.Close()
	}
	return err
}

// Driver returns the driver below.
func (n *Connector) Driver() driver.Driver { return n.base.Driver() }

// Close closes the driver's Connector, if it can be closed. sql.DB.Close calls it.
func (n *Connector) Close() error {
	if c, ok := n.base.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// HiddenRetries says who repeats besides the Caller: sentences to be logged at start.
func (n *Connector) HiddenRetries() []string {
	return []string{"database/sql gives what finds its connection dead to another connection, at most twice, and that can't be switched off. " +
		"It is left that only for what was not sent, and for what the Caller repeats; each is reported as Resent, and has the rest of the first one's time and attempts."}
}
