package stintpgx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stint-go/stint"
)

// ErrOutcomeUnknown says that the answer to a write, or to a COMMIT, did not come: it
// may have happened or not, and must not be repeated unless twice is as good as once.
var ErrOutcomeUnknown = errors.New("stintpgx: the outcome is unknown: it may have happened")

// sqlState returns the code of a server's error, or "".
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// judge judges an error, and returns it with what it means.
func (a *attempt) judge(err error) (stint.Outcome, error) {
	if a.limit.refused {
		return stint.Outcome{Kind: stint.Expired, NotStarted: true, Code: "deadline"}, err
	}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	answered = answered && (pg.SeverityUnlocalized == "ERROR" || pg.SeverityUnlocalized == "") // else the connection is over, and perhaps after the work
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return stint.Outcome{Kind: stint.Rejected, Code: "rolled_back"}, err
	case answered && pg.Code == "57014" && pg.Routine == "CopyGetData": // a CopyFrom's source, or a value of it, was in error
		return stint.Outcome{Kind: stint.Rejected, Code: "client"}, err
	case answered && pg.Code == "57014" && a.limit.fired():
		if a.limit.ends.Equal(a.call.flight.Deadline()) {
			return stint.Outcome{Kind: stint.Expired, Code: "deadline"}, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		return stint.Outcome{Kind: stint.TimedOut, Code: "attempt_timeout"}, fmt.Errorf("%w: %w", stint.ErrAttemptTimeout, err)
	case answered && pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery": // "cached plan must not change result type"
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "0A"}, err // pgx prepares it anew
	case answered:
		return stateOutcome(pg.Code), err
	case pgconn.SafeToRetry(err) && a.conn.PgConn().IsBusy(): // rows of another statement are open
		return stint.Outcome{Kind: stint.Rejected, NotStarted: true, Code: "client"}, err
	case pgconn.SafeToRetry(err):
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "reset"}, err
	case !a.conn.IsClosed(): // pgx could not write an argument, or read a value
		return stint.Outcome{Kind: stint.Rejected, Code: "client"}, err
	}
	o := stint.Outcome{Kind: stint.Transient, Code: "reset"}
	if pg != nil {
		o = stateOutcome(pg.Code)
		o.NotStarted = false
	}
	if a.ambiguous() {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return o, err
}

// ambiguous reports whether an attempt without an answer may have had an effect. A
// transaction has none before its COMMIT.
func (a *attempt) ambiguous() bool {
	switch {
	case a.commits:
		return !a.call.tx.readOnly
	case a.call.tx != nil, a.call.begins:
		return false
	}
	return a.call.flight.Op().Safety != stint.ReadOnly
}

// stateOutcome judges an SQLSTATE (PostgreSQL's documentation, appendix A). What
// the server answered with an error it has rolled back.
func stateOutcome(code string) stint.Outcome {
	switch code {
	case "40001", "40P01", "55P03": // lost to another transaction: as good as never begun
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: code}
	case "53300", "57P03": // it let nobody in
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: code}
	case "57P01", "57P02": // it is being ended
		return stint.Outcome{Kind: stint.Transient, Code: code}
	case "57014": // stopped by somebody else
		return stint.Outcome{Kind: stint.Failed, Code: code}
	}
	class := ""
	if len(code) == 5 {
		class = code[:2]
	}
	switch class {
	case "08":
		return stint.Outcome{Kind: stint.Transient, Code: class}
	case "53", "57", "58", "F0", "HV", "XX": // the server's trouble
		return stint.Outcome{Kind: stint.Failed, Code: class}
	case "02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23", "24", "25", "26", "27", "28", "2B", "2D", "2F",
		"34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "54", "55", "72", "P0": // the statement's
		return stint.Outcome{Kind: stint.Rejected, Code: class}
	}
	return stint.Outcome{Kind: stint.Rejected, Code: "other"} // RAISE may make up any
}

// connectOutcome judges an error of getting a connection: nothing was sent.
func connectOutcome(err error) stint.Outcome {
	o := stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "connect"}
	if code := sqlState(err); code != "" {
		o = stateOutcome(code)
		o.NotStarted = true
		if o.Kind == stint.Rejected { // who we are and what we want is not the request's to choose
			o.Kind = stint.Failed
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		o = stint.Outcome{Kind: stint.Expired, NotStarted: true, Code: "pool_wait"}
	}
	return o
}
