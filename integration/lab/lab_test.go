package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"


	"github.com/stint-go/stint/integration/testenv"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer func() {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}()
	return testenv.Main(m)
}

// patience bounds a test that hangs; nothing is measured with it.
const patience = 2 * time.Minute

var dir string // of the command

// command builds the command once; nobody may import it.
var command = sync.OnceValues(func() (path string, err error) {
	if dir, err = os.MkdirTemp("", "stint-command-"); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "stint")
	out, err := exec.Command("go", "build", "-o", path, "github.com/stint-go/stint/cmd/stint").CombinedOutput()
	if err != nil {
		err = errors.Join(err, errors.New(string(out)))
	}
	return path, err
})

// stint returns the command with its arguments, bounded in time.
func stint(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, path, args...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}
