package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stint-go/stint/policy"
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

// load reads a policy file.
func (s *Std) load(path string) (*policy.File, error) {
	data, err := s.read(path)
	if err != nil {
		return nil, err
	}
	return policy.Parse(path, data)
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
