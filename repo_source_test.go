package stint_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	repoMaxLines = 400 // of a file that is no test
	repoMaxNames = 90  // of exported package-level names of package stint
)

// repoUndocumented are methods whose meaning an interface of the standard library gives.
var repoUndocumented = []string{"Error", "Is", "As", "Unwrap", "String", "Len", "Less", "Swap", "ServeHTTP",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"}

// repoPackage is a directory's Go files without tests.
type repoPackage struct {
	dir   string
	name  string
	files []*ast.File
	fset  *token.FileSet
}

// repoPackages parses all packages of the tree, in the order of their directories.
func repoPackages(fsys fs.FS) ([]*repoPackage, error) {
	names, err := repoFiles(fsys, false, ".go")
	if err != nil {
		return nil, err
	}
	found := map[string]*repoPackage{}
	var packages []*repoPackage
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		dir := path.Dir(name)
		p := found[dir]
		if p == nil {
			p = &repoPackage{dir: dir, fset: token.NewFileSet()}
			found[dir], packages = p, append(packages, p)
		}
		file, err := parser.ParseFile(p.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.name, p.files = file.Name.Name, append(p.files, file)
	}
	slices.SortFunc(packages, func(a, b *repoPackage) int { return strings.Compare(a.dir, b.dir) })
	return packages, nil
}

// repoReceiver is the name of the type that the function is a method of, or "".
func repoReceiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	for t := d.Recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// repoCheckDocs holds that every package says what it is for and that a released module documents what it exports.
func repoCheckDocs(fsys fs.FS) (problems []string, err error) {
	tree, err := repoLoad(fsys)
	if err != nil {
		return nil, err
	}
	packages, err := repoPackages(fsys)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if !slices.ContainsFunc(p.files, func(f *ast.File) bool { return f.Doc.Text() != "" }) {
			problems = append(problems, fmt.Sprintf("%s: package %s has no package comment; say what it is for", p.dir, p.name))
		}
		if !tree.released[tree.module(p.dir)] {
			continue
		}
		bad := func(n ast.Node, name, want string) {
			problems = append(problems, fmt.Sprintf("%v: %s has no doc comment; %s", p.fset.Position(n.Pos()), name, want))
		}
		for _, f := range p.files {
			for _, decl := range f.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					recv := repoReceiver(d)
					if d.Doc.Text() != "" || !d.Name.IsExported() || recv != "" && (!ast.IsExported(recv) || slices.Contains(repoUndocumented, d.Name.Name)) {
						continue
					}
					bad(d, d.Name.Name, "say what it does, when it fails and whether it may run concurrently")
				case *ast.GenDecl:
					repoCheckSpecs(d, bad)
				}
			}
		}
	}
	return problems, nil
}

// repoCheckSpecs is the part of repoCheckDocs for constants, variables and types.
func repoCheckSpecs(d *ast.GenDecl, bad func(n ast.Node, name, want string)) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec: // the comment of a group stands for all in it
			for _, name := range s.Names {
				if name.IsExported() && d.Doc.Text() == "" && s.Doc.Text() == "" && s.Comment.Text() == "" {
					bad(name, name.Name, "say what it means, with its unit")
				}
			}
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			if s.Doc.Text() == "" && (d.Lparen.IsValid() || d.Doc.Text() == "") {
				bad(s, s.Name.Name, "say what it is and what its zero value does")
			}
			fields, ok := s.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range fields.Fields.List {
				if field.Doc.Text() != "" || field.Comment.Text() != "" || !repoIsDuration(field.Type) {
					continue
				}
				for _, name := range field.Names {
					if name.IsExported() {
						bad(name, s.Name.Name+"."+name.Name, "say its default, what zero means and what the time includes")
					}
				}
			}
		}
	}
}

func repoIsDuration(t ast.Expr) bool {
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	s, ok := t.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "time" && s.Sel.Name == "Duration"
}

// repoCheckLengths holds that a file stays short enough to be read at once.
func repoCheckLengths(fsys fs.FS, limit int) (problems []string, err error) {
	files, err := repoFiles(fsys, false, ".go")
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		if n := bytes.Count(src, []byte("\n")); n > limit {
			problems = append(problems, fmt.Sprintf("%s: has %d lines, at most %d may be; split it where it has two subjects", name, n, limit))
		}
	}
	return problems, err
}

// repoCheckNames holds that the core stays small enough to be learned.
func repoCheckNames(fsys fs.FS, limit int) (problems []string, err error) {
	packages, err := repoPackages(fsys)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range packages {
		if p.dir != "." {
			continue
		}
		for _, f := range p.files {
			for _, decl := range f.Decls {
				if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil {
					names = append(names, d.Name.Name)
				} else if d, ok := decl.(*ast.GenDecl); ok {
					for _, spec := range d.Specs {
						switch s := spec.(type) {
						case *ast.TypeSpec:
							names = append(names, s.Name.Name)
						case *ast.ValueSpec:
							for _, n := range s.Names {
								names = append(names, n.Name)
							}
						}
					}
				}
			}
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !ast.IsExported(n) })
	if len(names) > limit {
		slices.Sort(names)
		problems = append(problems, fmt.Sprintf("package stint exports %d names, at most %d may be; make some methods, fields or unexported: %s",
			len(names), limit, strings.Join(names, " ")))
	}
	return problems, nil
}

// The words are put together here so that this file has none of them.
var (
	repoLeftover = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	// A slash after a letter or a dot goes on a URL or a relative path; after all else it begins an absolute one.
	repoMachinePath = regexp.MustCompile(`(?:^|[^\w./*$})-])(/(?:root|home|Users|tmp|work|workspace|var/folders)/[\w.-]+|[A-Z]:\\Users\\\w+)`)
)

// repoCheckLeftovers holds that what is published is finished and names no machine: here is the directory of the checkout.
func repoCheckLeftovers(fsys fs.FS, here string) (problems []string, err error) {
	files, err := repoFiles(fsys, true, ".go", ".md")
	for _, name := range files {
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		n := 0
		for line := range strings.Lines(string(src)) {
			n++
			if word := repoLeftover.FindString(line); word != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: %s: finish it, or drop it and open an issue", name, n, word))
			}
			found := ""
			if m := repoMachinePath.FindStringSubmatch(line); m != nil {
				found = m[1]
			} else if strings.Count(here, "/") > 1 && strings.Contains(line, here) {
				found = here
			}
			if found != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: %s is a path of one machine: write it relative to the repository", name, n, found))
			}
		}
	}
	return problems, err
}

func TestPackageDocs(t *testing.T) {
	problems, err := repoCheckDocs(repoFS(t))
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, problems)
}

func TestFileLength(t *testing.T) {
	problems, err := repoCheckLengths(repoFS(t), repoMaxLines)
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, problems)
}

func TestExportedNames(t *testing.T) {
	problems, err := repoCheckNames(repoFS(t), repoMaxNames)
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, problems)
}

func TestNoLeftovers(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := repoCheckLeftovers(repoFS(t), filepath.ToSlash(here))
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, problems)
}

func TestPackageDocsCheckFails(t *testing.T) {
	one := func(name, src string) map[string]string { return map[string]string{name: "package x\n" + src + "\n"} }
	repoMustFail(t, repoCheckDocs, []repoBroken{
		{"no package comment", map[string]string{"internal/tools/doc.go": "package tools\n"}, []string{"internal/tools", "package comment"}},
		{"a directive is no package comment", map[string]string{"internal/tools/doc.go": "//go:build linux\n\npackage tools\n"}, []string{"package comment"}},
		{"a function", one("a.go", "func Go() {}"), []string{"a.go:2:", "Go"}},
		{"a method", one("stinthttp/a.go", "func (t *T[K, V]) Go() {}"), []string{"stinthttp/a.go:2:", "Go"}},
		{"a type", one("a.go", "type T int"), []string{"a.go:2:", "T has", "zero value"}},
		{"a type in a group", one("a.go", "// All.\ntype (\n\tT int\n)"), []string{"a.go:4:", "T"}},
		{"a constant", one("a.go", "const C = 1"), []string{"a.go:2:", "C"}},
		{"a variable in a group", one("a.go", "var (\n\t// A is one.\n\tA int\n\tB int\n)"), []string{"a.go:5:", "B"}},
		{"a duration", one("a.go", "// T is one.\ntype T struct {\n\tLimit time.Duration\n}"), []string{"a.go:4:", "T.Limit", "zero"}},
	})
	for _, src := range []string{
		"func f() {}\ntype t struct{ Limit time.Duration }\nfunc (t) Go() {}",
		"// T is one.\ntype T struct {\n\tName string\n\tA time.Duration // documented\n\t// B is too.\n\tB *time.Duration\n\tc time.Duration\n}\nfunc (T) String() string",
		"// All of them.\nconst (\n\tA = iota\n\tB\n)",
	} {
		if problems, err := repoCheckDocs(repoFixture(one("a.go", src))); err != nil || len(problems) > 0 {
			t.Errorf("%s\nwant no problem, have %q, error %v", src, problems, err)
		}
	}
}

func TestSourceChecksFail(t *testing.T) {
	long := "package x\n" + strings.Repeat("// line\n", 10)
	repoMustFail(t, func(fsys fs.FS) ([]string, error) { return repoCheckLengths(fsys, 10) }, []repoBroken{
		{"a long file", map[string]string{"cmd/stint/a.go": long, "a_test.go": long}, []string{"cmd/stint/a.go", "11 lines", "10"}},
	})
	repoMustFail(t, func(fsys fs.FS) ([]string, error) { return repoCheckNames(fsys, 3) }, []repoBroken{
		{"many names", map[string]string{
			"a.go":           "package stint\ntype T int\nfunc (T) Method() {}\nconst A, b = 1, 2\nvar V int\n",
			"b.go":           "package stint\nfunc F() {}\nfunc f() {}\n",
			"stinthttp/a.go": "package stinthttp\nvar X int\n"}, []string{"4 names", "3", "A F T V"}},
	})
	line := func(s string) map[string]string { return map[string]string{"a.md": "text\n" + s + "\n"} }
	repoMustFail(t, func(fsys fs.FS) ([]string, error) { return repoCheckLeftovers(fsys, "/src/"+"stint") }, []repoBroken{
		{"a leftover word", line("FIX" + "ME: this"), []string{"a.md:2", "FIX" + "ME"}},
		{"a leftover word in test data", map[string]string{"testdata/a.go": "package x // TO" + "DO(me)\n"}, []string{"testdata/a.go:1"}},
		{"a home directory", line("see `/ho" + "me/me/stint`"), []string{"a.md:2", "/ho" + "me/me", "relative"}},
		{"a temporary file", line("/t" + "mp/x"), []string{"a.md:2", "/t" + "mp/x"}},
		{"the checkout itself", line("in /src/" + "stint/stint.go"), []string{"a.md:2", "/src/" + "stint"}},
	})
	for _, s := range []string{"https://a.example/ho" + "me/x", "a/t" + "mp/x", "XX" + "XL", "/tmp", "$HOME/t" + "mp/x"} {
		if problems, err := repoCheckLeftovers(repoFixture(line(s)), "/src"); err != nil || len(problems) > 0 {
			t.Errorf("%q: want no problem, have %q, error %v", s, problems, err)
		}
	}
}
