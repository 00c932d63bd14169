package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/policy/emit"
	"github.com/stint-go/stint/stinthttp"
)

// at is where a path that the user named lies.
func (s *Std) at(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.Dir, path)
}

// mostBytes is the largest file that is read whole: a policy has some hundred
// lines, a mesh's configuration some thousand.
const mostBytes = 16 << 20

// read reads a file that the user named.
func (s *Std) read(path string) ([]byte, error) {
	f, err := os.Open(s.at(path))
	if err != nil {
		return nil, named(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, named(path, err)
	}
	if len(data) > mostBytes {
		return nil, fmt.Errorf("%s: the file is larger than %d bytes", path, mostBytes)
	}
	return data, nil
}

// named is an error of the file system about the path as the user named it.
func named(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// files are the files that the user named, and all YAML files below the
// directories, each once. Hidden directories are left out.
func (s *Std) files(args []string) (paths []string, bad []error) {
	for _, arg := range args {
		err := filepath.WalkDir(s.at(arg), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(s.at(arg), path)
			if err != nil {
				return err
			}
			name := filepath.Join(arg, rel)
			switch ext := filepath.Ext(path); {
			case d.IsDir() && rel != "." && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir
			case d.IsDir(), rel != "." && ext != ".yaml" && ext != ".yml", slices.Contains(paths, name):
				return nil
			}
			paths = append(paths, name)
			return nil
		})
		if err != nil {
			bad = append(bad, named(arg, err))
		}
	}
	return paths, bad
}

// fileURI is a path as a URI reference.
func fileURI(path string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}

// load reads a policy file.
func (s *Std) load(path string) (*policy.File, error) {
	data, err := s.read(path)
	if err != nil {
		return nil, err
	}
	f, err := policy.Parse(path, data)
	if err == nil {
		err = patterns(f)
	}
	return f, err
}

// patterns reports the routes and operations of a file that package stinthttp will
// not take: package policy knows no HTTP, and so no pattern that is broken or conflicts
// with another.
func patterns(f *policy.File) error {
	var bad []error
	check := func(key func(i int) []string, patterns ...string) {
		refused := func(i int) error {
			_, err := stinthttp.RouteOp(patterns[:i+1]...)
			return err
		}
		if i := sort.Search(len(patterns), func(i int) bool { return refused(i) != nil }); i < len(patterns) {
			text := strings.TrimPrefix(refused(i).Error(), "stinthttp: ")
			bad = append(bad, &policy.Problem{Position: f.At(key(i)...), Key: strings.Join(key(i), "."), Text: strings.ReplaceAll(text, "\n", " ")})
		}
	}
	if e := f.Entry; e != nil {
		routes := slices.Sorted(maps.Keys(e.Routes))
		check(func(i int) []string {
			if i < len(routes) {
				return []string{"entry", "routes", routes[i]}
			}
			if i -= len(routes); i < len(e.Exempt) {
				return []string{"entry", fmt.Sprintf("exempt[%d]", i)}
			}
			return []string{"entry", fmt.Sprintf("longRunning[%d]", i-len(e.Exempt))}
		}, slices.Concat(routes, e.Exempt, e.LongRunning)...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Dependencies)) {
		operations := f.Patterns(name)
		check(func(i int) []string { return []string{"dependencies", name, "operations", operations[i]} }, operations...)
	}
	return errors.Join(bad...)
}

// parsed reads a policy file, or what a mesh's configuration repeats and cuts
// off by itself.
func parsed(path string, data []byte) (file *policy.File, under []policy.Layer, err error) {
	if emit.IsForeign(data) {
		under, err = emit.Read(path, data)
		return nil, under, err
	}
	if file, err = policy.Parse(path, data); err == nil {
		err = patterns(file)
	}
	return file, nil, err
}

// writeNew writes a file that does not exist yet.
func (s *Std) writeNew(path string, text []byte) error {
	f, err := os.OpenFile(s.at(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already, and is left as it is: name another with -o", path)
	}
	if err != nil {
		return named(path, err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
