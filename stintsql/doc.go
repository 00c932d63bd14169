// Package stintsql carries stint's contract to any database, under database/sql: a
// driver.Connector around the driver's, each statement bounded by the time its caller has left.
// Programs keep their *sql.DB. For PostgreSQL by pgx package stintpgx does the same in fewer
// round trips.
//
// # Who keeps the limit
//
// A context only ends the waiting. So the server is told the time left, less Options.Margin, in
// its own words; then it stops first, the connection lives on, and a silent network changes
// nothing.
//
//   - PostgreSQL: statement_timeout, which takes a statement of its own. Outside of a
//     transaction it is set for the session, and again only when it would be too long or too
//     short: a statement has between eight tenths and all of the time for its own, and callers
//     whose time is alike cost no round trip. In a transaction it is SET LOCAL, once with BEGIN
//     and again when the rest has shrunk; and the server ends one in which nothing happens for
//     longer than BeginTx's context had left, plus CommitGrace (where that has no deadline, the
//     policy's time stands for it). Behind a transaction pooler (Options.Pooler) nothing is set
//     for a session: then only transactions have a limit.
//   - MariaDB: SET STATEMENT max_statement_time=... FOR, before the statement itself. In a
//     prepared one the limit is an argument, so it is new each time. CALL has none: a procedure
//     would go on.
//   - MySQL: the hint MAX_EXECUTION_TIME, which only a SELECT can have that is not prepared by
//     its user. For the rest there is Options.Kill.
//   - SQLite: its driver interrupts it.
//   - None: the driver does what it does when a context ends.
//
// The limit never exceeds the session's own, as that was when it began. It is a statement's, so
// of several in one query MariaDB bounds the first. What a session was told stays with its
// connection: the next statement here sets it anew where it must, but who goes around
// (sql.Conn.Raw, SET by a function) finds it.
//
// The second line is the client's: at the deadline, or when the caller cancels, the driver
// gives up, which closes a server's connection. pgx then asks the server to stop; go-sql-driver
// only hangs up, so that a write goes on and is committed, but for Options.Kill. lib/pq asks
// the server to stop and waits for it, so that a silent network holds its caller.
//
// # What is a call
//
// Each statement, with the preparing that a driver needs for it; to connect ("connect"), to
// prepare for later ("prepare"), Ping ("ping"), BeginTx ("begin"), Commit ("commit"). Rows hold
// their call, and its bulkhead slot, until they are closed; the first row has been read when a
// query returns. The wait for a connection is before all that: the context bounds it, and
// MinUseful is asked for after it. Methods without a context have the policy's Timeout, and
// within a transaction also that transaction's deadline.
//
// # What is repeated
//
// By the Caller, on the same connection: what the server answered with an error that says "try
// again" (40001, 40P01, 55P03; 1213, 1205; SQLITE_BUSY) and so had no effect, if it is one
// statement outside of a transaction; several in one query, or a CALL, only where they are
// declared. And what is declared (WithOp, Options.Op, the policy) where the policy allows more
// than one attempt. A statement of a transaction is never repeated, however it was begun. A
// hedge is not possible on one connection: it is an error.
//
// By database/sql, on another connection, at most twice: what found its connection dead before
// it was sent, and what the Caller would repeat. Each is reported as stint.Resent, and as a call; but
// it goes on with the time and the attempts of the first. A write that may have been sent is never given to it (driver.ErrBadConn),
// whatever the driver says: only pgx's, go-sql-driver's and modernc.org/sqlite's word that
// nothing was sent is taken. lib/pq says so also when an answer did not come.
//
// # Errors
//
// Every error that the time left caused satisfies errors.Is(err, context.DeadlineExceeded), be
// it the server's (57014, 1969, 3024), an interrupt, or a refusal. A statement that somebody
// else stopped, or a shorter limit of the session, does not. The driver's error is found by
// errors.As as ever. Of the drivers none is imported: an SQLSTATE comes from a method
// SQLState() string, SQLite's code from Code() int, and MySQL's number from a field Number of
// type uint16.
//
// A write whose answer did not come satisfies errors.Is(err, ErrOutcomeUnknown), also where a further
// attempt then failed in another way. One that the
// server answered with an error was rolled back, and so was one in a transaction that was not
// committed. SQLite's driver does not tell a write that it interrupted from one that was done
// just then: such a one is unknown.
//
// # A transaction that is no more
//
// MySQL rolls back the transaction that loses a deadlock, SQLite one whose write was interrupted or
// found no room, and a statement that followed would take effect by itself. So it is refused, and
// the COMMIT is a rollback and an error. SQLite's is over after any statement that ran out of time.
//
// # COMMIT
//
// Its time is not bounded by a server, and one that is cut off may have happened. So Commit
// does not begin with less than MinUseful left (it rolls back and refuses), and once sent it is
// waited for, for Options.CommitGrace beyond the deadline. Drivers run it with the context of
// BeginTx or with none, so BeginTx gets a context that lives as long as the transaction.
//
// # Drivers
//
// A driver must have the variants with a context: ConnPrepareContext, ConnBeginTx,
// StmtExecContext, StmtQueryContext. Nothing else would end its waiting, so one without is
// refused when it connects. What it has besides (checkers of arguments, column types, several
// result sets) its user still has. sql.Conn.Raw gets a connection with a method Unwrap()
// driver.Conn; what runs on that is not bounded here.
//
// # Operations
//
// An Op's name is the statement's first keyword, or a step's, unless declared otherwise. An
// outcome's code is an SQLSTATE or an error number that says something about repeating, the
// class of another SQLSTATE (23, 42), a common number, SQLite's name ("busy", "constraint"),
// "other", or "connect", "bad_conn", "reset", "client", "deadline".
package stintsql
