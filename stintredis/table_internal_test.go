package stintredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
)

func cmdOf(args ...any) redis.Cmder { return redis.NewCmd(context.Background(), args...) }

func TestOperation(t *testing.T) {
	for _, tt := range []struct {
		cmd    redis.Cmder
		name   string
		safety stint.Safety
	}{
		{cmdOf("get", "k"), "get", stint.ReadOnly},
		{cmdOf("GET", "k"), "get", stint.ReadOnly},
		{cmdOf("set", "k", "v"), "set", stint.Idempotent},
		{cmdOf("set", "k", "nx"), "set", stint.Idempotent},
		{cmdOf("set", "k", "v", "ex", 5), "set", stint.Idempotent},
		{cmdOf("set", "k", "v", "ex", 5, "NX"), "set", stint.Unrepeatable},
		{cmdOf("set", "k", "v", "get"), "set", stint.Unrepeatable},
		{cmdOf("zadd", "k", 1, "m"), "zadd", stint.Idempotent},
		{cmdOf("zadd", "k", "incr", 1, "m"), "zadd", stint.Unrepeatable},
		{cmdOf("incr", "k"), "incr", stint.Unrepeatable},
		{cmdOf("lpush", "k", 1), "lpush", stint.Unrepeatable},
		{cmdOf("xadd", "k", "*", "f", "v"), "xadd", stint.Unrepeatable},
		{cmdOf("setnx", "k", 1), "setnx", stint.Unrepeatable},
		{cmdOf("evalsha_ro", "abc"), "evalsha_ro", stint.ReadOnly},
		{cmdOf("xinfo", "STREAM", "s"), "xinfo stream", stint.ReadOnly},
		{cmdOf("xgroup", "create", "s", "g", "$"), "xgroup", stint.Unrepeatable},
		{cmdOf("config", "set", "a", "b"), "config", stint.Unrepeatable},
		{cmdOf("config", "get", "a"), "config get", stint.ReadOnly},
		{cmdOf("config"), "config", stint.Unrepeatable},
		{cmdOf("ft.search", "i", "q"), "other", stint.Unrepeatable},
		{cmdOf(), "other", stint.Unrepeatable},
	} {
		if op := operation(tt.cmd); op.Name != tt.name || op.Safety != tt.safety {
			t.Errorf("%v: %q, %v; want %q, %v", tt.cmd.Args(), op.Name, op.Safety, tt.name, tt.safety)
		}
	}
	if op := operation(redis.NewRawWriteToCmd(context.Background(), io.Discard, "get", "k")); !op.OneShot {
		t.Error("what is written as it comes can't be produced again")
	}
}

func TestOperationOfMany(t *testing.T) {
	get, set, incr := cmdOf("get", "k"), cmdOf("set", "k", 1), cmdOf("incr", "k")
	multi, exec := cmdOf("multi"), cmdOf("exec")
	for _, tt := range []struct {
		cmds   []redis.Cmder
		name   string
		safety stint.Safety
	}{
		{[]redis.Cmder{get, get}, "pipeline", stint.ReadOnly},
		{[]redis.Cmder{get, set}, "pipeline", stint.Idempotent},
		{[]redis.Cmder{set, incr, get}, "pipeline", stint.Unrepeatable},
		{[]redis.Cmder{multi, get, exec}, "transaction", stint.ReadOnly},
		{[]redis.Cmder{multi, get, set, exec}, "transaction", stint.Unrepeatable},
	} {
		if op := operations(tt.cmds); op.Name != tt.name || op.Safety != tt.safety {
			t.Errorf("%v: %q, %v; want %q, %v", tt.cmds, op.Name, op.Safety, tt.name, tt.safety)
		}
	}
}

// B03: what is cut to less than a unit never becomes zero, which is for ever.
func TestClamp(t *testing.T) {
	const sec, ms = time.Second, time.Millisecond
	for _, tt := range []struct {
		left time.Duration
		args []any
		want []any
		wait time.Duration
	}{
		{sec, []any{"blpop", "k", int64(0)}, []any{"blpop", "k", "0.850"}, 850 * ms},
		{sec, []any{"blpop", "k", int64(5)}, []any{"blpop", "k", "0.850"}, 850 * ms},
		{10 * sec, []any{"blpop", "k", int64(5)}, []any{"blpop", "k", int64(5)}, 5 * sec},
		{sec, []any{"blpop", "k", "0.5"}, []any{"blpop", "k", "0.5"}, 500 * ms},
		{sec, []any{"blpop", "k", 1e300}, []any{"blpop", "k", "0.850"}, 850 * ms},
		{40 * ms, []any{"blpop", "k", 0}, []any{"blpop", "k", "0.020"}, 20 * ms},
		{ms, []any{"blpop", "k", 0}, []any{"blpop", "k", "0.001"}, ms},
		{-ms, []any{"wait", 1, 0}, []any{"wait", 1, int64(1)}, ms},
		{sec, []any{"blmpop", 3, 1, "k", "left"}, []any{"blmpop", "0.850", 1, "k", "left"}, 850 * ms},
		{sec, []any{"wait", 1, 0}, []any{"wait", 1, int64(850)}, 850 * ms},
		{sec, []any{"waitAOF", 1, 1, 700}, []any{"waitAOF", 1, 1, 700}, 700 * ms},
		{sec, []any{"xread", "count", 1, "BLOCK", 0, "streams", "s", "$"}, []any{"xread", "count", 1, "BLOCK", int64(850), "streams", "s", "$"}, 850 * ms},
		{sec, []any{"xreadgroup", "group", "block", "streams", "block", 0, "streams", "s", ">"},
			[]any{"xreadgroup", "group", "block", "streams", "block", int64(850), "streams", "s", ">"}, 850 * ms},
		{sec, []any{"xreadgroup", "group"}, []any{"xreadgroup", "group"}, 0},
		{sec, []any{"blpop", "k", []byte("0")}, []any{"blpop", "k", "0.850"}, 850 * ms},
		{1<<63 - 1, []any{"blpop", "k", 0}, []any{"blpop", "k", "31536000.000"}, 365 * 24 * time.Hour},
		{sec, []any{"xread", "streams", "block", "0"}, []any{"xread", "streams", "block", "0"}, 0},
		{sec, []any{"xread", "block"}, []any{"xread", "block"}, 0},
		{sec, []any{"blpop", "k", "soon"}, []any{"blpop", "k", "soon"}, 0},
		{sec, []any{"blpop", "k", -1}, []any{"blpop", "k", -1}, 0},
		{sec, []any{"blpop", "k", "NaN"}, []any{"blpop", "k", "NaN"}, 0},
		{sec, []any{"blpop"}, []any{"blpop"}, 0},
		{sec, []any{"get", "0"}, []any{"get", "0"}, 0},
	} {
		t.Run(fmt.Sprint(tt.left, tt.args), func(t *testing.T) {
			was := append([]any(nil), tt.args...)
			wait, cut := clamp([]redis.Cmder{cmdOf(tt.args...)}, tt.left)
			if !reflect.DeepEqual(tt.args, tt.want) || wait != tt.wait {
				t.Errorf("%v, waits %v; want %v, %v", tt.args, wait, tt.want, tt.wait)
			}
			if restore(cut); !reflect.DeepEqual(tt.args, was) {
				t.Errorf("restored: %v, was %v", tt.args, was)
			}
		})
	}
}

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestJudge(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	for _, tt := range []struct {
		err        error
		kind       stint.Kind
		notStarted bool
		code       string
	}{
		{nil, stint.OK, false, "ok"},
		{redis.Nil, stint.OK, false, "ok"},
		{redis.TxFailedErr, stint.OK, false, "ok"},
		{reply("LOADING Redis is loading"), stint.Transient, true, "LOADING"},
		{reply("READONLY You can't write"), stint.Transient, true, "READONLY"},
		{reply("CLUSTERDOWN The cluster is down"), stint.Transient, true, "CLUSTERDOWN"},
		{reply("MOVED 1 a:1"), stint.Transient, true, "MOVED"},
		{reply("BUSY Redis is busy"), stint.Transient, true, "BUSY"},
		{reply("BUSYGROUP exists"), stint.Rejected, false, "BUSYGROUP"},
		{reply("ERR max number of clients reached"), stint.Transient, true, "MAXCLIENTS"},
		{reply("OOM command not allowed"), stint.Overloaded, true, "OOM"},
		{reply("UNBLOCKED by force"), stint.Transient, false, "UNBLOCKED"},
		{reply("MISCONF can't save"), stint.Failed, true, "MISCONF"},
		{reply("WRONGTYPE Operation"), stint.Rejected, false, "WRONGTYPE"},
		{reply("ERR syntax error"), stint.Rejected, false, "ERR"},
		{reply("MYOWN error of a script"), stint.Rejected, false, "ERR"},
		{redis.ErrPoolTimeout, stint.Refused, true, "pool"},
		{redis.ErrClosed, stint.Refused, true, "closed"},
		{context.Canceled, stint.Canceled, false, "canceled"},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, stint.Transient, true, "connect"},
		{&net.OpError{Op: "dial", Err: timeout}, stint.Transient, true, "connect"},
		{timeout, stint.TimedOut, false, "timeout"},
		{&lost{timeout}, stint.TimedOut, false, "timeout"},
		{&lost{io.EOF}, stint.Transient, false, "reset"},
		{io.EOF, stint.Transient, false, "reset"},
		{&net.OpError{Op: "write", Err: errors.New("broken pipe")}, stint.Transient, false, "reset"},
		{errors.New("redis: can't marshal"), stint.Failed, false, "error"},
	} {
		o := judge(tt.err, true)
		if o.Kind != tt.kind || o.NotStarted != tt.notStarted || o.String() != tt.code {
			t.Errorf("%v: %v, not started %v, %q; want %v, %v, %q", tt.err, o.Kind, o.NotStarted, o, tt.kind, tt.notStarted, tt.code)
		}
		if o = judge(tt.err, false); o.NotStarted {
			t.Errorf("%v with others: said to be not started", tt.err)
		}
	}
}

// go-redis must not find out why a connection broke.
func TestLostIsOpaque(t *testing.T) {
	err := error(&lost{&net.OpError{Op: "read", Err: io.EOF}})
	var network net.Error
	if errors.Is(err, io.EOF) || errors.As(err, &network) {
		t.Error("the error within can be seen")
	}
	if !errors.Is(found(err), io.EOF) {
		t.Error("and is lost for good")
	}
}

// What was given up before go-redis takes a connection for it waits for nothing.
func TestAbortBeforeTheRead(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := watched(a)
	x := begin(t.Context(), time.Hour, 0)
	defer x.end()
	x.abort()
	d, _ := x.Deadline()
	c.SetReadDeadline(d)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("no error")
	}
}

// Nothing is left of an exchange that has ended.
func TestExchangeEnds(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := watched(a).(*conn)
	if watched(c) != net.Conn(c) {
		t.Error("a connection is watched twice")
	}
	ctx, cancel := context.WithCancel(t.Context())
	x := begin(ctx, time.Second, 0)
	d, _ := x.Deadline()
	c.SetReadDeadline(d)
	if c.serves.Load() != x {
		t.Fatal("the connection does not know its exchange")
	}
	x.end()
	n := 0
	exchanges.Range(func(_, _ any) bool { n++; return true })
	if c.serves.Load() != nil || n != 0 {
		t.Errorf("it still serves %v, %d exchanges are left", c.serves.Load(), n)
	}
	cancel()
	x.abort() // comes too late: the next has the connection
	next := begin(t.Context(), time.Second, 0)
	defer next.end()
	d, _ = next.Deadline()
	c.SetReadDeadline(d)
	x.abort()
	go b.Write([]byte("+"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("the next exchange: %v", err)
	}
}

// TestSafety: a command's name alone says what it is, whatever its options.
func TestSafety(t *testing.T) {
	for name, want := range map[string]stint.Safety{"get": stint.ReadOnly, "xinfo stream": stint.ReadOnly, "set": stint.Idempotent, "xinfo": stint.Unrepeatable,
		"incr": stint.Unrepeatable, "GET": stint.Unrepeatable, "other": stint.Unrepeatable, "": stint.Unrepeatable} {
		if got := Safety(name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}
