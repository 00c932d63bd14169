package stintpgx

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
func (p *Pool) op(ctx context.Context, sql string) stint.Op {
	op, ok := ctx.Value(opKey{}).(stint.Op)
	if !ok && p.opts.Op != nil {
		op = p.opts.Op(ctx, sql)
	}
	if op.Name == "" {
		op.Name = keyword(sql)
	}
	return op
}

// keywords are the words that statements begin with, and so names of operations.
var keywords = func() map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields("select insert update delete merge with values table call do copy begin commit rollback savepoint release " +
		"create alter drop truncate comment grant revoke vacuum analyze cluster reindex refresh lock set reset show " +
		"explain declare fetch move close listen notify unlisten prepare execute deallocate discard checkpoint start end abort") {
		m[w] = w
	}
	return m
}()

// keyword returns the first keyword of a statement, "batch" for several, or "other".
func keyword(sql string) string {
	if sql == "" {
		return "batch"
	}
	for {
		sql = strings.TrimLeft(sql, " \t\r\n\f(;")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
			continue
		case strings.HasPrefix(sql, "/*"): // one inside another is not worth a parser
			_, sql, _ = strings.Cut(sql, "*/")
			continue
		}
		break
	}
	n := 0
	for n < len(sql) && n < 12 && (sql[n]|0x20) >= 'a' && (sql[n]|0x20) <= 'z' {
		n++
	}
	if w, ok := keywords[sql[:n]]; ok { // as most write it, without a copy
		return w
	}
	if w, ok := keywords[strings.ToLower(sql[:n])]; ok {
		return w
	}
	return "other"
}
