package stintpgx

import (
	"context"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A session is what is known of a connection.
type session struct {
	wire  *wire
	known bool          // it has been asked
	most  time.Duration // its own statement_timeout; zero: none
}

const sessionKey = "stintpgx"

// sessionOf returns the session of a connection, which only its holder may do.
func sessionOf(conn *pgx.Conn) *session {
	return conn.PgConn().CustomData()[sessionKey].(*session)
}

// beforeConnect gives a connection that is about to be made its session. before is the
// program's own hook; nil: none.
func (p *Pool) beforeConnect(before func(context.Context, *pgx.ConnConfig) error) func(context.Context, *pgx.ConnConfig) error {
	return func(ctx context.Context, config *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, config); err != nil {
				return err
			}
		}
		var of session
		build := config.BuildFrontend
		config.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend { // once for each server that is tried
			of = session{wire: &wire{r: r, w: w}}
			return build(of.wire, of.wire)
		}
		config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { // once it is connected
			conn.CustomData()[sessionKey] = &of
			return &secondLine{conn, 2 * p.opts.Margin}
		}
		return nil
	}
}

// ask asks the server, at the first use of a connection, what there is to know.
func (p *Pool) ask(ctx context.Context, conn *pgx.Conn, s *session) error {
	mode := conn.Config().DefaultQueryExecMode
	how := pgx.QueryExecModeExec // one round trip, and nothing is prepared by name
	if mode == pgx.QueryExecModeSimpleProtocol {
		how = mode
	}
	var pid, most int64
	if err := conn.QueryRow(ctx, learn, how).Scan(&pid, &most); err != nil {
		return err
	}
	if pid != int64(conn.PgConn().PID()) { // a pooler made up the one that it told us
		p.pooler.Store(true)
	}
	s.known, s.most = true, time.Duration(most)*time.Millisecond
	// DescribeExec keeps the statement that has no name for its own.
	s.wire.named = mode == pgx.QueryExecModeCacheStatement && !p.pooler.Load() || mode == pgx.QueryExecModeDescribeExec
	return nil
}

// secondLine ends the waiting when the server has not.
type secondLine struct {
	conn *pgconn.PgConn
	late time.Duration
}

// HandleCancel lets the server's own limit answer first.
func (s *secondLine) HandleCancel(ctx context.Context) {
	wait := s.late
	if ctx.Err() != context.DeadlineExceeded { // the caller has gone
		wait = 0
	}
	s.conn.Conn().SetDeadline(time.Now().Add(wait))
}

// HandleUnwatchAfterCancel is called if it did.
func (s *secondLine) HandleUnwatchAfterCancel() { s.conn.Conn().SetDeadline(time.Time{}) }
