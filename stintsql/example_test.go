package stintsql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

// A database by its driver's name. The driver is imported by the program, as ever:
//
//	import _ "github.com/go-sql-driver/mysql"
func Example() {
	caller, err := stint.NewCaller("database", stint.Policy{
		Timeout:   200 * time.Millisecond, // the caller's deadline wins if sooner
		MinUseful: 20 * time.Millisecond,
		Retry:     stint.Retry{Attempts: 2},
	}, nil)
	if err != nil {
		slog.Error("the policy", "error", err)
		return
	}
	db, err := stintsql.Open("mysql", "app@tcp(db:3306)/shop", caller, &stintsql.Options{Dialect: stintsql.MariaDB})
	if err != nil {
		slog.Error("the database", "error", err)
		return
	}
	defer db.Close()

	order := func(ctx context.Context, sku string) error {
		read := stintsql.WithOp(ctx, stint.Op{Name: "stock", Safety: stint.ReadOnly}) // so it may be repeated
		var left int
		if err := db.QueryRowContext(read, "SELECT quantity FROM stock WHERE sku = ?", sku).Scan(&left); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "INSERT INTO orders (sku) VALUES (?)", sku)
		if errors.Is(err, stintsql.ErrOutcomeUnknown) {
			return fmt.Errorf("the order may have been placed: look for it before placing another: %w", err)
		}
		return err
	}
	_ = order
}
