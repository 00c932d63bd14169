package main

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// A store keeps the orders. Its errors are errNoOrder or the database's.
type store interface {
	// Insert stores the order, and returns what is stored under its id now: that of
	// an earlier request if there was one.
	Insert(ctx context.Context, o order) (order, error)
	Get(ctx context.Context, id string) (order, error)
	// Latest returns the newest orders, at most 20.
	Latest(ctx context.Context) ([]order, error)
}

// openStore opens the database at the URL; an empty one is a new SQLite file.
func openStore(ctx context.Context, url string, c contract, log *slog.Logger, ending *closers) (store, error) {
	caller, err := c.caller("database")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok || url == "" {
		return openSQLite(ctx, file, caller, log, ending)
	}
	return openPostgres(ctx, url, caller, log, ending)
}

// The table is made at the start for the sake of a short example; a service in earnest has migrations.
//
// The statements are the same for both databases. "select" is the name of an operation in
// the policy file, which says that it may be repeated.
const (
	schema = `create table if not exists orders (
		id text primary key,
		sku text not null,
		quantity bigint not null,
		cents bigint not null,
		price_stale boolean not null,
		created bigint not null -- milliseconds since 1970
	);
	create index if not exists orders_created on orders (created desc)`
	columns   = `id, sku, quantity, cents, price_stale, created`
	insertSQL = `insert into orders (` + columns + `) values ($1, $2, $3, $4, $5, $6) on conflict (id) do nothing`
	getSQL    = `select ` + columns + ` from orders where id = $1`
	latestSQL = `select ` + columns + ` from orders order by created desc, id limit 20`
)

func (o order) values() []any {
	return []any{o.ID, o.SKU, o.Quantity, o.Cents, o.PriceStale, o.Created.UnixMilli()}
}

// scan reads the columns of a row.
func scan(row interface{ Scan(...any) error }) (o order, err error) {
	var created int64
	err = row.Scan(&o.ID, &o.SKU, &o.Quantity, &o.Cents, &o.PriceStale, &created)
	o.Created = time.UnixMilli(created).UTC()
	return o, err
}

// insert is Insert over an exec that says how many rows it made.
func insert(ctx context.Context, s store, o order, made int64, err error) (order, error) {
	switch {
	case err != nil:
		return order{}, err
	case made == 0: // it was there already
		return s.Get(ctx, o.ID)
	}
	return o, nil
}
