package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/stintredis"
)

// priceLife is how old a price may be that stands in for pricing's answer.
const priceLife = time.Hour

// A cache has the last price of each SKU. What goes wrong with it is reported by its
// Caller, and is otherwise as if it had nothing.
type cache interface {
	Get(ctx context.Context, sku string) (cents int64, ok bool)
	Set(ctx context.Context, sku string, cents int64)
}

// openCache returns the cache at the URL, or one in memory if that is empty.
func openCache(address string, c contract, log *slog.Logger, ending *closers) (cache, error) {
	if address == "" {
		return &memoryCache{prices: map[string]cachedPrice{}}, nil
	}
	parsed, err := redis.ParseURL(address)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which may have a password
		}
		return nil, fmt.Errorf("-redis: %w: must be redis://HOST:PORT/NUMBER", err)
	}
	caller, err := c.caller("cache")
	if err != nil {
		return nil, err
	}
	opts, changed := stintredis.Options(parsed)
	for _, c := range changed {
		log.Info("go-redis: "+c, "client", "cache")
	}
	client := redis.NewClient(opts)
	ending.add(client.Close)
	if err := stintredis.Attach(client, caller); err != nil {
		return nil, err
	}
	logHidden(log, "cache", stintredis.HiddenRetries(client))
	return redisCache{client}, nil
}

type redisCache struct{ client *redis.Client }

func (c redisCache) Get(ctx context.Context, sku string) (int64, bool) {
	cents, err := c.client.Get(ctx, "price:"+sku).Int64()
	return cents, err == nil
}

func (c redisCache) Set(ctx context.Context, sku string, cents int64) {
	c.client.Set(ctx, "price:"+sku, cents, priceLife)
}

type memoryCache struct {
	mu     sync.Mutex
	prices map[string]cachedPrice
}

type cachedPrice struct {
	cents int64
	until time.Time
}

func (c *memoryCache) Get(_ context.Context, sku string) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.prices[sku]
	return p.cents, time.Now().Before(p.until)
}

func (c *memoryCache) Set(_ context.Context, sku string, cents int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prices[sku] = cachedPrice{cents, time.Now().Add(priceLife)}
}
