package stintsql

import "testing"

// Honest has the driver of that package believed for a test.
func Honest(t testing.TB, pkg string) {
	honest[pkg] = true
	t.Cleanup(func() { delete(honest, pkg) })
}
