//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Names in the state directory.
const (
	dbName   = "agentos.sqlite3"
	keyName  = "audit.key"
	lockName = "lock"
)

// prepareDir makes the directory or refuses one that others can reach.
func prepareDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fault.New(fault.Usage, "give an absolute path", "open state directory %q: not absolute", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fault.Wrap(err, fault.Unavailable, "choose another state directory, or create its parent", "create state directory %q", dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fault.Wrap(err, fault.Unavailable, "choose another state directory, or create it yourself with mode 0700", "create state directory %q", dir)
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fault.Wrap(err, fault.Unavailable, "make the state directory writable, or choose another; reading and verifying work as it is", "write state directory %q", dir)
	}
	return nil
}

func checkDir(dir string) error {
	fi, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fault.Wrap(err, fault.NotFound, "run an agent once to create it, or name the right state directory", "open state directory %q", dir)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "check the path and its permissions", "open state directory %q", dir)
	}
	if !fi.IsDir() {
		return fault.New(fault.Unavailable, "name a directory, not a file or a symbolic link", "open state directory %q: not a directory", dir)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fault.New(fault.Internal, "", "stat state directory %q: no owner", dir)
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return fault.New(fault.Unavailable, fmt.Sprintf("run as user %d, or choose a state directory of your own", st.Uid),
			"open state directory %q: it belongs to user %d, not %d", dir, st.Uid, uid)
	}
	if m := fi.Mode().Perm(); m&0o077 != 0 {
		return fault.New(fault.Unavailable, fmt.Sprintf("chmod 0700 %q", dir), "open state directory %q: mode %04o lets others in", dir, m)
	}
	return nil
}

// checkFile refuses a file in the directory that is not a plain private one.
func checkFile(path string) (exists bool, err error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fault.Wrap(err, fault.Unavailable, "check its permissions", "open %q", path)
	}
	if !fi.Mode().IsRegular() {
		return true, fault.New(fault.Corrupt, "move it away and restore a backup", "open %q: not a regular file", path)
	}
	if m := fi.Mode().Perm(); m&0o077 != 0 {
		return true, fault.New(fault.Unavailable, fmt.Sprintf("chmod 0600 %q", path), "open %q: mode %04o lets others in", path, m)
	}
	return true, nil
}

// takeLock takes the directory for this process, as long as the file is open.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ioFault(err, dir, "open lock %q", path)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.Wrap(err, fault.Unavailable, "put the state directory on a filesystem with flock", "lock state directory %q", dir)
		}
		pid := "unknown"
		if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil {
			if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
				pid = strconv.Itoa(n)
			}
		}
		return nil, fault.New(fault.Conflict, "wait until it ends, or choose another state directory",
			"lock state directory %q: process %s uses it", dir, pid)
	}
	// The number is for people; the lock itself is the kernel's.
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(ioFault(err, dir, "write lock %q", path), f.Close())
	}
	return f, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// createDatabase makes the file first, so that it and its WAL get mode 0600
// whatever the umask is.
func createDatabase(dir string) error {
	path := filepath.Join(dir, dbName)
	exists, err := checkFile(path)
	if err != nil || exists {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ioFault(err, dir, "create database %q", path)
	}
	if err := f.Close(); err != nil {
		return ioFault(err, dir, "create database %q", path)
	}
	return syncDir(dir)
}

// walSpace is how much of the WAL exists before the first commit, and about
// what is in it when SQLite starts over (wal_autocheckpoint).
const walSpace = 4 << 20

// growWAL writes zeros behind the frames of the open WAL, which SQLite ignores:
// a commit then overwrites blocks that exist, so that its sync needs no journal
// commit of the filesystem (measured: 0.14 against 0.23 ms). Only the writer may
// do it, and only between transactions.
func growWAL(dir string) error {
	path := filepath.Join(dir, dbName+"-wal")
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return ioFault(err, dir, "open WAL %q", path)
	}
	fi, err := f.Stat()
	if err != nil {
		return errors.Join(ioFault(err, dir, "open WAL %q", path), f.Close())
	}
	size := fi.Size()
	if size < walSpace {
		if _, err = f.WriteAt(make([]byte, walSpace-size), size); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		// Only speed is lost; a disk that is too full for commits says so then.
		if err := f.Truncate(size); err != nil {
			return errors.Join(ioFault(err, dir, "truncate WAL %q", path), f.Close())
		}
	}
	return f.Close()
}

// walEmpty reports whether the directory's WAL can hold no commit.
func walEmpty(dir string) bool {
	f, err := os.Open(filepath.Join(dir, dbName+"-wal"))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err != nil || magic == [4]byte{}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return ioFault(err, dir, "open state directory %q", dir)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return ioFault(err, dir, "sync state directory %q", dir)
	}
	return nil
}

// dsn builds the URI of the database with query parameters in pairs.
func dsn(dir string, params ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return (&url.URL{Scheme: "file", Path: filepath.Join(dir, dbName), RawQuery: q.Encode()}).String()
}

// checkModes makes sure that the pragmas took: a filesystem without shared
// memory silently keeps another journal mode.
func checkModes(ctx context.Context, c *sql.Conn, dir string) error {
	var mode string
	var sync int
	if err := c.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return sqlFault(err, dir, "read journal mode")
	}
	if err := c.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&sync); err != nil {
		return sqlFault(err, dir, "read synchronous mode")
	}
	if mode != "wal" || sync != 2 {
		return fault.New(fault.Unavailable, "put the state directory on a local filesystem (ext4, xfs, btrfs)",
			"open database in %q: journal mode %q, synchronous %d", dir, mode, sync)
	}
	return nil
}
