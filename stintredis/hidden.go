package stintredis

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// HiddenRetries says what below a Caller go-redis does again by itself, a sentence
// each, to be logged at start: what, how often, why it stays on, and how it is counted.
// It is never empty, since dialling again in the background has no switch. It says
// nothing of what is no call (Pub/Sub, which connects and subscribes again by itself), nor
// of HIMPORT SET, which is sent again once where a connection has lost its fieldset.
func HiddenRetries(client redis.UniversalClient) []string {
	var f fields
	var pool, redirects int
	switch client := client.(type) {
	case *redis.Client:
		f, pool = fieldsOf(client.Options()), client.Options().PoolSize
	case *redis.ClusterClient:
		f, pool, redirects = fieldsOf(client.Options()), client.Options().PoolSize, client.Options().MaxRedirects
	default:
		return []string{fmt.Sprintf("What a %T repeats by itself can't be told, nor can it be put under a Caller: must be a *redis.Client or a *redis.ClusterClient.", client)}
	}
	said := f.repeats()
	for i := range said {
		said[i] += ". Nothing counts it. Make the client from what stintredis.Options returns."
	}
	if redirects > 0 {
		said = append(said, fmt.Sprintf("The cluster client follows a redirect (MOVED, ASK), and tries again what a node refused to begin (LOADING, READONLY, "+
			"CLUSTERDOWN, TRYAGAIN, MASTERDOWN, NOREPLICAS, too many clients) or no connection could be had for, up to %d times. It stays on, since nobody else "+
			"knows the slots; MaxRedirects of -1 would switch off the redirects as well. It is a part of the attempt, in its time; no event "+
			"tells of it and no token is taken. What broke a connection is hidden from it once Attach was called.", redirects))
	}
	return append(said, fmt.Sprintf("After %d failed dials in a row (PoolSize) go-redis dials a node once a second in the background, until that succeeds. It has no "+
		"switch. No command goes that way: until then they fail at once, as connect. No event tells of it.", pool))
}
