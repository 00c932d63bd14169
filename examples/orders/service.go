package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// An order is what somebody ordered. A quantity of a SKU, at a price.
type order struct {
	ID         string    `json:"id"`
	SKU        string    `json:"sku"`
	Quantity   int64     `json:"quantity"`
	Cents      int64     `json:"cents"`      // for all of them
	PriceStale bool      `json:"priceStale"` // the price was a cached one, since pricing did not answer
	Created    time.Time `json:"created"`
}

// request is the body of POST /orders.
type request struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// A refusal is an answer that is no failure: the caller asked for what can't be had.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// errNoOrder is a store's answer to an id that it does not know.
var errNoOrder = &refusal{http.StatusNotFound, "no such order"}

// service is the handlers. No handler knows a timeout: each hands r.Context() on, which
// has the request's deadline, and the Callers behind the clients know the rest.
type service struct {
	inventory, pricing peer
	cache              cache
	store              store
	jobs               stint.Background
	log                *slog.Logger
}

func (s *service) routes(ready http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /readyz", ready)
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		o, err := s.place(w, r)
		s.answer(w, r, http.StatusCreated, o, err)
	})
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		o, err := s.store.Get(r.Context(), r.PathValue("id"))
		s.answer(w, r, http.StatusOK, o, err)
	})
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, r *http.Request) {
		list, err := s.store.Latest(r.Context())
		s.answer(w, r, http.StatusOK, list, err)
	})
	return mux
}

// answer writes v, or what err calls for.
func (s *service) answer(w http.ResponseWriter, r *http.Request, status int, v any, err error) {
	var no *refusal
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v) // who is gone by now can't be told
	case errors.As(err, &no):
		http.Error(w, no.text, no.status)
	default:
		s.log.WarnContext(r.Context(), "no answer", "route", r.Pattern, "request_id", stint.HopFromContext(r.Context()).RequestID, "err", err)
		stinthttp.WriteError(w, r, err)
	}
}

// place takes an order. Every step may happen twice with the effect of once, since what
// it makes is named after the request's key: so may the whole, and nothing has to be
// undone. A caller that got no answer asks again with the same key.
func (s *service) place(w http.ResponseWriter, r *http.Request) (order, error) {
	ctx := r.Context()
	key := stint.HopFromContext(ctx).Key
	if key == "" {
		return order{}, &refusal{http.StatusBadRequest, "Idempotency-Key is missing, or not 1 to 255 visible ASCII characters: " +
			"without one nobody can tell a repeated order from a second one"}
	}
	var want request
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	in.DisallowUnknownFields()
	if err := in.Decode(&want); err != nil {
		return order{}, &refusal{http.StatusBadRequest, `the body must be {"sku": "tea", "quantity": 2}: ` + err.Error()}
	}
	if _, err := in.Token(); err != io.EOF {
		return order{}, &refusal{http.StatusBadRequest, `the body must be {"sku": "tea", "quantity": 2} and no more: something follows it`}
	}
	if want.SKU == "" || len(want.SKU) > 64 || want.Quantity < 1 || want.Quantity > 1000 {
		return order{}, &refusal{http.StatusBadRequest, "sku must have 1 to 64 bytes, and quantity must be 1 to 1000"}
	}

	id := orderID(key)
	switch found, err := s.store.Get(ctx, id); {
	case err == nil:
		return found.same(want)
	case !errors.Is(err, errNoOrder):
		return order{}, err
	}
	if err := s.reserve(ctx, id, want); err != nil {
		return order{}, err
	}
	cents, stale, err := s.price(ctx, want.SKU)
	if err != nil {
		return order{}, err // the reservation is found again by the next try, and runs out without one
	}
	stored, err := s.store.Insert(ctx, order{id, want.SKU, want.Quantity, cents * want.Quantity, stale, time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return order{}, err
	}
	return stored.same(want) // another request with this key may have been quicker
}

// orderID names the order of an Idempotency-Key: so the table's primary key holds that
// there is one order for a key.
func orderID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// same returns the order if it is what was asked for.
func (o order) same(want request) (order, error) {
	if o.SKU != want.SKU || o.Quantity != want.Quantity {
		return order{}, &refusal{http.StatusUnprocessableEntity, "this Idempotency-Key was used for another order"}
	}
	return o, nil
}

// reserve keeps the goods for an order. The key makes a POST repeatable for the Caller,
// and the repeated one harmless for inventory.
func (s *service) reserve(ctx context.Context, id string, want request) error {
	body, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return s.inventory.do(ctx, http.MethodPost, "/reservations", id, body, nil)
}

// price asks pricing. If that does not answer (it is down, its breaker is open, there is no
// time) the price of last time is better than no order; a price that does not exist is not.
func (s *service) price(ctx context.Context, sku string) (cents int64, stale bool, err error) {
	var now struct{ Cents int64 }
	err = s.pricing.do(ctx, http.MethodGet, "/prices/"+url.PathEscape(sku), "", nil, &now)
	if err == nil {
		// Nobody waits for the cache: it is filled after the answer, in the time that jobs have.
		if err := s.jobs.Go(ctx, func(ctx context.Context) { s.cache.Set(ctx, sku, now.Cents) }); err != nil {
			s.log.WarnContext(ctx, "a price is not cached", "err", err)
		}
		return now.Cents, false, nil
	}
	if no := (*refusal)(nil); errors.As(err, &no) {
		return 0, false, err
	}
	cents, ok := s.cache.Get(ctx, sku)
	if !ok {
		return 0, false, err
	}
	return cents, true, nil
}
