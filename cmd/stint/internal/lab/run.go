package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/stint-go/stint"

	"github.com/stint-go/stint/cmd/stint/internal/term"
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

	res = Result{Row: r.label, Mode: r.spec.mode, Params: r.spec.params(), row: r}
	c.rec.begin()
	switch {
	case r.spec.phases != nil:
		r.callBySchedule(ctx, c, &res)
	case r.spec.together:
		r.callTogether(ctx, c, &res)
	default:
		r.callInTurn(ctx, c, &res)
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	res.left = c.rec.now()
	c.rec.end()
	if err := c.quiet(ctx); err != nil {
		return res, err
	}

	c.rec.events(&res)
	res.LeafRequests = int(c.leaf.count.Load())
	if c.replica != nil {
		res.LeafRequests += int(c.replica.count.Load())
		res.P50Ms, res.P99Ms = term.Millis(quantile(res.took, 0.5)), term.Millis(quantile(res.took, 0.99))
	}
	res.ElapsedMs = term.Millis(res.left)
	res.WastedMs = term.Millis(wasted(res.visits, res.left))
	if c.asked != nil {
		res.countQueries()
	}
	if res.called != nil {
		res.countCalled()
	}
	res.ClientError, res.clientEnd = plain(res.clientErr), ending(res.ClientStatus, res.clientErr)
	return res, nil
}

// tries is how often a row is run that shows nothing.
const tries = 3

// run runs a row of the experiment and judges it.
func (e experiment) run(ctx context.Context, r row) (res Result, err error) {
	for range tries {
		if res, err = r.run(ctx); err != nil || r.void == nil || !r.void(res) {
			break
		}
	}
	e.judge(&res)
	return res, err
}

// call makes one call of the client.
func (r row) call(ctx context.Context, c *chain) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.spec.deadline)
	defer cancel()
	return c.first.call(ctx)
}

// callInTurn makes the client's calls one after the other.
func (r row) callInTurn(ctx context.Context, c *chain, res *Result) {
	for range r.spec.calls {
		res.drawn = c.rec.call()
		before := c.leaf.count.Load()
		start := time.Now()
		res.ClientStatus, res.clientErr = r.call(ctx, c)
		if ctx.Err() != nil {
			return
		}
		res.took = append(res.took, time.Since(start))
		res.perCall = append(res.perCall, int(c.leaf.count.Load()-before))
	}
}

// callTogether makes the client's calls at once. The first one stands for all:
// they only differ by chance.
func (r row) callTogether(ctx context.Context, c *chain, res *Result) {
	res.drawn = c.rec.call()
	var calls sync.WaitGroup
	for i := range r.spec.calls {
		calls.Go(func() {
			status, err := r.call(ctx, c)
			if i == 0 {
				res.ClientStatus, res.clientErr = status, err
			}
		})
	}
	calls.Wait()
}

// callBySchedule makes the client's calls when they are due, whatever became of
// the earlier ones. The last one stands for all.
func (r row) callBySchedule(ctx context.Context, c *chain, res *Result) {
	res.drawn = c.rec.call()
	res.called = make([]called, r.spec.calls)
	var calls sync.WaitGroup
	n, due := 0, time.Duration(0)
	for i, p := range r.spec.phases {
		for k := range p.calls() {
			at := due + time.Duration(k)*time.Second/time.Duration(p.rate)
			if !pause(ctx, at-c.rec.now()) {
				break
			}
			start, one, last := c.rec.now(), &res.called[n], n == r.spec.calls-1
			res.late = max(res.late, start-at)
			n++
			calls.Go(func() {
				status, err := r.call(ctx, c)
				*one = called{span{start, c.rec.now()}, i, err == nil && status == http.StatusOK}
				if last {
					res.ClientStatus, res.clientErr = status, err
				}
			})
		}
		due += p.lasts
	}
	calls.Wait()
}

// judge counts what the experiment counts, and says whether the row came out as
// it has to.
func (e experiment) judge(res *Result) {
	res.Experiment, res.Counted, res.Count = e.name, e.counted, e.count(*res)
	res.end = e.end(*res)
	res.WantLeast, res.WantMost = res.row.want.least, res.row.want.most
	ends := res.row.ends
	if ends == nil {
		ends = failed
	}
	res.Holds = res.row.want.holds(res.Count) && ends(*res)
}

// failed reports whether the client's last call had no good answer.
func failed(res Result) bool { return res.clientErr != nil || res.ClientStatus >= 500 }

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

const grpcEnd = "gRPC " // and the status

// ending says in a word or two how the client's call ended.
func ending(status int, err error) string {
	var e *stint.Error
	code := grpcCode(err)
	switch {
	case err == nil:
		return fmt.Sprint(status)
	case errors.As(err, &e) && e.Attempts == 0:
		return "refused"
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return "gave up"
	case code != codes.OK:
		return fmt.Sprint(grpcEnd, int(code))
	}
	return "error"
}
