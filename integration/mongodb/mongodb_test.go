package mongodb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinttest"
)

const uri = "mongodb://" + host + "/?replicaSet=rs"

// three is a policy of three attempts, 1 ms apart.
var three = stint.Policy{MinUseful: 10 * time.Millisecond, Breaker: stint.Breaker{Off: true},
	Retry: stint.Retry{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond}}

// run runs a test in virtual time, with a store on a scripted server.
func run(t *testing.T, p stint.Policy, reply func(name string, n int) any, test func(*testing.T, *store, *fake, *stinttest.Recorder)) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, reply)
		rec := &stinttest.Recorder{}
		caller, err := stint.NewCaller("orders-db", p, &stint.CallerOptions{Classify: classify, Observer: rec, Rand: func() float64 { return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		client, err := mongo.Connect(clientOptions(uri, caller).SetDialer(f.network))
		if err != nil {
			t.Fatal(err)
		}
		test(t, &store{caller, client.Database("shop")}, f, rec)
		synctest.Wait()
		client.Disconnect(context.Background())
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// limit returns what a command allows the server, or 0.
func limit(command bson.Raw) time.Duration {
	ms, _ := command.Lookup("maxTimeMS").AsInt64OK()
	return time.Duration(ms) * time.Millisecond
}

// What each call puts on the wire: the time left where the driver writes it, in the
// same command.
func TestMongoLimits(t *testing.T) {
	written := bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	reply := func(name string, _ int) any {
		if name == "find" || name == "aggregate" {
			return found(bson.D{{Key: "_id", Value: "a"}, {Key: "total", Value: 7}})
		}
		return written
	}
	const left = 120 * time.Millisecond
	run(t, three, reply, func(t *testing.T, s *store, f *fake, rec *stinttest.Recorder) {
		all := s.db.Collection("orders")
		for _, c := range []struct {
			name, command string
			limited       bool
			call          func(context.Context) error
		}{
			{"insert", "insert", true, func(ctx context.Context) error { return s.insert(ctx, order{"a", 7}) }},
			{"put", "update", true, func(ctx context.Context) error { return s.put(ctx, order{"a", 7}) }},
			{"get", "find", true, func(ctx context.Context) error { _, err := s.get(ctx, "a"); return err }},
			{"above", "find", true, func(ctx context.Context) error {
				orders, err := s.above(ctx, 5)
				if !slices.Equal(orders, []order{{"a", 7}}) {
					t.Errorf("above: %v", orders)
				}
				return err
			}},
			// The driver leaves it out, which is why the recipe does without them.
			{"Find", "find", false, func(ctx context.Context) error {
				return s.do(ctx, stint.Op{}, func(ctx context.Context) error { _, err := all.Find(ctx, bson.D{}); return err })
			}},
			{"Aggregate", "aggregate", false, func(ctx context.Context) error {
				return s.do(ctx, stint.Op{}, func(ctx context.Context) error { _, err := all.Aggregate(ctx, bson.A{}); return err })
			}},
		} {
			before := len(f.seen(c.command))
			if err := c.call(within(t, left)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			sent := f.seen(c.command)[before:]
			if len(sent) != 1 || (limit(sent[0]) == left) != c.limited || (limit(sent[0]) == 0) == c.limited {
				t.Errorf("%s: sent %v with %v left, want one with that as its limit: %v", c.name, sent, left, c.limited)
			}
		}
	})
}

// One insert is sent once when its answer is cut off; as the driver comes, with a
// deadline it is sent until somebody answers, every half second.
func TestMongoSendsOnce(t *testing.T) {
	reply := func(name string, n int) any {
		if n <= 4 {
			return cut{}
		}
		return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	}
	run(t, three, reply, func(t *testing.T, s *store, f *fake, rec *stinttest.Recorder) {
		err := s.insert(within(t, 10*time.Second), order{"a", 7})
		e, ok := errors.AsType[*stint.Error](err)
		if sent := len(f.seen("insert")); sent != 1 || !ok || e.Reason != stint.NotRepeatable || e.Last.Code != "network" {
			t.Errorf("sent %d times, %v; want once, and not repeated since it may have been written", sent, err)
		}
		plain, err := mongo.Connect(options.Client().ApplyURI(uri).SetDialer(f.network))
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Disconnect(context.Background())
		_, err = plain.Database("shop").Collection("orders").InsertOne(within(t, 10*time.Second), order{"a", 7})
		if sent := len(f.seen("insert")) - 1; sent != 4 || err != nil {
			t.Errorf("the driver alone: sent %d times, %v; want 4, the last answered", sent, err)
		}
	})
}

// What may be repeated the Caller repeats, and each sending is an attempt.
func TestMongoRepeats(t *testing.T) {
	reply := func(name string, n int) any {
		switch {
		case n == 1:
			return cut{}
		case n == 2 && name == "update":
			return failure(91) // ShutdownInProgress
		case name == "find":
			return found()
		case n == 1+1 && name == "insert":
			return failure(10107) // NotWritablePrimary
		}
		return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	}
	run(t, three, reply, func(t *testing.T, s *store, f *fake, rec *stinttest.Recorder) {
		if err := s.put(within(t, 5*time.Second), order{"a", 7}); err != nil || len(f.seen("update")) != 3 {
			t.Errorf("put: %v, sent %d times, want 3", err, len(f.seen("update")))
		}
		_, err := s.get(within(t, 5*time.Second), "a")
		if !errors.Is(err, mongo.ErrNoDocuments) || len(f.seen("find")) != 2 {
			t.Errorf("get: %v, sent %d times, want no document, and 2", err, len(f.seen("find")))
		}
		s.insert(within(t, 5*time.Second), order{"a", 7}) // cut
		if err := s.insert(within(t, 5*time.Second), order{"b", 7}); err != nil || len(f.seen("insert")) != 3 {
			t.Errorf("insert: %v, sent %d times, want 3: one that was cut off, one that the server refused, and that again", err, len(f.seen("insert")))
		}
		sent := len(f.seen("update")) + len(f.seen("find")) + len(f.seen("insert"))
		if attempts := len(rec.Events(stint.AttemptDone)); attempts != sent {
			t.Errorf("%d attempts, %d commands", attempts, sent)
		}
	})
}

// With too little time nothing is sent; and who finds no server has not begun, so
// that even an insert is tried again, in the time that the call has.
func TestMongoNotStarted(t *testing.T) {
	answers := func(string, int) any { return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}} }
	run(t, three, answers, func(t *testing.T, s *store, f *fake, rec *stinttest.Recorder) {
		if err := s.insert(within(t, 9*time.Millisecond), order{"a", 7}); !errors.Is(err, context.DeadlineExceeded) || len(f.seen("insert")) > 0 {
			t.Errorf("with less than MinUseful: %v, sent %d times", err, len(f.seen("insert")))
		}
		rec.Reset()
		nowhere := clientOptions("mongodb://nobody/", s.caller).SetDialer(f.network)
		client, err := mongo.Connect(nowhere)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Disconnect(context.Background())
		start := time.Now()
		err = (&store{s.caller, client.Database("shop")}).insert(within(t, 2500*time.Millisecond), order{"a", 7})
		attempts := rec.Events(stint.AttemptDone)
		if len(attempts) != 3 || !attempts[0].Outcome.NotStarted || !attempts[1].Outcome.NotStarted || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2500*time.Millisecond {
			t.Errorf("without a server: %v after %v, %v", err, time.Since(start), attempts)
		}
	})
}

// The caller is back at its deadline, or at once when it cancels. A Find that has timed
// out nobody stops: no command says so to the server.
func TestMongoCallerLeaves(t *testing.T) {
	run(t, three, func(string, int) any { return silence{} }, func(t *testing.T, s *store, f *fake, rec *stinttest.Recorder) {
		find := func(ctx context.Context) error {
			return s.do(ctx, stint.Op{Name: "orders.find"}, func(ctx context.Context) error {
				_, err := s.db.Collection("orders").Find(ctx, bson.D{})
				return err
			})
		}
		start := time.Now()
		if err := find(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 50*time.Millisecond {
			t.Errorf("deadline: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		start = time.Now()
		if err := find(ctx); !errors.Is(err, context.Canceled) || time.Since(start) != 30*time.Millisecond {
			t.Errorf("cancel: %v after %v", err, time.Since(start))
		}
		time.Sleep(10 * time.Second) // virtual: whatever the driver would send after it
		if all := f.commands; len(all) != 2 {
			t.Errorf("the server was sent %v, want the two finds and nothing that stops them", all)
		}
	})
}

// A commit whose answer does not come is unknown. The driver repeats it, whatever
// the options say; it is the same commit to the server. The recipe sends no abort after it.
func TestMongoCommit(t *testing.T) {
	for _, c := range []struct {
		name    string
		commit  func(n int) any
		left    time.Duration
		commits int // sent
		aborts  int
		unknown bool
		took    time.Duration
	}{
		{"answered", func(int) any { return ok }, time.Second, 1, 0, false, 0},
		{"silent", func(int) any { return silence{} }, 300 * time.Millisecond, 1, 0, true, 1300 * time.Millisecond},
		{"cut off twice", func(n int) any {
			if n <= 2 {
				return cut{}
			}
			return ok
		}, 300 * time.Millisecond, 3, 0, false, time.Second},
		{"always cut off", func(int) any { return cut{} }, 300 * time.Millisecond, 3, 0, true, 1300 * time.Millisecond},
		{"in doubt at the server", func(int) any { return failure(64, "UnknownTransactionCommitResult") }, time.Second, 1, 0, true, 0},
		{"stopped by the server's limit", func(int) any { return failure(50) }, time.Second, 1, 0, true, 0},
		{"conflict", func(int) any { return failure(112, "TransientTransactionError") }, time.Second, 3, 0, false, 2 * time.Millisecond},
		{"too late", func(int) any { return ok }, 209 * time.Millisecond, 0, 1, false, 200 * time.Millisecond},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			reply := func(name string, n int) any {
				if name == "commitTransaction" {
					return c.commit(n)
				}
				return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
			}
			run(t, three, reply, func(t *testing.T, s *store, f *fake, rec *stinttest.Recorder) {
				start := time.Now()
				err := s.transaction(within(t, c.left), stint.Op{Name: "orders.pay"}, func(ctx context.Context) error {
					_, err := s.db.Collection("orders").InsertOne(ctx, order{"a", 7})
					if c.commits == 0 {
						time.Sleep(200 * time.Millisecond)
					}
					return err
				})
				took := time.Since(start)
				time.Sleep(10 * time.Second) // virtual
				commits, aborts := len(f.seen("commitTransaction")), len(f.seen("abortTransaction"))
				if commits != c.commits || aborts != c.aborts || errors.Is(err, errOutcomeUnknown) != c.unknown || took != c.took {
					t.Errorf("%v after %v, %d commits and %d aborts sent; want unknown %v after %v, %d and %d",
						err, took, commits, aborts, c.unknown, c.took, c.commits, c.aborts)
				}
			})
		})
	}
}

// How answers are judged.
func TestMongoClassify(t *testing.T) {
	bad := func(code int32, labels ...string) error { return mongo.CommandError{Code: code, Labels: labels} }
	for _, c := range []struct {
		err        error
		kind       stint.Kind
		notStarted bool
		code       string
	}{
		{mongo.ErrNoDocuments, stint.OK, false, "ok"},
		{bad(50), stint.TimedOut, false, "max_time"},
		{bad(462, "SystemOverloadedError", "RetryableError"), stint.Overloaded, false, "overloaded"},
		{bad(10107, "RetryableWriteError"), stint.Transient, true, "not_primary"},
		{bad(91, "RetryableWriteError"), stint.Transient, false, "unavailable"},
		{bad(91, "RetryableWriteError", "NoWritesPerformed"), stint.Transient, true, "no_writes"},
		{bad(251, "TransientTransactionError"), stint.Transient, true, "transaction"},
		{bad(0, "NetworkError", "TransientTransactionError"), stint.Transient, false, "network"},
		{bad(13), stint.Rejected, false, "rejected"},
		{mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000}}}, stint.Rejected, false, "rejected"},
		{bad(1), stint.Failed, false, "error"},
		{fmt.Errorf("%w: %w", errOutcomeUnknown, bad(0, "NetworkError")), stint.Failed, false, "outcome_unknown"},
		{unsent{mongo.ErrNilDocument}, stint.Rejected, true, "refused"},
		{unsent{context.DeadlineExceeded}, stint.TimedOut, true, "timeout"},
		{errors.New("of the function's own"), stint.Failed, false, "error"},
	} {
		if o := classify(t.Context(), c.err); o.Kind != c.kind || o.NotStarted != c.notStarted || o.String() != c.code {
			t.Errorf("%v: %v, not started %v, %s; want %v, %v, %s", c.err, o.Kind, o.NotStarted, o, c.kind, c.notStarted, c.code)
		}
	}
}

// docs/mongodb.md shows the recipe as it is.
func TestMongoDoc(t *testing.T) {
	doc, err := os.ReadFile("../../docs/mongodb.md")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile("recipe_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(doc), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Error("it shows nothing")
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if !strings.Contains(string(recipe), "\n"+b) {
			t.Errorf("recipe_test.go has nothing like this:\n%s", b)
		}
	}
}
