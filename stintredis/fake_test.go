package stintredis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintredis"
	"github.com/stint-go/stint/stinttest"
)

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// A fake is a server in memory: it answers each command with what reply returns,
// "cut" closes the connection instead, and "" says nothing.
type fake struct {
	network *stinttest.Network
	reply   func(args []string) string

	mu   sync.Mutex
	seen []string // commands, without what is said to a new connection
}

func serve(t testing.TB, reply func(args []string) string) *fake {
	t.Helper()
	f := &fake{network: stinttest.NewNetwork(), reply: reply}
	l, err := f.network.Listen("redis")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.talk(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return f
}

func (f *fake) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		args, err := command(r)
		if err != nil {
			return
		}
		var reply string
		switch args[0] {
		case "hello":
			reply = "-ERR unknown command 'hello'\r\n"
		case "client", "multi":
			reply = "+OK\r\n"
		default:
			f.mu.Lock()
			f.seen = append(f.seen, strings.Join(args, " "))
			f.mu.Unlock()
			reply = f.reply(args)
		}
		if reply == "cut" {
			return
		}
		io.WriteString(c, reply)
	}
}

func command(r *bufio.Reader) (args []string, err error) {
	number := func(sign byte) (n int) {
		line, e := r.ReadString('\n')
		if e != nil || line[0] != sign {
			err = io.ErrUnexpectedEOF
			return 0
		}
		n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	for range number('*') {
		b := make([]byte, number('$')+2)
		if err != nil {
			return nil, err
		}
		if _, err = io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args = append(args, string(b[:len(b)-2]))
	}
	if len(args) > 0 {
		args[0] = strings.ToLower(args[0])
	}
	return args, err
}

// got returns the commands that arrived so far.
func (f *fake) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// client is one under a Caller. It must be closed within the bubble.
func (f *fake) client(t testing.TB, p stint.Policy, o redis.Options) (*redis.Client, *stinttest.Recorder) {
	t.Helper()
	rec := &stinttest.Recorder{}
	caller, err := stint.NewCaller("redis", p, &stint.CallerOptions{Observer: rec, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	o.Addr, o.Protocol, o.DisableIdentity = "127.0.0.1:6379", 2, true
	o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return f.network.DialContext(ctx, network, "redis:80")
	}
	own, _ := stintredis.Options(&o)
	c := redis.NewClient(own)
	if err := stintredis.Attach(c, caller); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, rec
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func codes(rec *stinttest.Recorder) (codes []string) {
	for _, e := range rec.Events(stint.AttemptDone) {
		codes = append(codes, e.Outcome.String())
	}
	return codes
}
