package sandbox

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// Local is the machine this process runs on, seen with its rights.
type Local struct{}

var _ Host = Local{}

// Lstat implements Host.
func (Local) Lstat(path string) (Entry, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return Entry{}, err
	}
	return Entry{Name: st.Name(), Type: st.Mode().Type(), Exec: st.Mode().Perm()&0o111 != 0}, nil
}

// Readlink implements Host.
func (Local) Readlink(path string) (string, error) { return os.Readlink(path) }

// ReadDir implements Host.
func (Local) ReadDir(path string, limit int) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(list) > limit {
		return nil, ErrMany
	}
	out := make([]Entry, len(list))
	for i, e := range list {
		out[i] = Entry{Name: e.Name(), Type: e.Type()}
	}
	sortEntries(out)
	return out, nil
}

// ReadFile implements Host.
func (Local) ReadFile(path string, limit int) ([]byte, error) {
	// A FIFO in its place must not make us wait: look before opening. Whoever
	// swaps it in between delays a start of their own.
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		return nil, ErrMany
	}
	return data, err
}
