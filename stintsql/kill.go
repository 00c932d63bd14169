package stintsql

import (
	"context"
	"database/sql/driver"
	"strconv"
	"time"
)

const (
	mostKills = 4           // at the same time; the others wait, within the same second
	killTime  = time.Second // for one, from when it is needed
)

// kill has the server stop what a driver hung up on. It returns at once. The connection is
// gone and its name is not given to another, so that the kill hits nothing else.
func (c *call) kill(ctx context.Context) {
	k, n := c.conn, c.conn.connector
	if !n.opts.Kill || !c.sent || c.step == committing || ctx.Err() == nil {
		return
	}
	k.broken = true
	ctx = context.WithoutCancel(ctx)
	id := k.id
	go func() {
		ctx, cancel := context.WithTimeout(ctx, killTime)
		defer cancel()
		select {
		case n.kills <- struct{}{}:
			defer func() { <-n.kills }()
		case <-ctx.Done():
			return
		}
		other, err := n.base.Connect(ctx)
		if err != nil {
			return
		}
		defer other.Close()
		if e, ok := other.(driver.ExecerContext); ok {
			e.ExecContext(ctx, "KILL "+strconv.FormatInt(id, 10), nil)
		}
	}()
}
