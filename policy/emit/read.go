package emit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stint-go/stint/policy"
)

// maxForeign is the largest file that is read, in bytes, as policy.Load has it.
const maxForeign = 4 << 20

const (
	maxNodes = 1_000_000 // looked at: aliases can blow a small file up
	maxDepth = 100       // of merge keys in merge keys
)

// IsForeign reports whether the data is a configuration that Read is for, or
// another Kubernetes object, and not a policy file. It is false for what is no
// YAML at all.
func IsForeign(data []byte) bool {
	docs, _ := documentsOf("", data)
	return slices.ContainsFunc(docs, func(n *yaml.Node) bool { return formatOf(value{r: new(reader), n: n}) != noFormat })
}

// Read returns what a configuration repeats and cuts off by itself, one layer for
// each service that it is about, as Graph.AddLayers takes them. It knows gRPC
// service configs, Istio's VirtualServices (other Kubernetes objects are passed
// over), and Envoy's bootstraps, route configurations and virtual hosts, in YAML
// or JSON. path is the file's name in errors and positions.
//
// A service with several routes has the most retries and the longest timeout of
// them, none being the longest. What a file leaves out counts as what then happens: an
// Istio route without retries is repeated twice and an Envoy retry policy without
// num_retries once, both with Stated false; an Envoy route without timeout has
// 15s. gRPC cuts maxAttempts at 5, and its entry for all services has an empty
// Service.
//
// Errors are *policy.Problem with file, line and column, joined: what is none of
// these configurations, a policy file among them, and values that their readers
// would not take. Nothing is shared between calls.
func Read(path string, data []byte) ([]policy.Layer, error) {
	docs, err := documentsOf(path, data)
	if err != nil {
		return nil, err
	}
	r := &reader{path: path, seen: map[*yaml.Node]bool{}}
	for _, n := range docs {
		v := value{r: r, n: n}
		switch formatOf(v) {
		case kubernetes:
			r.kubernetes(v)
		case grpcService:
			r.grpc(v)
		case envoyRoutes:
			r.envoy(v)
		default:
			if v.get("service").n != nil && len(docs) == 1 {
				v.fail("this is a policy file; read it with policy.Load")
				continue
			}
			v.fail("is no gRPC service config, Istio VirtualService or Envoy route configuration; one begins with methodConfig, apiVersion, static_resources or virtual_hosts")
		}
	}
	if len(docs) == 0 {
		r.bad = append(r.bad, &policy.Problem{Position: policy.Position{File: path, Line: 1, Column: 1}, Text: "the file is empty"})
	}
	if len(r.bad) > 0 {
		return nil, errors.Join(r.bad...)
	}
	return r.layers, nil
}

// A format is a kind of foreign file.
type format int

const (
	noFormat format = iota
	kubernetes
	grpcService
	envoyRoutes
)

func formatOf(v value) format {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return v.get(k).n != nil })
	}
	switch {
	case has("apiVersion") && has("kind"):
		return kubernetes
	case has("methodConfig", "retryThrottling", "loadBalancingConfig", "loadBalancingPolicy"):
		return grpcService
	case has("staticResources", "virtualHosts", "routeConfig", "@type"), v.get("resources").list() != nil:
		return envoyRoutes
	}
	return noFormat
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// documentsOf parses all documents. Those before an error are returned with it.
func documentsOf(path string, data []byte) ([]*yaml.Node, error) {
	pos := policy.Position{File: path, Line: 1, Column: 1}
	if len(data) > maxForeign {
		return nil, &policy.Problem{Position: pos, Text: fmt.Sprintf("the file is larger than %d bytes", maxForeign)}
	}
	if json.Valid(data) {
		// JSON may be indented with tabs, YAML may not; in JSON's strings there are none.
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	var docs []*yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		doc := new(yaml.Node)
		if err := d.Decode(doc); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
				pos.Line, _ = strconv.Atoi(m[1])
			}
			return docs, &policy.Problem{Position: pos, Text: "this is no YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
		}
		if n := doc.Content[0]; n.Kind != yaml.ScalarNode || n.Tag != "!!null" {
			docs = append(docs, n)
		}
	}
}

// A reader collects layers and errors.
type reader struct {
	path   string
	layers []policy.Layer
	bad    []error
	nodes  int                 // looked at so far
	seen   map[*yaml.Node]bool // what was searched for virtual hosts
}

// add merges a route into the layer of its service.
func (r *reader) add(l policy.Layer) {
	i := slices.IndexFunc(r.layers, func(o policy.Layer) bool { return o.Service == l.Service })
	if i < 0 {
		r.layers = append(r.layers, l)
		return
	}
	o := &r.layers[i]
	longest := max(o.Timeout, l.Timeout)
	if o.Timeout == 0 || l.Timeout == 0 {
		longest = 0
	}
	if l.Retries > o.Retries || l.Retries == o.Retries && o.Stated && !l.Stated {
		*o = l
	}
	o.Timeout = longest
}

// A value is a node of a foreign file; its node is nil where there is none.
type value struct {
	r   *reader
	n   *yaml.Node
	key string
}

func (v value) position() policy.Position {
	if v.n == nil {
		return policy.Position{File: v.r.path, Line: 1, Column: 1}
	}
	return policy.Position{File: v.r.path, Line: v.n.Line, Column: v.n.Column}
}

func (v value) fail(format string, args ...any) {
	v.r.bad = append(v.r.bad, &policy.Problem{Position: v.position(), Key: v.key, Text: fmt.Sprintf(format, args...)})
}

// child is a node below v: an alias is followed, and null is absent.
func (v value) child(n *yaml.Node, key string) value {
	if v.key != "" {
		key = v.key + "." + key
	}
	c := value{v.r, n, key}
	for c.n != nil && c.n.Kind == yaml.AliasNode {
		c.n = c.n.Alias
	}
	if v.r.nodes++; v.r.nodes > maxNodes {
		if v.r.nodes == maxNodes+1 {
			v.fail("the file is too large once its aliases are followed; write at most %d values", maxNodes)
		}
		c.n = nil
	}
	if c.n != nil && c.n.Kind == yaml.ScalarNode && c.n.Tag == "!!null" {
		c.n = nil
	}
	return c
}

// get returns what stands under the key, which is written like protobuf's JSON
// names; the file may have it with underscores.
func (v value) get(key string) value { return v.find(key, 0) }

// find is get; depth is how many merge keys were followed so far.
func (v value) find(key string, depth int) value {
	absent := value{r: v.r, key: v.key}
	if v.n == nil || v.n.Kind != yaml.MappingNode || depth > maxDepth {
		return absent
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(v.n.Content); i += 2 {
		k := v.n.Content[i].Value
		if k == key || strings.Contains(k, "_") && strings.EqualFold(strings.ReplaceAll(k, "_", ""), key) {
			return v.child(v.n.Content[i+1], k)
		}
		if k == "<<" {
			merged = append(merged, v.n.Content[i+1])
		}
	}
	for _, n := range merged {
		m := v.child(n, "")
		for _, from := range append(m.list(), m) {
			from.key = v.key
			if c := from.find(key, depth+1); c.n != nil {
				return c
			}
		}
	}
	return absent
}

// block is get of what has to be a block of keys, or absent.
func (v value) block(key string) value {
	c := v.get(key)
	if c.n != nil && c.n.Kind != yaml.MappingNode {
		c.fail("is no block of keys; write one, or leave it out")
		c.n = nil
	}
	return c
}

// list are the entries of a list; nil for what is none.
func (v value) list() []value {
	if v.n == nil || v.n.Kind != yaml.SequenceNode {
		return nil
	}
	var items []value
	for i, n := range v.n.Content {
		c := v.child(n, "")
		c.key = fmt.Sprintf("%s[%d]", v.key, i)
		if c.n != nil {
			items = append(items, c)
		}
	}
	return items
}

// items is list of what has to be one, or absent.
func (v value) items(key string) []value {
	c := v.get(key)
	if c.n != nil && c.n.Kind != yaml.SequenceNode {
		c.fail("is no list; write one, or leave it out")
	}
	return c.list()
}

// text is the value as one word; "" for what is absent.
func (v value) text() string {
	if v.n == nil {
		return ""
	}
	if v.n.Kind != yaml.ScalarNode {
		v.fail("is more than one value; write a text")
		return ""
	}
	return v.n.Value
}

// integer is a count from least up; or is what absence means.
func (v value) integer(least, or int) int {
	if v.n == nil {
		return or
	}
	n, err := strconv.ParseInt(v.text(), 10, 32)
	if v.n.Kind == yaml.ScalarNode && (err != nil || n < int64(least)) {
		v.fail("%q is no count; write a whole number from %d up", v.n.Value, least)
	}
	return max(int(n), least)
}

// duration is a time of zero or more; or is what absence means.
func (v value) duration(or time.Duration) time.Duration {
	if v.n == nil {
		return or
	}
	d, err := time.ParseDuration(v.text())
	switch {
	case v.n.Kind != yaml.ScalarNode:
	case err != nil:
		v.fail("%q is no duration; write seconds and their unit: 0.3s", v.n.Value)
	case d < 0:
		v.fail("%s is negative; a duration is zero or more", v.n.Value)
	}
	return max(d, 0)
}
