package stint_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// apiFile holds what released modules export, so that a change of it is seen in review.
const apiFile = "api.txt"

var apiUpdate = flag.Bool("update", false, "write "+apiFile+" instead of comparing with it")

// apiRender is the exported surface of all importable packages of released modules: one header for each package,
// below it constants, variables, functions, then types with their methods, each group in the order of names.
func apiRender(fsys fs.FS) (string, error) {
	tree, err := repoLoad(fsys)
	if err != nil {
		return "", err
	}
	packages, err := repoPackages(fsys)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("What the released modules export. Written by make api; do not edit.\n")
	for _, p := range packages {
		if p.name == "main" || !tree.released[tree.module(p.dir)] || slices.Contains(strings.Split(p.dir, "/"), "internal") {
			continue
		}
		fmt.Fprintf(&out, "\n# %s\n\n", path.Join(repoModule, p.dir))
		decls := apiDecls{}
		for _, f := range p.files {
			decls.file(f)
		}
		for _, key := range slices.Sorted(maps.Keys(decls)) {
			out.WriteString(decls[key] + "\n")
		}
	}
	return out.String(), nil
}

// apiDecls holds rendered declarations by the key that sorts them.
type apiDecls map[string]string

// The groups of a package, as prefixes of keys.
const (
	apiConst = "0 "
	apiVar   = "1 "
	apiFunc  = "2 "
	apiType  = "3 "
)

func (a apiDecls) file(f *ast.File) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			a.function(d)
		case *ast.GenDecl:
			switch d.Tok {
			case token.CONST:
				a.constants(d)
			case token.VAR:
				a.variables(d)
			case token.TYPE:
				a.types(d)
			}
		}
	}
}

func (a apiDecls) function(d *ast.FuncDecl) {
	recv := repoReceiver(d)
	if !d.Name.IsExported() || recv != "" && !ast.IsExported(recv) {
		return
	}
	signature := &ast.FuncDecl{Name: d.Name, Type: d.Type}
	key := apiFunc + d.Name.Name
	if recv != "" {
		signature.Recv = &ast.FieldList{List: []*ast.Field{{Type: d.Recv.List[0].Type}}}
		key = apiType + recv + " " + d.Name.Name
	}
	a[key] = apiPrint(signature)
}

// constants gives each constant of a group its own line, with the type and the value that it repeats from above.
func (a apiDecls) constants(d *ast.GenDecl) {
	var last *ast.ValueSpec
	for index, spec := range d.Specs {
		s := spec.(*ast.ValueSpec)
		if len(s.Values) > 0 {
			last = s
		}
		for i, name := range s.Names {
			if !name.IsExported() || last == nil || i >= len(last.Values) {
				continue
			}
			line := "const " + name.Name
			if last.Type != nil {
				line += " " + apiPrint(last.Type)
			}
			a[apiConst+name.Name] = line + " = " + apiIota(last.Values[i], index)
		}
	}
}

// apiIota is the expression; one with iota is worked out for the constant of this number in its group.
func apiIota(value ast.Expr, number int) string {
	text := apiPrint(value)
	copied, err := parser.ParseExpr(text)
	if err != nil {
		return text
	}
	found := false
	ast.Inspect(copied, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == "iota" {
			id.Name, found = strconv.Itoa(number), true
		}
		return true
	})
	if !found {
		return text
	}
	text = apiPrint(copied)
	if tv, err := types.Eval(token.NewFileSet(), nil, token.NoPos, text); err == nil && tv.Value != nil {
		return tv.Value.ExactString()
	}
	return text
}

// variables shows a variable's type if the source has it; a value is no part of the surface.
func (a apiDecls) variables(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s := spec.(*ast.ValueSpec)
		for i, name := range s.Names {
			if !name.IsExported() {
				continue
			}
			t := s.Type
			if t == nil && i < len(s.Values) {
				t = apiTypeOf(s.Values[i])
			}
			line := "var " + name.Name
			if t != nil {
				line += " " + apiPrint(t)
			}
			a[apiVar+name.Name] = line
		}
	}
}

// apiTypeOf is the type of a value whose expression names it, or nil.
func apiTypeOf(value ast.Expr) ast.Expr {
	switch v := value.(type) {
	case *ast.CompositeLit:
		return v.Type
	case *ast.UnaryExpr:
		if t := apiTypeOf(v.X); t != nil && v.Op == token.AND {
			return &ast.StarExpr{X: t}
		}
	case *ast.CallExpr:
		if f := apiPrint(v.Fun); f == "errors.New" || f == "fmt.Errorf" {
			return ast.NewIdent("error")
		}
	}
	return nil
}

func (a apiDecls) types(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s := spec.(*ast.TypeSpec)
		if !s.Name.IsExported() {
			continue
		}
		shown := *s
		shown.Doc, shown.Comment = nil, nil
		shown.Type = apiExported(s.Type)
		a[apiType+s.Name.Name] = apiPrint(&ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{&shown}})
	}
}

// apiExported is the type without unexported fields and methods. An interface that had some says so, since nobody
// else can implement it.
func apiExported(t ast.Expr) ast.Expr {
	switch x := t.(type) {
	case *ast.StructType:
		fields, _ := apiFields(x.Fields)
		return &ast.StructType{Fields: fields}
	case *ast.InterfaceType:
		methods, dropped := apiFields(x.Methods)
		if dropped {
			methods.List = append(methods.List, &ast.Field{Type: ast.NewIdent("(unexported methods)")})
		}
		return &ast.InterfaceType{Methods: methods}
	case *ast.StarExpr:
		return &ast.StarExpr{X: apiExported(x.X)}
	}
	return t
}

func apiFields(list *ast.FieldList) (shown *ast.FieldList, dropped bool) {
	shown = &ast.FieldList{Opening: 1, Closing: 1} // with positions, the printer keeps a short list on one line
	for _, f := range list.List {
		kept := &ast.Field{Type: apiExported(f.Type), Tag: f.Tag}
		for _, name := range f.Names {
			if name.IsExported() {
				kept.Names = append(kept.Names, ast.NewIdent(name.Name))
			}
		}
		embedded := len(f.Names) == 0 && (ast.IsExported(apiBase(f.Type)) || apiBase(f.Type) == "")
		if embedded || len(kept.Names) > 0 {
			shown.List = append(shown.List, kept)
		}
		dropped = dropped || !embedded && len(kept.Names) < max(len(f.Names), 1)
	}
	return shown, dropped
}

// apiBase is the last name of an embedded type, or "" for a type without a name, such as a union.
func apiBase(t ast.Expr) string {
	switch x := t.(type) {
	case *ast.Ident:
		if x.Name == "error" || x.Name == "any" || x.Name == "comparable" {
			return ""
		}
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.StarExpr:
		return apiBase(x.X)
	case *ast.IndexExpr:
		return apiBase(x.X)
	case *ast.IndexListExpr:
		return apiBase(x.X)
	}
	return ""
}

// apiPrint prints the node on its own: without its file's positions, its comments and line breaks do not matter.
func apiPrint(node any) string {
	var b bytes.Buffer
	config := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}
	if err := config.Fprint(&b, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return b.String()
}

// apiDiff is the first place where the texts differ, or "".
func apiDiff(have, want string) string {
	if have == want {
		return ""
	}
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	at := 0
	for at < len(h) && at < len(w) && h[at] == w[at] {
		at++
	}
	some := func(mark string, lines []string) string {
		var b strings.Builder
		for _, l := range lines[min(at, len(lines)):min(at+5, len(lines))] {
			b.WriteString(mark + l + "\n")
		}
		return b.String()
	}
	return fmt.Sprintf("%s differs from the source at line %d; if the change is meant, run make api and commit the file:\n%s%s",
		apiFile, at+1, some("- ", w), some("+ ", h))
}

func TestAPI(t *testing.T) {
	have, err := apiRender(repoFS(t))
	if err != nil {
		t.Fatal(err)
	}
	if *apiUpdate {
		if err := os.WriteFile(apiFile, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(apiFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := apiDiff(have, string(want)); diff != "" {
		t.Error(diff)
	}
}
