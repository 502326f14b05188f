package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"agentos/internal/lib/fault"
)

var errNotDir error = syscall.ENOTDIR

// openConfig never blocks, whatever the path is.
func openConfig(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	switch {
	case err == nil:
		return f, nil
	case notExist(err):
		return nil, fault.Wrap(err, fault.NotFound, "create it, or name another with --config", "open configuration %q", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.Wrap(err, fault.Denied, "make it readable for this user, or name another with --config", "open configuration %q", path)
	}
	return nil, fault.Wrap(err, fault.Unavailable, "check the path", "open configuration %q", path)
}

// checkOwner refuses a file that somebody else could have written: settings
// decide what an agent may do.
func checkOwner(f *os.File, path string) error {
	st, err := f.Stat()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "check the path", "look at configuration %q", path)
	}
	if !st.Mode().IsRegular() {
		return fault.New(fault.Usage, "name a regular file", "read configuration %q: not a regular file", path)
	}
	if st.Mode().Perm()&0o002 != 0 {
		return fault.New(fault.Denied, "chmod o-w "+path, "read configuration %q: everybody can write it", path)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return fault.New(fault.Denied, fmt.Sprintf("chown it to root or to UID %d, or name another with --config", os.Geteuid()),
			"read configuration %q: it belongs to UID %d", path, sys.Uid)
	}
	return nil
}
