package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintpgx"
)

type postgresStore struct{ pool *stintpgx.Pool }

func openPostgres(ctx context.Context, url string, caller *stint.Caller, log *slog.Logger, ending *closers) (store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("-database: %w", err)
	}
	pool, err := stintpgx.New(ctx, config, caller, nil)
	if err != nil {
		return nil, err
	}
	logHidden(log, "database", pool.HiddenRetries())
	ending.add(func() error { pool.Close(); return nil })
	// The table is made before there are requests, and so not within their limits.
	if _, err := pool.Unwrap().Exec(ctx, schema); err != nil {
		return nil, fmt.Errorf("-database: %w", err)
	}
	return postgresStore{pool}, nil
}

func (s postgresStore) Insert(ctx context.Context, o order) (order, error) {
	tag, err := s.pool.Exec(ctx, insertSQL, o.values()...)
	return insert(ctx, s, o, tag.RowsAffected(), err)
}

func (s postgresStore) Get(ctx context.Context, id string) (order, error) {
	o, err := scan(s.pool.QueryRow(ctx, getSQL, id))
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return o, err
}

func (s postgresStore) Latest(ctx context.Context) ([]order, error) {
	rows, err := s.pool.Query(ctx, latestSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (order, error) { return scan(row) })
}
