package stint_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	repoBreaker = "github.com/sony/gobreaker/v2"
	repoRedis   = "github.com/redis/go-redis/v9"
	repoLab     = "cmd/stint/internal/lab"
)

// The kinds of packages, by what they are to the others.
const (
	repoCore    = "the core"       // decides; everybody may import it
	repoLibrary = "a library"      // stands beside the core, for carriers and services to use
	repoCarrier = "a carrier"      // one protocol or client under the core's decisions
	repoPolicy  = "the policy"     // the policy file
	repoTestkit = "the test kit"   // for tests, of this repository and of its users
	repoCommand = "the command"    // imports all the others
	repoBench   = "the unreleased" // tests, examples and tools that nobody requires
)

// repoRow says what one package directory, with all below it but those of a row of their own, may import outside
// itself. The rows follow the table of modules in DESIGN.md. A package without a row fails the test, so a new
// one says here what it is.
type repoRow struct {
	dir  string
	kind string
	may  []string // directories of this repository; "*" is all that the rules below leave
	need []string // prefixes of third-party import paths; "*" is all
	why  string
}

var repoRows = []repoRow{
	{".", repoCore, nil, []string{repoBreaker}, "whoever imports the core pays for all that the core imports"},
	{"stinthttp", repoCarrier, []string{"."}, nil, "it lives in the core's module, so it needs no client of its own"},
	{"stintgrpc", repoCarrier, []string{"."}, []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc/errdetails"},
		"whoever imports it speaks gRPC already, and these come with it"},
	{"stintpgx", repoCarrier, []string{"."}, []string{"github.com/jackc/pgx/v5"}, "who uses PostgreSQL by pgx has pgx"},
	{"stintsql", repoCarrier, []string{"."}, nil, "it lives in the core's module: database/sql is the standard library's, and drivers are the user's"},
	{"stinttest", repoTestkit, []string{".", "stinthttp"}, nil, "it lives in the core's module and replays HTTP in memory"},
	{"policy", repoPolicy, []string{"."}, []string{"go.yaml.in/yaml/v3"}, "a service that loads a file carries YAML and nothing else"},
	{"policy/emit", repoPolicy, []string{".", "policy"}, []string{"go.yaml.in/yaml/v3"}, "who writes for a mesh does not link the mesh's own types"},
	{"cmd/stint", repoCommand, []string{"*"}, []string{"*"}, "nobody imports a command, so nobody pays for what it imports"},
	{"bench", repoBench, []string{"*"}, []string{"*"}, "it compares with others' libraries"},
	{"examples/orders", repoBench, []string{".", "policy", "stinthttp", "stintpgx", "stintredis", "stintsql"}, []string{"*"}, "it is a service, which brings its own drivers"},
	{"stintredis", repoCarrier, []string{"."}, []string{repoRedis}, "it carries go-redis, and no other client"},
	{"integration", repoBench, []string{".", "policy", "stintgrpc", "stinthttp", "stintpgx", "stintredis", "stintsql", "stinttest"}, []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", repoRedis, "modernc.org/sqlite"}, "it tests them against servers that nobody here wrote"},
	{"internal/tools", repoBench, nil, []string{"*"}, "it pins tools"},
}

// repoImport is one import line: from and to are the rows of the packages, to is nil outside this repository.
type repoImport struct {
	dir, path    string
	test         bool // in a _test.go file
	from, to     *repoRow
	toDir        string // directory of the imported package, if to is set
	sameModule   bool   // as the imported package
	standardPath bool   // of the standard library
}

// repoRule holds for every import; right is what would keep it, or "" if it is kept.
type repoRule struct {
	why   string
	right func(i repoImport) string
}

var repoRules = []repoRule{
	{"an internal package changes with its module and is released with it", func(i repoImport) string {
		if i.to != nil && !i.sameModule && slices.Contains(strings.Split(i.toDir, "/"), "internal") {
			return "use what that module exports, or move the package into this module's internal"
		}
		return ""
	}},
	{"the command depends on all modules, so an arrow to it closes a circle", func(i repoImport) string {
		if i.to != nil && i.to.kind == repoCommand && i.from.kind != repoCommand {
			return "move what is needed out of " + i.to.dir
		}
		return ""
	}},
	{"the test kit brings package testing, with its flags, into a program", func(i repoImport) string {
		if i.to != nil && i.to.kind == repoTestkit && i.from.kind != repoTestkit && !i.test && !repoUnder(i.dir, repoLab) {
			return "import it in a _test.go file (or in " + repoLab + ", which replays a test)"
		}
		return ""
	}},
	{"who uses one protocol must not pay for another, and a carrier works without a policy file", func(i repoImport) string {
		if i.to != nil && i.from.kind == repoCarrier && (i.to.kind == repoPolicy || i.to.kind == repoCarrier && i.to != i.from) {
			return "move what both need into package stint"
		}
		return ""
	}},
	{"the core also serves programs without HTTP, and a program is no test", func(i repoImport) string {
		if i.from.kind != repoCore || i.test {
			return ""
		}
		for p, right := range map[string]string{"net/http": "put it into stinthttp", "testing": "put it into stinttest"} {
			if repoUnder(i.path, p) {
				return right
			}
		}
		return ""
	}},
	{"a requirement of a module is one of everybody who imports it", func(i repoImport) string {
		if i.to != nil || i.standardPath || i.test || repoListed(i.from.need, i.path) {
			return ""
		}
		return fmt.Sprintf("from outside, %s imports only the standard library and %q, since %s; put it into a module of its own",
			i.from.dir, i.from.need, i.from.why)
	}},
	{"arrows point towards package stint", func(i repoImport) string {
		switch {
		case i.to == nil || i.to == i.from || repoListed(i.from.may, i.to.dir):
			return ""
		case i.test && (i.to.kind == repoTestkit || i.sameModule && i.from.kind != repoCarrier):
			return "" // a test may look at what is beside it
		}
		return fmt.Sprintf("%s imports only %q from this repository, since %s", i.from.dir, i.from.may, i.from.why)
	}},
}

// repoUnder reports whether the path is the prefix or below it.
func repoUnder(importPath, prefix string) bool {
	return importPath == prefix || strings.HasPrefix(importPath, prefix+"/")
}

func repoListed(list []string, importPath string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return p == "*" || repoUnder(importPath, p) })
}

// repoRowOf is the row that holds for the directory: the longest that it is under. The core's row is for the core alone.
func repoRowOf(rows []repoRow, dir string) *repoRow {
	var found *repoRow
	for i := range rows {
		if r := &rows[i]; repoUnder(dir, r.dir) && (found == nil || len(r.dir) > len(found.dir)) {
			found = r
		}
	}
	return found
}

// repoCheckImports holds all rules for all Go files, with their tests.
func repoCheckImports(fsys fs.FS, rows []repoRow) (problems []string, err error) {
	tree, err := repoLoad(fsys)
	if err != nil {
		return nil, err
	}
	files, err := repoFiles(fsys, false, ".go")
	if err != nil {
		return nil, err
	}
	unknown := map[string]bool{}
	fset := token.NewFileSet()
	for _, name := range files {
		i := repoImport{dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
		if i.from = repoRowOf(rows, i.dir); i.from == nil {
			if !unknown[i.dir] {
				problems = append(problems, fmt.Sprintf("%s: has no row in repoRows; add one that says what kind of package it is and what it may import", i.dir))
			}
			unknown[i.dir] = true
			continue
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, src, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, spec := range file.Imports {
			if i.path, err = strconv.Unquote(spec.Path.Value); err != nil {
				return nil, err
			}
			var sibling bool
			i.toDir, sibling = repoSibling(i.path)
			first, _, _ := strings.Cut(i.path, "/")
			i.to, i.standardPath, i.sameModule = nil, !strings.Contains(first, "."), false
			if sibling {
				i.sameModule = tree.module(i.dir) == tree.module(i.toDir)
				if i.to = repoRowOf(rows, i.toDir); i.to == nil {
					continue // reported once, for the package itself
				}
			}
			for _, rule := range repoRules {
				if right := rule.right(i); right != "" {
					problems = append(problems, fmt.Sprintf("%v: imports %s: %s (%s)", fset.Position(spec.Pos()), i.path, right, rule.why))
					break
				}
			}
		}
	}
	return problems, nil
}

// repoCheckClosure holds the core's rule for all that the core imports, however far away.
func repoCheckClosure(deps []string) (problems []string) {
	for _, dep := range deps {
		if repoUnder(dep, "net/http") || repoUnder(dep, "testing") {
			problems = append(problems, fmt.Sprintf("package stint: %s is among what it imports, by way of another package; "+
				"go list -deps . shows the way; a program without HTTP must not link it", dep))
		}
	}
	return problems
}

func TestImportRules(t *testing.T) {
	problems, err := repoCheckImports(repoFS(t), repoRows)
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, problems)

	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, repoModule) {
		t.Errorf("go list -deps . does not name %s: %q", repoModule, deps)
	}
	repoReport(t, repoCheckClosure(deps))
}

func TestImportRulesFail(t *testing.T) {
	rows := append(slices.Clone(repoRows),
		repoRow{"stintother", repoCarrier, []string{"*"}, []string{"client.example"}, "it carries another protocol"},
		repoRow{"policy", repoPolicy, []string{"."}, nil, "it is a file"},
		repoRow{"library", repoLibrary, []string{"."}, nil, "it stands beside the core"},
	)
	own := repoModule + "/"
	file := func(pkg, importPath string) string {
		return "// Package " + pkg + " is one.\npackage " + pkg + "\nimport _ \"" + importPath + "\"\n"
	}
	one := func(name, importPath string) map[string]string {
		return map[string]string{name: file("x", importPath)}
	}
	repoMustFail(t, func(fsys fs.FS) ([]string, error) { return repoCheckImports(fsys, rows) }, []repoBroken{
		{"net/http in the core", one("a.go", "net/http/httptrace"), []string{"a.go:3:", "net/http/httptrace", "stinthttp"}},
		{"testing in the core", one("a.go", "testing"), []string{"a.go:3:", "stinttest"}},
		{"a requirement of the core", one("a.go", "a.example/y"), []string{"a.go:3:", repoBreaker, "module of its own"}},
		{"a name that only begins like gobreaker", one("a.go", repoBreaker+"x"), []string{"a.go:3:"}},
		{"the core imports a carrier", one("a.go", own+"stinthttp"), []string{"a.go:3:", "arrows point towards"}},
		{"a requirement of stinthttp", one("stinthttp/a.go", "a.example/y"), []string{"stinthttp/a.go:3:", "module of its own"}},
		{"a carrier imports a carrier", one("stintother/a.go", own+"stinthttp"), []string{"stintother/a.go:3:", "package stint"}},
		{"a carrier's test imports a carrier", one("stinthttp/a_test.go", own+"stintother"), []string{"stinthttp/a_test.go:3:", "package stint"}},
		{"a carrier imports the policy", one("stintother/a.go", own+"policy"), []string{"stintother/a.go:3:"}},
		{"a carrier imports the command", one("stintother/a.go", own+"cmd/stint/x"), []string{"stintother/a.go:3:", "circle"}},
		{"a test imports the command", one("a_test.go", own+"cmd/stint"), []string{"a_test.go:3:", "circle"}},
		{"a library imports a carrier", one("library/a.go", own+"stinthttp"), []string{"library/a.go:3:", "beside the core"}},
		{"an internal package of another module", one("cmd/stint/a.go", own+"stinthttp/internal/x"), []string{"cmd/stint/a.go:3:", "internal"}},
		{"an internal package of the command", one("a_test.go", own+repoLab), []string{"a_test.go:3:", "internal"}},
		{"the test kit in a library", one("stinthttp/a.go", own+"stinttest"), []string{"stinthttp/a.go:3:", "_test.go"}},
		{"the test kit in the command", one("cmd/stint/a.go", own+"stinttest"), []string{"cmd/stint/a.go:3:", repoLab}},
		{"a package without a row", map[string]string{"new/a.go": file("new", "fmt"), "new/b.go": file("new", own+"new")}, []string{"new:", "repoRows"}},
		{"a file that does not parse", map[string]string{"a.go": "package"}, []string{"a.go:1"}},
	})
	for name, importPath := range map[string]string{
		"a_test.go":               own + "stinthttp",
		"stinthttp/a_test.go":     own + "stinttest",
		"stintother/a.go":         "client.example/v2",
		"stintother/b/a.go":       own + "stintother",
		"stinthttp/testdata/a.go": own + "cmd/stint",
		repoLab + "/sub/a.go":     own + "stinttest",
	} {
		if problems, err := repoCheckImports(repoFixture(one(name, importPath)), rows); err != nil || len(problems) > 0 {
			t.Errorf("%s may import %s, but: %q, error %v", name, importPath, problems, err)
		}
	}
	if p := repoCheckClosure([]string{"context", "net/http/internal", repoModule}); len(p) != 1 {
		t.Errorf("a core that reaches net/http/internal: want one problem, have %q", p)
	}
}
