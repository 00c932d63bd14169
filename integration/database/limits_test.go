package database

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintsql"
)

// TestHugeDeadline: a deadline beyond what a server takes for a limit is no error.
func TestHugeDeadline(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	m := testenv.SharedMariaDB(t)
	nameP, _ := postgres(t, pg)
	nameM, _ := mariadb(t, m)
	for _, x := range []struct {
		driver, dsn string
		dialect     stintsql.Dialect
	}{{"pgx", pg.DSN(nameP), stintsql.PostgreSQL}, {"mysql", m.DSN(nameM), stintsql.MariaDB}, {"sqlite", ":memory:", stintsql.SQLite}} {
		for _, d := range []time.Duration{60 * 24 * time.Hour, 1<<63 - 1} {
			s := open(t, x.driver, x.dsn, 1, stint.Policy{}, stintsql.Options{Dialect: x.dialect, CommitGrace: 1<<63 - 1})
			ctx := within(t, d)
			if _, err := s.ExecContext(ctx, "create table if not exists rows_ (n int)"); err != nil {
				t.Errorf("%v, %v, a statement: %v", x.dialect, d, err)
			}
			if st, err := s.PrepareContext(ctx, "select 1"); err != nil {
				t.Errorf("%v, %v, to prepare: %v", x.dialect, d, err)
			} else if err := st.QueryRowContext(ctx).Scan(new(int)); err != nil {
				t.Errorf("%v, %v, a prepared statement: %v", x.dialect, d, err)
			}
			var tx *sql.Tx
			tx, err := s.BeginTx(ctx, nil)
			if err == nil {
				if _, err = tx.ExecContext(ctx, "insert into rows_ values (1)"); err == nil {
					err = tx.Commit()
				}
			}
			if err != nil {
				t.Errorf("%v, %v, a transaction: %v", x.dialect, d, err)
			}
		}
	}
}
