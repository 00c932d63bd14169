package policy

import (
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// Kind is what is at the other end of a dependency.
type Kind string

// The kinds of dependency. All but HTTP and GRPC are stores.
const (
	HTTP     Kind = "http"
	GRPC     Kind = "grpc"
	Postgres Kind = "postgres"
	MariaDB  Kind = "mariadb"
	MySQL    Kind = "mysql"
	SQLite   Kind = "sqlite"
	Redis    Kind = "redis"
	MongoDB  Kind = "mongodb"
)

func (Kind) words() []string {
	return []string{string(HTTP), string(GRPC), string(Postgres), string(MariaDB), string(MySQL), string(SQLite), string(Redis), string(MongoDB)}
}

// Store reports whether it is a data store: it calls nobody, has no policy of its
// own, and reads none of the contract's marks.
func (k Kind) Store() bool { return k != "" && k != HTTP && k != GRPC }

// sql reports a store that is spoken to in SQL.
func (k Kind) sql() bool { return k == Postgres || k == MariaDB || k == MySQL || k == SQLite }

// client is the library through which Go programs call such a store, where that
// repeats commands by itself, and how often it does unless told otherwise. What
// database/sql sends again never began, and so is no request.
func (k Kind) client() (name string, retries int) {
	switch k {
	case Redis:
		return "go-redis", 3
	case MongoDB:
		return "mongo-driver", 1
	}
	return "", 0
}

// An outcome is what a store's carrier makes of an answer, and what a repetition
// changes.
type outcome struct {
	stint.Outcome
	lasting bool // the same command meets it again
}

// Outcome returns what the carrier of such a store makes of an answer to a single
// command with this code, as events have it; false where it has none like it.
// Of PostgreSQL these are a few SQLSTATEs whole (40001) and the others by their class
// (23), of MariaDB and MySQL numbers (1213), of SQLite the names of its results (busy),
// of Redis the first words of its errors. MongoDB's are the program's own.
func (k Kind) Outcome(c Code) (stint.Outcome, bool) {
	o, ok := outcomes[k][c]
	return o.Outcome, ok
}

// outcomes are the answers by which a retry can be decided: a test in integration
// holds them against those of real servers.
var outcomes = func() map[Kind]map[Code]outcome {
	all := map[Kind]map[Code]outcome{}
	add := func(k Kind, o outcome, codes string) {
		if all[k] == nil {
			all[k] = map[Code]outcome{}
		}
		for c := range strings.FieldsSeq(codes) {
			o.Code = c
			all[k][Code(c)] = o
		}
	}
	never := outcome{Outcome: stint.Outcome{Kind: stint.Transient, NotStarted: true}}
	failed := outcome{Outcome: stint.Outcome{Kind: stint.Failed}}
	rejected := outcome{Outcome: stint.Outcome{Kind: stint.Rejected}}
	lasting := outcome{Outcome: stint.Outcome{Kind: stint.Rejected}, lasting: true}

	add(Postgres, never, "40001 40P01 55P03 53300 57P03")
	add(Postgres, outcome{Outcome: stint.Outcome{Kind: stint.Transient}}, "57P01 57P02 08")
	add(Postgres, failed, "57014 53 57 58 F0 HV XX")
	add(Postgres, rejected, "02 03 09 20 24 25 34 38 39 3B 40 55 72 P0 other") // 25: read only, as after a change of roles
	add(Postgres, lasting, "0A 0B 0F 0L 0P 0Z 21 22 23 26 27 28 2B 2D 2F 3D 3F 42 44 54")

	for _, k := range []Kind{MariaDB, MySQL} {
		add(k, never, "1040 1203 1205 1213 1226 3572")
		add(k, outcome{Outcome: stint.Outcome{Kind: stint.Transient}}, "1053 1080 1184 1927")
		add(k, failed, "1021 1030 1037 1038 1041 1105 1114 1180 1181 1290 1317 1792 1836 1969 3024 3100")
		add(k, rejected, "other")
		add(k, lasting, "1044 1045 1048 1054 1062 1064 1142 1146 1216 1217 1264 1364 1366 1406 1451 1452 3819 4025")
	}

	add(SQLite, never, "busy locked")
	add(SQLite, failed, "cantopen corrupt full interrupt internal ioerr nolfs nomem notadb perm protocol")
	add(SQLite, rejected, "abort readonly schema other")
	add(SQLite, lasting, "auth constraint empty error format mismatch misuse notfound range toobig")

	add(Redis, never, "LOADING READONLY CLUSTERDOWN TRYAGAIN MOVED ASK MASTERDOWN NOREPLICAS BUSY MAXCLIENTS")
	add(Redis, outcome{Outcome: stint.Outcome{Kind: stint.Transient}}, "UNBLOCKED")
	add(Redis, outcome{Outcome: stint.Outcome{Kind: stint.Overloaded, NotStarted: true}}, "OOM")
	add(Redis, outcome{Outcome: stint.Outcome{Kind: stint.Failed, NotStarted: true}}, "MISCONF")
	add(Redis, outcome{Outcome: stint.Outcome{Kind: stint.Failed, NotStarted: true}, lasting: true}, "NOAUTH WRONGPASS")
	add(Redis, rejected, "NOGROUP UNKILLABLE INPROG")
	add(Redis, lasting, "ERR WRONGTYPE NOSCRIPT BUSYGROUP BUSYKEY NOPERM EXECABORT CROSSSLOT NOTBUSY NOPROTO")
	return all
}()

// storeCode reports a code of any store, or what has the form of an SQLSTATE.
func storeCode(c Code) bool {
	if len(c) == 5 && strings.Trim(string(c), "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return true
	}
	for _, codes := range outcomes {
		if _, ok := codes[c]; ok {
			return true
		}
	}
	return false
}

// sqlKeywords are statements by their first words, as the carriers name them.
var sqlKeywords = strings.Fields("select insert update delete merge replace with values table call do copy begin commit")

// named returns the carrier's name of an operation that a file writes in capitals, as
// manuals do; empty if there is no such.
func (k Kind) named(operation string) string {
	lower := strings.ToLower(operation)
	if lower != operation && (k == Redis || k.sql() && slices.Contains(sqlKeywords, lower)) {
		return lower
	}
	return ""
}

// writes reports a statement that can't be read only.
func (k Kind) writes(operation string) bool {
	return k.sql() && slices.Contains([]string{"insert", "update", "delete", "merge", "replace", "copy"}, operation)
}

// redisTwice are commands that have a second effect when they are done again. The
// others stintredis can tell by itself, or they are the program's to declare.
var redisTwice = strings.Fields(`append blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin decr decrby hincrby hincrbyfloat
	incr incrby incrbyfloat linsert lmove lmpop lpop lpush lpushx publish rpop rpoplpush rpush rpushx spop spublish xadd xreadgroup
	zincrby zmpop zpopmax zpopmin`)

// twice reports such a command.
func (k Kind) twice(operation string) bool {
	return k == Redis && slices.Contains(redisTwice, operation)
}
