package stintpgx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintpgx"
)

// One line differs from pgxpool: who makes the pool.
func Example() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("postgres://orders@db.example/orders")
	if err != nil {
		log.Fatal(err)
	}
	caller, err := stint.NewCaller("database", stint.Policy{
		Timeout: 2 * time.Second, MinUseful: 10 * time.Millisecond, Retry: stint.Retry{Attempts: 2},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	pool, err := stintpgx.New(ctx, config, caller, nil) // instead of pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	// A read says so, and may be repeated; the server holds it to that.
	read := stintpgx.WithOp(ctx, stint.Op{Name: "order total", Safety: stint.ReadOnly})
	var total int
	switch err := pool.QueryRow(read, "select sum(price) from items where order_id = $1", 42).Scan(&total); {
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("no time left for it")
	case err != nil:
		fmt.Println(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update orders set paid = true where id = $1", 42)
		return err
	})
	if errors.Is(err, stintpgx.ErrOutcomeUnknown) {
		fmt.Println("look whether it is paid before doing it again")
	}
}
