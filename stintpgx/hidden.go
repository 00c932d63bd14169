package stintpgx

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// HiddenRetries says what below the Caller is tried again without it, a sentence
// each, to be logged at start: who, how often, why it stays on, and how it is
// counted. It is never empty, since the pool's search for a connection that lives has
// no switch. No statement is among it: pgx sends none twice, and the Pool only one that
// PostgreSQL refused to begin in a transaction (see Exec).
func (p *Pool) HiddenRetries() []string {
	config := p.pool.Config()
	said := []string{fmt.Sprintf("pgxpool looks up to %d times (MaxConns and one) for a connection that lives: it pings each that was idle for more "+
		"than a second, or as ShouldPing decides, and takes the next, or a new one, if that brings no answer in %v. A new one is tried at each address "+
		"of its host. It has no switch. It is a part of the attempt, in its time, and no event: who waits too long counts as pool_wait, where "+
		"none can be made as connect.", config.MaxConns+1, config.PingTimeout)}
	conn := config.ConnConfig
	if others := conn.Fallbacks; len(others) > 0 {
		ways := []string{way(conn.Host, conn.Port, conn.TLSConfig != nil)}
		for _, o := range others {
			ways = append(ways, way(o.Host, o.Port, o.TLSConfig != nil))
		}
		said = append(said, fmt.Sprintf("pgx tries %d ways to make a connection, in turn, until one does: %s. A connection string with one host, and an "+
			"sslmode other than allow and prefer (the default), leaves one. All are a part of one attempt, in its time, and no event.",
			len(ways), strings.Join(ways, ", ")))
	}
	if most := max(config.MinConns, config.MinIdleConns); most > 0 {
		said = append(said, fmt.Sprintf("pgxpool makes up to %d connections in the background each %v, and whenever some have ended, also while the server "+
			"can't be reached: past the Caller and its breaker, and no event. Without MinConns and MinIdleConns it doesn't. Pool.Unwrap().Stat() "+
			"counts them (NewConnsCount).", most, config.HealthCheckPeriod))
	}
	return said
}

// way names one way to make a connection.
func way(host string, port uint16, secure bool) string {
	s := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if strings.HasPrefix(host, "/") {
		return s
	}
	if secure {
		return s + " with TLS"
	}
	return s + " without TLS"
}
