package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"modernc.org/sqlite"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

type sqliteStore struct {
	db    *sql.DB // one connection: SQLite has one writer
	plain *sql.DB // past the Caller, for the table at the start and the switch of the demo

	mu   sync.Mutex
	held *sql.Conn // has the write lock while the switch is on
}

// openSQLite opens the file, or a new one that ends with the process.
func openSQLite(ctx context.Context, file string, caller *stint.Caller, log *slog.Logger, ending *closers) (store, error) {
	if file == "" {
		dir, err := os.MkdirTemp("", "orders-")
		if err != nil {
			return nil, err
		}
		ending.add(func() error { return os.RemoveAll(dir) })
		file = filepath.Join(dir, "orders.db")
	}
	// A lock is waited for as long as the statement has time, which is less than the busy timeout.
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: "_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(10000)"}).String()
	s := &sqliteStore{}
	var err error
	if s.plain, err = sql.Open("sqlite", dsn); err != nil {
		return nil, err
	}
	ending.add(s.plain.Close)
	if _, err := s.plain.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("-database: %s: %w", file, err)
	}
	base, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("-database: %s: %w", file, err)
	}
	connector, err := stintsql.NewConnector(base, caller, &stintsql.Options{Dialect: stintsql.SQLite})
	if err != nil {
		return nil, err
	}
	logHidden(log, "database", connector.HiddenRetries())
	s.db = sql.OpenDB(connector)
	ending.add(s.db.Close)
	s.db.SetMaxOpenConns(1)
	return s, nil
}

func (s *sqliteStore) Insert(ctx context.Context, o order) (order, error) {
	var made int64
	result, err := s.db.ExecContext(ctx, insertSQL, o.values()...)
	if err == nil {
		made, err = result.RowsAffected()
	}
	return insert(ctx, s, o, made, err)
}

func (s *sqliteStore) Get(ctx context.Context, id string) (order, error) {
	o, err := scan(s.db.QueryRowContext(ctx, getSQL, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoOrder
	}
	return o, err
}

func (s *sqliteStore) Latest(ctx context.Context) ([]order, error) {
	rows, err := s.db.QueryContext(ctx, latestSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []order{} // in JSON nil is no list
	for rows.Next() {
		o, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, rows.Err()
}

// hang takes the database's write lock, as a backup or another process may, or gives it back:
// every write waits for it.
func (s *sqliteStore) hang(ctx context.Context, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on == (s.held != nil) {
		return nil
	}
	if !on {
		_, err := s.held.ExecContext(ctx, "rollback")
		err = errors.Join(err, s.held.Close())
		s.held = nil
		return err
	}
	conn, err := s.plain.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "begin immediate"); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.held = conn
	return nil
}
