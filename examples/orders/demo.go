package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// A demo is what orders depends on, in this process: inventory and pricing, each behind
// a Gate of its own as the services that they stand for would be, and the switches that
// break them.
type demo struct {
	mu       sync.Mutex
	stock    map[string]int64
	reserved map[string]request // by idempotency key
	asked    map[string]int     // requests that each service let in
	broken   map[string]*fault
	database func(ctx context.Context, hang bool) error // nil: not one of this process
}

// A fault is what is wrong with a service. Both are false if nothing is.
type fault struct {
	fail, hang bool
	over       chan struct{} // closed when it is switched
}

// prices are pricing's, in cents.
var prices = map[string]int64{"tea": 450, "coffee": 620}

// startDemo starts what the options do not name, and returns where inventory and pricing are.
func startDemo(o options, s store, log *slog.Logger, ending *closers) (inventory, pricing string, err error) {
	sqlite, own := s.(*sqliteStore)
	if o.inventory != "" && o.pricing != "" && !own {
		return o.inventory, o.pricing, nil
	}
	d := &demo{stock: map[string]int64{"tea": 1e6, "coffee": 3}, reserved: map[string]request{}, asked: map[string]int{}, broken: map[string]*fault{}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /faults/{name}", d.breakIt)
	mux.HandleFunc("GET /requests/{name}", d.requests)
	if own {
		d.database = sqlite.hang
	}
	for name, handler := range map[string]http.HandlerFunc{"inventory": d.inventory, "pricing": d.pricing} {
		gate, err := stint.NewGate(name, &stint.GateOptions{Trust: stint.TrustPeers, Observer: stint.NewLogObserver(log), Logger: log})
		if err != nil {
			return "", "", err
		}
		d.broken[name] = &fault{over: make(chan struct{})}
		mux.Handle("/"+name+"/", http.StripPrefix("/"+name, stinthttp.Handler(gate, d.faulty(name, handler))))
	}
	listener, err := net.Listen("tcp", o.demo)
	if err != nil {
		return "", "", fmt.Errorf("-demo: %w", err)
	}
	srv := &http.Server{Handler: mux, ConnContext: stinthttp.ConnContext, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(listener) // until it is closed
	ending.add(srv.Close)
	base := "http://" + listener.Addr().String()
	log.Info("in this process", "demo", base)
	if inventory = o.inventory; inventory == "" {
		inventory = base + "/inventory"
	}
	if pricing = o.pricing; pricing == "" {
		pricing = base + "/pricing"
	}
	return inventory, pricing, nil
}

// inventory answers POST /reservations: the same key reserves once. In earnest a reservation
// that no order follows would run out.
func (d *demo) inventory(w http.ResponseWriter, r *http.Request) {
	var want request
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := stint.HopFromContext(r.Context()).Key
	d.mu.Lock()
	defer d.mu.Unlock()
	have, known := d.stock[want.SKU]
	done, repeated := d.reserved[key]
	switch {
	case repeated && done != want:
		http.Error(w, "this Idempotency-Key was used for another reservation", http.StatusUnprocessableEntity)
	case repeated:
		w.WriteHeader(http.StatusCreated)
	case !known:
		http.Error(w, "no such sku", http.StatusUnprocessableEntity)
	case have < want.Quantity:
		http.Error(w, fmt.Sprintf("%d in stock", have), http.StatusConflict)
	default:
		d.stock[want.SKU] = have - want.Quantity
		d.reserved[key] = want
		w.WriteHeader(http.StatusCreated)
	}
}

// pricing answers GET /prices/{sku}.
func (d *demo) pricing(w http.ResponseWriter, r *http.Request) {
	cents, ok := prices[strings.TrimPrefix(r.URL.Path, "/prices/")]
	if !ok {
		http.Error(w, "no such sku", http.StatusUnprocessableEntity)
		return
	}
	fmt.Fprintf(w, `{"cents": %d}`, cents)
}

// faulty puts a switch in front of a service.
func (d *demo) faulty(name string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.asked[name]++
		f := d.broken[name]
		d.mu.Unlock()
		switch {
		case f.fail:
			http.Error(w, "switched to fail", http.StatusServiceUnavailable)
			return
		case f.hang:
			select {
			case <-f.over:
			case <-r.Context().Done():
				stinthttp.WriteError(w, r, r.Context().Err())
				return
			}
		}
		next(w, r)
	})
}

// breakIt answers PUT /faults/{name}: the body says what inventory, pricing or the
// database is to do from now on.
func (d *demo) breakIt(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 100))
	what := strings.TrimSpace(string(body))
	if err != nil || what != "none" && what != "fail" && what != "hang" {
		http.Error(w, fmt.Sprintf("the body is %q: must be none, fail or hang", what), http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch f := d.broken[name]; {
	case name == "database" && d.database != nil && what != "fail":
		err = d.database(r.Context(), what == "hang")
	case f == nil:
		http.Error(w, fmt.Sprintf("%s has no switch for %s here: inventory and pricing have one, and database (hang and none) where that is SQLite", name, what), http.StatusNotFound)
		return
	default:
		close(f.over)
		d.broken[name] = &fault{what == "fail", what == "hang", make(chan struct{})}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// requests answers GET /requests/{name}: how many have reached inventory or pricing.
func (d *demo) requests(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintln(w, d.asked[r.PathValue("name")])
}
