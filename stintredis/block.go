package stintredis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// blocking says where a command has the time that it waits at the server.
type blocking uint8

const (
	never     blocking = iota
	lastArg            // seconds, the last argument: BLPOP key timeout
	firstArg           // seconds, the first: BLMPOP timeout numkeys key
	blockWord          // milliseconds, after the word BLOCK: XREAD BLOCK ms STREAMS key id
	lastMilli          // milliseconds, the last: WAIT numreplicas timeout
)

var blockers = map[string]blocking{
	"blpop": lastArg, "brpop": lastArg, "brpoplpush": lastArg, "blmove": lastArg, "bzpopmin": lastArg, "bzpopmax": lastArg,
	"blmpop": firstArg, "bzmpop": firstArg,
	"xread": blockWord, "xreadgroup": blockWord,
	"wait": lastMilli, "waitaof": lastMilli,
}

// answerTime is what a blocking command leaves of its time for the answer; of a
// shorter time, half. A server without other work looks for commands whose time is
// up only ten times a second (its setting hz).
const answerTime = 150 * time.Millisecond

// longest is how long a blocking command waits at most, whatever time it has.
const longest = 365 * 24 * time.Hour

// text is an argument as it is sent.
func text(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case []byte:
		return string(arg)
	}
	return fmt.Sprint(arg)
}

// position is the index of the waiting time in a command's arguments, and the
// unit that it is in.
func (b blocking) position(args []any) (at int, unit time.Duration, ok bool) {
	switch b {
	case lastArg:
		at, unit = len(args)-1, time.Second
	case firstArg:
		at, unit = 1, time.Second
	case lastMilli:
		at, unit = len(args)-1, time.Millisecond
	case blockWord:
		first := 1
		if len(args) > 1 && strings.EqualFold(text(args[1]), "group") {
			first = 4 // the names of a group and of a consumer may be any
		}
		for i := first; i < len(args); i++ {
			word := text(args[i])
			if strings.EqualFold(word, "streams") {
				return 0, 0, false // what follows are keys
			}
			if strings.EqualFold(word, "block") {
				at = i + 1
				break
			}
		}
		unit = time.Millisecond
	}
	return at, unit, at > 0 && at < len(args)
}

// A clamped is a waiting time that was cut short.
type clamped struct {
	args []any
	at   int
	was  any
}

// clamp makes the commands that block wait no longer than left, the time until
// the deadline, allows. wait is the longest that one of them waits then; zero: none
// does. What it cut, restore puts back.
func clamp(cmds []redis.Cmder, left time.Duration) (wait time.Duration, cut []clamped) {
	for _, cmd := range cmds {
		_, c := lookup(cmd)
		if c.block == never {
			continue
		}
		args := cmd.Args()
		at, unit, ok := c.block.position(args)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(text(args[at]), 64)
		if err != nil || !(n >= 0) { // written so that NaN is caught
			continue // the server will say so
		}
		most := min(max(left-min(answerTime, left/2), time.Millisecond), longest).Truncate(time.Millisecond)
		own := time.Duration(min(n, float64(most/unit)+1) * float64(unit)) // huge numbers do not overflow
		if n > 0 && own <= most {
			wait = max(wait, own)
			continue
		}
		wait = max(wait, most)
		cut = append(cut, clamped{args, at, args[at]})
		if unit == time.Second {
			args[at] = strconv.FormatFloat(most.Seconds(), 'f', 3, 64)
		} else {
			args[at] = most.Milliseconds()
		}
	}
	return wait, cut
}

func restore(cut []clamped) {
	for _, c := range cut {
		c.args[c.at] = c.was
	}
}
