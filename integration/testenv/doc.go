// Package testenv starts real servers for tests: nginx as a child of the test,
// and servers of ours that a test can kill. All of them are on 127.0.0.1, with
// their files in the test's temporary directory, and end with the test.
package testenv
