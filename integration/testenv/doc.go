// Package testenv starts real servers for tests, nginx, PostgreSQL, pgbouncer,
// Redis and MariaDB, as children of the test, servers of ours that a test can kill,
// and a proxy that is a bad network. What listens on a port does so on 127.0.0.1;
// files are in temporary directories; all of it ends with the tests, also if they
// are killed.
//
// scripts/setup-servers.sh gets the servers. Where nginx is missing a test fails;
// where another is, it is skipped unless STINT_TEST_REQUIRE is all.
package testenv
