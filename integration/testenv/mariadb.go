package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A MariaDB is one of the tests' own. It listens on a socket in its directory and
// nowhere else; for TCP there is a Proxy.
type MariaDB struct{ *process }

var sharedMariaDB = shared("mariadb", startMariaDB)

// SharedMariaDB returns the MariaDB that the tests of a package share; it is
// started for the first, which takes two seconds or three, and ended by Main.
func SharedMariaDB(t testing.TB) *MariaDB {
	t.Helper()
	return sharedMariaDB(t)
}

// StartMariaDB starts a MariaDB for a test that kills it.
func StartMariaDB(t testing.TB) *MariaDB {
	t.Helper()
	return own(t, "mariadb", startMariaDB)
}

func startMariaDB(path string) (*MariaDB, error) {
	at, program, err := newPlace("mariadb", path)
	if err != nil {
		return nil, err
	}
	p, err := at.startMariaDB(program)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(at.dir))
	}
	return &MariaDB{p}, nil
}

const mariaDBSocket = "mariadb.sock"

func (p place) startMariaDB(program string) (*process, error) {
	data := filepath.Join(p.dir, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), p.own(data)); err != nil {
		return nil, err
	}
	base := filepath.Dir(filepath.Dir(program))
	args := []string{"--no-defaults", "--basedir=" + base, "--datadir=" + data, "--tmpdir=" + p.dir,
		"--skip-networking", "--skip-name-resolve", "--skip-log-bin", "--socket=" + filepath.Join(p.dir, mariaDBSocket),
		"--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite",
		"--innodb-use-native-aio=off", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M",
		"--aria-log-file-size=8M"}
	tables, err := mariaDBTables(base)
	if err != nil {
		return nil, err
	}
	bootstrap := p.command(program, append(args, "--bootstrap")...)
	bootstrap.Stdin = bytes.NewReader(tables)
	if out, err := bootstrap.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadbd --bootstrap: %w: %s", err, out)
	}
	return p.start("mariadb", "ready for connections", program, args...)
}

// mariaDBTables are the statements that make a new server's own tables. They are what mariadb-install-db runs, without
// its help texts and its schema sys, with which it takes twice as long. The names of the files begin with mysql or, from
// MariaDB 11 on, mariadb.
func mariaDBTables(base string) ([]byte, error) {
	// Bootstrap ends a statement at the end of a line only. Root has no password, whoever the system's user is.
	all := []byte("create database mysql;\nuse mysql;\nset @auth_root_socket = null;\n")
	for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
		pattern := filepath.Join(base, "share/*/m*_"+name+".sql")
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return nil, errors.Join(err, fmt.Errorf("mariadb: there is no file %s: a whole MariaDB server has it", pattern))
		}
		sql, err := os.ReadFile(files[0])
		if err != nil {
			return nil, err
		}
		all = append(append(all, sql...), '\n')
	}
	return all, nil
}

// DSN is a data source name of go-sql-driver/mysql for the named database, or for
// none. Who comes is root; there is no other user.
func (m *MariaDB) DSN(database string) string {
	return fmt.Sprintf("root@unix(%s)/%s", m.socket(), database)
}

func (m *MariaDB) socket() string { return filepath.Join(m.process.dir, mariaDBSocket) }

// Proxy starts a Proxy in front of it; Proxy.MariaDBDSN leads through it.
func (m *MariaDB) Proxy(t testing.TB) *Proxy {
	t.Helper()
	return StartProxy(t, "unix", m.socket())
}

// Kill kills the server, as the kernel does when memory is short, and waits for
// its end.
func (m *MariaDB) Kill() { m.process.kill() }
