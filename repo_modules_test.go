package stint_test

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// repoModFile is what the checks need of a go.mod or go.work file.
type repoModFile struct {
	path, goVersion string
	use             []string
	require         []repoRequire
	replace         []repoReplace
}

type repoRequire struct {
	path, version string
	indirect      bool
}

type repoReplace struct{ path, version, dir string }

// repoParseMod reads the directives that the checks need; the go command itself refuses a file with a wrong syntax.
func repoParseMod(data string) repoModFile {
	var (
		m     repoModFile
		block string
	)
	for line := range strings.Lines(data) {
		line, comment, _ := strings.Cut(line, "//")
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
			continue
		case f[0] == ")":
			block = ""
			continue
		case len(f) == 2 && f[1] == "(":
			block = f[0]
			continue
		case block != "":
			f = append([]string{block}, f...)
		}
		switch f[0] {
		case "module":
			m.path = f[1]
		case "go":
			m.goVersion = f[1]
		case "use":
			m.use = append(m.use, path.Clean(f[1]))
		case "require":
			m.require = append(m.require, repoRequire{f[1], f[2], strings.TrimSpace(comment) == "indirect"})
		case "replace":
			r := repoReplace{path: f[1]}
			if f[2] != "=>" {
				r.version = f[2]
			}
			r.dir = path.Clean(f[slices.Index(f, "=>")+1])
			m.replace = append(m.replace, r)
		}
	}
	return m
}

// repoTree is a repository's modules as its files describe them.
type repoTree struct {
	listed   []string               // directories in the order of the file "modules"
	released map[string]bool        // by directory
	mods     map[string]repoModFile // go.mod files by directory
	work     repoModFile
}

func repoLoad(fsys fs.FS) (repoTree, error) {
	t := repoTree{released: map[string]bool{}, mods: map[string]repoModFile{}}
	list, err := fs.ReadFile(fsys, "modules")
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 2 || (f[1] != "yes" && f[1] != "no") || slices.Contains(t.listed, f[0]) {
			return t, fmt.Errorf("modules: want each line to be a new directory and yes or no, have %q", line)
		}
		t.listed = append(t.listed, f[0])
		t.released[f[0]] = f[1] == "yes"
	}
	files, err := repoFiles(fsys, false, "go.mod")
	if err != nil {
		return t, err
	}
	for _, name := range files {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return t, err
		}
		t.mods[path.Dir(name)] = repoParseMod(string(data))
	}
	data, err := fs.ReadFile(fsys, "go.work")
	t.work = repoParseMod(string(data))
	return t, err
}

// module is the directory of the module that the directory belongs to.
func (t repoTree) module(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := t.mods[dir]; ok {
			return dir
		}
	}
	return "."
}

// repoSibling is the directory, in this repository, of an import or module path of this repository.
func repoSibling(importPath string) (dir string, ok bool) {
	if importPath == repoModule {
		return ".", true
	}
	return strings.CutPrefix(importPath, repoModule+"/")
}

// repoCheckModules compares the file modules, go.work and all go.mod files.
func repoCheckModules(t repoTree) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, dir := range slices.Sorted(maps.Keys(t.mods)) {
		if !slices.Contains(t.listed, dir) {
			bad("modules: %s/go.mod is in the tree but not listed; add the line %q or %q", dir, dir+" yes", dir+" no")
		}
	}
	for _, dir := range t.work.use {
		if !slices.Contains(t.listed, dir) {
			bad("go.work: uses %s, which the file modules does not list", dir)
		}
	}
	type needed struct{ path, version string }
	replaces := map[needed]bool{}
	for i, dir := range t.listed {
		m, ok := t.mods[dir]
		if !ok {
			bad("modules: lists %s, which has no go.mod", dir)
			continue
		}
		if !slices.Contains(t.work.use, dir) {
			bad("go.work: has no use line for %s, which the file modules lists", dir)
		}
		if want := path.Join(repoModule, dir); m.path != want {
			bad("%s/go.mod: module is %s; its directory makes it %s", dir, m.path, want)
		}
		if m.goVersion != t.work.goVersion {
			bad("%s/go.mod: go %s, but go.work has go %s; all modules support the same versions", dir, m.goVersion, t.work.goVersion)
		}
		for _, r := range m.replace {
			bad("%s/go.mod: replaces %s; a replace breaks go install of a version, so it belongs in go.work", dir, r.path)
		}
		for _, r := range m.require {
			sibling, ok := repoSibling(r.path)
			if !ok {
				continue
			}
			replaces[needed{r.path, r.version}] = true
			switch at := slices.Index(t.listed, sibling); {
			case at < 0:
				bad("%s/go.mod: requires %s, which the file modules does not list", dir, r.path)
			case at > i:
				bad("modules: %s stands above %s, which it requires; make tidy works from top to bottom", dir, sibling)
			case t.released[dir] && !t.released[sibling]:
				bad("%s/go.mod: a released module requires %s, which is never released; nobody could install it", dir, r.path)
			}
		}
	}
	versions := map[string]bool{}
	for n := range replaces {
		versions[n.version] = true
	}
	if len(versions) > 1 {
		bad("go.mod files: siblings are required at %v; all modules carry one version, v0.0.0 until a release",
			slices.Sorted(maps.Keys(versions)))
	}
	seen := map[needed]bool{}
	for _, r := range t.work.replace {
		n := needed{r.path, r.version}
		sibling, ok := repoSibling(r.path)
		switch {
		case !ok || sibling != r.dir || !replaces[n]:
			bad("go.work: replace %s %s => %s is for no sibling that a go.mod requires at that version; drop it", r.path, r.version, r.dir)
		case seen[n]:
			bad("go.work: replaces %s %s twice", r.path, r.version)
		}
		seen[n] = true
	}
	for n := range replaces {
		if sibling, _ := repoSibling(n.path); !seen[n] {
			bad("go.work: add %q; without it, the go command looks for that version in a registry",
				fmt.Sprintf("replace %s %s => ./%s", n.path, n.version, strings.TrimPrefix(sibling, ".")))
		}
	}
	return problems
}

// repoCheckCoreRequirements holds that the root module requires gobreaker and nothing else directly.
func repoCheckCoreRequirements(t repoTree) (problems []string) {
	var direct []string
	for _, r := range t.mods["."].require {
		if !r.indirect {
			direct = append(direct, r.path)
		}
	}
	if !slices.Equal(direct, []string{repoBreaker}) {
		problems = append(problems, fmt.Sprintf("go.mod: requires %v directly, want only %s: who imports stint gets all of it; "+
			"a carrier that needs more is a module of its own", direct, repoBreaker))
	}
	return problems
}

func TestModulesAgree(t *testing.T) {
	tree, err := repoLoad(repoFS(t))
	if err != nil {
		t.Fatal(err)
	}
	repoReport(t, repoCheckModules(tree))
	repoReport(t, repoCheckCoreRequirements(tree))
}

func TestModulesCheckFails(t *testing.T) {
	root := "module " + repoModule + "\ngo 1.26.0\nrequire " + repoBreaker + " v2.4.0\n"
	command := "module " + repoModule + "/cmd/stint\ngo 1.26.0\nrequire " + repoModule + " v0.0.0\n"
	tools := "module " + repoModule + "/internal/tools\ngo 1.26.0\n"
	work := "go 1.26.0\nuse (\n\t.\n\t./cmd/stint\n\t./internal/tools\n)\n"
	replace := "replace " + repoModule + " v0.0.0 => ./\n"
	repoMustFail(t, func(fsys fs.FS) ([]string, error) {
		tree, err := repoLoad(fsys)
		if err != nil {
			return nil, err
		}
		return slices.Concat(repoCheckModules(tree), repoCheckCoreRequirements(tree)), nil
	}, []repoBroken{
		{"a go.mod that is not listed", map[string]string{"extra/go.mod": "module " + repoModule + "/extra\ngo 1.26.0\n"},
			[]string{"extra/go.mod", "not listed", "extra yes"}},
		{"a listed module without go.mod", map[string]string{"modules": ". yes\ncmd/stint yes\ninternal/tools no\ngone yes\n"},
			[]string{"gone", "no go.mod"}},
		{"no use line", map[string]string{"go.work": "go 1.26.0\nuse .\nuse ./cmd/stint\n" + replace},
			[]string{"go.work", "internal/tools"}},
		{"a use line too many", map[string]string{"go.work": work + "use ./gone\n" + replace},
			[]string{"go.work", "gone"}},
		{"a wrong module path", map[string]string{"internal/tools/go.mod": "module " + repoModule + "/tools\ngo 1.26.0\n"},
			[]string{"internal/tools/go.mod", "makes it " + repoModule + "/internal/tools"}},
		{"another go version", map[string]string{"internal/tools/go.mod": "module " + repoModule + "/internal/tools\ngo 1.25.0\n"},
			[]string{"internal/tools/go.mod", "1.25.0", "1.26.0"}},
		{"a replace in a module", map[string]string{"cmd/stint/go.mod": command + "replace " + repoModule + " => ../..\n"},
			[]string{"cmd/stint/go.mod", "go.work"}},
		{"released requires unreleased", map[string]string{
			"modules":          ". yes\ninternal/tools no\ncmd/stint yes\n",
			"cmd/stint/go.mod": command + "require " + repoModule + "/internal/tools v0.0.0\n",
			"go.work":          work + replace + "replace " + repoModule + "/internal/tools v0.0.0 => ./internal/tools\n"},
			[]string{"cmd/stint/go.mod", "internal/tools", "never released"}},
		{"a module above one that it requires", map[string]string{"modules": "cmd/stint yes\n. yes\ninternal/tools no\n"},
			[]string{"cmd/stint stands above ."}},
		{"a sibling that is nowhere", map[string]string{
			"cmd/stint/go.mod": "module " + repoModule + "/cmd/stint\ngo 1.26.0\nrequire " + repoModule + "/gone v0.0.0\n",
			"go.work":          work + "replace " + repoModule + "/gone v0.0.0 => ./gone\n"},
			[]string{"cmd/stint/go.mod", "gone"}},
		{"no replace in go.work", map[string]string{"go.work": work},
			[]string{"go.work", "replace " + repoModule + " v0.0.0 => ./"}},
		{"a replace without version", map[string]string{"go.work": work + replace + "replace " + repoModule + " => ./\n"},
			[]string{"go.work", "drop it"}},
		{"a replace that nothing needs", map[string]string{"go.work": work + replace + "replace " + repoModule + "/cmd/stint v0.0.0 => ./cmd/stint\n"},
			[]string{"go.work", "cmd/stint", "drop it"}},
		{"a replace twice", map[string]string{"go.work": work + replace + replace},
			[]string{"go.work", "twice"}},
		{"two versions of siblings", map[string]string{
			"internal/tools/go.mod": tools + "require " + repoModule + " v0.1.0\n",
			"go.work":               work + replace + "replace " + repoModule + " v0.1.0 => ./\n"},
			[]string{"v0.0.0", "v0.1.0", "one version"}},
		{"a line without yes or no", map[string]string{"modules": ". yes\ncmd/stint\ninternal/tools no\n"},
			[]string{"modules", "yes or no"}},
		{"a second requirement of the core", map[string]string{"go.mod": root + "require a.example/y v1.0.0\n"},
			[]string{"go.mod", "a.example/y", repoBreaker}},
	})
}
