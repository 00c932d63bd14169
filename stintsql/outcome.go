package stintsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strconv"

	"github.com/stint-go/stint"
)

// ErrOutcomeUnknown says that the answer to a write, or to a COMMIT, did not come: it
// may have happened or not, and must not be repeated unless twice is as good as once.
var ErrOutcomeUnknown = errors.New("stintsql: the outcome is unknown: it may have happened")

// honest are the drivers whose driver.ErrBadConn says that nothing was sent, as the
// interface demands: read in their source, and tested. Others (lib/pq) also return it where an
// answer did not come.
var honest = map[string]bool{
	"github.com/jackc/pgx/v5/stdlib": true,
	"github.com/go-sql-driver/mysql": true,
	"modernc.org/sqlite":             true,
}

func isHonest(base driver.Conn) bool {
	t := reflect.TypeOf(base)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return honest[t.PkgPath()]
}

// judge judges an attempt's error, and returns it with what it means.
func (c *call) judge(ctx context.Context, err error) (stint.Outcome, error) {
	if c.limit.refused {
		return stint.Outcome{Kind: stint.Expired, NotStarted: true, Code: "deadline"}, err
	}
	k := c.conn
	d := k.connector.opts.Dialect
	if c.step == connecting {
		return connectOutcome(d, err), fmt.Errorf("stintsql: getting a connection: %w", err)
	}
	code := d.code(err)
	bad := errors.Is(err, driver.ErrBadConn)
	switch {
	case code != "" && d.limited(code) && c.limit.fired():
		k.failed(code)
		if c.limit.ends.Equal(c.flight.Deadline()) {
			return stint.Outcome{Kind: stint.Expired, Code: "deadline"}, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		return stint.Outcome{Kind: stint.TimedOut, Code: "attempt_timeout"}, fmt.Errorf("%w: %w", stint.ErrAttemptTimeout, err)
	case code != "" && !d.ends(code):
		k.failed(code)
		o := d.outcome(code)
		o.NotStarted = o.NotStarted && single(c.query)
		return o, err
	case code == "" && !bad && !k.lost(err): // an argument that can't be sent, a value that can't be read
		return stint.Outcome{Kind: stint.Rejected, Code: "client"}, err
	}
	k.broken = k.broken || code != "" || bad
	if !c.sent || bad && k.honest { // another connection may take it
		if c.before != nil { // it is why
			err = fmt.Errorf("%w: %w", err, c.before)
		}
		if ctx.Err() == nil && k.tx == nil && !k.raw && (c.past.made == 0 || c.past.times < mostResends) {
			c.dead = true
			if !bad {
				err = fmt.Errorf("%w: %w", driver.ErrBadConn, err)
			}
		}
		o := stint.Outcome{Kind: stint.Refused, NotStarted: true, Code: "bad_conn"}
		if k.used.IsZero() || c.tries > 1 { // it was new, or broke in this call: that is no accident of one that was kept for long
			o.Kind = stint.Failed
		}
		return o, err
	}
	c.kill(ctx)
	o := stint.Outcome{Kind: stint.Transient, Code: "reset"}
	if code != "" {
		o = d.outcome(code)
		o.NotStarted = false
	}
	if c.ambiguous() {
		c.past.unknown = true
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return o, err
}

// failed takes note of what the error did to the transaction that it came in. In PostgreSQL's nothing can be run any more
// but its end. MySQL and SQLite have rolled it back, some errors long: what followed would be written outside of it.
func (k *conn) failed(code string) {
	d := k.connector.opts.Dialect
	if k.tx != nil && d == PostgreSQL {
		k.tx.failed = true
	}
	k.gone = k.gone || (k.tx != nil || k.raw) && d.undoes(code)
}

// lost reports whether an error says that no answer came. The connection may still owe it then, so it is of no
// use; unless it was a context that ended, and the driver says that it is as good as before. SQLite's is: it
// works in this process.
func (k *conn) lost(err error) bool {
	v, knows := k.base.(driver.Validator)
	sqlite := k.connector.opts.Dialect == SQLite
	invalid := knows && !sqlite && !v.IsValid()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if !sqlite {
			k.broken = k.broken || invalid || !knows
		} else if k.tx != nil || k.raw {
			k.gone = true // rolled back, if it was a write
		}
		return true
	}
	_, isNet := errors.AsType[net.Error](err)
	if !isNet && !invalid && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
		return false
	}
	k.broken = true
	return true
}

// ambiguous reports whether an attempt without an answer may have had an effect. A
// transaction has none before its COMMIT.
func (c *call) ambiguous() bool {
	switch {
	case !c.sent:
		return false
	case c.step == committing:
		return !c.conn.tx.readOnly
	case c.conn.tx != nil:
		return false
	}
	return (c.step == querying || c.step == executing) && c.flight.Op().Safety != stint.ReadOnly
}

// code returns what the database calls an error, or "".
func (d Dialect) code(err error) string {
	switch d {
	case MySQL, MariaDB:
		return find(err, numberOf)
	case SQLite:
		if c, ok := errors.AsType[interface {
			error
			Code() int
		}](err); ok {
			return strconv.Itoa(c.Code() & 0xff) // the rest is detail
		}
		return ""
	}
	if s, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return s.SQLState()
	}
	return ""
}

// numberOf returns the number of a server's error as go-sql-driver has it: a field of a
// struct, so it takes reflection to see it without that driver.
func numberOf(err error) string {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return ""
	}
	f, ok := v.Type().FieldByName("Number")
	if !ok || len(f.Index) > 1 || f.Type.Kind() != reflect.Uint16 { // not one of something embedded, which may be nil
		return ""
	}
	return strconv.FormatUint(v.Field(f.Index[0]).Uint(), 10)
}

// find goes through an error and all that it wraps.
func find(err error, what func(error) string) string {
	for err != nil {
		if s := what(err); s != "" {
			return s
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if s := find(e, what); s != "" {
					return s
				}
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}

// connectOutcome judges an error of getting a connection: nothing was sent.
func connectOutcome(d Dialect, err error) stint.Outcome {
	o := stint.Outcome{Kind: stint.Transient, Code: "connect"}
	if code := d.code(err); code != "" {
		o = d.outcome(code)
		if o.Kind == stint.Rejected { // who we are and what we want is not the request's to choose
			o.Kind = stint.Failed
		}
	}
	o.NotStarted = true
	return o
}
