package stintredis

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
)

// A hook makes a client's commands calls of a Caller.
type hook struct {
	dialHook
	caller *stint.Caller
	limit  time.Duration // of an attempt: below the client's own, so that the mark arrives
	many   bool          // one command may go to several nodes
}

// ProcessHook makes one command a call.
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if x := inside(ctx); x != nil {
			return next(greeting{x}, cmd)
		}
		if greets(cmd) {
			return next(ctx, cmd)
		}
		cmds := []redis.Cmder{cmd}
		return h.call(ctx, operation(cmd), cmds, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook makes a pipeline or a transaction a call.
func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if x := inside(ctx); x != nil {
			return next(greeting{x}, cmds)
		}
		if !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return !greets(c) }) {
			return next(ctx, cmds)
		}
		return h.call(ctx, operations(cmds), cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// inside returns the exchange that a command is a part of: what go-redis says to a
// new connection. Else nil.
func inside(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// call makes one call of the Caller.
func (h *hook) call(ctx context.Context, op stint.Op, cmds []redis.Cmder, send func(context.Context) error) error {
	var answer error // what the server said
	sent := false
	err := h.caller.Do(ctx, op, func(ctx context.Context) error {
		if sent { // go-redis leaves the errors of the attempt before where they are
			for _, cmd := range cmds {
				cmd.SetErr(nil)
			}
		}
		answer, sent = nil, true
		err := h.attempt(ctx, cmds, send)
		var o stint.Outcome
		if len(cmds) == 1 {
			o = judge(err, !h.many)
		} else {
			o, err = worst(err, cmds)
		}
		if answered(err, o) {
			answer = err
		}
		if o.Kind == stint.OK {
			return nil
		}
		return &failure{found(err), o}
	})
	if answer != nil || err == nil {
		return answer
	}
	for _, cmd := range cmds {
		var reply redis.Error
		if old := cmd.Err(); !sent || old != nil && !errors.As(old, &reply) {
			cmd.SetErr(err)
		}
	}
	return err
}

// attempt lets go-redis do it once.
func (h *hook) attempt(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
	left, _ := stint.Remaining(ctx)
	wait, cut := clamp(cmds, left)
	defer restore(cut)
	x := begin(ctx, h.limit, wait)
	defer x.end()
	err := send(x)
	if d, ok := ctx.Deadline(); ok && err != nil && time.Until(d) <= 0 {
		<-ctx.Done() // the socket was quicker: its own timer is due, too
	}
	return err
}

// A dialHook makes a client's connections ones that an exchange can abort.
type dialHook struct{}

// DialHook watches the connection.
func (dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return watched(c), nil
	}
}

// ProcessHook changes nothing.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
