package stintpgx

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// What sets the limit. It is local to the transaction, so it is gone afterwards whatever happens.
const (
	setLimit = "select set_config('statement_timeout', $1, true)"

	// At the first use of a connection: which process serves it, and what the session would have set, which the limit
	// must not exceed.
	learnLimit  = learn + fromDefault
	learn       = `select pg_backend_pid(), d.most, set_config('statement_timeout', least($1::text::int8, nullif(d.most, 0))::text, true)`
	fromDefault = ` from (select (extract(epoch from current_setting('statement_timeout')::interval) * 1000)::int8 as most) d`

	// Before the further statements of a batch, which are sent together: what those before have left over.
	restLimit = "select set_config('statement_timeout', least($2::text::int8, greatest(1, $1::text::int8 - " +
		"(extract(epoch from clock_timestamp() - transaction_timestamp()) * 1000)::int8))::text, true)"

	// What is declared read only is held to it.
	setReadOnly   = setLimit + ", " + readOnly
	learnReadOnly = learn + " || " + readOnly + fromDefault
	readOnly      = "set_config('transaction_read_only', 'on', true)"

	// Who leaves a transaction open and is not heard of again.
	setIdle = "select set_config('idle_in_transaction_session_timeout', least($1::text::int8, nullif((extract(epoch from " +
		"current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::int8, 0))::text, true)"
)

// limit is a statement's limit, as the argument of set_config. pgx asks for its
// value when it writes the statement, and that is after it has taken the time to
// prepare it.
type limit struct {
	ends   time.Time // when the attempt has to be over
	margin time.Duration
	most   time.Duration // the session's own limit; zero: none

	asked   time.Time     // when the value was worked out; zero: never
	length  time.Duration // the value
	foreign bool          // it is the session's own
	refused bool          // there was no time left
}

// Value returns the limit in milliseconds.
func (l *limit) Value() (driver.Value, error) {
	l.asked = time.Now()
	left := l.ends.Sub(l.asked)
	if l.refused = left < time.Millisecond; l.refused {
		return nil, fmt.Errorf("stintpgx: %v left to send the statement: %w", left, context.DeadlineExceeded)
	}
	l.length = max(left-l.margin, left/2, time.Millisecond).Truncate(time.Millisecond)
	if l.foreign = l.most > 0 && l.most < l.length; l.foreign {
		l.length = l.most
	}
	return millis(l.length), nil
}

// fired reports whether a statement that the server stopped now was stopped by l.
func (l *limit) fired() bool {
	return !l.asked.IsZero() && !l.foreign && time.Since(l.asked) >= l.length-time.Millisecond
}

// rest is the limit of a batch's further statements: how long after since they all
// have to be over.
type rest struct {
	*limit
	since time.Time // the transaction's begin; zero: now
}

// Value returns the time in milliseconds.
func (r rest) Value() (driver.Value, error) {
	now := time.Now()
	left := r.ends.Sub(now)
	over := now.Add(max(left-r.margin, left/2, time.Millisecond))
	if r.since.IsZero() {
		r.since = now
	}
	return millis(over.Sub(r.since)), nil
}

// ceiling is restLimit's second argument.
func (l *limit) ceiling() string {
	if l.most == 0 {
		return "2147483647" // the setting's largest
	}
	return millis(l.most)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// A session is what is known of a connection.
type session struct {
	known bool
	most  time.Duration // its own statement_timeout; zero: none
}

const sessionKey = "stintpgx"

// sessionOf returns the session of a connection, which only its holder may do.
func sessionOf(conn *pgx.Conn) *session {
	data := conn.PgConn().CustomData()
	s, ok := data[sessionKey].(*session)
	if !ok {
		s = &session{}
		data[sessionKey] = s
	}
	return s
}
