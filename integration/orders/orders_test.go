package orders

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/integration/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// The example's tests start it as a process; here they give it real servers by its flags.
func TestRealServers(t *testing.T) {
	pg, redis := testenv.SharedPostgres(t), testenv.StartRedis(t)
	args := []string{"test", "-count=1", "-shuffle=on", "-v", "-timeout=5m", "-skip=TestFlags|TestPolicy|TestReadme"}
	if raceEnabled() { // built already, then, where all tests run
		args = append(args, "-race")
	}
	args = append(args, "github.com/stint-go/stint/examples/orders", "-args",
		fmt.Sprintf("-database=postgres://stint@%s/postgres?sslmode=disable", pg.Proxy(t).Addr), "-redis=redis://"+redis.Addr)
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"TestOrder", "TestStalePrice", "TestTooSlow", "TestTooSlow/database", "TestShutdown"} {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s did not run", name)
		}
	}
}

func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
