package database

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stintsql"
)

// last is what became of the last attempt: before it a connection may have been made.
func last(s *store) stint.Outcome {
	done := s.rec.Events(stint.AttemptDone)
	return done[len(done)-1].Outcome
}

// knows holds an outcome against what a policy file knows of it, and can list.
func knows(t *testing.T, kind policy.Kind, what string, got stint.Outcome) {
	t.Helper()
	if want, ok := kind.Outcome(policy.Code(got.Code)); !ok || got != want {
		t.Errorf("%s is %+v, and the policy has %+v for %s", what, got, want, got.Code)
	}
	if _, err := policy.Parse("f.yaml", fmt.Appendf(nil, "service: a\ndependencies: {x: {kind: %s, retry: {retryable: [%q]}}}\n", kind, got.Code)); err != nil {
		t.Errorf("%s is what stintsql says, and a file can't list it: %v", got.Code, err)
	}
}

// What a policy file knows of MariaDB's answers is what stintsql makes of them.
func TestPolicyKnowsMariaDB(t *testing.T) {
	m := testenv.SharedMariaDB(t)
	name, admin := mariadb(t, m)
	run(t, admin, "create function raises(n int) returns int begin signal sqlstate '45000' set mysql_errno = n, message_text = 'as asked'; return 1; end")
	s := open(t, "mysql", m.DSN(name), 1, stint.Policy{Breaker: stint.Breaker{Off: true}}, stintsql.Options{Dialect: stintsql.MariaDB})
	own := 0
	for _, r := range [...][2]int{{1020, 1270}, {1285, 1320}, {1360, 1370}, {1400, 1460}, {1790, 1795}, {1830, 1840}, {1925, 1930}, {1965, 1970}, {3020, 3026}, {3099, 3101}, {3570, 3575}, {3818, 3820}, {4024, 4026}} {
		for n := r[0]; n < r[1]; n++ {
			s.rec.Reset()
			var x int
			if err := s.QueryRowContext(within(t, patience), "select raises("+strconv.Itoa(n)+")").Scan(&x); err == nil {
				t.Fatalf("%d is no error", n)
			}
			got := last(s)
			knows(t, policy.MariaDB, strconv.Itoa(n), got)
			_, ok := policy.MariaDB.Outcome(policy.Code(strconv.Itoa(n)))
			if mysql, _ := policy.MySQL.Outcome(policy.Code(got.Code)); ok != (got.Code != "other") || mysql != got {
				t.Errorf("%d is %s, the policy has it: %v, and of MySQL %+v", n, got.Code, ok, mysql)
			}
			if ok {
				own++
			}
		}
	}
	if own != 44 {
		t.Errorf("%d numbers have a code of their own, want all 44", own)
	}
}

// And of SQLite's, as far as they can be had.
func TestPolicyKnowsSQLite(t *testing.T) {
	path, _ := sqliteFile(t)
	admin := plain(t, "sqlite", path)
	run(t, admin, "create table t (id integer primary key)")
	s := open(t, "sqlite", path, 1, stint.Policy{Breaker: stint.Breaker{Off: true}}, stintsql.Options{Dialect: stintsql.SQLite})
	ask := func(code, query string) {
		t.Helper()
		s.rec.Reset()
		if _, err := s.ExecContext(within(t, patience), query); err == nil {
			t.Fatalf("%s is no error", query)
		}
		got := last(s)
		if got.Code != code {
			t.Errorf("%s is %s, want %s", query, got.Code, code)
		}
		knows(t, policy.SQLite, query, got)
	}
	ask("error", "select")
	ask("constraint", "insert into t values (1), (1)")
	ask("mismatch", "insert into t values ('x')")
	tx, err := admin.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "insert into t values (7)"); err != nil {
		t.Fatal(err)
	}
	ask("busy", "insert into t values (8)")
}
