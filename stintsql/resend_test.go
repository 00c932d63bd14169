package stintsql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintsql"
)

func sends(s *store, what string) (n int) {
	for _, l := range s.lines() {
		if strings.HasSuffix(l, what) {
			n++
		}
	}
	return n
}

// TestResentWithin: what database/sql makes again on another connection, since an attempt's time cost the one it
// was on, is the same call: it has no more attempts than it was given, nor more time.
func TestResentWithin(t *testing.T) {
	for _, x := range []struct {
		attempts int
		timeout  time.Duration // the policy's
		deadline time.Duration // the caller's; zero: none
		reserve  time.Duration
		sends    int
		took     time.Duration
	}{
		{attempts: 1, timeout: time.Second, sends: 1, took: 100 * time.Millisecond},
		{attempts: 2, timeout: time.Second, sends: 2, took: 200 * time.Millisecond},
		{attempts: 3, timeout: time.Second, sends: 3, took: 300 * time.Millisecond},
		{attempts: 9, timeout: time.Second, sends: 3, took: 300 * time.Millisecond}, // database/sql has no more connections for it
		{attempts: 3, timeout: 150 * time.Millisecond, sends: 2, took: 150 * time.Millisecond},
		{attempts: 3, timeout: 250 * time.Millisecond, sends: 3, took: 250 * time.Millisecond},
		{attempts: 3, timeout: time.Second, deadline: 150 * time.Millisecond, sends: 2, took: 150 * time.Millisecond},
		{attempts: 3, timeout: time.Second, deadline: 170 * time.Millisecond, reserve: 20 * time.Millisecond, sends: 2, took: 150 * time.Millisecond},
		{attempts: 3, timeout: 100 * time.Millisecond, sends: 1, took: 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{on: func(_ *fake, _ int, what, _ string) answer { return answer{silent: what == "exec"} }}
			s := open(t, f, stint.Policy{Timeout: x.timeout, Reserve: x.reserve, Retry: stint.Retry{Attempts: x.attempts, AttemptTimeout: 100 * time.Millisecond}},
				stintsql.Options{Dialect: stintsql.None})
			ctx := stintsql.WithOp(context.Background(), stint.Op{Safety: stint.Idempotent})
			if x.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, x.deadline)
				defer cancel()
			}
			for i := range 2 { // the second shows that the first left nothing behind, though its context is the same
				if i > 0 && x.deadline > 0 {
					break
				}
				start := time.Now()
				_, err := s.ExecContext(ctx, "insert")
				took := time.Since(start)
				if n := sends(s, "exec insert"); n != x.sends || took != x.took {
					t.Errorf("%+v: %d sends in %v", x, n, took)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stintsql.ErrOutcomeUnknown) || errors.Is(err, driver.ErrBadConn) {
					t.Errorf("%+v: %v, want a deadline, and that the outcome is unknown", x, err)
				}
			}
		})
	}
}

// TestResentSlowly: what was never sent has no more time either, though each connection was slow to show that it is dead.
func TestResentSlowly(t *testing.T) {
	stintsql.Honest(t, thisPackage)
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer {
			if what == "exec" {
				return answer{after: 80 * time.Millisecond, err: driver.ErrBadConn}
			}
			return answer{}
		}}
		s := open(t, f, stint.Policy{Timeout: 100 * time.Millisecond}, stintsql.Options{Dialect: stintsql.None})
		start := time.Now()
		_, err := s.ExecContext(t.Context(), "insert")
		if took := time.Since(start); took != 100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v, want a deadline after 100ms", err, took)
		}
	})
}

// TestResentRefused: that one more attempt was refused makes the first no more known than it was.
func TestResentRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(f *fake, conn int, what, _ string) answer {
			switch {
			case what == "exec" && conn == 1:
				return answer{silent: true}
			case what == "connect" && conn == 2:
				return answer{after: 80 * time.Millisecond}
			}
			return answer{}
		}}
		s := open(t, f, stint.Policy{Timeout: 200 * time.Millisecond, MinUseful: 50 * time.Millisecond,
			Retry: stint.Retry{Attempts: 2, AttemptTimeout: 100 * time.Millisecond}}, stintsql.Options{Dialect: stintsql.None})
		_, err := s.ExecContext(stintsql.WithOp(t.Context(), stint.Op{Safety: stint.Idempotent}), "insert")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("%v, want a deadline, and that the outcome is unknown", err)
		}
		if n := sends(s, "exec insert"); n != 1 {
			t.Errorf("%d sends, want 1: there was no time for another", n)
		}
	})
}

// TestResentOfConn: a sql.Conn hands nothing over. The next call with the same context and words, when that one's time is
// over, has its own.
func TestResentOfConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := true
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer { return answer{silent: what == "exec" && slow} }}
		s := open(t, f, stint.Policy{Timeout: 250 * time.Millisecond, Retry: stint.Retry{Attempts: 2, AttemptTimeout: 100 * time.Millisecond}},
			stintsql.Options{Dialect: stintsql.None})
		ctx := stintsql.WithOp(context.Background(), stint.Op{Safety: stint.Idempotent})
		c, err := s.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ExecContext(ctx, "insert")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stintsql.ErrOutcomeUnknown) {
			t.Errorf("%v, want a deadline, and that the outcome is unknown", err)
		}
		c.Close()
		time.Sleep(250 * time.Millisecond)
		s.lines()
		start := time.Now()
		_, err = s.ExecContext(ctx, "insert")
		if took, n := time.Since(start), sends(s, "exec insert"); took != 200*time.Millisecond || n != 2 {
			t.Errorf("%d sends in %v: %v, want 2 in 200ms", n, took, err)
		}
	})
}

// A badKey is a context that can't be compared.
type badKey struct {
	context.Context
	_ []int
}

// TestResentIncomparable: nobody panics over a context that can't be compared.
func TestResentIncomparable(t *testing.T) {
	stintsql.Honest(t, thisPackage)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{on: failing(2, "exec", driver.ErrBadConn)}, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
		for range 2 {
			if _, err := s.ExecContext(badKey{Context: t.Context()}, "insert"); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestResentAttempts: the error and the events count a call's attempts as one call's.
func TestResentAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{on: func(_ *fake, _ int, what, _ string) answer { return answer{silent: what == "exec"} }}
		s := open(t, f, stint.Policy{Timeout: time.Second, Retry: stint.Retry{Attempts: 2, AttemptTimeout: 100 * time.Millisecond}},
			stintsql.Options{Dialect: stintsql.None})
		_, err := s.ExecContext(stintsql.WithOp(t.Context(), stint.Op{Safety: stint.Idempotent}), "insert")
		e, ok := errors.AsType[*stint.Error](err)
		if !ok || e.Attempts != 2 || e.Reason != stint.AttemptsSpent {
			t.Errorf("%v: want two attempts, and no more", err)
		}
		if n := len(s.rec.Events(stint.Resent)); n != 1 {
			t.Errorf("%d events of a resend, want 1", n)
		}
		want := []string{"connect ok ", "insert timed_out attempt_timeout", "insert failed bad_conn", "connect ok ", "insert timed_out attempt_timeout"}
		if got := s.outcomes(stint.AttemptDone); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestSetAmongOthers: what is set among several statements in one text is noticed, too.
func TestSetAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.PostgreSQL})
		for _, query := range []string{"select 1;", "select 2; set statement_timeout = 0", "select 3"} {
			if err := exec(s, within(t, time.Second), query); err != nil {
				t.Fatal(err)
			}
		}
		s.same(t, "several statements", "1 connect", "1 exec set statement_timeout = 895", "1 exec select 1;",
			"1 exec select 2; set statement_timeout = 0", "1 exec set statement_timeout = 895", "1 exec select 3")
	})
}

// TestUndoneByStatement: a transaction that was begun by a statement, and that the server has rolled back, takes no further
// one until it is ended; and a connection that is given back without that has no further user.
func TestUndoneByStatement(t *testing.T) {
	for _, end := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, &fake{}, stint.Policy{}, stintsql.Options{Dialect: stintsql.MySQL})
			lose := true
			s.fake.on = func(_ *fake, _ int, _, query string) answer {
				if query == "update" && lose {
					lose = false
					return answer{err: &numbered{1213}}
				}
				return answer{}
			}
			ctx := within(t, time.Second)
			c, err := s.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			run := func(query string) error {
				_, err := c.ExecContext(ctx, query)
				return err
			}
			if err := run("begin"); err != nil {
				t.Error(err)
			}
			if run("update") == nil || run("insert") == nil {
				t.Error("a statement of a transaction that is no more succeeded")
			}
			want := []string{"1 connect", "1 exec begin", "1 exec update"}
			if end {
				if err := errors.Join(run("rollback"), run("insert")); err != nil {
					t.Error(err)
				}
				want = append(want, "1 exec rollback", "1 exec insert")
			}
			c.Close()
			if err := exec(s, ctx, "delete"); err != nil {
				t.Error(err)
			}
			if end {
				want = append(want, "1 exec delete")
			} else {
				want = append(want, "1 close", "2 connect", "2 exec delete")
			}
			s.same(t, "a deadlock's loser", want...)
		})
	}
}

// TestResentTogether: many calls with one context and the same words find their connections dead. Each is made again.
func TestResentTogether(t *testing.T) {
	stintsql.Honest(t, thisPackage)
	synctest.Test(t, func(t *testing.T) {
		const calls = 16
		f := &fake{}
		s := open(t, f, stint.Policy{}, stintsql.Options{Dialect: stintsql.None})
		s.SetMaxOpenConns(calls)
		s.SetMaxIdleConns(calls)
		ctx := context.Background()
		all := func() {
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					if err := exec(s, ctx, "insert"); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		f.on = func(_ *fake, _ int, what, _ string) answer { return answer{after: time.Millisecond} }
		all()
		f.on = func(_ *fake, conn int, what, _ string) answer {
			if what == "exec" && conn <= calls {
				return answer{err: driver.ErrBadConn}
			}
			return answer{}
		}
		f.mu.Lock()
		made := f.conns
		f.mu.Unlock()
		if made != calls {
			t.Fatalf("%d connections, want %d", made, calls)
		}
		all()
	})
}
