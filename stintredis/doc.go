// Package stintredis puts a go-redis v9 client under a [stint.Caller]: commands
// keep the deadline, obey a cancel, and are repeated by one owner only, and only
// where that is safe.
//
//	o, changed := stintredis.Options(&redis.Options{Addr: addr})
//	client := redis.NewClient(o)
//	err := stintredis.Attach(client, caller)
//
// As it comes, go-redis runs a command past the deadline of its context, and
// repeats whatever it was when the answer is late: one INCR may count four times.
// [Options] switches that off and says what it changed. [Attach] refuses a client
// on which it is still on.
//
// # A command
//
// Every command, pipeline and transaction is one call of the Caller. With less
// than Policy.MinUseful left nothing is sent, nor is a connection taken. The wait
// for a connection counts, and ends with the call. A call that ends early (by its
// deadline, or because its caller cancelled) returns at once: its connection is
// closed, so that nobody can read the late answer as his own. Redis itself can't be
// stopped: a command that it has read, it carries out. Can the client see a cancel?
// Yes. Does that release what it holds promptly? Here yes, at the server no. Is the
// rest bounded? By the server's own work on one command.
//
// A blocking command (BLPOP, XREAD BLOCK, WAIT) waits at the server no longer than
// the call has time, a little less, so that the server answers before the deadline
// and the connection lives: it then says what it says when its own time is up
// (redis.Nil, say). Without a deadline the time is Policy.Timeout, or 10 seconds,
// also for a command that asks to wait for ever. Its arguments are changed for the
// length of an attempt, so a slice given to Do must not be shared with another
// command under way. This needs Redis 6.0.
//
// # Repeating
//
// What a command's flags at Redis call read only is repeated, and a chosen set of
// writes whose second execution has the effect of the first (SET without NX or
// GET, DEL, EXPIRE, SADD), though it may answer otherwise (DEL counts what was
// there). Nothing else is: not INCR, LPUSH, XADD or EVAL, nor what the table does not
// know. A pipeline is as safe as its least safe command, and a transaction is repeated
// only if it just reads. A policy raises the safety by the operation's name, which is
// the command's in lower case ("incr", "xinfo stream"), "pipeline", "transaction", or
// "other" for commands that the table does not know. What provably never began (no
// connection could be had, the server is loading its data) is repeated whatever it is,
// but not on a cluster client, which may have asked several nodes.
//
// # Errors
//
// What the server answered to the command is returned as go-redis has it: redis.Nil,
// redis.TxFailedErr, WRONGTYPE, NOSCRIPT. All else is an [*stint.Error], and
// errors.Is finds context.DeadlineExceeded, context.Canceled and go-redis' own error
// in it. LOADING, READONLY, CLUSTERDOWN, MOVED and the like may be over at the next try;
// OOM is overload, and not repeated. A full connection pool is a refusal of this
// process, and says nothing about Redis. A Caller with a Classify of its own judges
// by that instead, and gets go-redis' error.
//
// # Left alone
//
// Pub/Sub is not a call, nor is what a client says of itself on a new connection
// (AUTH, SELECT): they go past the Caller. A batch of the AutoPipeliner is one call,
// without the deadlines of its callers. A cluster client follows redirects itself,
// and repeats by itself what a node refused to begin; [HiddenRetries] says so at start.
// Hedging does not apply.
package stintredis
