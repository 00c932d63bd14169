// Command orders is a service built on stint, to be read and to be tried: HTTP in,
// two HTTP dependencies, a database and a cache behind it, and all its numbers in
// one policy file. README.md says what to look at.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/stinthttp"
)

// shutdownTime is how long an orderly end may take: less than an orchestrator waits
// before it kills, which is mostly 30s.
const shutdownTime = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	switch err := run(ctx, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// options are the flags; an empty one has its dependency in this process.
type options struct {
	addr, policy, database, redis, inventory, pricing, demo string
	drainDelay                                              time.Duration
}

func parseFlags(args []string) (o options, err error) {
	fs := flag.NewFlagSet("orders", flag.ContinueOnError)
	fs.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on; port 0 takes a free one")
	fs.StringVar(&o.policy, "policy", "", "policy `file`, followed while the service runs; the built-in one if empty")
	fs.StringVar(&o.database, "database", "", "postgres:// `URL`, or sqlite:FILE; an SQLite file that goes with the process if empty")
	fs.StringVar(&o.redis, "redis", "", "redis:// `URL` of the price cache; in memory if empty")
	fs.StringVar(&o.inventory, "inventory", "", "`URL` of inventory; one in this process if empty")
	fs.StringVar(&o.pricing, "pricing", "", "`URL` of pricing; one in this process if empty")
	fs.StringVar(&o.demo, "demo", "127.0.0.1:8081", "`host:port` for what runs in this process, and for the switches that break it")
	fs.DurationVar(&o.drainDelay, "drain-delay", 0, "how long /readyz says 503 before requests are refused; above what the load balancer needs to notice")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	bad := func(name, value, right string) {
		err = errors.Join(err, fmt.Errorf("-%s is %q: must be %s", name, value, right))
	}
	if fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: there are flags only, see -help", fs.Arg(0))
	}
	switch scheme, rest, _ := strings.Cut(o.database, ":"); {
	case o.database == "", rest != "" && (scheme == "sqlite" || scheme == "postgres" || scheme == "postgresql"):
	default: // not printed as it is: it may have a password
		bad("database", scheme+":...", "postgres://USER@HOST/DATABASE or sqlite:FILE")
	}
	for _, peer := range []struct{ name, value string }{{"inventory", o.inventory}, {"pricing", o.pricing}} {
		if u, e := url.Parse(peer.value); peer.value != "" && (e != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			bad(peer.name, peer.value, "an http:// or https:// URL")
		}
	}
	if o.drainDelay < 0 || o.drainDelay >= shutdownTime {
		bad("drain-delay", o.drainDelay.String(), fmt.Sprintf("from 0s to less than %v, the time for the whole end", shutdownTime))
	}
	return o, err
}

// run is the service from its start to its orderly end, which ctx begins.
func run(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	contract, err := loadContract(ctx, o.policy, log)
	if err != nil {
		return err
	}
	var ending closers
	defer ending.close()

	store, err := openStore(ctx, o.database, contract, log, &ending)
	if err != nil {
		return err
	}
	cache, err := openCache(o.redis, contract, log, &ending)
	if err != nil {
		return err
	}
	inventoryURL, pricingURL, err := startDemo(o, store, log, &ending)
	if err != nil {
		return err
	}
	inventory, err := newPeer("inventory", inventoryURL, contract, log)
	if err != nil {
		return err
	}
	pricing, err := newPeer("pricing", pricingURL, contract, log)
	if err != nil {
		return err
	}

	s := &service{inventory: inventory, pricing: pricing, cache: cache, store: store, log: log}
	srv := stinthttp.NewServer(o.addr, contract.gate, nil, &stinthttp.ServerOptions{DrainDelay: o.drainDelay})
	if srv.Handler, err = stinthttp.Routes(contract.gate, contract.routes, s.routes(srv.Ready())); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	log.Info("listening", "url", "http://"+listener.Addr().String())

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	log.Info("shutting down")
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	// First those who wait for an answer, then what they left to be done, and then, by ending, what both need.
	return errors.Join(srv.Shutdown(end), s.jobs.Shutdown(end))
}

//go:embed policy.yaml
var builtIn []byte

// A contract is the policy file, ready to be used.
type contract struct {
	gate   *stint.Gate
	routes map[string]*stint.Gate // views of gate, by pattern
	caller func(dependency string) (*stint.Caller, error)
}

// loadContract reads the policy file at path, and follows it; an empty path is the
// built-in one. What a check finds in it is logged.
func loadContract(ctx context.Context, path string, log *slog.Logger) (c contract, err error) {
	events := stint.NewLogObserver(log)
	callers, gates := &stint.CallerOptions{Observer: events}, &stint.GateOptions{Observer: events, Logger: log}
	var file *policy.File
	if path == "" {
		if file, err = policy.Parse("policy.yaml", builtIn); err != nil {
			return c, err
		}
		c.caller = func(name string) (*stint.Caller, error) { return file.Caller(name, callers) }
		if c.gate, err = file.Gate(gates); err == nil {
			c.routes, err = file.Routes(c.gate)
		}
	} else {
		var w *policy.Watcher
		w, err = policy.Watch(ctx, path, &policy.WatchOptions{Caller: callers, Gate: gates, Changed: func(now *policy.File, err error) {
			if err != nil {
				log.Error("the new policy is not in force", "err", err)
				return
			}
			log.Info("a new policy is in force")
			logFindings(now, log)
		}})
		if err != nil {
			return c, err
		}
		file, c.caller = w.File(), w.Caller
		if c.gate, err = w.Gate(); err == nil {
			c.routes, err = w.Routes()
		}
	}
	if err == nil {
		logFindings(file, log)
	}
	return c, err
}

func logFindings(file *policy.File, log *slog.Logger) {
	graph, err := policy.NewGraph(file)
	if err != nil {
		log.Error("the policy can't be checked", "err", err)
		return
	}
	for _, f := range graph.Check(nil) {
		log.Warn("policy: "+f.What, "at", f.Position, "code", f.Code, "do", f.Do)
	}
}

// logHidden says at start what the client of a dependency repeats without asking its Caller.
func logHidden(log *slog.Logger, client string, sentences []string) {
	for _, s := range sentences {
		log.Info("hidden retries: "+s, "client", client)
	}
}

// closers are what has to be closed in the end, the last opened first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]() // what is lost by a failure is lost by the process's end
	}
}
