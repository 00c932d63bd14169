package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Position is a place in a file; Line and Column count from 1, and are zero
// where there is none.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// A Problem is one value of a file that can't be meant.
type Problem struct {
	Position
	Key  string // as dependencies.inventory.timeout; empty for the file as such
	Text string // what is wrong, and what would be right
}

// Error returns the problem with its place.
func (p *Problem) Error() string {
	if p.Key == "" {
		return p.Position.String() + ": " + p.Text
	}
	return p.Position.String() + ": " + p.Key + ": " + p.Text
}

// maxFile is the largest file that is read, in bytes: a policy has some hundred lines.
const maxFile = 4 << 20

// Load reads the policy file at path. It is strict: an unknown key, a value
// without its unit, a zero that would switch something off are errors, each a
// *Problem with file, line, column, key, and what would be right; all of them
// are reported, joined. The environment changes nothing.
func Load(path string) (*File, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// read reads a file, and at most so much of it that Parse sees that it is too large.
func read(path string) ([]byte, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("policy: %s: %w", path, err)
	}
	return data, nil
}

// Parse is Load of data; path is the file's name in errors and findings.
func Parse(path string, data []byte) (*File, error) {
	if len(data) > maxFile {
		return nil, &Problem{Position{path, 1, 1}, "", fmt.Sprintf("the file is larger than %d bytes", maxFile)}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &Problem{Position{path, 1, 1}, "", "the file is empty; it begins with the service's name: \"service: orders\""}
	} else if err != nil {
		return nil, syntax(path, err)
	}
	if next := new(yaml.Node); d.Decode(next) != io.EOF {
		return nil, &Problem{Position{path, max(next.Line, 1), max(next.Column, 1)}, "", "a second document begins here; write one file per service"}
	}
	f := &File{path: path}
	r := &reader{path: path, positions: map[string]Position{}}
	r.value(doc.Content[0], reflectOf(f), "")
	f.positions = r.positions
	f.ignored = ignores(data)
	if len(r.bad) == 0 {
		r.bad = f.validate()
	}
	if len(r.bad) > 0 {
		slices.SortStableFunc(r.bad, func(a, b error) int { return a.(*Problem).Line - b.(*Problem).Line })
		return nil, errors.Join(r.bad...)
	}
	return f, nil
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// syntax is an error of the YAML itself, of which the library says the line only
// in its text.
func syntax(path string, err error) error {
	pos := Position{path, 1, 1}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		pos.Line, _ = strconv.Atoi(m[1])
	}
	return &Problem{pos, "", "this is no YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
}

// Path returns the name that the file was read under.
func (f *File) Path() string { return f.path }

// At returns where the key stands ("dependencies", "inventory", "timeout"): at its
// value if that begins in the same line. If it does not stand there, it is the
// nearest that encloses it.
func (f *File) At(key ...string) Position {
	for n := len(key); n > 0; n-- {
		if p, ok := f.positions[strings.Join(key[:n], between)]; ok {
			return p
		}
	}
	return Position{f.path, 1, 1}
}

// Has reports whether the key stands in the file.
func (f *File) Has(key ...string) bool {
	_, ok := f.positions[strings.Join(key, between)]
	return ok
}

// An ignore is a comment that accepts a finding: "# stint:ignore code: reason",
// at the end of the line or on lines of its own above it.
type ignore struct {
	line int
	code string
}

var ignoreComment = regexp.MustCompile(`^(.*?)#\s*stint:ignore\s+([a-z0-9-]+)\s*:\s*\S`)

func ignores(data []byte) []ignore {
	var found, waiting []ignore
	line := 0
	for s := range bytes.Lines(data) {
		line++
		m := ignoreComment.FindSubmatch(s)
		own := len(bytes.TrimSpace(s)) > 0 && bytes.TrimSpace(s)[0] == '#'
		switch {
		case m != nil && own:
			waiting = append(waiting, ignore{code: string(m[2])})
		case own, len(bytes.TrimSpace(s)) == 0:
		default:
			for _, w := range waiting {
				found = append(found, ignore{line, w.code})
			}
			waiting = nil
			if m != nil {
				found = append(found, ignore{line, string(m[2])})
			}
		}
	}
	return found
}

// Ignores reports whether a comment in the file accepts findings with this code
// in this line.
func (f *File) Ignores(code string, line int) bool {
	return slices.Contains(f.ignored, ignore{line, code})
}
