// Package stintpgx carries stint's contract to PostgreSQL, over pgx v5: a Pool with
// the methods of pgxpool.Pool, each statement bounded by the time its caller has
// left.
//
// # The server keeps the limit
//
// A context only ends the waiting. Here each statement goes out with its own
// statement_timeout, the time left less Options.Margin, in the same round trip and
// local to the transaction: so the server stops first and the connection lives on,
// the server stops also when the network is silent, and nothing is left behind for
// the next user, through a transaction pooler included. It never exceeds the
// session's own statement_timeout. A statement outside of a transaction is sent as
// a batch of two, which PostgreSQL runs as one implicit transaction.
//
// The second line is the client's: when nothing has come 2 Margins after the
// deadline, or at once when the caller cancels, the call returns, the connection is
// closed, and pgx asks the server to stop in the background. So a cancel costs a
// connection, as with pgx alone, and a deadline does not.
//
// # What is repeated
//
// Nothing, unless it is declared: a SELECT may call a function that writes. Declare
// by WithOp, Options.Op or the policy. What is declared ReadOnly runs in a read-only
// transaction, so the server refuses (25006) what was declared wrongly. A single
// statement of a transaction is never repeated; the transaction as a whole is the
// program's to repeat. What pgx tries again to get a connection, [Pool.HiddenRetries] says.
//
// # Errors
//
// Every error that the time left caused satisfies errors.Is(err,
// context.DeadlineExceeded), be it the server's 57014, a network that is silent, the
// wait for a connection, or a refusal. A 57014 of another's making (a shorter limit of
// the session, pg_cancel_backend) does not. pgconn.PgError is found by errors.As as ever.
//
// A write whose answer did not come satisfies errors.Is(err, ErrOutcomeUnknown). One
// that the server answered with an error was rolled back.
//
// # COMMIT
//
// statement_timeout does not bound COMMIT, and one that is cut off may have
// happened. So Commit does not begin with less than MinUseful left (it rolls back
// and refuses), and once sent it is waited for, for Options.CommitGrace beyond the
// deadline.
//
// # Operations
//
// An Op's name is the statement's first keyword, "batch", "begin", "commit" or "copy",
// unless declared otherwise. An outcome's code is an SQLSTATE that says something
// about repeating (40001, 40P01, 55P03, 57014, 53300, 57P01 to 57P03), the class of
// another (23, 42), "other" for a class that is not PostgreSQL's, or "connect",
// "pool_wait", "reset", "client", "deadline".
package stintpgx
