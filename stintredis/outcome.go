package stintredis

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
)

// A failure is an attempt's error with its verdict, as a Caller asks for it.
type failure struct {
	error
	outcome stint.Outcome
}

func (f *failure) Outcome() stint.Outcome { return f.outcome }
func (f *failure) Unwrap() error          { return f.error }

// What a server answers before it has begun. The codes are the words with which
// the answers begin.
var refusals = map[string]stint.Kind{
	"LOADING":     stint.Transient, // it reads its data from disk
	"READONLY":    stint.Transient, // a replica: the roles were changed
	"CLUSTERDOWN": stint.Transient,
	"TRYAGAIN":    stint.Transient, // a slot is being moved
	"MOVED":       stint.Transient,
	"ASK":         stint.Transient,
	"MASTERDOWN":  stint.Transient,
	"NOREPLICAS":  stint.Transient, // too few of them to write
	"BUSY":        stint.Transient, // a script runs
	"OOM":         stint.Overloaded,
	"MISCONF":     stint.Failed, // it can't write to disk
	"NOAUTH":      stint.Failed,
	"WRONGPASS":   stint.Failed,
}

// What a server answers to a command that is at fault.
var rejections = map[string]bool{
	"WRONGTYPE": true, "NOSCRIPT": true, "BUSYGROUP": true, "BUSYKEY": true, "NOGROUP": true, "NOPERM": true,
	"EXECABORT": true, "CROSSSLOT": true, "NOTBUSY": true, "UNKILLABLE": true, "INPROG": true, "NOPROTO": true,
}

const maxClients = "ERR max number of clients reached"

// judge is the verdict on one command's error. alone says that nothing else was
// asked for with it: then a refusal is proof that nothing was begun.
func judge(err error, alone bool) stint.Outcome {
	var reply redis.Error
	switch {
	case err == nil:
		return stint.Outcome{Kind: stint.OK}
	case errors.As(err, &reply):
		return judgeReply(reply, alone)
	}
	var op *net.OpError
	var network net.Error
	hidden, broken := errors.AsType[*lost](err)
	if broken {
		err = hidden.err
	}
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return stint.Outcome{Kind: stint.Refused, NotStarted: alone, Code: "pool"}
	case errors.Is(err, redis.ErrClosed):
		return stint.Outcome{Kind: stint.Refused, NotStarted: alone, Code: "closed"}
	case errors.Is(err, context.Canceled):
		return stint.Outcome{Kind: stint.Canceled}
	case errors.As(err, &op) && op.Op == "dial":
		return stint.Outcome{Kind: stint.Transient, NotStarted: alone, Code: "connect"}
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return stint.Outcome{Kind: stint.TimedOut, Code: "timeout"}
	case broken, errors.As(err, &op), errors.Is(err, io.EOF):
		return stint.Outcome{Kind: stint.Transient, Code: "reset"}
	}
	return stint.Outcome{Kind: stint.Failed, Code: "error"}
}

func judgeReply(reply redis.Error, alone bool) stint.Outcome {
	text := reply.Error()
	if reply == redis.Nil || reply == redis.TxFailedErr {
		return stint.Outcome{Kind: stint.OK}
	}
	word, _, _ := strings.Cut(text, " ")
	if kind, ok := refusals[word]; ok {
		return stint.Outcome{Kind: kind, NotStarted: alone, Code: word}
	}
	switch {
	case strings.HasPrefix(text, maxClients):
		return stint.Outcome{Kind: stint.Transient, NotStarted: alone, Code: "MAXCLIENTS"}
	case word == "UNBLOCKED": // by force, as when the roles change
		return stint.Outcome{Kind: stint.Transient, Code: word}
	case rejections[word]:
		return stint.Outcome{Kind: stint.Rejected, Code: word}
	}
	return stint.Outcome{Kind: stint.Rejected, Code: "ERR"}
}

// worst is judge for what was asked for together, and the error that decides: the
// first that is more than an answer.
func worst(err error, cmds []redis.Cmder) (stint.Outcome, error) {
	o := judge(err, false)
	for _, cmd := range cmds {
		if o.Kind != stint.OK {
			break
		}
		if e := cmd.Err(); e != nil {
			if other := judge(e, false); other.Kind != stint.OK {
				o, err = other, e
			}
		}
	}
	return o, err
}

// answered reports whether the error is what the server said to the command, and
// so for the command's own caller to understand.
func answered(err error, o stint.Outcome) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (o.Kind == stint.OK || o.Kind == stint.Rejected)
}
