package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// With these the same tests run against real servers; package orders in integration does that.
var (
	database = flag.String("database", "", "postgres:// URL of a database in which a table orders may be made")
	redisURL = flag.String("redis", "", "redis:// URL of a cache")
)

// patience is for what takes milliseconds, on a machine that has much else to do.
const patience = 30 * time.Second

// asService is in the environment of a test binary that is to be the service.
const asService = "ORDERS_TEST_IS_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		go func() { // ends with the tests, also if they are killed
			io.Copy(io.Discard, os.Stdin)
			os.Exit(2)
		}()
		main()
		os.Exit(0) // as a program ends; m would run the tests
	}
	os.Exit(m.Run())
}

// patient is the flag of a policy that is the built-in one with zeros put behind each number of
// milliseconds and seconds, for tests whose answers must not depend on how busy the machine is.
func patient(t testing.TB, zeros string) string {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, regexp.MustCompile(`(\d+)(m?s\b)`).ReplaceAll(builtIn, []byte("${1}"+zeros+"$2")), 0o600); err != nil {
		t.Fatal(err)
	}
	return "-policy=" + file
}

// app is the service, in a process of its own.
type app struct {
	t         testing.TB
	cmd       *exec.Cmd
	url, demo string
	tmp       string // its temporary files; one that is killed removes none
	ended     chan struct{}
	news      chan struct{} // has one while there are lines of the log that says has not seen

	mu  sync.Mutex
	log strings.Builder
}

// start starts the service with the flags and those of the test, on free ports.
func start(t testing.TB, flags ...string) *app {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"-addr=127.0.0.1:0", "-demo=127.0.0.1:0", "-database=" + *database, "-redis=" + *redisURL}, flags...)
	a := &app{t: t, tmp: t.TempDir(), cmd: exec.Command(path, flags...), ended: make(chan struct{}), news: make(chan struct{}, 1)}
	a.cmd.Env = append(os.Environ(), asService+"=1", "TMPDIR="+a.tmp)
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.cmd.StdinPipe(); err != nil { // open as long as we are there
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan struct{})
	go func() {
		defer close(a.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			line := lines.Text()
			a.mu.Lock()
			fmt.Fprintln(&a.log, line)
			a.mu.Unlock()
			select {
			case a.news <- struct{}{}:
			default:
			}
			if _, demo, ok := strings.Cut(line, " demo="); ok {
				a.demo = demo
			}
			if _, url, ok := strings.Cut(line, "msg=listening url="); ok {
				a.url = url
				close(listening)
			}
		}
	}()
	t.Cleanup(func() {
		a.cmd.Process.Kill() // one that has ended already is not there to be told
		<-a.ended
		a.cmd.Wait()
		if t.Failed() {
			t.Logf("the service said:\n%s", a.said())
		}
	})
	select {
	case <-listening:
	case <-a.ended:
		t.Fatalf("the service ended:\n%s", a.said())
	case <-time.After(patience):
		t.Fatal("the service does not listen")
	}
	return a
}

func (a *app) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.String()
}

// says waits until the log has what is looked for, and returns it with its groups.
func (a *app) says(pattern string) []string {
	a.t.Helper()
	looked := regexp.MustCompile(pattern)
	for end := time.After(patience); ; {
		if found := looked.FindStringSubmatch(a.said()); found != nil {
			return found
		}
		select {
		case <-a.news:
		case <-end:
			a.t.Fatalf("the log has no %s within %v", pattern, patience)
		}
	}
}

// send makes one request and returns status and body; fields are names and values of
// the header, in turn.
func (a *app) send(method, url, body string, fields ...string) (int, string) {
	a.t.Helper()
	status, text, err := try(method, url, body, fields...)
	if err != nil {
		a.t.Fatal(err)
	}
	return status, text
}

func try(method, url, body string, fields ...string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// order posts an order.
func (a *app) order(key, sku string, quantity int, fields ...string) (status int, o order, text string) {
	a.t.Helper()
	status, text = a.send("POST", a.url+"/orders", fmt.Sprintf(`{"sku": %q, "quantity": %d}`, sku, quantity), append(fields, "Idempotency-Key", key)...)
	if status == http.StatusCreated {
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			a.t.Fatalf("%v: %s", err, text)
		}
	}
	return status, o, text
}

// stored reports whether the order of the key is in the database, which may have to be asked
// again.
func (a *app) stored(key string) bool {
	a.t.Helper()
	var status int
	until(a.t, "GET of an order is answered", func() bool {
		status, _ = a.send("GET", a.url+"/orders/"+orderID(key), "")
		return status == http.StatusOK || status == http.StatusNotFound
	})
	return status == http.StatusOK
}

// fault switches a fault of inventory, pricing or the database.
func (a *app) fault(name, what string) {
	a.t.Helper()
	if status, text := a.send("PUT", a.demo+"/faults/"+name, what); status != http.StatusOK {
		a.t.Fatalf("%s to %s: %d %s", what, name, status, text)
	}
}

// asked is how many requests have reached inventory or pricing.
func (a *app) asked(name string) int {
	a.t.Helper()
	_, text := a.send("GET", a.demo+"/requests/"+name, "")
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

// until asks the service until the answer is yes.
func until(t testing.TB, what string, yes func() bool) {
	t.Helper()
	for begin := time.Now(); !yes(); {
		if time.Since(begin) > patience {
			t.Fatalf("not so within %v: %s", patience, what)
		}
	}
}
