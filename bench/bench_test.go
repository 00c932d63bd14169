package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
)

// Every subject makes its call with a breaker, a limit or a server of its own, so what one does is not another's doing.
func TestEverySubjectWorks(t *testing.T) {
	for _, build := range []func() (*scenario, error){newStack, newRefusal} {
		s, err := build()
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for _, sub := range append(s.others, s.yardstick) {
			for range 3 * minCalls { // a breaker that counted refusals as failures would show
				if err := sub.call(); err != nil {
					t.Errorf("%s: %s: %v", s.name, sub.name, err)
					break
				}
			}
		}
	}
}

// seen is what a server was asked.
type seen struct {
	answer
	requests, told, bounded atomic.Int64
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	ms, err := strconv.Atoi(r.Header.Get("X-Deadline-Ms"))
	told := err == nil && ms > 0 && ms <= int(patience/time.Millisecond)
	if told {
		s.told.Add(1)
	}
	if d, ok := r.Context().Deadline(); ok && (!told || time.Until(d) <= time.Duration(ms)*time.Millisecond) {
		s.bounded.Add(1)
	}
	s.answer.ServeHTTP(w, r)
}

func TestEveryHopArrives(t *testing.T) {
	server := new(seen)
	s, err := newHop(server)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	// The deadline travels only where stint is the client, and becomes the server's only where it is that as well.
	client := map[string]bool{"stint: client": true, "stint: both sides": true, "stint: both sides, NewClient": true}
	gated := map[string]bool{"stint: server": true, "stint: both sides": true, "stint: both sides, NewClient": true}
	const n = 30
	for _, sub := range append(s.others, s.yardstick) {
		requests, told, bounded := server.requests.Load(), server.told.Load(), server.bounded.Load()
		for range n {
			if err := sub.call(); err != nil {
				t.Fatalf("%s: %v", sub.name, err)
			}
		}
		check := func(what string, have int64, all bool) {
			want := int64(0)
			if all {
				want = n
			}
			if have != want {
				t.Errorf("%s: %d %s, want %d", sub.name, have, what, want)
			}
		}
		check("requests arrived", server.requests.Load()-requests, true)
		check("requests told their deadline", server.told.Load()-told, client[sub.name])
		check("handlers had a deadline", server.bounded.Load()-bounded, gated[sub.name])
		delete(client, sub.name)
		delete(gated, sub.name)
	}
	if len(client)+len(gated) > 0 {
		t.Errorf("no such subjects: %v, %v", client, gated)
	}
}

// heard is what a gRPC server was asked.
type heard struct {
	requests, owned, gated, bounded atomic.Int64
}

func (s *heard) echo(ctx context.Context, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	s.requests.Add(1)
	if len(metadata.ValueFromIncomingContext(ctx, "x-retry-owner")) == 1 {
		s.owned.Add(1)
	}
	if stint.HopFromContext(ctx).RequestID != "" {
		s.gated.Add(1)
	}
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= patience {
		s.bounded.Add(1)
	}
	return in, nil
}

func TestEveryRPCArrives(t *testing.T) {
	server := new(heard)
	s, err := newRPC(server)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	const n = 30
	type counts struct{ requests, owned, gated, bounded int64 }
	special := map[string]counts{
		"failsafegrpc: client, 3 policies": {n, 0, 0, 0}, // its timeout does not travel
		"plain grpc-go, without":           {n, 0, 0, 0},
		"stint: client":                    {n, n, 0, n},
		"stint: server":                    {n, 0, n, n},
		"stint: client and server":         {n, n, n, n},
		"stint: both, no owner":            {n, 0, n, n},
	}
	for _, sub := range append(s.others, s.yardstick) {
		*server = heard{}
		for range n {
			if err := sub.call(); err != nil {
				t.Fatalf("%s: %v", sub.name, err)
			}
		}
		want, ok := special[sub.name]
		if !ok {
			want = counts{n, 0, 0, n}
		}
		delete(special, sub.name)
		if have := (counts{server.requests.Load(), server.owned.Load(), server.gated.Load(), server.bounded.Load()}); have != want {
			t.Errorf("%s: %+v, want %+v", sub.name, have, want)
		}
	}
	if len(special) > 0 {
		t.Errorf("no such subjects: %v", special)
	}
}

// short answers with a byte too few.
type short struct{}

func (short) echo(_ context.Context, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	return wrapperspb.Bytes(in.Value[1:]), nil
}

func TestRPCFailsOnAnotherAnswer(t *testing.T) {
	s, err := newRPC(short{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.yardstick.call(); err == nil {
		t.Error("no error")
	}
}

// What get takes for success is one.
func TestHopFailsOnAnotherAnswer(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a status":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"short body": func(w http.ResponseWriter, _ *http.Request) { w.Write(hundred[1:]) },
	} {
		s, err := newHop(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.yardstick.call(); err == nil {
			t.Errorf("%s: no error", name)
		}
		s.close()
	}
}

func TestDead(t *testing.T) {
	// The counts of calls that come one after the other depend on nothing but the rules.
	want := map[string]deadRow{
		"plain net/http, 1 attempt":       {Requests: 300, Connections: 1},
		"backoff by hand":                 {Requests: 900, Connections: 1},
		"retryablehttp":                   {Requests: 900, Connections: 1},
		"failsafehttp: retry with budget": {Requests: 900, Open: 600, Connections: 601}, // it leaves a response behind for each retry
		"stint: retry with budget":        {Requests: 310, Connections: 1},              // 10 tokens, and nothing earned
		"gobreaker and backoff by hand":   {Requests: 60, Connections: 1},               // 20 calls of 3 attempts
		"failsafehttp: and breaker":       {Requests: 20, Open: 14, Connections: 14},    // its breaker is inside, so 20 attempts
		"stint: and breaker":              {Requests: 30, Connections: 1},               // 20 calls and the 10 tokens
	}
	for _, d := range deads {
		have, _, err := die(d.make, deadCalls)
		if err != nil {
			t.Errorf("%s: %v", d.name, err)
			continue
		}
		if have.Requests != want[d.name].Requests || have.Open != want[d.name].Open {
			t.Errorf("%s: %d requests and %d open bodies, want %d and %d", d.name, have.Requests, have.Open, want[d.name].Requests, want[d.name].Open)
		}
		if strings.HasPrefix(d.name, "stint") && have.Connections != 1 {
			t.Errorf("%s: %d connections, want 1", d.name, have.Connections)
		}
		t.Logf("%s: %+v", d.name, have)
	}
	if len(want) != len(deads) {
		t.Errorf("%d ways, want %d", len(deads), len(want))
	}
}

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want figure
	}{
		{[]float64{7}, figure{7, 7, 7}},
		{[]float64{3, 1}, figure{2, 1, 3}},
		{[]float64{5, 1, 4, 2, 3}, figure{3, 2, 4}},
		{[]float64{4, 1, 3, 2, 99, 5, 6, 7, 8}, figure{5, 3, 7}},
	} {
		if have := newFigure(c.of); have != c.want {
			t.Errorf("%v: %v, want %v", c.of, have, c.want)
		}
	}
}

// sink keeps what would be computed for nothing.
var sink *[64]byte

func TestTurns(t *testing.T) {
	var a, b int
	// work takes some time of the CPU, and not the same.
	work := func(n *int, times int) func() error {
		return func() error {
			*n++
			for range times {
				sink = new([64]byte) // and nothing that comes from a pool
			}
			return nil
		}
	}
	subjects := []subject{{"a", work(&a, 1)}, {"b", work(&b, 100)}}
	took, err := turns(subjects, []int{200, 3}, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	as, bs := took[0], took[1]
	if a != as.calls || b != bs.calls || a%200 != 0 || a/200 != b/3 {
		t.Errorf("%d and %d calls, counted as %d and %d; want all of them counted, and 200 of the one for 3 of the other", a, b, as.calls, bs.calls)
	}
	if have, want := bs.per(float64(bs.allocs)), 100*as.per(float64(as.allocs)); have < want*.8 || have > want*1.2 {
		t.Errorf("b allocates %v a call, want about %v, 100 times as often as a", have, want)
	}
	subjects[1].call = func() error { return errDown }
	if _, err := turns(subjects, []int{1, 1}, time.Millisecond); !errors.Is(err, errDown) {
		t.Errorf("error %v, want %v", err, errDown)
	}
}

func TestCommand(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run([]string{"-rounds", "1", "-d", "10ms", "-json", "stack", "refusal", "hop", "grpc"}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Costs) != 4 || len(r.Costs[0].Rows) != 4 || r.Costs[0].Rows[0].CPU.Median <= 0 {
		t.Errorf("%+v", r)
	}
	dead, err := measureDead(1, 3, func(format string, args ...any) { fmt.Fprintf(&progress, format+"\n", args...) })
	if err != nil {
		t.Fatal(err)
	}
	if len(dead) != len(deads) || dead[1].Requests != 9 || dead[1].CPU.Median <= 0 {
		t.Errorf("%+v", dead)
	}

	tiny := server{slots: 8, service: time.Millisecond, deadline: patience}
	load, err := measureOverload(tiny, slices.Repeat(schedule{{100, 20 * time.Millisecond}}, 5), func(format string, args ...any) {
		fmt.Fprintf(&progress, format+"\n", args...)
	})
	if err != nil {
		t.Fatal(err)
	}

	r.Dead, r.Overload = dead, load
	out.Reset()
	if err := r.writeText(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, name := range names {
		if !strings.Contains(out.String(), "\n"+name+": ") || !regexp.MustCompile(name+": (round )?1 of [16]").MatchString(progress.String()) {
			t.Errorf("no table or no progress of %s:\n%s\n%s", name, &out, &progress)
		}
	}
	if n := strings.Count(out.String(), "\nok: ") + strings.Count(out.String(), "\nno: "); n != 6 {
		t.Errorf("%d promises judged, want 6:\n%s", n, &out)
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-rounds 0", "between 1 and 100"},
		{"-d 1ms", "between 10ms and 1m"},
		{"-d 1h", "between 10ms and 1m"},
		{"hops", "stack, refusal, hop, grpc, dead, overload"},
		{"-nothing", "nothing"},
	} {
		err := run(strings.Fields(c.args), new(bytes.Buffer), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, new(usageError)) {
			t.Errorf("%s: error %v, want %q", c.args, err, c.want)
		}
	}
	if err := run([]string{"-h"}, new(bytes.Buffer), new(bytes.Buffer)); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
