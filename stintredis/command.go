package stintredis

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
)

// A command is what the table knows about one.
type command struct {
	safety stint.Safety
	block  blocking
}

// The commands that Redis 7.0 flags as read only, later ones of the same kind,
// and some without keys that only tell. integration compares the table with a
// server's own.
const readOnly = `bitcount bitfield_ro bitpos dbsize dump eval_ro evalsha_ro exists expiretime fcall_ro geodist geohash
	geopos georadius_ro georadiusbymember_ro geosearch get getbit getrange hexists hexpiretime hget hgetall hkeys hlen
	hmget hpexpiretime hpttl hrandfield hscan hstrlen httl hvals keys lcs lindex llen lolwut lpos lrange mget pexpiretime
	pfcount pttl randomkey scan scard sdiff sinter sintercard sismember smembers smismember sort_ro srandmember sscan
	strlen substr sunion touch ttl type xlen xpending xrange xread xrevrange zcard zcount zdiff zinter zintercard
	zlexcount zmscore zrandmember zrange zrangebylex zrangebyscore zrank zrevrange zrevrangebylex zrevrangebyscore
	zrevrank zscan zscore zunion
	echo info lastsave ping role time`

// Writes whose second execution has the effect of the first. Not among them is
// what gives its answer only once, since a repeated one would lose it or lie: SETNX,
// GETDEL, SETBIT; nor what may read what it writes, as ZUNIONSTORE.
const idempotent = `del expire expireat geoadd getex hdel hexpire hexpireat hmset hpersist hpexpire hpexpireat hset
	lset mset persist pexpire pexpireat pfadd psetex sadd set setex setrange srem unlink xack xdel zadd zrem
	zremrangebylex zremrangebyscore`

// Commands known to be neither. They are here for their names, which are
// operations of a policy.
const neither = `append asking auth bgrewriteaof bgsave bitfield bitop blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin
	copy debug decr decrby discard eval evalsha exec failover fcall flushall flushdb georadius georadiusbymember geosearchstore
	getdel getset hello hgetdel hgetex hincrby hincrbyfloat hsetex hsetnx incr incrby incrbyfloat linsert lmove lmpop lpop lpush
	lpushx lrem ltrim migrate monitor move msetnx multi pfdebug pfmerge pfselftest psubscribe psync publish punsubscribe quit
	readonly readwrite rename renamenx replconf replicaof reset restore restore-asking rpop rpoplpush rpush rpushx save
	sdiffstore select setbit setnx shutdown sinterstore slaveof smove sort spop spublish ssubscribe subscribe sunionstore
	sunsubscribe swapdb sync unsubscribe unwatch wait waitaof watch xadd xautoclaim xclaim xreadgroup xsetid xtrim zdiffstore
	zincrby zinterstore zmpop zpopmax zpopmin zrangestore zremrangebyrank zunionstore`

// Commands in two words: the first, and which second words only read. With
// another second word it is the first alone, and not repeated.
var containers = map[string]string{
	"acl":      "cat getuser list users whoami",
	"client":   "getname id info list",
	"cluster":  "countkeysinslot getkeysinslot info keyslot links myid nodes replicas shards slaves slots",
	"command":  "count docs getkeys getkeysandflags info list",
	"config":   "get",
	"function": "dump list stats",
	"latency":  "doctor graph histogram history latest",
	"memory":   "doctor malloc-stats stats usage",
	"module":   "list",
	"object":   "encoding freq idletime refcount",
	"pubsub":   "channels numpat numsub shardchannels shardnumsub",
	"script":   "exists",
	"slowlog":  "get len",
	"xgroup":   "",
	"xinfo":    "consumers groups stream",
}

var commands = func() map[string]command {
	m := map[string]command{}
	add := func(names string, s stint.Safety) {
		for name := range strings.FieldsSeq(names) {
			m[name] = command{safety: s}
		}
	}
	add(readOnly, stint.ReadOnly)
	add(idempotent, stint.Idempotent)
	add(neither, stint.Unrepeatable)
	for first, seconds := range containers {
		m[first] = command{}
		for second := range strings.FieldsSeq(seconds) {
			m[first+" "+second] = command{safety: stint.ReadOnly}
		}
	}
	for name, b := range blockers {
		c := m[name]
		c.block = b
		m[name] = c
	}
	return m
}()

// Safety returns what may be repeated of a command whose policy does not say it, as a
// rule: its options may forbid it (SET NX). The name is that of the operation in events
// ("incr", "xinfo stream"); what the package does not know is not repeated.
func Safety(name string) stint.Safety { return commands[name].safety }

// lookup finds a command in the table. The name is one of a bounded set.
func lookup(cmd redis.Cmder) (name string, c command) {
	name = cmd.Name()
	args := cmd.Args()
	if _, ok := containers[name]; ok && len(args) > 1 {
		if second, ok := args[1].(string); ok {
			both := name + " " + strings.ToLower(second)
			if c, ok := commands[both]; ok {
				return both, c
			}
		}
	}
	c, ok := commands[name]
	if !ok {
		return "other", command{}
	}
	switch name {
	case "set":
		if hasWord(args, 3, "nx", "get", "ifeq", "ifne", "ifdeq", "ifdne") {
			c.safety = stint.Unrepeatable
		}
	case "zadd":
		if hasWord(args, 2, "incr") {
			c.safety = stint.Unrepeatable
		}
	}
	return name, c
}

// hasWord reports whether one of the words stands among the options of a
// command, which begin at from. A member may look like one: then a command that
// could be repeated is not.
func hasWord(args []any, from int, words ...string) bool {
	for i := from; i < len(args); i++ {
		arg, ok := args[i].(string)
		if !ok {
			continue
		}
		for _, w := range words {
			if strings.EqualFold(arg, w) {
				return true
			}
		}
	}
	return false
}

// greets reports whether a command says who the client is, as go-redis does on a
// new connection: for Pub/Sub also where there is no call.
func greets(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "readonly":
		return true
	case "client":
		args := cmd.Args()
		return len(args) > 1 && hasWord(args[:2], 1, "setname", "setinfo", "tracking", "maint_notifications")
	}
	return false
}

// operation is what a Caller needs to know of one command.
func operation(cmd redis.Cmder) stint.Op {
	name, c := lookup(cmd)
	return stint.Op{Name: name, Safety: c.safety, OneShot: cmd.NoRetry()}
}

// operations is operation for a pipeline or a transaction. go-redis puts MULTI
// and EXEC around a transaction.
func operations(cmds []redis.Cmder) stint.Op {
	op := stint.Op{Name: "pipeline", Safety: stint.ReadOnly}
	if n := len(cmds); n > 1 && cmds[0].Name() == "multi" && cmds[n-1].Name() == "exec" {
		op.Name, cmds = "transaction", cmds[1:n-1]
	}
	for _, cmd := range cmds {
		_, c := lookup(cmd)
		op.Safety = min(op.Safety, c.safety)
		op.OneShot = op.OneShot || cmd.NoRetry()
	}
	if op.Name == "transaction" && op.Safety < stint.ReadOnly {
		op.Safety = stint.Unrepeatable
	}
	return op
}
