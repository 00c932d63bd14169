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
}

// compare puts the narrower match first.
func (m match) compare(n match) int {
	return cmp.Or(cmp.Compare(m.kind, n.kind), cmp.Compare(len(n.path), len(m.path)), cmp.Compare(m.path, n.path),
		cmp.Compare(n.method, m.method))
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
		return match{method: "POST", kind: regexPath, path: "/[^/]+/" + op, rpc: op}, true
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
	if !strings.ContainsAny(path, "{}") {
		if strings.HasSuffix(path, "/") {
			return match{kind: prefixPath, path: path}, true
		}
		return match{kind: exactPath, path: path}, true
	}
	if exact, ok := strings.CutSuffix(path, "/{$}"); ok && !strings.ContainsAny(exact, "{}") {
		return match{kind: exactPath, path: exact + "/"}, true
	}
	var re strings.Builder
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		w := wildcard.FindStringSubmatch(s)
		switch {
		case w != nil && w[2] == "":
			re.WriteString("/[^/]+")
		case w != nil && last, s == "" && last:
			re.WriteString("/.*")
		case s == "{$}" && last:
			re.WriteString("/")
		case strings.ContainsAny(s, "{}"):
			return match{kind: anyPath}, false
		default:
			re.WriteString("/" + regexp.QuoteMeta(s))
		}
	}
	return match{kind: regexPath, path: re.String()}, true
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
