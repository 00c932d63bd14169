package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/policy/emit"
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
	return policy.Parse(path, data)
}

// parsed reads a policy file, or what a mesh's configuration repeats and cuts
// off by itself.
func parsed(path string, data []byte) (file *policy.File, under []policy.Layer, err error) {
	if emit.IsForeign(data) {
		under, err = emit.Read(path, data)
		return nil, under, err
	}
	file, err = policy.Parse(path, data)
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
