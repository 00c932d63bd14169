package stinthttp_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// eventually waits until a condition holds, for what real sockets do after a
// call; in virtual time synctest.Wait is exact.
func eventually(t *testing.T, holds func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Error(what())
			return
		}
	}
}

// stacks says which goroutines there are, when there are more than before.
func stacks(before int) string {
	buf := make([]byte, 64<<10)
	return fmt.Sprintf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}
