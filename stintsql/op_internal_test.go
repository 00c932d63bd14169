package stintsql

import (
	"errors"
	"fmt"
	"testing"
)

type number16 struct{ Number uint16 }

func (*number16) Error() string { return "numbered" }

type inside struct{ *number16 }

type elsewhere struct{ Number string }

func (elsewhere) Error() string { return "another's" }

// TestNumber: a number is found wherever it is wrapped, and nothing that only looks like one makes it panic.
func TestNumber(t *testing.T) {
	one := &number16{1213}
	for _, x := range []struct {
		err  error
		want string
	}{
		{one, "1213"}, {fmt.Errorf("a: %w", one), "1213"}, {errors.Join(errors.New("b"), fmt.Errorf("c: %w", one)), "1213"},
		{nil, ""}, {errors.New("none"), ""}, {(*number16)(nil), ""}, {inside{}, ""}, {&inside{one}, ""}, {elsewhere{"7"}, ""},
	} {
		if got := MySQL.code(x.err); got != x.want {
			t.Errorf("%T: %q, want %q", x.err, got, x.want)
		}
	}
}

func TestKeyword(t *testing.T) {
	for query, want := range map[string]string{
		"select 1": "select", " \n(SELECT 1)": "select", "-- a\n/* b */ # c\n Update t": "update", "": "other", "magic": "other",
		"selected": "other", "--": "other", "/* open": "other", "begin;": "begin", "pragma x": "pragma",
	} {
		if got := keyword(query); got != want {
			t.Errorf("keyword(%q) is %q, want %q", query, got, want)
		}
	}
}

func TestBegins(t *testing.T) {
	for query, want := range map[string]bool{
		"begin": true, "BEGIN;": true, "begin immediate": true, "Begin Transaction": true, "start transaction read only": true, "begin work ;": true,
		"begin isolation level serializable": true, "start slave": false, "start": false, "begin not atomic select 1; end": false,
		"begin dbms_output.put(1); end;": false, "begin transaction; insert": false, "/* a */ begin": true,
	} {
		if got := begins(query); got != want {
			t.Errorf("begins(%q) is %v, want %v", query, got, want)
		}
	}
}

func TestSingle(t *testing.T) {
	for query, want := range map[string]bool{
		"insert into t": true, "insert into t ; ": true, "insert into t; insert into t": false, "call p()": false, "create table t": false,
		"insert into t values (';')": false, // to see that it is one takes a parser
	} {
		if got := single(query); got != want {
			t.Errorf("single(%q) is %v, want %v", query, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("select /*+ x */ 1")
	f.Add("-- \n(begin")
	f.Add("#0")
	f.Fuzz(func(t *testing.T, query string) {
		keyword(query)
		single(query)
		begins(query + " x")
		for _, d := range []Dialect{None, PostgreSQL, MariaDB, MySQL, SQLite} {
			if d.limitable(query) && len(d.within(query, 1)) <= len(query) {
				t.Errorf("%v: no limit in %q", d, query)
			}
			d.preparable(query)
		}
	})
}
