package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/policy"
)

// newKey returns an idempotency key that the database has not seen yet.
func newKey() string { return rand.Text() }

func TestOrder(t *testing.T) {
	a := start(t, patient(t, "00"))
	if status, text := a.send("GET", a.url+"/orders", ""); *database == "" && (status != http.StatusOK || text != "[]\n") {
		t.Errorf("the list before the first order: %d %s", status, text)
	}
	for _, client := range []string{"inventory", "pricing", "database"} {
		a.says(`msg="hidden retries: .* client=` + client)
	}
	key := newKey()
	status, first, text := a.order(key, "tea", 2)
	if status != http.StatusCreated || first.SKU != "tea" || first.Quantity != 2 || first.Cents != 900 || first.PriceStale || first.ID != orderID(key) {
		t.Fatalf("an order: %d %s", status, text)
	}
	reservations := a.asked("inventory")

	t.Run("the same key is the same order", func(t *testing.T) {
		if status, again, text := a.order(key, "tea", 2); status != http.StatusCreated || again != first {
			t.Errorf("%d %s, the first was %+v", status, text, first)
		}
		if n := a.asked("inventory"); n != reservations {
			t.Errorf("inventory was asked %d times, before the repeat %d", n, reservations)
		}
	})
	t.Run("at the same time too", func(t *testing.T) {
		key, before := newKey(), a.asked("inventory")
		a.fault("inventory", "hang")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if status, text, err := try("POST", a.url+"/orders", `{"sku": "coffee", "quantity": 1}`, "Idempotency-Key", key); status != http.StatusCreated || err != nil {
					t.Errorf("%d %s, error %v", status, text, err)
				}
			})
		}
		until(t, "all have found no order yet", func() bool { return a.asked("inventory") == before+8 })
		a.fault("inventory", "none")
		all.Wait()
		if status, _, text := a.order(newKey(), "coffee", 3); status != http.StatusConflict || !strings.Contains(text, "2 in stock") {
			t.Errorf("of 3 coffees one was ordered, eight times with one key; three more: %d %s", status, text)
		}
	})
	t.Run("the time left is handed on", func(t *testing.T) {
		// What each gets would be more if it were the policy's number alone.
		for name, ms := range map[string]struct{ caller, most int }{"inventory": {10000, 10000}, "pricing": {20000, 12000}} {
			a.order(newKey(), "tea", 1, "X-Deadline-Ms", strconv.Itoa(ms.caller), "X-Request-Id", "for-"+name)
			found := a.says(`msg=gate_entered budget_ms=(\d+) service=` + name + `.* request_id=for-` + name)
			if left, err := strconv.Atoi(found[1]); err != nil || left > ms.most {
				t.Errorf("%s has %s ms, of its caller's %d it must be at most %d", name, found[1], ms.caller, ms.most)
			}
		}
	})
	t.Run("the same key for something else", func(t *testing.T) {
		if status, _, text := a.order(key, "tea", 3); status != http.StatusUnprocessableEntity || !strings.Contains(text, "another order") {
			t.Errorf("%d %s", status, text)
		}
	})
	t.Run("it is to be had", func(t *testing.T) {
		if status, text := a.send("GET", a.url+"/orders/"+first.ID, ""); status != http.StatusOK || !strings.Contains(text, `"cents":900`) {
			t.Errorf("GET: %d %s", status, text)
		}
		if status, text := a.send("GET", a.url+"/orders", ""); status != http.StatusOK || !strings.Contains(text, first.ID) {
			t.Errorf("the list: %d %s", status, text)
		}
		if status, _ := a.send("GET", a.url+"/orders/none", ""); status != http.StatusNotFound {
			t.Errorf("an order that is not there: %d", status)
		}
	})
	for name, c := range map[string]struct {
		key, body string
		status    int
		text      string
	}{
		"no key":          {"", `{"sku": "tea", "quantity": 1}`, 400, "Idempotency-Key is missing"},
		"no JSON":         {newKey(), `tea`, 400, "the body must be"},
		"something after": {newKey(), `{"sku": "tea", "quantity": 1} {"sku": "tea", "quantity": 2}`, 400, "something follows"},
		"an unknown key":  {newKey(), `{"sku": "tea", "quantity": 1, "price": 1}`, 400, `unknown field "price"`},
		"nothing of it":   {newKey(), `{"sku": "tea", "quantity": 0}`, 400, "quantity must be 1 to 1000"},
		"no such thing":   {newKey(), `{"sku": "gold/../tea?", "quantity": 1}`, 422, "no such sku"},
		"more than there": {newKey(), `{"sku": "coffee", "quantity": 4}`, 409, "in stock"},
		"a long body":     {newKey(), `{"sku": "` + strings.Repeat("x", 5000) + `"}`, 400, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, text := a.send("POST", a.url+"/orders", c.body, "Idempotency-Key", c.key); status != c.status || !strings.Contains(text, c.text) {
				t.Errorf("%d %s, want %d and %q", status, text, c.status, c.text)
			}
		})
	}
}

// Pricing is down, and then its breaker is open: orders are taken at the last price that was known.
func TestStalePrice(t *testing.T) {
	a := start(t, patient(t, "00"))
	_, fresh, _ := a.order(newKey(), "tea", 1)
	if fresh.Cents != 450 || fresh.PriceStale {
		t.Fatalf("%+v", fresh)
	}
	a.fault("pricing", "fail")
	until(t, "the price is cached", func() bool {
		_, o, _ := a.order(newKey(), "tea", 1)
		return o.PriceStale
	})
	until(t, "the breaker is open", func() bool {
		a.order(newKey(), "tea", 1)
		return strings.Contains(a.said(), "msg=breaker dependency=pricing service=orders from=closed to=open")
	})
	asked := a.asked("pricing")
	for range 10 {
		if status, o, text := a.order(newKey(), "tea", 2); status != http.StatusCreated || !o.PriceStale || o.Cents != 900 {
			t.Errorf("with an open breaker: %d %s", status, text)
		}
	}
	if n := a.asked("pricing") - asked; n != 0 {
		t.Errorf("pricing got %d requests through an open breaker", n)
	}
	if *redisURL == "" { // in Redis an earlier run may have left the price
		if status, _, text := a.order(newKey(), "coffee", 1); status != http.StatusServiceUnavailable || !strings.Contains(text, "breaker_open") {
			t.Errorf("no price, fresh or stale: %d %s", status, text)
		}
	}
}

// What hangs is given up in time, and leaves nothing behind that a repeat would not find.
func TestTooSlow(t *testing.T) {
	a := start(t)
	until(t, "an order is made, and the price cached", func() bool {
		status, _, _ := a.order(newKey(), "tea", 1)
		return status == http.StatusCreated
	})
	// The aims are of a quiet machine, and printed; a test can say only that nobody waited for what never comes.
	inTime := func(t *testing.T, aim time.Duration, key string, fields ...string) (status int, o order, text string) {
		t.Helper()
		begin := time.Now()
		status, o, text = a.order(key, "tea", 1, fields...)
		t.Logf("%d after %v, aim %v", status, time.Since(begin).Round(time.Millisecond), aim)
		return status, o, text
	}
	t.Run("pricing", func(t *testing.T) {
		a.fault("pricing", "hang")
		defer a.fault("pricing", "none")
		key := newKey()
		status, o, text := inTime(t, 50*time.Millisecond, key, "X-Deadline-Ms", "50")
		if status != http.StatusGatewayTimeout && !(status == http.StatusCreated && o.PriceStale) {
			t.Errorf("%d %s, want 504, or an order at a stale price", status, text)
		}
		if status == http.StatusGatewayTimeout && a.stored(key) { // it may be: then the answer was what was late
			t.Log("the order is there, and its answer was not in time")
		}
	})
	for name, aim := range map[string]time.Duration{"inventory": 250 * time.Millisecond, "database": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			key := newKey()
			release := a.hang(name)
			status, _, text := inTime(t, aim, key)
			release()
			if status != http.StatusGatewayTimeout {
				t.Errorf("%d %s, want 504", status, text)
			}
			if a.stored(key) {
				t.Error("an order was made that nobody was told of")
			}
			until(t, "an order comes of it, asked for again with the same key", func() bool {
				status, _, _ := a.order(key, "tea", 1)
				return status == http.StatusCreated && a.stored(key)
			})
		})
	}
}

// hang has it hang until the result is called. PostgreSQL hangs as real ones do: somebody has a lock.
func (a *app) hang(name string) (release func()) {
	a.t.Helper()
	if name != "database" || *database == "" {
		a.fault(name, "hang")
		return func() { a.fault(name, "none") }
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	conn, err := pgx.Connect(ctx, *database)
	if err == nil {
		_, err = conn.Exec(ctx, "begin; lock table orders in exclusive mode")
	}
	if err != nil {
		cancel()
		a.t.Fatal(err)
	}
	return func() {
		defer cancel()
		if err := conn.Close(ctx); err != nil {
			a.t.Error(err)
		}
	}
}

// A cache is not needed to take orders, only for stale prices.
func TestNoCache(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there
	a := start(t, patient(t, "00"), "-redis=redis://"+l.Addr().String())
	if status, o, text := a.order(newKey(), "tea", 1); status != http.StatusCreated || o.PriceStale {
		t.Errorf("%d %s", status, text)
	}
	a.fault("pricing", "fail")
	if status, _, text := a.order(newKey(), "tea", 1); status != http.StatusServiceUnavailable {
		t.Errorf("neither pricing nor its cached price: %d %s", status, text)
	}
}

// An end in order: not ready, nobody new, an answer for who is inside, and a process that ends well.
func TestShutdown(t *testing.T) {
	a := start(t, patient(t, "00"))
	if status, text := a.send("GET", a.url+"/readyz", ""); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
	before := a.asked("inventory")
	a.fault("inventory", "hang")
	inside := make(chan string, 1)
	go func() {
		status, text, err := try("POST", a.url+"/orders", `{"sku": "tea", "quantity": 1}`, "Idempotency-Key", newKey())
		inside <- fmt.Sprintln(status, text, err)
	}()
	until(t, "the request is inside", func() bool { return a.asked("inventory") > before })
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "it is not ready", func() bool {
		status, _ := a.send("GET", a.url+"/readyz", "")
		return status == http.StatusServiceUnavailable
	})
	until(t, "it takes nobody new", func() bool {
		status, text := a.send("GET", a.url+"/orders", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "draining")
	})
	if status, _ := a.send("GET", a.url+"/livez", ""); status != http.StatusOK {
		t.Errorf("/livez at the end: %d", status)
	}
	a.fault("inventory", "none")
	if got := <-inside; !strings.HasPrefix(got, "201 ") {
		t.Errorf("who was inside got %s", got)
	}
	select {
	case <-a.ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(a.tmp); err != nil || len(left) > 0 {
		t.Errorf("it left %v behind, error %v", left, err)
	}
}

// A body that does not come holds nobody beyond the deadline.
func TestSlowBody(t *testing.T) {
	a := start(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: orders\r\nX-Deadline-Ms: 100\r\nIdempotency-Key: %s\r\nContent-Length: 100\r\n\r\n{", newKey())
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s", answer.Status)
	}
}

// A changed file is in force without a restart, and one that can't be meant is not.
func TestPolicyIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(content string) {
		next := file + ".next"
		if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	write(string(builtIn))
	a := start(t, "-policy="+file)
	write(strings.Replace(string(builtIn), "deadline: 800ms", "deadline: 0.8", 1))
	a.says("the new policy is not in force.*entry.deadline: 0.8 has no unit")
	write(strings.NewReplacer("  maxDeadline: 2s", "  maxDeadline: 1s", "    timeout: 150ms", "    timeout: 600ms").Replace(string(builtIn)))
	a.says("a new policy is in force")
	a.says(`msg="policy: the timeout of pricing is 600ms.* code=timeout-over-share`)
	capped := regexp.MustCompile(`msg=gate_entered budget_ms=(1000|[1-9][0-9][0-9]) service=orders`)
	until(t, "a deadline of 1.9s is 1s", func() bool {
		a.send("GET", a.url+"/orders", "", "X-Deadline-Ms", "1900")
		return capped.MatchString(a.said())
	})
}

func TestPolicyHasNoFindings(t *testing.T) {
	file, err := policy.Parse("policy.yaml", builtIn)
	if err != nil {
		t.Fatal(err)
	}
	graph, err := policy.NewGraph(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range graph.Check(nil) {
		t.Errorf("%v: %s: %s %s", f.Position, f.Code, f.What, f.Do)
	}
}

func TestFlags(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for _, c := range []struct{ flag, want string }{
		{"-database=mysql://x", "must be postgres://USER@HOST/DATABASE or sqlite:FILE"},
		{"-database=sqlite:", "must be postgres"},
		{"-database=postgres://x:y:z", "-database"},
		{"-database=sqlite:/nowhere/at/all.db", "-database: /nowhere/at/all.db"},
		{"-redis=localhost", "must be redis://"},
		{"-redis=redis://:secret%zz@localhost", "must be redis://"},
		{"-database=postgres://u:secret%zz@localhost/x", "-database"},
		{"-inventory=localhost:80", "-inventory is \"localhost:80\": must be an http:// or https:// URL"},
		{"-pricing=ftp://x", "must be an http"},
		{"-policy=nowhere.yaml", "nowhere.yaml"},
		{"-drain-delay=-1s", "must be from 0s"},
		{"-addr=nowhere", "nowhere"},
		{"serve", "unexpected argument"},
	} {
		if err := run(t.Context(), []string{"-demo=127.0.0.1:0", c.flag}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.flag, err, c.want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, which has the password", c.flag, err)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("they left %v behind, error %v", left, err)
	}
}
