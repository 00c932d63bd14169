// Package database tests package stintsql against PostgreSQL, MariaDB and SQLite, each by
// the driver that most use.
package database
