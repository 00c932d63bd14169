package stintredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
)

// What Options puts where nothing bounds a client: backstops, since every call
// has a deadline of its own.
const (
	dialTimeout = time.Second
	poolTimeout = time.Second
	ioTimeout   = 3 * time.Second
)

// Settings are the kinds of options that go-redis makes clients from.
type Settings interface {
	redis.Options | redis.ClusterOptions | redis.FailoverOptions | redis.UniversalOptions
}

// Options returns a copy of o that keeps the contract, and what was changed, a
// sentence each, to be logged at start; nil stands for go-redis' own defaults.
// ContextTimeoutEnabled is switched on, or deadlines would be ignored. MaxRetries
// becomes -1 and DialerRetries 1, since the Caller repeats. Where DialTimeout,
// PoolTimeout, ReadTimeout or WriteTimeout is zero or unlimited it becomes 1 s, 1 s,
// 3 s and 3 s: at most so long a connection, a place in the pool, and a reply are
// waited for, however much time the call has. The Dialer is wrapped, so that a
// cancel reaches the connection.
func Options[T Settings](o *T) (*T, []string) {
	var own T
	if o != nil {
		own = *o
	}
	f := fieldsOf(&own)
	changes := f.fix()
	dial := *f.dialer
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: *f.dial, TLSConfig: f.tls})
	}
	*f.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return watched(c), nil
	}
	return &own, changes
}

// fields are what the kinds of options have in common.
type fields struct {
	contextTimeout          *bool
	retries, dialerRetries  *int
	dial, pool, read, write *time.Duration
	dialer                  *func(ctx context.Context, network, addr string) (net.Conn, error)
	tls                     *tls.Config
}

func fieldsOf(options any) fields {
	switch o := options.(type) {
	case *redis.Options:
		return fields{&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.PoolTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.Dialer, o.TLSConfig}
	case *redis.ClusterOptions:
		return fields{&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.PoolTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.Dialer, o.TLSConfig}
	case *redis.FailoverOptions:
		return fields{&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.PoolTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.Dialer, o.TLSConfig}
	}
	o := options.(*redis.UniversalOptions)
	return fields{&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.PoolTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.Dialer, o.TLSConfig}
}

func (f fields) fix() (changes []string) {
	change := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	if !*f.contextTimeout {
		*f.contextTimeout = true
		change("ContextTimeoutEnabled is true, was false: the deadline of a context bounds its command.")
	}
	if *f.retries != -1 {
		change("MaxRetries is -1, was %d: the Caller repeats, and only what may be repeated.", *f.retries)
		*f.retries = -1
	}
	if *f.dialerRetries != 1 {
		change("DialerRetries is 1, was %d: the Caller repeats.", *f.dialerRetries)
		*f.dialerRetries = 1
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		most  time.Duration
	}{
		{"DialTimeout", f.dial, dialTimeout},
		{"PoolTimeout", f.pool, poolTimeout},
		{"ReadTimeout", f.read, ioTimeout},
		{"WriteTimeout", f.write, ioTimeout},
	} {
		if *d.value <= 0 {
			change("%s is %v, was %v.", d.name, d.most, time.Duration(*d.value))
			*d.value = d.most
		}
	}
	return changes
}

// check says what Options would have changed in a client that exists.
func (f fields) check() error {
	var bad []error
	if !*f.contextTimeout {
		bad = append(bad, errors.New("ContextTimeoutEnabled is false, so go-redis ignores deadlines: must be true"))
	}
	for _, r := range f.repeats() {
		bad = append(bad, errors.New(r))
	}
	if *f.read <= 0 || *f.write <= 0 {
		bad = append(bad, errors.New("ReadTimeout or WriteTimeout is unlimited: must be positive"))
	}
	return errors.Join(bad...)
}

// repeats says what a client that exists repeats and Options would have switched off.
func (f fields) repeats() (said []string) {
	if *f.retries > 0 {
		said = append(said, fmt.Sprintf("go-redis repeats commands %d times by itself, INCR as well: MaxRetries must be -1", *f.retries))
	}
	if *f.dialerRetries > 1 {
		said = append(said, fmt.Sprintf("go-redis dials %d times by itself: DialerRetries must be 1", *f.dialerRetries))
	}
	return said
}

// Attach makes every command of the client a call of c, but for Pub/Sub. Do it
// once, right after the client was made. The error names what breaks the contract
// in a client that was made without Options. Ring clients are not supported.
func Attach(client redis.UniversalClient, c *stint.Caller) error {
	if c == nil {
		return errors.New("stintredis: Attach needs a Caller: make one with stint.NewCaller")
	}
	var f fields
	h := &hook{caller: c}
	switch client := client.(type) {
	case *redis.Client:
		f = fieldsOf(client.Options())
	case *redis.ClusterClient:
		f = fieldsOf(client.Options())
		h.many = true
	default:
		return fmt.Errorf("stintredis: Attach can't work with a %T: must be a *redis.Client or a *redis.ClusterClient", client)
	}
	if err := f.check(); err != nil {
		return fmt.Errorf("stintredis: the client of %s was not made with stintredis.Options: %w", c.Dependency(), err)
	}
	h.limit = min(*f.read, *f.write, 9*time.Second) // go-redis gives a blocking command 10 s beyond its own
	h.limit -= h.limit / 16
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(dialHook{}) })
	}
	client.AddHook(h)
	return nil
}
