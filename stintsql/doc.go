// Package stintsql carries stint's contract to any database, under database/sql.
package stintsql
