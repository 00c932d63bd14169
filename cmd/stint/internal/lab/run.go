package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/stint-go/stint"
)

// rowLimit bounds a row, whatever its numbers are. Only a hang reaches it.
const rowLimit = 2 * time.Minute

// run runs the row on fresh servers. The error says that it could not be run,
// not that it came out wrong.
func (r row) run(ctx context.Context) (res Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rowLimit, fmt.Errorf("took longer than %v", rowLimit))
	defer cancel()
	c, err := newChain(r.spec)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()

	res = Result{Mode: r.spec.mode, Params: r.spec.params(), row: r}
	status, cerr := 0, error(nil)
	c.rec.begin()
	for range r.spec.calls {
		res.drawn = c.rec.call()
		before := c.leaf.count.Load()
		call, cancel := context.WithTimeout(ctx, r.spec.deadline)
		status, cerr = c.first.call(call)
		cancel()
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		res.perCall = append(res.perCall, int(c.leaf.count.Load()-before))
	}
	left := c.rec.now()
	if err := c.quiet(ctx); err != nil {
		return res, err
	}

	res.left = left
	res.attempts, res.visits, res.stops = c.rec.events()
	res.LeafRequests = int(c.leaf.count.Load())
	res.ElapsedMs = millis(left)
	res.WastedMs = millis(wasted(res.visits, left))
	res.ClientStatus, res.ClientError, res.clientEnd = status, plain(cerr), ending(status, cerr)
	res.Holds = r.holds(res.LeafRequests, status, cerr)
	return res, nil
}

// holds reports whether the row came out as it has to: so many requests at the
// leaf, and an error at the client, since the leaf never has anything else.
func (r row) holds(requests, status int, err error) bool {
	return r.want.holds(requests) && (err != nil || status >= 500)
}

// plain is an error's text without the address, whose port is another one in
// every run.
func plain(err error) string {
	if err == nil {
		return ""
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// ending says in a word or two how the client's call ended.
func ending(status int, err error) string {
	var e *stint.Error
	switch {
	case err == nil:
		return fmt.Sprint(status)
	case errors.As(err, &e) && e.Attempts == 0:
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "gave up"
	}
	return "error"
}
