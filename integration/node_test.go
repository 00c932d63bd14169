package integration

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stintgrpc"
	"github.com/stint-go/stint/stinttest"
)

// A nodeCall is a call to be made with Node's own gRPC client, @grpc/grpc-js.
type nodeCall struct {
	Address    string            `json:"address"`
	DeadlineMs int               `json:"deadlineMs,omitempty"` // zero: none
	Attempts   int               `json:"attempts,omitempty"`   // of the client's own retry policy, a millisecond apart; zero: none
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// A nodeAnswer is what became of it.
type nodeAnswer struct {
	Code     codes.Code          `json:"code"`
	Details  string              `json:"details"`
	Trailers map[string][]string `json:"trailers"`
}

// needsNode skips a test where Node or its client is missing, unless nothing may be.
func needsNode(t *testing.T) {
	t.Helper()
	modules := filepath.Join("..", ".bin", "node", "node_modules")
	_, errNode := exec.LookPath("node")
	_, errModules := os.Stat(modules)
	if errNode == nil && errModules == nil {
		return
	}
	const why = "these tests need Node and .bin/node: install node and npm (on Debian, apt-get install nodejs npm), and run scripts/setup-node.sh"
	if os.Getenv("STINT_TEST_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// do makes the call and waits for the end of it.
func (c nodeCall) do(t *testing.T) (a nodeAnswer) {
	t.Helper()
	modules, err := filepath.Abs(filepath.Join("..", ".bin", "node", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	argument, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filepath.Join("testdata", "node", "client.js"), string(argument))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v: %s", err, exit.Stderr)
		}
		t.Fatalf("%v: %s", err, out)
	}
	return a
}

// judged is an error with a verdict, as one that a dependency's answer was made into.
type judged struct{ outcome stint.Outcome }

func (judged) Error() string            { return "secret" }
func (j judged) Outcome() stint.Outcome { return j.outcome }
func transient(o stint.Outcome) judged  { o.Kind = stint.Transient; return judged{o} }
func always(err error) func(context.Context, int) error {
	return func(context.Context, int) error { return err }
}

// The deadline that Node's client was given arrives, and without one our server's holds.
func TestNodeDeadline(t *testing.T) {
	needsNode(t)
	t.Parallel()
	const told, most = 30 * time.Second, time.Minute
	for _, c := range []struct {
		name string
		told time.Duration
		most time.Duration // of the Gate
		hang bool
	}{
		{name: "told", told: told, most: most},
		{name: "not told", most: most},
		{name: "runs out", told: 500 * time.Millisecond, most: most, hang: true},
		{name: "the server's runs out", most: 100 * time.Millisecond, hang: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			s := &rpc{answer: func(ctx context.Context, _ int) error {
				if !c.hang {
					return nil
				}
				<-ctx.Done()
				ended <- ctx.Err()
				return ctx.Err()
			}}
			addr := s.serveTCP(t, stintgrpc.ServerOptions(gate(t, "s", stint.GateOptions{DefaultTimeout: c.most, MaxTimeout: c.most}), nil)...)
			a := nodeCall{Address: addr, DeadlineMs: int(c.told.Milliseconds())}.do(t)
			want := codes.OK
			if c.hang {
				want = codes.DeadlineExceeded
			}
			if a.Code != want || len(s.Calls()) != 1 {
				t.Fatalf("%d calls, %+v; want one, and %v", len(s.Calls()), a, want)
			}
			left, most := s.Calls()[0].left, c.most
			if c.told > 0 {
				most = min(most, c.told)
			}
			if left <= 0 || left > most || c.told == 0 && !c.hang && left <= told {
				t.Errorf("the handler had %v, want at most %v, and more where nothing was told", left, most)
			}
			if c.hang {
				await(t, "the handler's end", ended)
			}
		})
	}
}

// Node's own retries obey what our server says of trying again.
func TestNodePushback(t *testing.T) {
	needsNode(t)
	t.Parallel()
	const wait = 50 * time.Millisecond
	for _, c := range []struct {
		name     string
		answer   error
		calls    int
		pushback string
		apart    time.Duration // at least
	}{
		{"nothing said", status.Error(codes.Unavailable, "no"), 3, "", 0},
		{"never", transient(stint.Outcome{Never: true}), 1, "-1", 0},
		{"later", transient(stint.Outcome{Hinted: true, RetryAfter: wait}), 3, "50", wait - 5*time.Millisecond}, // its timers may be early
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &rpc{answer: always(c.answer)}
			addr := s.serveTCP(t, stintgrpc.ServerOptions(gate(t, "s", stint.GateOptions{}), nil)...)
			a := nodeCall{Address: addr, Attempts: 3}.do(t)
			calls := s.Calls()
			var pushback string
			if said := a.Trailers["grpc-retry-pushback-ms"]; len(said) == 1 {
				pushback = said[0]
			}
			if a.Code != codes.Unavailable || len(calls) != c.calls || pushback != c.pushback {
				t.Fatalf("%d calls, %+v; want %d, UNAVAILABLE and pushback %q", len(calls), a, c.calls, c.pushback)
			}
			for i := range calls[1:] {
				if apart := calls[i+1].at.Sub(calls[i].at); apart < c.apart {
					t.Errorf("call %d came %v after the one before, want at least %v", i+2, apart, c.apart)
				}
			}
		})
	}
}

// Node's client sees that a call was not started, and why, each time it tries.
func TestNodeNotStarted(t *testing.T) {
	needsNode(t)
	t.Parallel()
	var rec stinttest.Recorder
	g := gate(t, "s", stint.GateOptions{Observer: &rec})
	g.Drain()
	s := &rpc{}
	a := nodeCall{Address: s.serveTCP(t, stintgrpc.ServerOptions(g, nil)...), Attempts: 3}.do(t)
	said := a.Trailers["x-not-started"]
	if a.Code != codes.Unavailable || len(said) != 1 || said[0] != "draining" {
		t.Errorf("%+v; want UNAVAILABLE and x-not-started: draining", a)
	}
	if n := len(rec.Events(stint.GateEntered)); n != 3 || len(s.Calls()) != 0 {
		t.Errorf("refused %d times and let in %d, want 3 and 0", n, len(s.Calls()))
	}
}

// What Node's client says beside it is read: who owns the retries, and a shorter
// deadline under another name.
func TestNodeMetadata(t *testing.T) {
	needsNode(t)
	t.Parallel()
	s := &rpc{}
	addr := s.serveTCP(t, stintgrpc.ServerOptions(gate(t, "s", stint.GateOptions{}), nil)...)
	a := nodeCall{Address: addr, DeadlineMs: 20000, Metadata: map[string]string{
		"x-retry-owner": "web", "x-criticality": "sheddable", "x-deadline-ms": "9000"}}.do(t)
	if a.Code != codes.OK || len(s.Calls()) != 1 {
		t.Fatalf("%d calls, %+v", len(s.Calls()), a)
	}
	c := s.Calls()[0]
	if c.hop.Owner != "web" || c.hop.Class != stint.Sheddable || c.left > 9*time.Second || c.left <= 0 {
		t.Errorf("owner %q, class %v, %v left; want web, sheddable and at most 9s", c.hop.Owner, c.hop.Class, c.left)
	}
}
