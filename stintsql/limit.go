package stintsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// limit is what the server was told of an attempt's time.
type limit struct {
	ends    time.Time     // when the attempt has to be over
	asked   time.Time     // when the statement was sent with a limit; zero: it was not
	length  time.Duration // the limit
	foreign bool          // it is the session's own
	refused bool          // there was no time left
}

// fired reports whether a statement that the server stopped now was stopped by l.
func (l *limit) fired() bool {
	return !l.asked.IsZero() && !l.foreign && time.Since(l.asked) >= l.length
}

// maxLimit is the longest limit: PostgreSQL's largest, and the others take it as well.
const maxLimit = (1<<31 - 1) * time.Millisecond

// room works out the time that the server may take.
func (l *limit) room(ctx context.Context, margin time.Duration) (time.Duration, error) {
	l.ends, _ = ctx.Deadline()
	left := time.Until(l.ends)
	if l.refused = left < time.Millisecond; l.refused {
		return 0, fmt.Errorf("stintsql: %v left to send the statement: %w", left, context.DeadlineExceeded)
	}
	return min(max(left-margin, left/2, time.Millisecond), maxLimit), nil
}

// withGrace is the time until CommitGrace after ends.
func (o *Options) withGrace(ends time.Time) time.Duration {
	grace := min(o.CommitGrace, maxLimit)
	return min(time.Until(ends), maxLimit-grace) + grace
}

// A statement's limit may be the one that the session has already, if that is between
// eight tenths and all of the time that the server may take. A new one is nine tenths, so that
// it serves others that have a little more or less. It is never more than the time.
const (
	leastTenths = 8
	newTenths   = 9
)

// bound limits a statement, and returns the text to send.
func (k *conn) bound(ctx context.Context, c *call) (text string, err error) {
	l, o := &c.limit, &k.connector.opts
	room, err := l.room(ctx, o.Margin)
	if err != nil {
		return "", err
	}
	text = c.query
	switch {
	case o.Dialect == PostgreSQL:
		if k.tx == nil && o.Pooler || k.tx != nil && k.tx.failed || ends(keyword(c.query)) {
			return text, nil // of a transaction that has failed only its end can be run, and that is quick
		}
		if err := k.setLimit(ctx, room); err != nil {
			return "", err
		}
		l.length, l.foreign = k.set, k.own > 0 && k.set == k.own
	case c.stmt != nil && c.stmt.limited, c.stmt == nil && o.Dialect.limitable(c.query):
		l.length = room.Truncate(time.Millisecond)
		if l.foreign = k.own > 0 && k.own < room; l.foreign {
			l.length = k.own
		}
		if c.stmt == nil {
			text = o.Dialect.within(c.query, l.length)
		} else {
			c.args[0].Value = l.length.Seconds()
		}
	default:
		return text, nil
	}
	l.asked = time.Now()
	return text, nil
}

// setLimit has a PostgreSQL session, or its transaction, stop what takes longer.
func (k *conn) setLimit(ctx context.Context, room time.Duration) error {
	want := room
	if k.own > 0 {
		want = min(want, k.own)
	}
	if k.set > 0 && k.set <= want && k.set >= want*leastTenths/10 {
		return nil
	}
	length := max((room * newTenths / 10).Truncate(time.Millisecond), time.Millisecond)
	if k.own > 0 {
		length = min(length, k.own)
	}
	set := "set statement_timeout = "
	if k.tx != nil {
		set = "set local statement_timeout = "
	}
	k.set = 0 // until it is known
	if _, err := k.execer.ExecContext(ctx, set+millis(length), nil); err != nil {
		return err
	}
	k.set = length
	return nil
}

// learn looks at what a new connection can do, and asks its session's own limit.
func (k *conn) learn(ctx context.Context) error {
	d := k.connector.opts.Dialect
	var ok bool
	if k.preparer, ok = k.base.(driver.ConnPrepareContext); ok {
		k.beginner, ok = k.base.(driver.ConnBeginTx)
	}
	if !ok {
		return fmt.Errorf("stintsql: %T takes no contexts (driver.ConnPrepareContext, driver.ConnBeginTx), so nothing would end what it waits for: "+
			"use a driver that does", k.base)
	}
	k.queryer, _ = k.base.(driver.QueryerContext)
	if k.execer, ok = k.base.(driver.ExecerContext); !ok || k.queryer == nil {
		k.queryer, k.execer = nil, nil // one way for all
	}
	k.honest = isHonest(k.base)
	ask := d.learning()
	if ask == "" {
		return nil
	}
	if k.queryer == nil {
		return fmt.Errorf("stintsql: %T has no driver.QueryerContext or driver.ExecerContext, which Dialect %v needs: use None", k.base, d)
	}
	own, other, err := askTwo(ctx, k.queryer, ask)
	if err != nil {
		return fmt.Errorf("stintsql: asking for the session's limits, as Dialect %v does: %w", d, err)
	}
	switch d {
	case PostgreSQL:
		k.own, k.idle = time.Duration(own)*time.Millisecond, time.Duration(other)*time.Millisecond
		k.set = k.own
	case MariaDB:
		k.own, k.id = time.Duration(own*float64(time.Second)), int64(other)
	case MySQL:
		k.own, k.id = time.Duration(own)*time.Millisecond, int64(other)
	}
	return nil
}

// askTwo runs a query that returns two numbers.
func askTwo(ctx context.Context, q driver.QueryerContext, query string) (a, b float64, err error) {
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	row := make([]driver.Value, len(rows.Columns()))
	if len(row) != 2 {
		return 0, 0, fmt.Errorf("%d columns, want 2", len(row))
	}
	switch err = rows.Next(row); err {
	case nil:
	case io.EOF:
		return 0, 0, errors.New("no row")
	default:
		return 0, 0, err
	}
	if a, err = number(row[0]); err == nil {
		b, err = number(row[1])
	}
	return a, b, err
}

func number(v driver.Value) (float64, error) {
	switch v := v.(type) {
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	case float64:
		return v, nil
	case []byte:
		return strconv.ParseFloat(string(v), 64)
	case string:
		return strconv.ParseFloat(v, 64)
	}
	return 0, fmt.Errorf("%T is no number", v)
}
