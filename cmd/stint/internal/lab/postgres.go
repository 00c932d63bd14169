package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/stintpgx"
)

func parsePostgres(dsn string) error {
	u, err := parseURL(dsn)
	if err != nil {
		return err
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return fmt.Errorf("its scheme is %q", u.Scheme)
	}
	_, err = pgxpool.ParseConfig(dsn)
	return err
}

// A postgres is PostgreSQL, by pgx or by stintpgx.
type postgres struct {
	exec    func(ctx context.Context, seconds float64) error
	seconds float64
	pool    *pgxpool.Pool
	watch   *pgx.Conn // another connection, which no row bounds
	run     string    // the application_name of both
	net     *network  // between pool and server; nil: the real one
	calls   int
}

func openPostgres(ctx context.Context, s spec, run string) (_ store, err error) {
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["application_name"] = run
	config.MaxConns = int32(s.calls)
	p := &postgres{seconds: s.work.Seconds(), run: run, calls: s.calls}
	if p.watch, err = pgx.ConnectConfig(ctx, config.ConnConfig.Copy()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if s.silent {
		p.net = new(network)
		config.ConnConfig.DialFunc = p.net.dial
	}
	if s.mode == Naive {
		if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return nil, err
		}
		p.exec = func(ctx context.Context, seconds float64) error {
			_, err := p.pool.Exec(ctx, sleep, seconds)
			return err
		}
	} else {
		c, err := storeCaller(s)
		if err != nil {
			return nil, err
		}
		pool, err := stintpgx.New(ctx, config, c, nil)
		if err != nil {
			return nil, err
		}
		p.pool = pool.Unwrap()
		p.exec = func(ctx context.Context, seconds float64) error {
			_, err := pool.Exec(ctx, sleep, seconds)
			return err
		}
	}
	return p, p.warm(ctx)
}

const sleep = "select pg_sleep($1)"

// warm opens all connections, as in a service that has been at work for a while.
func (p *postgres) warm(ctx context.Context) error {
	for range p.calls {
		c, err := p.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
	}
	return nil
}

func (p *postgres) ask(ctx context.Context) error { return p.exec(ctx, p.seconds) }

// running also has the network fall silent, when all queries are there.
func (p *postgres) running(ctx context.Context) ([]string, error) {
	rows, err := p.watch.Query(ctx, `select pid::text from pg_stat_activity
		where application_name = $1 and state = 'active' and wait_event = 'PgSleep'`, p.run)
	if err != nil {
		return nil, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if p.net != nil && len(pids) == p.calls {
		p.net.freeze()
	}
	return pids, err
}

func (p *postgres) close() error {
	if p.net != nil {
		p.net.thaw()
	}
	if p.pool != nil {
		p.pool.Close()
	}
	if p.net != nil {
		p.net.all.Wait()
	}
	return p.watch.Close(context.Background())
}
