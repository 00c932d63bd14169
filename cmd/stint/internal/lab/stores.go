package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

// A Store is what the last service of a chain asks. The zero value is none.
type Store uint8

const (
	// NoStore is none: the last service works by itself.
	NoStore Store = iota
	// SQLite is one in this process, in memory.
	SQLite
	// Postgres is a server that the user names.
	Postgres
	// Redis is a server that the user names.
	Redis
)

// stores is what there is to know of each Store.
var stores = [...]struct {
	name, title string
	query       string // what C asks for
	seen        string // how the lab sees that it runs
	dsn         string // an example; empty: it takes none
	parse       func(dsn string) error
	open        func(ctx context.Context, s spec, run string) (store, error)
}{
	NoStore: {},
	SQLite:  {name: "sqlite", title: "SQLite", query: "a recursive select, in steps of 10 ms", seen: "a function in each step", open: openSQLite},
	Postgres: {name: "postgres", title: "PostgreSQL", query: "pg_sleep", seen: "pg_stat_activity",
		dsn: "postgres://user@127.0.0.1:5432/database", parse: parsePostgres, open: openPostgres},
	Redis: {name: "redis", title: "Redis", query: "BLPOP on a list that stays empty", seen: "CLIENT LIST",
		dsn: "redis://127.0.0.1:6379", parse: parseRedis, open: openRedis},
}

// A store is a Store for one row, with the client that the row's mode has.
type store interface {
	// ask makes one query, which takes as long as the spec's work.
	ask(ctx context.Context) error
	// running names the queries that the store works on at this moment.
	running(ctx context.Context) ([]string, error)
	// close ends what still runs, and leaves nothing behind in the store.
	close() error
}

// errNothing is what ask returns where the store's answer is that there is none.
var errNothing = errors.New("nothing came")

// String returns the name: sqlite, postgres or redis, and nothing for none.
func (s Store) String() string {
	if int(s) < len(stores) {
		return stores[s].name
	}
	return fmt.Sprintf("Store(%d)", uint8(s))
}

// MarshalText returns the name.
func (s Store) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name.
func (s *Store) UnmarshalText(text []byte) error {
	for i, known := range stores {
		if known.name != "" && known.name == string(text) {
			*s = Store(i)
			return nil
		}
	}
	return fmt.Errorf("unknown store %q: want sqlite, postgres or redis", text)
}

// check reports what is wrong with the DSN for s.
func (s Store) check(dsn string) error {
	about := stores[s]
	switch {
	case s == NoStore && dsn != "":
		return errors.New("-dsn names the server of -store postgres or redis, and there is no -store")
	case about.dsn == "" && dsn != "":
		return fmt.Errorf("-dsn: -store %v runs in this process, and takes none", s)
	case about.dsn == "":
		return nil
	case dsn == "":
		return fmt.Errorf("-store %v runs on a server that you name, and looks for none by itself: want -dsn, as in -dsn %s", s, about.dsn)
	}
	if err := about.parse(dsn); err != nil {
		return fmt.Errorf("-dsn: %w; want one such as %s", err, about.dsn)
	}
	return nil
}

// parseURL reads a DSN that has to say where the server is: one that is found on
// a default port may be anybody's. Its errors do not have the DSN in them, which
// may have a password.
func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return nil, fmt.Errorf("it is no URL: %w", e.Err)
	}
	socket := u.Scheme == "unix" || u.Query().Get("host") != ""
	if !socket && (u.Hostname() == "" || u.Port() == "") {
		return nil, errors.New("it names no host and port")
	}
	return u, nil
}
