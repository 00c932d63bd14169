// Package lab tests "stint lab -store" against PostgreSQL and Redis, by running the
// command. All that it has is tests: package testenv starts the servers, and
// scripts/setup-servers.sh gets them.
package lab
