package policy

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Print returns the file as YAML, without comments, its maps in the order of
// their keys: read again it is the same File.
func (f *File) Print() []byte {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	// A tree of our own scalars, maps and lists has nothing that could fail, and
	// neither has a buffer.
	_ = e.Encode(node(reflect.ValueOf(f).Elem()))
	_ = e.Close()
	return b.Bytes()
}

func text(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}

func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// node returns v as YAML.
func node(v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if t, ok := asTexter(v); ok {
		if s := t.text(); s != "" {
			return plain(s)
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for i := range v.NumField() {
			k := v.Type().Field(i).Tag.Get("yaml")
			if k == "" || k == "-" || v.Field(i).IsZero() {
				continue
			}
			n.Content = append(n.Content, text(k), node(v.Field(i)))
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Content = append(n.Content, text(k.String()), node(v.MapIndex(k)))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i)))
		}
		return n
	case reflect.String:
		return text(v.String())
	case reflect.Bool:
		return plain(strconv.FormatBool(v.Bool()))
	case reflect.Float64:
		return plain(Ratio(v.Float()).String())
	}
	if v.Type() == durationType {
		return plain(time.Duration(v.Int()).String())
	}
	return plain(strconv.FormatInt(v.Int(), 10))
}

// asTexter returns v as a texter; a copy where v can't be addressed.
func asTexter(v reflect.Value) (texter, bool) {
	if !reflect.PointerTo(v.Type()).Implements(texterType) {
		return nil, false
	}
	own := reflect.New(v.Type())
	own.Elem().Set(v)
	return own.Interface().(texter), true
}
