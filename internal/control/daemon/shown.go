//go:build linux

package daemon

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"agentos/internal/execution/sandbox"
)

// shown is this machine as it will be once a run has its folders: to show a plan
// makes nothing.
type shown struct {
	sandbox.Local
	made []string // folders that a start would make, with those above them
}

func (h shown) makes(path string) bool {
	for _, m := range h.made {
		if m == path || strings.HasPrefix(m, path+"/") {
			return true
		}
	}
	return false
}

// Lstat implements sandbox.Host.
func (h shown) Lstat(path string) (sandbox.Entry, error) {
	e, err := h.Local.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) && h.makes(path) {
		return sandbox.Entry{Name: filepath.Base(path), Type: fs.ModeDir, Exec: true}, nil
	}
	return e, err
}

// ReadDir implements sandbox.Host.
func (h shown) ReadDir(path string, limit int) ([]sandbox.Entry, error) {
	list, err := h.Local.ReadDir(path, limit)
	if errors.Is(err, fs.ErrNotExist) && h.makes(path) {
		return nil, nil
	}
	return list, err
}
