//go:build linux

package anchor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"agentos/internal/lib/fault"
)

// File appends checkpoints to a file, each followed by an empty line, so that
// the whole file can be given to `agentos audit verify`. It is worth most on
// another machine's disk, or append-only (chattr +a).
type File struct {
	path string
}

// NewFile refuses a path inside the state directory: there it would protect
// nothing. Both paths must be absolute; symbolic links are followed as far as
// they exist. Faults: Usage.
func NewFile(path, stateDir string) (*File, error) {
	const next = "name a file outside the state directory, best on another disk or machine"
	if !filepath.IsAbs(path) || !filepath.IsAbs(stateDir) {
		return nil, fault.New(fault.Usage, "give an absolute path", "use anchor file %q: not absolute", path)
	}
	real, err := resolve(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, next, "use anchor file %q", path)
	}
	state, err := resolve(stateDir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, next, "use anchor file %q", path)
	}
	if real == state || strings.HasPrefix(real, strings.TrimSuffix(state, "/")+"/") {
		return nil, fault.New(fault.Usage, next, "use anchor file %q: it is inside the state directory", path)
	}
	return &File{path: real}, nil
}

// resolve follows the links of the longest part of the path that exists.
func resolve(path string) (string, error) {
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	if fi, lerr := os.Lstat(path); lerr == nil && fi.Mode()&os.ModeSymlink != 0 {
		return "", fmt.Errorf("dangling symbolic link %q", path)
	}
	if !errors.Is(err, os.ErrNotExist) || path == "/" {
		return "", err
	}
	dir, err := resolve(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// Name implements Anchor.
func (f *File) Name() string { return "file:" + f.path }

// Send implements Anchor: one appending write, then fsync.
func (f *File) Send(ctx context.Context, note []byte) error {
	if err := check(ctx, note); err != nil {
		return err
	}
	const next = "make the anchor file writable for this user, or configure another"
	// Without O_NONBLOCK a FIFO put there would hold the run up.
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "open anchor file %q", f.path)
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err == nil {
		_, err = file.Write(append(append([]byte{}, note...), '\n'))
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "write anchor file %q", f.path)
	}
	return nil
}

func check(ctx context.Context, note []byte) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, fault.Cancelled, "", "send checkpoint")
	}
	if len(note) == 0 || len(note) > maxNote || note[len(note)-1] != '\n' {
		return fault.New(fault.Internal, "", "send checkpoint: %d bytes are no signed note", len(note))
	}
	return nil
}
