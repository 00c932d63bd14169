package stintsql

import (
	"strconv"

	"github.com/stint-go/stint"
)

// limited reports whether a code says that a statement's limit has passed.
func (d Dialect) limited(code string) bool {
	switch d {
	case PostgreSQL:
		return code == "57014"
	case MariaDB:
		return code == "1969"
	case MySQL:
		return code == "3024"
	}
	return false
}

// ends reports whether a code ends the connection, perhaps after the work.
func (d Dialect) ends(code string) bool {
	switch d {
	case MySQL, MariaDB:
		return code == "1053" || code == "1927" || code == "1080" || code == "1184"
	case SQLite:
		return false
	}
	switch code {
	case "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04":
		return true
	}
	return class(code) == "08"
}

// undoes reports whether a code says that the database has rolled the transaction back, so that there is none any more.
func (d Dialect) undoes(code string) bool {
	switch d {
	case MySQL, MariaDB:
		return code == "1213" // the loser of a deadlock
	case SQLite:
		return code == "7" || code == "9" || code == "10" || code == "13" // no memory, interrupted, no disk, full
	}
	return false
}

// outcome judges an error that the database answered with.
func (d Dialect) outcome(code string) stint.Outcome {
	switch d {
	case MySQL, MariaDB:
		return numberOutcome(code)
	case SQLite:
		return resultOutcome(code)
	}
	return stateOutcome(code)
}

func class(code string) string {
	if len(code) == 5 {
		return code[:2]
	}
	return ""
}

// stateOutcome judges an SQLSTATE (PostgreSQL's documentation, appendix A). What
// the server answered with an error it has rolled back.
func stateOutcome(code string) stint.Outcome {
	switch code {
	case "40001", "40P01", "55P03": // lost to another transaction: as good as never begun
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: code}
	case "53300", "57P03": // it let nobody in
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: code}
	case "57P01", "57P02": // it is being ended
		return stint.Outcome{Kind: stint.Transient, Code: code}
	case "57014": // stopped by somebody else
		return stint.Outcome{Kind: stint.Failed, Code: code}
	}
	switch c := class(code); c {
	case "08":
		return stint.Outcome{Kind: stint.Transient, Code: c}
	case "53", "57", "58", "F0", "HV", "XX": // the server's trouble
		return stint.Outcome{Kind: stint.Failed, Code: c}
	case "02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23", "24", "25", "26", "27", "28", "2B", "2D", "2F",
		"34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "54", "55", "72", "P0": // the statement's
		return stint.Outcome{Kind: stint.Rejected, Code: c}
	}
	return stint.Outcome{Kind: stint.Rejected, Code: "other"} // RAISE may make up any
}

// numberOutcome judges an error's number of MySQL or MariaDB.
func numberOutcome(code string) stint.Outcome {
	switch code {
	case "1213", "1205", "3572": // lost to another transaction: as good as never begun
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: code}
	case "1040", "1203", "1226": // it let nobody in
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: code}
	case "1053", "1927", "1080", "1184": // it is being ended, or the connection is
		return stint.Outcome{Kind: stint.Transient, Code: code}
	case "1969", "3024", "1317": // stopped by somebody else
		return stint.Outcome{Kind: stint.Failed, Code: code}
	case "1021", "1030", "1037", "1038", "1041", "1105", "1114", "1180", "1181", "1290", "1792", "1836", "3100": // the server's trouble
		return stint.Outcome{Kind: stint.Failed, Code: code}
	case "1044", "1045", "1048", "1054", "1062", "1064", "1142", "1146", "1216", "1217", "1264", "1364", "1366", "1406", "1451", "1452", "3819", "4025": // the statement's, and frequent
		return stint.Outcome{Kind: stint.Rejected, Code: code}
	}
	return stint.Outcome{Kind: stint.Rejected, Code: "other"}
}

// results are the names of SQLite's result codes.
var results = [...]string{1: "error", 2: "internal", 3: "perm", 4: "abort", 5: "busy", 6: "locked", 7: "nomem", 8: "readonly", 9: "interrupt", 10: "ioerr",
	11: "corrupt", 12: "notfound", 13: "full", 14: "cantopen", 15: "protocol", 16: "empty", 17: "schema", 18: "toobig", 19: "constraint", 20: "mismatch",
	21: "misuse", 22: "nolfs", 23: "auth", 24: "format", 25: "range", 26: "notadb"}

// resultOutcome judges a result code of SQLite.
func resultOutcome(code string) stint.Outcome {
	n, _ := strconv.Atoi(code)
	if n < 1 || n >= len(results) {
		return stint.Outcome{Kind: stint.Rejected, Code: "other"}
	}
	o := stint.Outcome{Kind: stint.Rejected, Code: results[n]}
	switch results[n] {
	case "busy", "locked": // another writes: as good as never begun
		o.Kind, o.NotStarted = stint.Transient, true
	case "internal", "perm", "nomem", "interrupt", "ioerr", "corrupt", "full", "cantopen", "protocol", "nolfs", "notadb": // the file's trouble
		o.Kind = stint.Failed
	}
	return o
}
