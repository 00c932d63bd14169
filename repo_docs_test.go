package stint_test

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	repoTestFunc = regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\(`)
	// repoTestName is a test in a Markdown file: `TestX`, or `stinthttp.TestX` with its directory (`stint.TestX`: the root's).
	repoTestName = regexp.MustCompile("`(?:([\\w/]+)\\.)?((?:Test|Example)[A-Z_]\\w*)`")
)

// repoCheckDocTests holds that the tests that Markdown files name are there, and that each row of a table with a
// column "shown by" at its end names one there.
func repoCheckDocTests(fsys fs.FS) (problems []string, err error) {
	tests := map[string]map[string]bool{} // by directory; "" has all
	files, err := repoFiles(fsys, false, "_test.go")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		for _, dir := range []string{"", path.Dir(name)} {
			if tests[dir] == nil {
				tests[dir] = map[string]bool{}
			}
			for _, f := range repoTestFunc.FindAllSubmatch(src, -1) {
				tests[dir][string(f[1])] = true
			}
		}
	}
	docs, err := repoFiles(fsys, false, ".md")
	if err != nil {
		return nil, err
	}
	for _, name := range docs {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		shown, n := false, 0 // whether the table that the line is in says what shows it
		for line := range strings.Lines(string(text)) {
			n++
			found := repoTestName.FindAllStringSubmatch(line, -1)
			for _, f := range found {
				dir := f[1]
				if dir == "stint" {
					dir = "."
				}
				if !tests[dir][f[2]] {
					problems = append(problems, fmt.Sprintf("%s:%d: %s is no test; name one that is there, or drop what it was to show", name, n, f[0]))
				}
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			last := strings.TrimSpace(cells[len(cells)-1])
			switch {
			case !strings.HasPrefix(line, "|"):
				shown = false
			case last == "shown by":
				shown = true
			case shown && strings.Trim(last, "-: ") != "" && !repoTestName.MatchString(last),
				shown && last == "":
				problems = append(problems, fmt.Sprintf("%s:%d: the last cell names no test; say which one shows what the row claims", name, n))
			}
		}
	}
	return problems, nil
}

func TestDocTests(t *testing.T) {
	problems, err := repoCheckDocTests(repoFS(t))
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, problems)
}

func TestDocTestsFail(t *testing.T) {
	doc := func(s string) map[string]string {
		return map[string]string{"a_test.go": "package x\nfunc TestA(t *testing.T) {}\n", "stinthttp/b_test.go": "package x\nfunc TestB(t *testing.T) {}\n", "docs/x.md": s}
	}
	repoMustFail(t, repoCheckDocTests, []repoBroken{
		{"a test that is not there", doc("text\nsee `TestC`\n"), []string{"docs/x.md:2", "`TestC`"}},
		{"a test of another directory", doc("see `stinthttp.TestA`\n"), []string{"docs/x.md:1", "`stinthttp.TestA`"}},
		{"a test that is not the root's", doc("see `stint.TestB`\n"), []string{"`stint.TestB`"}},
		{"an example that is not there", doc("see `ExampleA_b`\n"), []string{"`ExampleA_b`"}},
		{"a row that nothing shows", doc("| x | shown by |\n|---|---|\n| yes | `TestA` |\n| no | |\n"), []string{"docs/x.md:4", "names no test"}},
		{"a row with a word for it", doc("| x | shown by |\n|---|---|\n| yes | of course |\n"), []string{"docs/x.md:3", "names no test"}},
	})
	for _, s := range []string{"`TestA`, `stint.TestA`, `stinthttp.TestB`, `testing.T`, TestC, `Testing`", "| x | shown by |\n|---|:-:|\n| y | `TestA`, B1 |\n\n| x |\n|---|\n| y |\n"} {
		if problems, err := repoCheckDocTests(repoFixture(doc(s))); err != nil || len(problems) > 0 {
			t.Errorf("%q: want no problem, have %q, error %v", s, problems, err)
		}
	}
}
