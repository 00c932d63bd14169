package policy

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// A reader fills a File from YAML, strictly, and notes where everything stood.
// What a key may hold follows from the Go type of its field, and for numbers
// and durations from the table bounds.
type reader struct {
	path      string
	positions map[string]Position
	bad       []error
	nodes     int // read so far: aliases can make a small file large
}

// maxNodes bounds what aliases can blow a file up to.
const maxNodes = 200_000

// bounds are the least values of keys whose least is not 1 or 1ms; -1 is none.
var bounds = map[string]int{"hiddenRetries": 0}

// finer are durations that no peer is told, so that they may be under 1ms.
var finer = []string{"base", "cap", "reserve", "local", "contingency"}

// most are the greatest values of keys that have one.
var most = map[string]int{"hedge.max": 8}

// texter is a type that may also be written as one word.
type texter interface {
	setText(string) error
	text() string
}

var (
	texterType   = reflect.TypeFor[texter]()
	wordType     = reflect.TypeFor[word]()
	durationType = reflect.TypeFor[time.Duration]()
	ratioType    = reflect.TypeFor[Ratio]()
)

func (r *reader) fail(n *yaml.Node, path, format string, args ...any) {
	r.bad = append(r.bad, &Problem{Position{r.path, n.Line, n.Column}, dotted(path), fmt.Sprintf(format, args...)})
}

// between parts the keys of a path. A dot would not do: keys have some themselves
// ("billing.internal", "GET /a.b").
const between = "\x00"

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + between + key
}

// dotted is a path as people write it.
func dotted(path string) string { return strings.ReplaceAll(path, between, ".") }

// lastKey returns the last part of a path.
func lastKey(path string) string { return path[strings.LastIndex(path, between)+1:] }

// value reads n into v.
func (r *reader) value(n *yaml.Node, v reflect.Value, path string) {
	if r.nodes++; r.nodes > maxNodes {
		if r.nodes == maxNodes+1 {
			r.fail(n, path, "the file is too large once its aliases are followed; write at most %d values", maxNodes)
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		r.value(n.Alias, v, path)
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		r.fail(n, path, "has no value; write one, or leave the key out")
		return
	}
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		own := reflect.New(t.Elem())
		r.value(n, own.Elem(), path)
		v.Set(own)
	case n.Kind == yaml.ScalarNode && reflect.PointerTo(t).Implements(texterType):
		if err := v.Addr().Interface().(texter).setText(n.Value); err != nil {
			r.fail(n, path, "%v", err)
		}
	case t.Kind() == reflect.Struct:
		r.structure(n, v, path)
	case t.Kind() == reflect.Map:
		r.mapping(n, v, path)
	case t.Kind() == reflect.Slice:
		r.sequence(n, v, path)
	case n.Kind != yaml.ScalarNode:
		r.fail(n, path, "is %s; write one value", kindName(n))
	default:
		r.scalar(n, v, path)
	}
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a block of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	return "one value"
}

// printable reports a text without control characters: it is shown in terminals,
// and written into documents.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) })
}

// stands notes where a key stands: at its value, where that begins in the key's
// line, and else at the key. What a value stands for elsewhere does not count.
func (r *reader) stands(path string, k, value *yaml.Node) {
	if value.Line != k.Line {
		value = k
	}
	r.positions[path] = Position{r.path, value.Line, value.Column}
}

// pairs calls f for each key of a block, and reports what is no block, and keys
// that stand there twice.
func (r *reader) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, path, "is %s; write a block of keys", kindName(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.Value == "" {
			r.fail(k, path, "has a key that is no word")
			continue
		}
		if !printable(k.Value) {
			r.fail(k, path, "has a key that can't be printed: %q", k.Value)
			continue
		}
		if line := seen[k.Value]; line != 0 {
			r.fail(k, join(path, k.Value), "stands here twice; the first is in line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		f(k, n.Content[i+1])
	}
}

func (r *reader) structure(n *yaml.Node, v reflect.Value, path string) {
	t := v.Type()
	r.pairs(n, path, func(k, value *yaml.Node) {
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("yaml") == k.Value && t.Field(i).IsExported() && k.Value != "-" {
				r.stands(join(path, k.Value), k, value)
				r.value(value, v.Field(i), join(path, k.Value))
				return
			}
		}
		r.fail(k, join(path, k.Value), "is an unknown key; %s", suggest(k.Value, keysOf(t)))
	})
}

func (r *reader) mapping(n *yaml.Node, v reflect.Value, path string) {
	m := reflect.MakeMap(v.Type())
	r.pairs(n, path, func(k, value *yaml.Node) {
		own := reflect.New(v.Type().Elem()).Elem()
		r.stands(join(path, k.Value), k, value)
		r.value(value, own, join(path, k.Value))
		if own.Kind() == reflect.Pointer && own.IsNil() {
			return // it had no value, and that has been said
		}
		m.SetMapIndex(reflect.ValueOf(k.Value), own)
	})
	v.Set(m)
}

func (r *reader) sequence(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, path, "is %s; write a list: [a, b]", kindName(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	seen := map[string]bool{}
	for i, e := range n.Content {
		own := path + "[" + strconv.Itoa(i) + "]"
		r.stands(own, e, e)
		r.value(e, list.Index(i), own)
		if e.Kind == yaml.ScalarNode && seen[e.Value] {
			r.fail(e, path, "names %s twice", e.Value)
		}
		seen[e.Value] = true
	}
	v.Set(list)
}

func (r *reader) scalar(n *yaml.Node, v reflect.Value, path string) {
	s, key := n.Value, lastKey(path)
	switch t := v.Type(); {
	case t == durationType:
		d, err := parseDuration(s)
		switch {
		case err != nil:
			r.fail(n, path, "%v", err)
		case d == 0:
			r.fail(n, path, "is zero, which would not mean \"no limit\"; leave the key out for its default, or write a duration above zero")
		case d < time.Millisecond && !slices.Contains(finer, key):
			r.fail(n, path, "%s is below 1ms, the unit in which a peer is told; write 1ms or more", s)
		}
		v.SetInt(int64(d))
	case t == ratioType:
		ratio, err := parseRatio(s)
		if err != nil {
			r.fail(n, path, "%v", err)
		}
		v.SetFloat(float64(ratio))
	case t.Implements(wordType):
		words := v.Interface().(word).words()
		if !slices.Contains(words, s) {
			nearest := ""
			if w := nearestOf(s, words); w != "" {
				nearest = "; did you mean " + w + "?"
			}
			r.fail(n, path, "%q is unknown; write %s%s", s, list(words), nearest)
			return
		}
		v.SetString(s)
	case t.Kind() == reflect.String:
		switch {
		case n.Tag != "!!str":
			r.fail(n, path, "%s is no text; write it in quotes if it is meant so", s)
		case s == "":
			r.fail(n, path, "is empty; write a name, or leave the key out")
		case !printable(s):
			r.fail(n, path, "can't be printed: %q", s)
		}
		v.SetString(s)
	case t.Kind() == reflect.Bool:
		if s != "true" && s != "false" {
			r.fail(n, path, "%q is neither true nor false", s)
		}
		v.SetBool(s == "true")
	default:
		r.integer(n, v, path)
	}
}

func (r *reader) integer(n *yaml.Node, v reflect.Value, path string) {
	least, ok := bounds[lastKey(path)]
	if !ok {
		least = 1
	}
	greatest := math.MaxInt32
	for suffix, m := range most {
		if strings.HasSuffix("."+dotted(path), "."+suffix) {
			greatest = m
		}
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	switch {
	case err != nil:
		r.fail(n, path, "%q is no whole number", n.Value)
		return
	case i < int64(least), i > int64(greatest):
		hint := ""
		if i == 0 {
			hint = ", or leave the key out for its default"
		}
		r.fail(n, path, "%d is outside of what it can be; write a number from %d to %d%s", i, least, greatest, hint)
		return
	}
	v.SetInt(i)
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if k := t.Field(i).Tag.Get("yaml"); k != "" && k != "-" {
			keys = append(keys, k)
		}
	}
	return keys
}

// list is "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// suggest says which of the words was probably meant.
func suggest(s string, words []string) string {
	if w := nearestOf(s, words); w != "" {
		return "did you mean " + w + "?"
	}
	return "it can be " + list(words)
}

// nearestOf returns the word that was probably meant; empty if none is near.
func nearestOf(s string, words []string) string {
	best, least := "", len(s)/2+1
	for _, w := range words {
		if d := distance(strings.ToLower(s), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
