package stintsql

import (
	"strconv"
	"strings"
	"time"
)

// A Dialect says how a database is told the limit of a statement. The zero Dialect is
// none of them, and an error.
type Dialect uint8

const (
	// None leaves the limit to the client: when the context ends the driver gives up,
	// and what the database does then is the driver's business.
	None Dialect = iota + 1
	// PostgreSQL sets statement_timeout: for the session outside of a transaction, again
	// when the time left is another; for the transaction within (SET LOCAL).
	PostgreSQL
	// MariaDB puts SET STATEMENT max_statement_time = ... FOR before the statement.
	MariaDB
	// MySQL puts the hint MAX_EXECUTION_TIME into a SELECT. It knows no limit for
	// anything else; see Options.Kill.
	MySQL
	// SQLite is interrupted by its driver: it works in this process.
	SQLite
)

var dialectNames = [...]string{"unset", "None", "PostgreSQL", "MariaDB", "MySQL", "SQLite"}

// String returns the dialect's name.
func (d Dialect) String() string {
	if int(d) < len(dialectNames) {
		return dialectNames[d]
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

// mysql reports whether the database speaks MySQL's protocol.
func (d Dialect) mysql() bool { return d == MariaDB || d == MySQL }

// learning is what a new connection is asked: the session's own limit in
// milliseconds, or seconds for MariaDB, and a further number.
func (d Dialect) learning() string {
	switch d {
	case PostgreSQL:
		return "select (extract(epoch from current_setting('statement_timeout')::interval) * 1000)::int8, " +
			"(extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::int8"
	case MariaDB:
		return "select @@max_statement_time, connection_id()"
	case MySQL:
		return "select @@max_execution_time, connection_id()"
	}
	return ""
}

// limitable reports whether a statement can have a limit in its text.
func (d Dialect) limitable(query string) bool {
	switch keyword(query) {
	case "select":
		return d == MariaDB || d == MySQL
	case "insert", "update", "delete", "replace", "with", "values", "load", "create", "alter", "truncate", "analyze", "optimize":
		return d == MariaDB // not CALL: within a procedure it makes a SLEEP shorter, and stops nothing
	}
	return false
}

// within returns a limitable statement with a limit in its text.
func (d Dialect) within(query string, limit time.Duration) string {
	if d == MariaDB {
		return "SET STATEMENT max_statement_time=" + seconds(limit) + " FOR " + query
	}
	at := start(query) + len("select")
	hint := "MAX_EXECUTION_TIME(" + millis(limit) + ") "
	if rest := strings.TrimLeft(query[at:], " \t\r\n"); strings.HasPrefix(rest, "/*+") { // there can be only one comment of hints
		return query[:at] + " /*+ " + hint + rest[len("/*+"):]
	}
	return query[:at] + " /*+ " + hint + "*/" + query[at:]
}

// preparable returns what is prepared for a limitable statement so that its first
// argument is the limit in seconds. It takes a cast, or the server would not know the type.
func (d Dialect) preparable(query string) (text string, limited bool) {
	if d != MariaDB || !d.limitable(query) {
		return query, false
	}
	return "SET STATEMENT max_statement_time=cast(? as double) FOR " + query, true
}

// seconds has all digits: a session's own limit may be of microseconds, and rounded to zero it would be none.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
