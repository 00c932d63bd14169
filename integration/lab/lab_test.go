package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/integration/testenv"
)

func TestMain(m *testing.M) {
	code := testenv.Main(m)
	os.RemoveAll(commandDir)
	os.Exit(code)
}

// patience bounds a test that hangs; nothing is measured with it.
const patience = 2 * time.Minute

var commandDir string

// command builds the command once, since nothing may import it, and returns where it is.
var command = sync.OnceValues(func() (path string, err error) {
	if commandDir, err = os.MkdirTemp("", "stint-command-"); err != nil {
		return "", err
	}
	path = filepath.Join(commandDir, "stint")
	out, err := exec.Command("go", "build", "-o", path, "github.com/stint-go/stint/cmd/stint").CombinedOutput()
	if err != nil {
		err = errors.Join(err, errors.New(string(out)))
	}
	return path, err
})

// stint returns the command with its arguments, and what it writes.
func stint(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, path, args...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// A result is what the tests look at of the lab's -json output.
type result struct {
	Row         string
	Count       int
	Queries     int
	QueryMs     float64
	LastQueryMs float64
	Holds       bool
}

// runs runs the lab and checks each row's count: the least, and the most.
func runs(t *testing.T, store, dsn string, want map[string][2]int) {
	t.Helper()
	cmd, stdout, stderr := stint(t, "lab", "-json", "-store", store, "-dsn", dsn)
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("lab -store %s: %v; standard error: %s", store, err, stderr)
	}
	var results []result
	if err := json.Unmarshal(stdout.Bytes(), &results); err != nil || len(results) != len(want) {
		t.Fatalf("lab -store %s: %d rows, want %d; error %v; standard output:\n%s", store, len(results), len(want), err, stdout)
	}
	for _, r := range results {
		t.Logf("%s, %s: of %d queries %d run on; %.0f ms in all after the client had left, the last one ends at %.0f ms",
			store, r.Row, r.Queries, r.Count, r.QueryMs, r.LastQueryMs)
		if n, ok := want[r.Row]; !ok || r.Count < n[0] || r.Count > n[1] || r.Queries != 10 || !r.Holds {
			t.Errorf("%s, %s: of %d queries %d run on, holds %v; want %v of 10", store, r.Row, r.Queries, r.Count, r.Holds, n)
		}
	}
}

// until waits for something that happens in another process.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// postgres returns the URL of a server, and a connection to it.
func postgres(t *testing.T) (dsn string, admin *pgx.Conn) {
	t.Helper()
	config, err := pgx.ParseConfig(testenv.SharedPostgres(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if admin, err = pgx.ConnectConfig(ctx, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.Background()) })
	u := url.URL{Scheme: "postgres", User: url.User("stint"), Path: "/postgres", RawQuery: url.Values{"host": {config.Host}}.Encode()}
	return u.String(), admin
}

// number runs a statement that returns one.
func number[N int | float64](t *testing.T, c *pgx.Conn, sql string, args ...any) (n N) {
	t.Helper()
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

const (
	connections = "select count(*) from pg_stat_activity where application_name like 'stint-lab-%'"
	working     = connections + " and state = 'active' and wait_event = 'PgSleep'"
)

func TestPostgres(t *testing.T) {
	dsn, admin := postgres(t)
	const relations = "select count(*) from pg_class"
	before := number[int](t, admin, relations)
	runs(t, "postgres", dsn, map[string][2]int{
		"naive, own timeouts": {10, 10}, "naive, with context": {0, 2}, "naive, net silent": {10, 10}, "stint": {0, 0}, "stint, net silent": {0, 0},
	})
	until(t, "no connection is left", func() bool { return number[int](t, admin, connections) == 0 })
	if n := number[int](t, admin, relations); n != before {
		t.Errorf("%d relations before, %d after", before, n)
	}
}

// An interrupt ends the naive queries as well, which nothing else would.
func TestPostgresInterrupted(t *testing.T) {
	dsn, admin := postgres(t)
	cmd, stdout, stderr := stint(t, "lab", "-store", "postgres", "-dsn", dsn)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "all queries run", func() bool { return number[int](t, admin, working) == 10 })
	began := number[float64](t, admin, "select extract(epoch from min(query_start))::float8 from pg_stat_activity where application_name like 'stint-lab-%'")
	interrupted(t, cmd, stdout, stderr)
	until(t, "no query runs", func() bool { return number[int](t, admin, working) == 0 })
	took := number[float64](t, admin, "select extract(epoch from clock_timestamp())::float8") - began
	t.Logf("the queries were there for %.0f ms; nobody stopping them: 2000 ms", 1000*took)
	until(t, "no connection is left", func() bool { return number[int](t, admin, connections) == 0 })
}

// interrupted interrupts the command and checks how it ends.
func interrupted(t *testing.T, cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.HasSuffix(stderr.String(), "stint lab: interrupted\n") {
		t.Errorf("interrupted: exit code %d, standard error %q, standard output:\n%s", code, stderr, stdout)
	}
}

func TestRedis(t *testing.T) {
	server := testenv.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { admin.Close() })
	runs(t, "redis", "redis://"+server.Addr, map[string][2]int{"naive, own timeouts": {10, 10}, "naive, with context": {10, 10}, "stint": {}})
	untouched(t, admin)

	// What go-redis can't be told to stop ends with its connection.
	cmd, stdout, stderr := stint(t, "lab", "-store", "redis", "-dsn", "redis://"+server.Addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "all queries run", func() bool { return len(clients(t, admin, "cmd=blpop")) == 10 })
	interrupted(t, cmd, stdout, stderr)
	untouched(t, admin)
}

// clients returns the lines of CLIENT LIST about the lab's connections that have a word.
func clients(t *testing.T, admin *redis.Client, word string) []string {
	t.Helper()
	list, err := admin.ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Collect(strings.Lines(list)), func(line string) bool {
		return !strings.Contains(line, " name=stint-lab-") || !strings.Contains(line, word)
	})
}

// untouched checks that nothing of the lab is left.
func untouched(t *testing.T, admin *redis.Client) {
	t.Helper()
	until(t, "no connection is left", func() bool { return len(clients(t, admin, "")) == 0 })
	if n, err := admin.DBSize(context.Background()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left, error %v", n, err)
	}
}
