package stinthttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// Two services: the time left and the retries' owner travel by themselves.
func Example() {
	silent := slog.New(slog.DiscardHandler)

	// inventory fails, and sees what is left of the time.
	gate, err := stint.NewGate("inventory", &stint.GateOptions{Trust: stint.TrustPeers, Logger: silent})
	if err != nil {
		panic(err)
	}
	requests := 0
	inventory := httptest.NewServer(stinthttp.Handler(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		left, _ := stint.Remaining(r.Context())
		fmt.Println("inventory: owner", stint.HopFromContext(r.Context()).Owner, "- under 260ms left:", left < 260*time.Millisecond)
		w.WriteHeader(http.StatusServiceUnavailable)
	})))
	defer inventory.Close()

	// orders calls it with an ordinary http.Client.
	caller, err := stint.NewCaller("inventory", stint.Policy{
		Timeout:   260 * time.Millisecond,
		MinUseful: 20 * time.Millisecond,
		Retry:     stint.Retry{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond},
	}, &stint.CallerOptions{Service: "orders"})
	if err != nil {
		panic(err)
	}
	client := stinthttp.NewClient(caller, stinthttp.PeerStint)
	resp, err := client.Get(inventory.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println("orders:", resp.StatusCode, "after", requests, "requests")
	// Output:
	// inventory: owner orders - under 260ms left: true
	// inventory: owner orders - under 260ms left: true
	// orders: 503 after 2 requests
}

// A handler hands on what its dependency said, and the right status comes out.
func ExampleWriteError() {
	gate, err := stint.NewGate("orders", &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer down.Close()
	caller, err := stint.NewCaller("pricing", stint.Policy{}, nil)
	if err != nil {
		panic(err)
	}
	pricing := stinthttp.NewClient(caller, stinthttp.PeerStint)

	quote := func(r *http.Request) error {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, down.URL, nil)
		if err != nil {
			return err
		}
		resp, err := pricing.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return stinthttp.CheckStatus(resp)
	}
	orders := httptest.NewServer(stinthttp.Handler(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := quote(r); err != nil {
			stinthttp.WriteError(w, r, err)
		}
	})))
	defer orders.Close()

	resp, err := http.Get(orders.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	fmt.Println(resp.StatusCode, resp.Header.Get("Retry-After"))
	// Output: 503 7
}

// A server with every phase bounded.
func ExampleNewServer() {
	gate, err := stint.NewGate("orders", &stint.GateOptions{
		MaxTimeout: 800 * time.Millisecond,
		MinUseful:  30 * time.Millisecond,
		Reserve:    20 * time.Millisecond, // kept back to write the 504
		Limit:      200,
		Logger:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	srv := stinthttp.NewServer("127.0.0.1:8080", gate, http.DefaultServeMux, nil)
	fmt.Println(srv.ReadHeaderTimeout, srv.WriteTimeout)
	// Output: 5s 5.82s
}

// Probes, streams, routes of two kinds of callers, and an orderly end.
func ExampleServer() {
	internal, err := stint.NewGate("orders", &stint.GateOptions{Trust: stint.TrustPeers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	edge := internal.WithTrust(stint.TrustDeadlineOnly) // the same places, and nothing believed
	ending, end := context.WithCancel(context.Background())
	defer end()
	events := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select { // and whatever there is to tell
		case <-ending.Done(): // an end in order, so that the client connects elsewhere
		case <-r.Context().Done():
		}
	})
	live := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

	srv := stinthttp.NewServer("127.0.0.1:0", edge, http.NotFoundHandler(), &stinthttp.ServerOptions{DrainDelay: 10 * time.Millisecond})
	mux := http.NewServeMux()
	mux.Handle("/", srv.Handler)
	mux.Handle("/internal/", stinthttp.Handler(internal, http.NotFoundHandler()))
	mux.Handle("/events", stinthttp.Handler(edge.LongRunning(), events)) // LongLimit and LongTimeout for themselves
	mux.Handle("/livez", stinthttp.Handler(edge.Exempt(), live))         // at any load
	mux.Handle("/readyz", srv.Ready())
	srv.Handler = mux

	ended := make(chan error, 1)
	go func() { // in a service, once signal.NotifyContext's context is done
		end()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ended <- srv.Shutdown(ctx)
	}()
	fmt.Println(srv.ListenAndServe())
	fmt.Println(<-ended)
	// Output:
	// http: Server closed
	// <nil>
}

// The transport alone, under an http.Client of one's own.
func ExampleTransport() {
	caller, err := stint.NewCaller("search", stint.InDatacentre(), nil)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &stinthttp.Transport{
		Caller: caller,
		Base:   stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: 200 * time.Millisecond}),
		Peer:   stinthttp.PeerStint,
		Op: func(r *http.Request) stint.Op { // a search may be repeated, though it is a POST
			return stint.Op{Name: "search", Safety: stint.ReadOnly}
		},
	}}
	_ = client
}

// Requests named by their route, and a policy for one of them: a search may be
// repeated though it is a POST, and has less time than the rest.
func ExampleRouteOp() {
	op, err := stinthttp.RouteOp("GET /orders/{id}", "POST /search")
	if err != nil {
		panic(err)
	}
	caller, err := stint.NewCaller("orders", stint.Policy{Timeout: 2 * time.Second, Operations: map[string]stint.Policy{
		"POST /search": {Timeout: 300 * time.Millisecond, Safety: stint.ReadOnly, Retry: stint.Retry{Attempts: 2}},
	}}, nil)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: stinthttp.NewTransport(nil), Op: op}}
	_ = client

	for _, url := range []string{"http://orders/orders/7", "http://orders/search"} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			panic(err)
		}
		fmt.Println(op(r).Name)
	}
	// Output:
	// GET /orders/{id}
	// GET
}

// Routes with numbers of their own in front of one handler.
func ExampleRoutes() {
	gate, err := stint.NewGate("orders", &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	o := gate.Options()
	o.Class = stint.Sheddable // refused first
	reports, err := gate.With(o)
	if err != nil {
		panic(err)
	}
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %q", r.URL.Path, stint.HopFromContext(r.Context()).Class)
	})
	h, err := stinthttp.Routes(gate, map[string]*stint.Gate{
		"GET /reports/{id}": reports,
		"/events":           gate.LongRunning(),
		"/livez":            gate.Exempt(),
	}, orders)
	if err != nil {
		panic(err)
	}
	for _, path := range []string{"/orders/7", "/reports/7"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(w.Body)
	}
	// Output:
	// /orders/7 ""
	// /reports/7 "sheddable"
}
