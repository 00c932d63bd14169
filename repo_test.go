package stint_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The tests in repo_*_test.go and api_test.go hold the rules of the repository itself. Each rule is a function from
// a file tree to the list of what breaks it, so that a second test can show that it does fail on a tree that does.

// repoModule is the path of the root module; every other module's path is it and the module's directory.
const repoModule = "github.com/stint-go/stint"

// repoFS is the tree of the repository that is under test.
func repoFS(t *testing.T) fs.FS {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(filepath.Base(dir), "@") {
		t.Skip("a downloaded module holds only a part of the repository")
	}
	return os.DirFS(dir)
}

// repoReport fails the test once for each problem.
func repoReport(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// repoFiles lists the files whose names end in one of the suffixes, in order. Hidden directories and, unless
// testdata is set, directories named testdata are left out.
func repoFiles(fsys fs.FS, testdata bool, suffixes ...string) ([]string, error) {
	var files []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")):
			return fs.SkipDir
		case d.IsDir() && d.Name() == "testdata" && !testdata:
			return fs.SkipDir
		case !d.IsDir() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// repoFixture is a small repository that breaks no rule; the files given replace or join its own.
func repoFixture(files map[string]string) fstest.MapFS {
	all := map[string]string{
		"modules":                     "# header\n. yes\ncmd/stint yes\ninternal/tools no\n",
		"go.work":                     "go 1.26.0\nuse (\n\t.\n\t./cmd/stint\n\t./internal/tools\n)\nreplace " + repoModule + " v0.0.0 => ./\n",
		"go.mod":                      "module " + repoModule + "\ngo 1.26.0\nrequire " + repoBreaker + " v2.4.0\n",
		"cmd/stint/go.mod":            "module " + repoModule + "/cmd/stint\ngo 1.26.0\nrequire " + repoModule + " v0.0.0\n",
		"internal/tools/go.mod":       "module " + repoModule + "/internal/tools\ngo 1.26.0\nrequire (\n\ta.example/x v1.0.0 // indirect\n)\n",
		"stint.go":                    "// Package stint is one.\npackage stint\nimport _ \"" + repoBreaker + "\"\n",
		"stinthttp/http.go":           "// Package stinthttp is one.\npackage stinthttp\nimport (\n\t_ \"net/http\"\n\t_ \"" + repoModule + "\"\n)\n",
		"stinttest/test.go":           "// Package stinttest is one.\npackage stinttest\nimport _ \"" + repoModule + "/stinthttp\"\n",
		"cmd/stint/main.go":           "// Command stint is one.\npackage main\n",
		"cmd/stint/internal/lab/l.go": "// Package lab is one.\npackage lab\nimport _ \"" + repoModule + "/stinttest\"\n",
		"internal/tools/doc.go":       "// Package tools is one.\npackage tools\n",
	}
	maps.Copy(all, files)
	fsys := fstest.MapFS{}
	for name, data := range all {
		if data != "" {
			fsys[name] = &fstest.MapFile{Data: []byte(data)}
		}
	}
	return fsys
}

// repoBroken is a tree that breaks one rule, and what the message about it must say.
type repoBroken struct {
	name  string
	files map[string]string
	want  []string
}

// repoMustFail shows that a check is silent about the fixture and finds just one problem in each broken tree.
func repoMustFail(t *testing.T, check func(fs.FS) ([]string, error), cases []repoBroken) {
	t.Helper()
	if problems, err := check(repoFixture(nil)); err != nil || len(problems) > 0 {
		t.Fatalf("the tree without fault: problems %q, error %v", problems, err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			problems, err := check(repoFixture(c.files))
			if err != nil {
				problems = append(problems, err.Error())
			}
			if len(problems) != 1 {
				t.Fatalf("want one problem, have %d: %q", len(problems), problems)
			}
			for _, want := range c.want {
				if !strings.Contains(problems[0], want) {
					t.Errorf("want %q in %q", want, problems[0])
				}
			}
		})
	}
}
