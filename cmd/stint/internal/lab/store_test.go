package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
)

// What PostgreSQL and Redis make of it is tested in the module integration.
func TestStoreSQLite(t *testing.T) {
	var results []Result
	o := Options{Attempts: 1, Depth: 1, Store: SQLite}
	if err := Run(t.Context(), o, func(string, string) {}, func(r Report) error {
		results = append(results, r.Results...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 {
		t.Fatalf("%d rows, want 3", len(results))
	}
	for _, r := range results {
		if !r.Holds || r.Experiment != "store" || r.Queries != storeCalls || r.LeafRequests != storeCalls {
			t.Errorf("%s: holds %v: %d run on, %d queries for %d requests, client: %d, %q", r.Row, r.Holds, r.Count, r.Queries,
				r.LeafRequests, r.ClientStatus, r.ClientError)
		}
	}
	plain := results[0]
	// Nobody stops them, so each takes at least the time of all its steps, without a look at both ends.
	for _, q := range plain.queries {
		if took := q.end - q.start; took < storeWork/2 {
			t.Errorf("naive: a query took %v, want %v", took, storeWork)
		}
	}
	if least := term.Millis(storeCalls * storeGrace); plain.QueryMs < least || plain.LastQueryMs < term.Millis(plain.left+storeGrace) {
		t.Errorf("naive: %v ms after the client had left, the last query at %v ms; want at least %v", plain.QueryMs, plain.LastQueryMs, least)
	}
	if n := sqliteRunsLeft(); n > 0 {
		t.Errorf("%d rows are left behind", n)
	}
}

func sqliteRunsLeft() (n int) {
	sqliteRuns.Range(func(any, any) bool { n++; return true })
	return n
}

// A row holds if so many queries run on as have to, and all of them had begun:
// a store that was never reached would look as good as stint.
func TestStoreJudged(t *testing.T) {
	all, few, none := exactly(10), atMost(2), exactly(0)
	for st, wants := range map[Store][]want{SQLite: {all, few, none}, Postgres: {all, few, all, none, none}, Redis: {all, all, none}} {
		e := experiments(Options{Store: st})[0]
		for i, r := range e.rows {
			want := wants[i]
			if r.want != want {
				t.Errorf("%v, %s: wants %v, want %v", st, r.label, r.want, want)
			}
			of := func(queries, running, status int) Result {
				res := Result{row: r, left: storeDeadline, ClientStatus: status}
				for n := range queries {
					q := span{0, storeDeadline + storeGrace - 1}
					if n < running {
						q.end++
					}
					res.queries = append(res.queries, q)
				}
				e.judge(&res)
				return res
			}
			for _, n := range []int{want.least, want.most} {
				if res := of(storeCalls, n, 504); !res.Holds || res.Count != n {
					t.Errorf("%v, %s: %d run on, want %d; holds %v", st, r.label, res.Count, n, res.Holds)
				}
			}
			for what, res := range map[string]Result{
				"a good answer":     of(storeCalls, want.least, 200),
				"a query too few":   of(storeCalls-1, min(want.least, storeCalls-1), 504),
				"a query too many":  of(storeCalls+1, want.least, 504),
				"one more runs on":  of(storeCalls+1, want.most+1, 504),
				"the others run on": of(storeCalls, storeCalls-want.least, 504),
			} {
				if res.Holds {
					t.Errorf("%v, %s: %s, and it holds", st, r.label, what)
				}
			}
		}
	}
}

func TestStoreVoid(t *testing.T) {
	r := storeOf(SQLite, "").rows[0]
	good := Result{row: r, left: storeDeadline, queries: make([]span, storeCalls), gap: look}
	if unseen(good) {
		t.Error("a good row is void")
	}
	for what, change := range map[string]func(*Result){
		"a query was not seen":   func(res *Result) { res.queries = res.queries[1:] },
		"nobody looked":          func(res *Result) { res.gap = storeSlack + 1 },
		"the client left late":   func(res *Result) { res.left = storeDeadline + storeSlack + 1 },
		"more queries than sent": func(res *Result) { res.queries = append(res.queries, span{}) },
	} {
		res := good
		res.queries = slices.Clone(good.queries)
		if change(&res); !unseen(res) {
			t.Errorf("%s, and the row is not void", what)
		}
	}
}

// What is seen is the time of the look's begin, so nothing is said to run longer than it did.
func TestLooked(t *testing.T) {
	rec := newRecord()
	at := func(d time.Duration) time.Time { return rec.began.Add(d) }
	rec.looked(nil, at(0), at(10))
	rec.looked([]string{"a"}, at(10), at(20))
	rec.looked([]string{"b", "a"}, at(20), at(50))
	rec.looked([]string{"b"}, at(50), at(60))
	res := Result{left: 45}
	rec.events(&res)
	if !slices.Equal(res.queries, []span{{20, 50}, {50, 60}}) || res.gap != 30 {
		t.Errorf("queries %v, a gap of %v; want 20 to 50 and 50 to 60, 30", res.queries, res.gap)
	}
	if res.countQueries(); res.Queries != 2 || res.QueryMs != term.Millis(5+10) || res.LastQueryMs != term.Millis(60) {
		t.Errorf("%d queries, %v ms after the client had left, the last at %v ms", res.Queries, res.QueryMs, res.LastQueryMs)
	}
	rec.begin()
	if rec.gap != 0 {
		t.Error("what was before the row's begin counts")
	}
}

// A failing store is one that always says what it is told to.
type failing struct{ asked, looked error }

func (f failing) ask(context.Context) error                 { return f.asked }
func (f failing) running(context.Context) ([]string, error) { return nil, f.looked }
func (f failing) close() error                              { return nil }

// A query that fails for a reason of its own, or a store that can't be looked at,
// ends the run: else it would look as if the query had been stopped.
func TestStoreFails(t *testing.T) {
	denied := errors.New("permission denied")
	open := stores[SQLite].open
	t.Cleanup(func() { stores[SQLite].open = open })
	for _, c := range []struct {
		st    failing
		fails bool
	}{
		{failing{asked: denied}, true}, {failing{looked: denied}, true},
		{failing{}, false}, {failing{asked: errNothing}, false},
		{failing{asked: &stint.Error{Reason: stint.NoTime}}, false},
	} {
		stores[SQLite].open = func(context.Context, spec, string) (store, error) { return c.st, nil }
		for _, r := range storeOf(SQLite, "").rows {
			if _, err := r.run(t.Context()); c.fails != errors.Is(err, denied) || !c.fails && err != nil {
				t.Errorf("%s, %+v: error %v", r.label, c.st, err)
			}
		}
	}
	stores[SQLite].open = func(context.Context, spec, string) (store, error) { return nil, denied }
	err := Run(t.Context(), Options{Attempts: 1, Depth: 1, Store: SQLite}, func(string, string) {}, nil)
	if !errors.Is(err, denied) || !strings.Contains(err.Error(), "-store sqlite: permission denied") {
		t.Errorf("a store that can't be opened: %v", err)
	}
}

// Servers that are not there are told at once, and nothing hangs.
func TestStoreUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for st, dsn := range map[Store]string{Postgres: "postgres://user:secret@" + l.Addr().String() + "/db", Redis: "redis://:secret@" + l.Addr().String()} {
		err := Run(t.Context(), Options{Attempts: 1, Depth: 1, Store: st, DSN: dsn}, func(string, string) {}, nil)
		if err == nil || !strings.Contains(err.Error(), "-store "+st.String()) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", st, err)
		}
	}
}

func TestStoreOptions(t *testing.T) {
	for _, c := range []struct {
		st   Store
		dsn  string
		want string // in the error; empty: there is none
	}{
		{NoStore, "", ""}, {SQLite, "", ""},
		{Postgres, "postgres://u@127.0.0.1:5432/db", ""}, {Postgres, "postgresql://u@[::1]:5432/db?sslmode=disable", ""},
		{Postgres, "postgres://u@/db?host=/var/run/postgresql", ""},
		{Redis, "redis://127.0.0.1:6379", ""}, {Redis, "rediss://u:p@cache.example:6380/1", ""}, {Redis, "unix:///run/redis.sock?db=1", ""},
		{Postgres, "", "-store postgres runs on a server that you name"}, {Redis, "", "as in -dsn redis://"},
		{Postgres, "postgres:///db", "names no host and port"}, {Postgres, "host=127.0.0.1", "names no host and port"},
		{Postgres, "redis://127.0.0.1:6379", `its scheme is "redis"`}, {Postgres, "postgres://127.0.0.1:5432/db?sslmode=perhaps", "sslmode"},
		{Redis, "redis://cache.example", "names no host and port"}, {Redis, "redis://cache.example:6379/one", "database number"},
		{Redis, "http://cache.example:6379", "scheme"}, {SQLite, "file.db", "takes none"}, {NoStore, "redis://127.0.0.1:6379", "there is no -store"},
	} {
		err := Options{Attempts: 1, Depth: 1, Store: c.st, DSN: c.dsn}.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("-store %v -dsn %q: error %v, want %q in it", c.st, c.dsn, err, c.want)
		}
		var back Store
		text, _ := c.st.MarshalText()
		if err := back.UnmarshalText(text); c.st != NoStore && (err != nil || back != c.st) {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
	if err := new(Store).UnmarshalText(nil); err == nil {
		t.Error("no name is the name of a store")
	}
}

// On a silent network nothing arrives, no end either, and nothing is lost.
func TestNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var n network
	var thawed atomic.Bool
	got := make(chan string)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 5)
		io.ReadFull(c, buf)
		c.Write(buf)
		rest, _ := io.ReadAll(c)
		if !thawed.Load() {
			rest = []byte("something before the thaw")
		}
		got <- string(rest)
	}()
	c, err := n.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if c.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("it reaches %v, want %v", c.RemoteAddr(), l.Addr())
	}
	io.WriteString(c, "hello")
	back := make([]byte, 5)
	if _, err := io.ReadFull(c, back); err != nil || string(back) != "hello" {
		t.Errorf("%q came back, error %v", back, err)
	}
	n.freeze()
	io.WriteString(c, "bye")
	// Nothing is taken while something is held. If it were, then within this time.
	c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.WriteString(c, "!"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write on a silent network: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read on a silent network: %v", err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.dial(ctx, "tcp", l.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("a new connection on a silent network: %v", err)
	}
	thawed.Store(true)
	n.thaw()
	if text := <-got; text != "bye" {
		t.Errorf("the server had %q, want what was held", text)
	}
	n.all.Wait()
	if _, err := n.dial(t.Context(), "tcp", "127.0.0.1:0"); err == nil {
		t.Error("a server that is not there was reached")
	}
}
