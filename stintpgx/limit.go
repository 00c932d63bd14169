package stintpgx

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"time"
)

// What sets the limit. It is local to the transaction, so it is gone afterwards whatever happens.
const (
	// Without a row, which takes the server a quarter of a microsecond to send.
	setLimit  = limitHead + "$1" + limitTail
	limitHead = "select where set_config('statement_timeout', "
	limitTail = ", true) is null"

	// What is declared read only is held to it.
	setReadOnly  = limitHead + "$1" + readOnlyTail
	readOnlyTail = ", true) || set_config('transaction_read_only', 'on', true) is null"

	// At the first use of a connection: which process serves it, and the session's own limit, which ours must not exceed.
	learn = "select pg_backend_pid(), (extract(epoch from current_setting('statement_timeout')::interval) * 1000)::int8"

	// Before the further statements of a batch, which are sent together: what those before have left over.
	restLimit = "select set_config('statement_timeout', least($2::text::int8, greatest(1, $1::text::int8 - " +
		"(extract(epoch from clock_timestamp() - transaction_timestamp()) * 1000)::int8))::text, true)"

	// Who leaves a transaction open and is not heard of again.
	setIdle = "select set_config('idle_in_transaction_session_timeout', least($1::text::int8, nullif((extract(epoch from " +
		"current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::int8, 0))::text, true)"
)

const maxLimit = 1<<31 - 1 // milliseconds: the setting's largest

// limit is a statement's limit. Its value is worked out when the statement is written,
// and that is after pgx has taken the time to prepare it.
type limit struct {
	ends     time.Time // when the attempt has to be over
	margin   time.Duration
	most     time.Duration // the session's own limit; zero: none
	readOnly bool

	early time.Duration // how much sooner than after length the server may stop it: in a batch it works the value out itself

	asked   time.Time     // when the value was worked out; zero: never
	length  time.Duration // the value
	foreign bool          // it is the session's own
	refused bool          // there was no time left
}

// check works the value out, if there is time to send a statement.
func (l *limit) check() error {
	l.asked = time.Now()
	left := l.ends.Sub(l.asked)
	if l.refused = left < time.Millisecond; l.refused {
		return fmt.Errorf("stintpgx: %v left to send the statement: %w", left, context.DeadlineExceeded)
	}
	l.set(left)
	return nil
}

func (l *limit) set(left time.Duration) {
	l.length = max(min(max(left-l.margin, left/2), maxLimit*time.Millisecond), time.Millisecond).Truncate(time.Millisecond)
	if l.foreign = l.most > 0 && l.most < l.length; l.foreign {
		l.length = l.most
	}
}

// Value returns the limit in milliseconds, as an argument of set_config.
func (l *limit) Value() (driver.Value, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return millis(l.length), nil
}

// appendValue appends the limit in milliseconds. Preparing the statement may have
// taken the time there was: then it is the shortest.
func (l *limit) appendValue(b []byte) []byte {
	l.asked = time.Now()
	l.set(l.ends.Sub(l.asked))
	return strconv.AppendInt(b, l.length.Milliseconds(), 10)
}

// fired reports whether a statement that the server stopped now was stopped by l.
func (l *limit) fired() bool {
	return !l.asked.IsZero() && !l.foreign && time.Since(l.asked) >= l.length-l.early
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
		return strconv.Itoa(maxLimit)
	}
	return millis(l.most)
}

// millis is what set_config takes.
func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
