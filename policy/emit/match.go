package emit

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// methods are those that all targets can match.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

type pathKind int

const (
	exactPath  pathKind = iota // path as it is
	regexPath                  // path is a regular expression for all of it
	prefixPath                 // path and all below it
	anyPath
)

// A match is which requests an operation's name stands for.
type match struct {
	method string // empty: all
	kind   pathKind
	path   string
	// service and rpc are those of a gRPC method; a service may be missing.
	service, rpc string
	// open says that the path may go on behind its segments, wild how many of these are wildcards.
	open           bool
	segments, wild int
}

// methods are those that match; none: all. A path for GET is one for HEAD, as
// net/http's ServeMux has it.
func (m match) methods() []string {
	switch {
	case m.method == "":
		return nil
	case m.method == "GET" && m.kind != anyPath:
		return []string{"GET", "HEAD"}
	}
	return []string{m.method}
}

// compare puts the narrower match first, as net/http's ServeMux does for patterns
// of which one is the narrower.
func (m match) compare(n match) int {
	width := func(m match) int {
		switch {
		case m.kind == anyPath:
			return 3
		case m.open:
			return 2
		case m.wild > 0:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(width(m), width(n)), cmp.Compare(n.segments, m.segments), cmp.Compare(m.wild, n.wild),
		cmp.Compare(m.path, n.path), cmp.Compare(n.method, m.method))
}

var (
	rpcName  = regexp.MustCompile(`^/?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)/([A-Z]\w*)$`)
	bareRPC  = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	wildcard = regexp.MustCompile(`^\{([A-Za-z_]\w*)(\.\.\.)?\}$`)
)

// parseMatch reads an operation's name: a method, a pattern of net/http's
// ServeMux without host, or a gRPC method. It is false for all else.
func parseMatch(op string) (match, bool) {
	if op == "" {
		return match{kind: anyPath}, true
	}
	if slices.Contains(methods, op) {
		return match{method: op, kind: anyPath}, true
	}
	if m := rpcName.FindStringSubmatch(op); m != nil && (op[0] != '/' || strings.Contains(m[1], ".")) {
		return match{method: "POST", kind: exactPath, path: "/" + m[1] + "/" + m[2], service: m[1], rpc: m[2]}, true
	}
	if bareRPC.MatchString(op) && strings.ToUpper(op) != op {
		return match{method: "POST", kind: regexPath, path: "/[^/]+/" + op, rpc: op, segments: 2, wild: 1}, true
	}
	method, path, ok := strings.Cut(op, " ")
	if !ok {
		method, path = "", op
	}
	path = strings.TrimLeft(path, " \t")
	if method != "" && !slices.Contains(methods, method) || !strings.HasPrefix(path, "/") {
		return match{kind: anyPath}, false
	}
	m, ok := parsePath(path)
	m.method = method
	return m, ok
}

// parsePath reads the path of a ServeMux pattern.
func parsePath(path string) (match, bool) {
	var m match
	var plain, re strings.Builder
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		w := wildcard.FindStringSubmatch(s)
		plain.WriteByte('/')
		re.WriteByte('/')
		switch {
		case last && s == "", last && w != nil && w[2] != "":
			m.open = true
			re.WriteString(".*")
			continue
		case last && s == "{$}":
		case w != nil && w[2] == "":
			m.wild++
			re.WriteString("[^/]+")
		case strings.ContainsAny(s, "{}"):
			return match{kind: anyPath}, false
		default:
			plain.WriteString(s)
			re.WriteString(regexp.QuoteMeta(s))
		}
		m.segments++
	}
	m.path = plain.String()
	switch {
	case m.wild > 0:
		m.kind, m.path = regexPath, re.String()
	case m.open:
		m.kind = prefixPath
	}
	return m, true
}

// hostName is s as the name of a host: small letters, digits, hyphens and dots.
func hostName(s string) string { return dns(s, ".") }

// labelName is s as the name of a Kubernetes Service: one label, up to 63.
func labelName(s string) string { return dns(s, "") }

// objectName is the name of a Kubernetes object.
func objectName(service, callee string) string { return labelName(service + "-" + callee) }

func dns(s, also string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || strings.ContainsRune(also, r) {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	if also == "" && len(s) > 63 {
		s = s[:63]
	}
	return strings.Trim(s, "-.")
}
