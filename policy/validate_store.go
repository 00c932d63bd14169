package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kind reports what can't be meant of such a dependency.
func (v *validator) kind(d *Dependency, at func(...string) []string) {
	for _, op := range append([]string{""}, sorted(d.Operations)...) {
		retry, below := d.Retry, at("retry")
		if op != "" {
			retry, below = d.Operations[op].Retry, at("operations", op, "retry")
		}
		if retry == nil {
			continue
		}
		for i, c := range retry.Retryable {
			if text := d.Kind.mistaken(c); text != "" {
				v.add(text, append(slices.Clone(below), fmt.Sprintf("retryable[%d]", i))...)
			}
		}
	}
	if d.Kind.Store() {
		v.store(d, at)
	}
}

// store reports what no store has, or does.
func (v *validator) store(d *Dependency, at func(...string) []string) {
	if d.Service != "" {
		v.add(fmt.Sprintf("names a policy file, and a store (kind: %s) has none; remove it", d.Kind), at("service")...)
	}
	if d.SDK != "" {
		v.add(fmt.Sprintf("is a library for services, and a store (kind: %s) is not called through it; remove it, or the kind", d.Kind), at("sdk")...)
	}
	if d.Idempotency != (Idempotency{}) {
		v.add("no store reads an Idempotency-Key; keep the key in a row or an entry of its own, and declare what does so: operations: {NAME: {safety: idempotent}}", at("idempotency")...)
	}
	hedge := func(h *Hedge, key []string) {
		if h != nil && d.Kind != Postgres {
			v.add(fmt.Sprintf("no copy of a command to a store (kind: %s) is ever sent; remove it", d.Kind), key...)
		}
	}
	hedge(d.Hedge, at("hedge"))
	for _, op := range sorted(d.Operations) {
		hedge(d.Operations[op].Hedge, at("operations", op, "hedge"))
		if validPattern(op) == nil {
			v.add(fmt.Sprintf("is a route, and a store (kind: %s) has none; name the operation as it is in events", d.Kind), at("operations", op)...)
		} else if name := d.Kind.named(op); name != "" {
			v.add(fmt.Sprintf("is not the operation's name in events; write %s", name), at("operations", op)...)
		}
	}
}

// mistaken says why a retry can't be decided by the code there; empty if it can. What
// nobody said the kind of may be HTTP or gRPC.
func (k Kind) mistaken(c Code) string {
	_, status := c.HTTP()
	grpc := slices.Contains(grpcCodes, string(c))
	codes := outcomes[k]
	switch _, known := codes[c]; {
	case known, k == "" && (status || grpc), k == HTTP && status, k == GRPC && grpc:
		return ""
	case k == "":
		return fmt.Sprintf("%s is what a store answers; write its kind, or an HTTP status or a gRPC code", c)
	case k == HTTP:
		return fmt.Sprintf("%s is no HTTP status, and the kind is http; write one from 400 to 599", c)
	case k == GRPC:
		return fmt.Sprintf("%s is no gRPC code, and the kind is grpc; write one such as UNAVAILABLE", c)
	case codes == nil:
		return fmt.Sprintf("%s: what a store of kind %s answers is judged by the program's own Classify; remove it, and let that say what may be repeated", c, k)
	case k == Postgres && len(c) == 5 && codes[c[:2]].Code != "":
		return fmt.Sprintf("%s is told by its class; write %s", c, c[:2])
	}
	return fmt.Sprintf("%s is not what a store of kind %s answers; write one of %s", c, k, strings.Join(words(codes), ", "))
}

func words(codes map[Code]outcome) []string {
	var all []string
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		all = append(all, string(c))
	}
	return all
}
