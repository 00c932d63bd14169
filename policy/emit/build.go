package emit

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// block is a YAML block with its keys in the given order: key, value, key,
// value; a value that is nil leaves its key out.
func block(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v := node(pairs[i+1]); v != nil {
			n.Content = append(n.Content, node(pairs[i]), v)
		}
	}
	return n
}

func seq[T any](items ...T) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, v := range items {
		n.Content = append(n.Content, node(v))
	}
	return n
}

// flow writes a short list in one line.
func flow[T any](items ...T) *yaml.Node {
	n := seq(items...)
	n.Style = yaml.FlowStyle
	return n
}

// quoted is text that not every reader of YAML takes for text without quotes.
func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
}

func node(v any) *yaml.Node {
	switch v := v.(type) {
	case *yaml.Node:
		if v == nil {
			return nil
		}
		return v
	case string:
		n := new(yaml.Node)
		n.SetString(v)
		return n
	case nil:
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v)}
}

// documents writes YAML documents one after another under a comment.
func documents(comment string, docs ...*yaml.Node) []byte {
	var b bytes.Buffer
	b.WriteString(comment)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, d := range docs {
		// A tree of our own scalars, maps and lists has nothing that could fail, and
		// neither has a buffer.
		_ = e.Encode(d)
	}
	_ = e.Close()
	return b.Bytes()
}

// head is the comment at the top of a YAML document.
func (p *plan) head(what string) string {
	return "# " + what + ": the policy of " + p.file.Service + " towards what it calls.\n" +
		"# It carries out the retries and limits of stint; a Caller that repeats the same calls would multiply them.\n"
}

// seconds is a duration as protobuf's JSON has it: 0.300s.
func seconds(d time.Duration) string {
	s := strconv.FormatInt(int64(d/time.Second), 10)
	switch rest := d % time.Second; {
	case rest == 0:
	case rest%time.Millisecond == 0:
		s += fmt.Sprintf(".%03d", rest/time.Millisecond)
	case rest%time.Microsecond == 0:
		s += fmt.Sprintf(".%06d", rest/time.Microsecond)
	default:
		s += fmt.Sprintf(".%09d", rest)
	}
	return s + "s"
}

// longest is the longest duration that the Gateway API's form can hold in hours.
const longest = 99_999 * time.Hour

// gatewayDuration is d as the Gateway API has it (GEP-2257): whole hours,
// minutes, seconds and milliseconds, at most five digits each.
func gatewayDuration(d time.Duration) string {
	d = min(d, longest)
	var b strings.Builder
	for _, u := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d %= u.size
		}
	}
	return b.String()
}

// atLeastMS is a wait where nothing below 1ms can be said.
func atLeastMS(d time.Duration) time.Duration {
	return max(d.Truncate(time.Millisecond), time.Millisecond)
}

// percent is a ratio in hundredths.
func percent(ratio float64) string { return strconv.FormatFloat(ratio*100, 'g', 6, 64) }

// wholePercent is a ratio in whole hundredths, from 1 up.
func wholePercent(ratio float64) int { return max(int(ratio*100+0.5), 1) }
