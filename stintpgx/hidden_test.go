package stintpgx_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintpgx"
	"github.com/stint-go/stint/stinttest"
)

func TestHiddenRetries(t *testing.T) {
	for _, c := range []struct {
		dsn  string
		want []string // a part of each sentence
	}{
		{"host=db.invalid sslmode=disable pool_max_conns=3", []string{"up to 4 times (MaxConns and one)"}},
		{"host=db.invalid sslmode=require pool_ping_timeout=70ms", []string{"no answer in 70ms"}},
		{"host=db.invalid", []string{"no answer in 250ms", "2 ways to make a connection, in turn, until one does: db.invalid:5432 with TLS, db.invalid:5432 without TLS."}},
		{"host=a.invalid,b.invalid port=1,2 sslmode=disable", []string{"pgxpool", "2 ways to make a connection, in turn, until one does: a.invalid:1 without TLS, b.invalid:2 without TLS."}},
		{"host=/run/a,/run/b", []string{"pgxpool", "2 ways to make a connection, in turn, until one does: /run/a:5432, /run/b:5432."}},
		{"host=/run/a pool_min_conns=2 pool_min_idle_conns=3 pool_health_check_period=7s", []string{"pgxpool", "up to 3 connections in the background each 7s"}},
	} {
		p, err := stintpgx.New(context.Background(), config(t, c.dsn), caller(t, stint.Policy{}, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		said := p.HiddenRetries()
		p.Close()
		ok := len(said) == len(c.want)
		for i := 0; ok && i < len(said); i++ {
			ok = strings.Contains(said[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", c.dsn, said, c.want)
		}
	}
}

// One attempt of one call tries as many ways to make a connection as was said.
func TestHiddenRetriesCountsTheWays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			c.Close()
		}
	})
	defer served.Wait()
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	var rec stinttest.Recorder
	p, err := stintpgx.New(context.Background(), config(t, fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d sslmode=prefer", port)), caller(t, stint.Policy{}, &rec), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = p.Ping(context.Background())
	calls := rec.Events(stint.CallDone)
	said := fmt.Sprintf("pgx tries %d ways", tries.Load())
	if len(calls) != 1 || calls[0].Attempt != 1 || tries.Load() < 2 || !strings.Contains(strings.Join(p.HiddenRetries(), "\n"), said) {
		t.Errorf("%d ways tried in %v, %v; told of at start: %q", tries.Load(), calls, err, p.HiddenRetries())
	}
}
