package policy_test

import (
	"bytes"
	"testing"

	"github.com/stint-go/stint/policy"
)

func TestRoundTrip(t *testing.T) {
	f, err := policy.Load("testdata/issue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.Parse("again.yaml", f.Print())
	if err != nil {
		t.Fatalf("%v\n%s", err, f.Print())
	}
	if !bytes.Equal(again.Print(), f.Print()) {
		t.Errorf("printed and read again:\n%s\nwant\n%s", again.Print(), f.Print())
	}
}
