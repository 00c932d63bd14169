package stintsql

import (
	"context"
	"strings"

	"github.com/stint-go/stint"
)

type opKey struct{}

// WithOp returns a context whose statements are op: its name for metrics and for
// the policy of that operation, and whether it may be repeated. Where Name is empty
// it is the statement's first keyword.
func WithOp(ctx context.Context, op stint.Op) context.Context {
	return context.WithValue(ctx, opKey{}, op)
}

// op describes a statement.
func (n *Connector) op(ctx context.Context, query string) stint.Op {
	op, ok := ctx.Value(opKey{}).(stint.Op)
	if !ok && n.opts.Op != nil {
		op = n.opts.Op(ctx, query)
	}
	if op.Name == "" {
		op.Name = keyword(query)
	}
	return op
}

// keywords are the words that statements begin with, and so names of operations.
var keywords = func() map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields("select insert update delete merge replace with values table call do copy load begin commit rollback savepoint release " +
		"create alter drop truncate rename comment grant revoke vacuum analyze cluster reindex refresh optimize lock unlock set reset use show " +
		"explain describe declare fetch move close listen notify unlisten prepare execute deallocate discard checkpoint start end abort xa " +
		"pragma attach detach kill flush") {
		m[w] = w
	}
	return m
}()

// keyword returns the first keyword of a statement, or "other".
func keyword(query string) string {
	query = query[start(query):]
	n := 0
	for n < len(query) && n < 12 && (query[n]|0x20) >= 'a' && (query[n]|0x20) <= 'z' {
		n++
	}
	if w, ok := keywords[query[:n]]; ok { // as most write it, without a copy
		return w
	}
	if w, ok := keywords[strings.ToLower(query[:n])]; ok {
		return w
	}
	return "other"
}

// start returns where a statement's first keyword begins.
func start(query string) int {
	rest := query
	for {
		rest = strings.TrimLeft(rest, " \t\r\n\f(;")
		switch {
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#"):
			_, rest, _ = strings.Cut(rest, "\n")
			continue
		case strings.HasPrefix(rest, "/*"): // one inside another is not worth a parser
			_, rest, _ = strings.Cut(rest, "*/")
			continue
		}
		return len(query) - len(rest)
	}
}

// single reports whether a query is one statement that takes effect as a whole or not
// at all, as far as can be seen without a parser.
func single(query string) bool {
	switch keyword(query) {
	case "select", "insert", "update", "delete", "merge", "replace", "with", "values", "table":
		return !several(query)
	}
	return false
}

// several reports whether there may be more than one statement in a query.
func several(query string) bool {
	return strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";")
}

// begins reports whether a statement whose keyword is begin or start begins a transaction,
// and not a block of a procedural language.
func begins(query string) bool {
	query = strings.TrimRight(strings.ToLower(query[start(query):]), "; \t\r\n")
	words := strings.Fields(query)
	if len(words) < 2 {
		return len(words) == 1 && words[0] == "begin"
	}
	switch words[1] {
	case "transaction", "tran", "work", "deferred", "immediate", "exclusive", "concurrent", "isolation", "read":
		return !strings.Contains(query, ";")
	}
	return false
}

// ends reports whether a statement that begins so may end a transaction.
func ends(keyword string) bool {
	switch keyword {
	case "commit", "rollback", "end", "abort":
		return true
	}
	return false
}
