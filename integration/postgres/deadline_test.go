package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/integration/testenv"
	"github.com/stint-go/stint/stintpgx"
)

// TestDeadline: the server stops in time, the caller has its answer in time, and the
// connection is as it was.
func TestDeadline(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "alter database "+name+" set statement_timeout = '30s'")
	s := open(t, pg.DSN(name), 1, stint.Policy{Breaker: stint.Breaker{Off: true}}, nil)
	pid := s.pid(t)

	const deadline, runs = 100 * time.Millisecond, 20
	var caller, backend []time.Duration
	kept := 0
	for range runs {
		start := time.Now()
		_, err := s.Exec(within(t, deadline), "select pg_sleep(3)")
		caller = append(caller, time.Since(start))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want a deadline", err)
		}
		backend = append(backend, idle(t, admin, pid).Sub(start))
		if now := s.pid(t); now == pid {
			kept++
		} else {
			pid = now
		}
	}
	if kept < runs/2 { // where the machine stood still, the client's own limit came first, which costs the connection
		t.Errorf("the connection was kept %d times of %d, want all but a few", kept, runs)
	}
	if v := s.show(t, "statement_timeout"); v != "30s" {
		t.Errorf("statement_timeout is %s afterwards, want the database's 30s", v)
	}
	c, b := median(caller), median(backend)
	t.Logf("deadline %v, median of %d: caller back after %v, backend idle after %v; the aim is 10ms more; connection kept %d times", deadline, runs, c, b, kept)
	if most := deadline + 100*time.Millisecond; c > most || b > most { // without a limit it is 3 s; a busy machine is not the point
		t.Errorf("caller %v, backend %v: want at most %v", c, b, most)
	}
	if e := s.rec.Events(stint.CallDone)[2]; e.Outcome.Kind != stint.Expired || e.Reason != stint.NoTime || e.Op != "select" {
		t.Errorf("reported as %v, %v, %q: want the end of the caller's time, of a select", e.Outcome.Kind, e.Reason, e.Op)
	}
}

// TestSilentNetwork: the server stops though nobody can tell it to.
func TestSilentNetwork(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	const left, work = 200 * time.Millisecond, 2
	sql := fmt.Sprintf("select pg_sleep(%d)", work)
	for _, plain := range []bool{false, true} {
		proxy := pg.Proxy(t)
		s := open(t, proxy.DSN(name), 1, stint.Policy{}, nil)
		pool, exec := s.Unwrap(), s.Exec
		if plain {
			var err error
			if pool, err = pgxpool.New(context.Background(), proxy.DSN(name)+" pool_max_conns=1"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			exec = pool.Exec
		}
		if _, err := exec(within(t, patience), "select pg_sleep(0)"); err != nil {
			t.Fatal(err)
		}
		var err error
		for range 10 { // where the machine stands still, the answer is there before the silence
			var pid int
			if err := pool.QueryRow(within(t, patience), "select pg_backend_pid()").Scan(&pid); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			done := make(chan error, 1)
			go func() {
				_, err := exec(within(t, left), sql)
				done <- err
			}()
			until(t, func() bool { return len(done) > 0 || active(t, admin, pid, sql) })
			proxy.Freeze()
			err = <-done
			back := time.Since(start)
			stopped := idle(t, admin, pid).Sub(start)
			proxy.Thaw()
			if !errors.Is(err, context.DeadlineExceeded) || !plain && !errors.Is(err, stintpgx.ErrOutcomeUnknown) {
				continue
			}
			t.Logf("plain %v: %v left, a query of %d s, network silent: caller back after %v, backend idle after %v", plain, left, work, back, stopped)
			if !plain && (back > time.Second || stopped > time.Second) { // the aim is 250ms; without the server's limit it is the work's 2 s
				t.Errorf("caller %v, backend %v: want at most 1s", back, stopped)
			}
			err = nil
			break
		}
		if err != nil {
			t.Errorf("plain %v: error %v, want a deadline, and ErrOutcomeUnknown but for plain", plain, err)
		}
	}
}

// TestTimeoutsKeepConnections: 290 timeouts cost none.
func TestTimeoutsKeepConnections(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, _ := database(t, pg)
	const conns, timeouts = 4, 290
	proxy := pg.Proxy(t)
	margin := 25 * time.Millisecond // for a machine that is busy with other tests
	s := open(t, proxy.DSN(name), conns, stint.Policy{Breaker: stint.Breaker{Off: true}}, &stintpgx.Options{Margin: margin})
	var warm sync.WaitGroup
	for range conns { // at once, so that each opens one
		warm.Go(func() {
			if _, err := s.Exec(within(t, patience), "select pg_sleep(0.1)"); err != nil {
				t.Error(err)
			}
		})
	}
	warm.Wait()
	before := proxy.Opened()
	jobs := make(chan int)
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			for range jobs {
				ctx, cancel := context.WithTimeout(context.Background(), 3*margin)
				if _, err := s.Exec(ctx, "select pg_sleep(3)"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want a deadline", err)
				}
				cancel()
			}
		})
	}
	for i := range timeouts {
		jobs <- i
	}
	close(jobs)
	all.Wait()
	n := proxy.Opened() - before
	t.Logf("%d new connections in %d timeouts; the aim is none", n, timeouts)
	if n > timeouts/10 { // a machine that stands still costs some; without the server's limit each timeout does
		t.Errorf("%d new connections in %d timeouts, want at most %d", n, timeouts, timeouts/10)
	}
}

// TestB32: a limit is gone with its statement or transaction, whatever became of it.
func TestB32(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	run(t, admin, "alter database "+name+" set statement_timeout = '30s'")
	const short = 400 * time.Millisecond
	begin := func(t *testing.T, s *store) (context.Context, pgx.Tx) {
		ctx := within(t, short)
		tx, err := s.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "insert into rows values (1)"); err != nil {
			t.Fatal(err)
		}
		return ctx, tx
	}
	for end, do := range map[string]func(t *testing.T, s *store){
		"statement": func(t *testing.T, s *store) {
			if _, err := s.Exec(within(t, short), "insert into rows values (1)"); err != nil {
				t.Fatal(err)
			}
		},
		"commit": func(t *testing.T, s *store) {
			ctx, tx := begin(t, s)
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		},
		"rollback": func(t *testing.T, s *store) {
			ctx, tx := begin(t, s)
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		},
		"deadline": func(t *testing.T, s *store) {
			ctx, tx := begin(t, s)
			if _, err := tx.Exec(ctx, "select pg_sleep(3)"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v, want a deadline", err)
			}
			<-ctx.Done()
			if err := tx.Rollback(ctx); err != nil {
				t.Fatalf("rollback after the deadline: %v", err)
			}
		},
		"cancel": func(t *testing.T, s *store) {
			ctx, cancel := context.WithCancel(within(t, patience))
			tx, err := s.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(short, cancel)
			if _, err := tx.Exec(ctx, "select pg_sleep(3)"); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v, want a cancel", err)
			}
			tx.Rollback(ctx)
		},
		"panic": func(t *testing.T, s *store) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			pgx.BeginFunc(within(t, short), s, func(pgx.Tx) error { panic("a bug") })
		},
	} {
		t.Run(end, func(t *testing.T) {
			s := open(t, pg.DSN(name), 1, stint.Policy{}, &stintpgx.Options{Margin: 100 * time.Millisecond}) // for a busy machine
			s.pid(t)
			do(t, s)
			if v := s.show(t, "statement_timeout"); v != "30s" {
				t.Errorf("statement_timeout is %s afterwards, want the database's 30s", v)
			}
			if v := s.show(t, "idle_in_transaction_session_timeout"); v != "0" {
				t.Errorf("idle_in_transaction_session_timeout is %s afterwards, want the default 0", v)
			}
			if _, err := s.Exec(within(t, 5*time.Second), "select pg_sleep(0.2)"); err != nil {
				t.Errorf("a query of 200 ms with 5 s left: %v", err)
			}
		})
	}
}

// TestB32Pooler: behind a transaction pooler nothing leaks to another client.
func TestB32Pooler(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	run(t, admin, "create table rows (n int)")
	bouncer := testenv.StartPgbouncer(t, pg, 1) // both clients have the one server connection
	mode := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }
	ours := open(t, bouncer.DSN(name), 1, stint.Policy{}, nil, mode) // nobody has told it
	config, err := pgxpool.ParseConfig(bouncer.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	mode(config)
	other, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	check := func(after string) {
		t.Helper()
		var v string
		if err := other.QueryRow(within(t, patience), "show statement_timeout").Scan(&v); err != nil || v != "0" {
			t.Errorf("after %s the other client sees statement_timeout = %q, error %v: want 0", after, v, err)
		}
		if _, err := other.Exec(within(t, patience), "select pg_sleep(0.6)"); err != nil {
			t.Errorf("after %s the other client's query of 600 ms: %v", after, err)
		}
	}
	const short = 400 * time.Millisecond // shorter than the other client's query, and enough to connect
	if _, err := ours.Exec(within(t, short), "insert into rows values (1)"); err != nil {
		t.Fatal(err)
	}
	check("a statement")
	if !ours.Pooler() {
		t.Error("the pooler was not noticed")
	}
	if _, err := ours.Exec(within(t, short), "select pg_sleep(3)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want a deadline", err)
	}
	check("a timeout")
	err = pgx.BeginFunc(within(t, short), ours, func(tx pgx.Tx) error {
		_, err := tx.Exec(within(t, short), "insert into rows values (2)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	check("a transaction")
	if _, err := ours.Exec(within(t, short), "vacuum rows"); err == nil {
		t.Error("VACUUM behind a pooler, which needs a limit of the session: want an error")
	} else {
		t.Log(err)
	}
	check("VACUUM")
	if n := number(t, admin, "select count(*) from rows"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// TestCancel: a caller that leaves is not held, and the server is told to stop.
func TestCancel(t *testing.T) {
	pg := testenv.SharedPostgres(t)
	name, admin := database(t, pg)
	s := open(t, pg.DSN(name), 1, stint.Policy{}, nil)
	pid := s.pid(t)
	ctx, cancel := context.WithCancel(within(t, patience))
	left := make(chan error)
	go func() {
		_, err := s.Exec(ctx, "select pg_sleep(60)")
		left <- err
	}()
	until(t, func() bool { return active(t, admin, pid, "pg_sleep") })
	start := time.Now()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want a cancel", err)
	}
	back := time.Since(start)
	stopped := idle(t, admin, pid).Sub(start)
	t.Logf("after the cancel: caller back in %v (aim 10ms), backend idle in %v", back, stopped)
	if err := s.Ping(within(t, patience)); err != nil {
		t.Errorf("the pool's only place is not free: %v", err)
	}
}
