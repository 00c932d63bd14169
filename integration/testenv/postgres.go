package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A Postgres is a PostgreSQL of the tests' own. It listens on a socket in its
// directory and nowhere else; for TCP there is a Proxy.
type Postgres struct{ *process }

var sharedPostgres = shared("postgresql", startPostgres)

// SharedPostgres returns the PostgreSQL that the tests of a package share; it is
// started for the first, which takes a second or two, and ended by Main.
func SharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	return sharedPostgres(t)
}

// StartPostgres starts a PostgreSQL for a test that kills it.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	return own(t, "postgresql", startPostgres)
}

func startPostgres(path string) (*Postgres, error) {
	at, bin, err := newPlace("postgresql", path)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(at.dir, "data")
	out, err := at.command(filepath.Join(bin, "initdb"), "-D", data, "-U", "stint", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(at.dir))
	}
	args := []string{"-D", data, "-k", at.dir}
	for _, setting := range []string{"listen_addresses=", "fsync=off", "full_page_writes=off", "autovacuum=off",
		"shared_buffers=32MB", "max_connections=200"} {
		args = append(args, "-c", setting)
	}
	p, err := at.start("postgresql", "ready to accept connections", filepath.Join(bin, "postgres"), args...)
	if err != nil {
		return nil, err
	}
	return &Postgres{p}, nil
}

// DSN is a connection string for the named database; "postgres" always exists.
func (pg *Postgres) DSN(database string) string {
	return fmt.Sprintf("host=%s user=stint dbname=%s", pg.process.dir, database)
}

// Proxy starts a Proxy in front of it.
func (pg *Postgres) Proxy(t testing.TB) *Proxy {
	t.Helper()
	return StartProxy(t, "unix", filepath.Join(pg.process.dir, ".s.PGSQL.5432"))
}

// Kill kills the server, as the kernel does when memory is short, and waits for
// its end. Its backends end by themselves.
func (pg *Postgres) Kill() { pg.process.kill() }

// A Pgbouncer is one in front of a Postgres, in transaction mode.
type Pgbouncer struct{ *process }

// StartPgbouncer starts one that ends with the test and has so many connections
// to the server.
func StartPgbouncer(t testing.TB, pg *Postgres, servers int) *Pgbouncer {
	t.Helper()
	at, path, err := newPlace("pgbouncer", need(t, "pgbouncer"))
	if err != nil {
		t.Fatal(err)
	}
	ini := filepath.Join(at.dir, "pgbouncer.ini")
	conf := fmt.Sprintf(`[databases]
* = host=%s user=stint
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = %d
`, pg.process.dir, at.dir, servers)
	err = errors.Join(os.WriteFile(ini, []byte(conf), 0o600), at.own(ini))
	if err == nil {
		var p *process
		if p, err = at.start("pgbouncer", "process up", path, ini); err == nil {
			p.stopWith(t)
			return &Pgbouncer{p}
		}
	}
	os.RemoveAll(at.dir)
	t.Fatal(err)
	return nil
}

// DSN is a connection string for the named database, through the pooler.
func (b *Pgbouncer) DSN(database string) string {
	return fmt.Sprintf("host=%s port=6432 user=stint dbname=%s", b.process.dir, database)
}

// Kill kills the pooler, as the kernel does when memory is short, and waits for its
// end.
func (b *Pgbouncer) Kill() { b.process.kill() }
