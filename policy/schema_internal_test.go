package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write schema.json anew")

// TestSchema holds schema.json against the Go types, of which it is made: the
// keys and their kinds by reflection, the descriptions from the doc comments.
func TestSchema(t *testing.T) {
	s := &schema{docs: fieldDocs(t), defs: map[string]any{}}
	root := s.structure(reflect.TypeFor[File]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "stint policy file"
	root["required"] = []string{"service"}
	root["$defs"] = s.defs
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.json", got.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("schema.json differs from the Go types; if the change is meant, run make schema and commit the file")
	}
}

// compiled is schema.json as a validator that nobody here wrote has it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// against returns what the schema says of a file.
func against(t *testing.T, s *jsonschema.Schema, data string) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(data), &v); err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestSchemaTakesWhatLoadTakes(t *testing.T) {
	s := compiled(t)
	files, _ := filepath.Glob("../examples/*/*.yaml")
	nested, _ := filepath.Glob("../examples/*/*/*.yaml")
	for _, path := range append(append(files, nested...), "testdata/issue.yaml", "testdata/article.yaml", "testdata/every-key.yaml", "testdata/stores.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(path, data)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := against(t, s, string(data)); err != nil {
			t.Errorf("%s loads, and the schema says: %v", path, err)
		}
		if err := against(t, s, string(f.Print())); err != nil {
			t.Errorf("%s as printed: the schema says: %v", path, err)
		}
	}
}

func TestSchemaRefusesWhatLoadRefuses(t *testing.T) {
	s := compiled(t)
	for _, bad := range []string{
		"service: \"\"\n",
		"service: a\ndependencies: {b: {service: \"\"}}\n",
		"{}",
		"{service: a, bogus: 1}",
		"{service: a, entry: {deadline: 1s}}",
		"{service: a, entry: {trust: all}}",
		"{service: a, entry: {trust: peers, limit: 0}}",
		"{service: a, dependencies: {x: {timeout: 260}}}",
		"{service: a, dependencies: {x: {timeout: -1s}}}",
		"{service: a, dependencies: {x: {timeout: 0s}}}",
		"{service: a, dependencies: {x: {retry: {maxAttempts: 0}}}}",
		"{service: a, dependencies: {x: {retry: {budget: 0.1}}}}",
		"{service: a, dependencies: {x: {retry: {retryable: [200]}}}}",
		"{service: a, dependencies: {x: {hedge: {max: 9}}}}",
		"{service: a, dependencies: {x: {busy: 101%}}}",
	} {
		if against(t, s, bad) == nil {
			t.Errorf("the schema takes %s", bad)
		}
		if _, err := Parse("bad.yaml", []byte(bad)); err == nil {
			t.Errorf("Parse takes %s", bad)
		}
	}
}

// schema builds the JSON Schema of Go types.
type schema struct {
	docs map[string]string // by Type.Field and Type
	defs map[string]any
}

func (s *schema) structure(t reflect.Type) map[string]any {
	props := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		p := s.of(f.Type, key)
		p["description"] = s.docs[t.Name()+"."+f.Name]
		props[key] = p
	}
	m := map[string]any{"type": "object", "additionalProperties": false, "properties": props}
	if t == reflect.TypeFor[Entry]() {
		m["required"] = []string{"trust"}
	}
	return m
}

func pattern(p string) map[string]any { return map[string]any{"type": "string", "pattern": p} }

const ratioPattern = `^(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?)\s*%$`

// duration is Go's, above zero.
var duration = map[string]any{
	"type": "string", "pattern": `^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`, "not": map[string]any{"pattern": "^[^1-9]*$"},
}

func (s *schema) of(t reflect.Type, key string) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	count := map[string]any{"type": "integer", "minimum": 1}
	if least, ok := bounds[key]; ok {
		count["minimum"] = least
	}
	switch t {
	case durationType:
		s.defs["Duration"] = duration
		return map[string]any{"$ref": "#/$defs/Duration"}
	case ratioType:
		return pattern(ratioPattern)
	case reflect.TypeFor[Limit]():
		return oneOf(map[string]any{"const": adaptive}, count)
	case reflect.TypeFor[After]():
		return oneOf(map[string]any{"const": learned}, s.of(durationType, key))
	case reflect.TypeFor[Code]():
		return oneOf(map[string]any{"enum": grpcCodes}, map[string]any{"type": "integer", "minimum": 400, "maximum": 599}, pattern("^[45][0-9][0-9]$"),
			map[string]any{"enum": storeCodes()})
	}
	words := map[reflect.Type]any{
		reflect.TypeFor[Calls]():       map[string]any{"const": sequential},
		reflect.TypeFor[Retry]():       map[string]any{"const": "none"},
		reflect.TypeFor[Breaker]():     map[string]any{"const": off},
		reflect.TypeFor[Backoff]():     map[string]any{"const": exponential},
		reflect.TypeFor[Budget]():      pattern(strings.TrimSuffix(ratioPattern, "$") + "(" + ofTraffic + ")?$"),
		reflect.TypeFor[Idempotency](): map[string]any{"enum": Keys("").words()},
	}
	switch {
	case t.Implements(wordType):
		return map[string]any{"enum": reflect.Zero(t).Interface().(word).words()}
	case t.Kind() == reflect.Struct:
		if s.defs[t.Name()] == nil {
			s.defs[t.Name()] = true // it may name itself
			var def map[string]any = s.structure(t)
			if w := words[t]; w != nil {
				def = oneOf(w, def)
			}
			def["description"] = s.docs[t.Name()]
			s.defs[t.Name()] = def
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem(), "")}
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "uniqueItems": true, "items": s.of(t.Elem(), "")}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.String:
		return map[string]any{"type": "string", "minLength": 1}
	}
	if key == "max" {
		count["maximum"] = most["hedge.max"]
	}
	return count
}

// storeCodes are the codes of all stores, and what YAML makes of them without quotes.
func storeCodes() []any {
	all := map[string]bool{}
	for _, codes := range outcomes {
		for c := range codes {
			all[string(c)] = true
		}
	}
	var list []any
	for _, c := range sorted(all) {
		list = append(list, c)
		var v any
		if err := yaml.Unmarshal([]byte(c), &v); err == nil && v != any(c) {
			list = append(list, v)
		}
	}
	return list
}

func oneOf(of ...any) map[string]any { return map[string]any{"anyOf": of} }

// fieldDocs returns the doc comments of the package's types and their fields, as
// one line each.
func fieldDocs(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	paths, _ := filepath.Glob("*.go")
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				ts := spec.(*ast.TypeSpec)
				docs[ts.Name.Name] = oneLine(g.Doc)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				var last string
				for _, field := range st.Fields.List {
					if field.Doc != nil {
						last = oneLine(field.Doc) // several fields may share one
					}
					for _, name := range field.Names {
						docs[ts.Name.Name+"."+name.Name] = last
					}
				}
			}
		}
	}
	return docs
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// Every code of a store can be listed for it, with and without quotes, and for no
// service.
func TestStoreCodesCanBeListed(t *testing.T) {
	s := compiled(t)
	for kind, codes := range outcomes {
		for code, o := range codes {
			if got, ok := kind.Outcome(code); !ok || got != o.Outcome || got.Code != string(code) {
				t.Errorf("%s: the outcome of %s is %+v", kind, code, got)
			}
			for _, form := range []string{string(code), `"` + string(code) + `"`} {
				text := "{service: a, dependencies: {x: {kind: " + string(kind) + ", retry: {retryable: [" + form + "]}}}}"
				f, err := Parse("f.yaml", []byte(text))
				if err != nil {
					t.Error(err)
				} else if p, err := f.Policy("x"); err != nil || len(p.Retry.Codes) != 1 || p.Retry.Codes[0] != string(code) {
					t.Errorf("%s of %s is %q to a Caller, %v", form, kind, p.Retry.Codes, err)
				}
				if err := against(t, s, text); err != nil {
					t.Errorf("%s loads, and the schema says: %v", text, err)
				}
				if _, err := Parse("f.yaml", []byte("{service: a, dependencies: {x: {kind: http, retry: {retryable: ["+form+"]}}}}")); err == nil {
					t.Errorf("%s is taken for http", form)
				}
			}
		}
	}
	if _, ok := HTTP.Outcome("503"); ok {
		t.Error("HTTP has outcomes of a store")
	}
}
