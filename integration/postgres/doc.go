// Package postgres tests stintpgx against PostgreSQL and pgbouncer. All that it has
// is tests: package testenv starts the servers, and scripts/setup-servers.sh gets
// them.
package postgres
