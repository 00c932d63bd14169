// Package integration tests stint against servers that nobody here wrote. All
// that it has is tests: package testenv starts the servers, and
// scripts/setup-servers.sh gets them.
package integration
