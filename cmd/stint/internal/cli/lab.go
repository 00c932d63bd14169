package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stint-go/stint/cmd/stint/internal/lab"
)

func labCommand() *Command {
	o := lab.DefaultOptions()
	cmd := &Command{
		UsageLine: "lab [-json | -short] [-only NAMES | -store STORE] [flags]",
		Short:     "show on real servers what the contract changes",
		Long: `Lab runs chains of services on this machine's loopback interface, once as
clients and services are often written by hand and once with stint, and counts
what comes of it. The experiments are:

  multiply    two layers that retry, above a service that fails
  depth       more such layers, one below the other
  deadline    a client that can't wait as long as the retries take
  dead        300 calls to a service that is down
  zombie      a client that leaves long before the work is done
  retryafter  a server that asks for a longer wait than the client has
  payment     a POST that fails after its effect
  skew        a caller whose clock is 30 s wrong
  redirect    ten slow hops, and one timeout
  hedge       one slow replica of two
  overload    a service that is asked for more than it can do, for a while

With -transport grpc the services talk gRPC: naive ones are plain grpc-go and
the same retry loop, the others have stint's interceptors. With mixed the last
hop is gRPC, the one before it HTTP, and so on by turns. With both there are
multiply, depth, deadline and dead only; the others are HTTP's.

With -store the last service asks a real store, a query that takes longer than
its callers wait, and counted are the queries that run on when they have left;
there is this one experiment, store. The stores are:

  sqlite      in this process; needs nothing installed
  postgres    the server of -dsn postgres://USER@HOST:PORT/DATABASE, by pgx
  redis       the server of -dsn redis://HOST:PORT, by go-redis

The server is the one that -dsn names and never one that listens on a default
port. The lab has ten queries at once there, of two seconds each, and leaves
nothing behind: no row, no key, no connection. With postgres there are two rows
on a network that falls silent, which is one in this process.

Each count has to be what it is said to be: the naive ones what is predicted,
the ones with stint what stint promises. If one is not, the exit code is 1.
Times are only shown: they depend on the machine.

With -short each row is one line. With -json the result is one array with an
object for each row: experiment, row, mode (naive or stint), params (what was
set), counted (what count is the number of), count, wantLeast and wantMost (what
it may be), leafRequests, elapsedMs (the client's wait), wastedMs (work at the
leaf after the client had left), clientStatus (HTTP's, zero without an
answer), clientError (why there was none, or gRPC's status), holds; in hedge
also p50Ms and p99Ms, in overload good, sent and failureMs, in store queries
(that reached it), queryMs (for which they ran after the client had left, all
together) and lastQueryMs (when the last one ended).

Colours are used on a terminal unless NO_COLOR is set, and only repeat what the
text says.
`,
	}
	asJSON := cmd.Flags.Bool("json", false, "print the results as a JSON array")
	short := cmd.Flags.Bool("short", false, "print one line for each row")
	cmd.Flags.Func("only", "run only the experiments with these `names`, separated by commas", func(s string) error {
		o.Only = nil
		for name := range strings.SplitSeq(s, ",") {
			o.Only = append(o.Only, strings.TrimSpace(name))
		}
		return nil
	})
	cmd.Flags.IntVar(&o.Attempts, "attempts", o.Attempts,
		fmt.Sprintf("`N` attempts of each layer in multiply and depth, 1 to %d", lab.MaxAttempts))
	cmd.Flags.IntVar(&o.Depth, "depth", o.Depth,
		fmt.Sprintf("`N` layers in depth, 1 to %d; attempts^N may be at most %d", lab.MaxDepth, lab.MaxRequests))
	cmd.Flags.TextVar(&o.Transport, "transport", o.Transport, "what the services talk: `http, grpc or mixed`")

	cmd.Flags.Func("store", "have the last service ask this `store`: sqlite, postgres or redis",
		func(s string) error { return o.Store.UnmarshalText([]byte(s)) })
	cmd.Flags.StringVar(&o.DSN, "dsn", "", "`URL` of the server for -store postgres or redis")

	cmd.Run = func(ctx context.Context, std *Std, args []string) (int, error) {
		if len(args) > 0 {
			return exitFailed, unexpected(args)
		}
		if err := o.Validate(); err != nil {
			return exitFailed, err
		}
		if *asJSON && *short {
			return exitFailed, errors.New("-json and -short are two forms of the output: choose one")
		}
		return runLab(ctx, std, o, *asJSON, lab.Style{Color: std.color(), Short: *short}, lab.Run)
	}
	return cmd
}

// A labRun is lab.Run, or what a test has in its place.
type labRun func(ctx context.Context, o lab.Options, started func(experiment, row string), done func(lab.Report) error) error

// runLab runs the lab and shows what it reports.
func runLab(ctx context.Context, std *Std, o lab.Options, asJSON bool, style lab.Style, run labRun) (int, error) {
	line := std.progress()
	var results []lab.Result
	if !asJSON && !style.Short {
		if err := lab.WriteIntro(std.Out, o.Transport); err != nil {
			return exitFailed, err
		}
	}
	started := func(experiment, row string) { line.show(fmt.Sprintf("running %s: %s", experiment, row)) }
	done := func(r lab.Report) error {
		line.clear()
		results = append(results, r.Results...)
		if asJSON {
			return nil
		}
		return r.WriteText(std.Out, style)
	}
	err := run(ctx, o, started, done)
	line.clear()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return exitFailed, errors.New("interrupted")
	case err != nil:
		return exitFailed, err
	case asJSON:
		err = lab.WriteJSON(std.Out, results)
	default:
		err = lab.WriteSummary(std.Out, results, style)
	}
	for _, r := range results {
		if !r.Holds {
			return exitBroken, err
		}
	}
	return exitClean, err
}
