//go:build linux

package statestore

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"agentos/internal/lib/fault"
)

const nextCorrupt = "keep the directory as evidence, run `agentos audit verify` to see the first bad record, and restore a backup"

func nextFull(dir string) string {
	return fmt.Sprintf("free space on the filesystem of %q (see `df -h %s`), then try again", dir, dir)
}

// ioFault gives a failed file operation its kind.
func ioFault(err error, dir, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(err, fault.Unavailable, nextFull(dir), "%s", msg)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fault.Wrap(err, fault.Unavailable, "make the state directory writable, or choose another; reading and verifying work as it is", "%s", msg)
	}
	return fault.Wrap(err, fault.Internal, "check the disk (`dmesg`)", "%s", msg)
}

// code is the primary SQLite result code in err, or -1.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return -1
}

// sqlFault gives a database error its kind. Faults pass through.
func sqlFault(err error, dir, format string, args ...any) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	msg := fmt.Sprintf(format, args...)
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return fault.Wrap(err, fault.Unavailable, nextFull(dir), "%s: the disk is full", msg)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fault.Wrap(err, fault.Corrupt, nextCorrupt, "%s", msg)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fault.Wrap(err, fault.Unavailable, "check the permissions of the state directory, or copy it to a writable place", "%s in %q", msg, dir)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fault.Wrap(err, fault.Conflict, "end the other program that has the database open", "%s in %q", msg, dir)
	case sqlite3.SQLITE_IOERR:
		return fault.Wrap(err, fault.Internal, "check the disk and its free space (`df`, `dmesg`), then start again", "%s", msg)
	}
	return ctxFault(err, "%s", msg)
}

// ctxFault tells a caller that gave up from a bug.
func ctxFault(err error, format string, args ...any) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "try again with a longer deadline", format, args...)
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Cancelled, "", format, args...)
	}
	return fault.Wrap(err, fault.Internal, "", format, args...)
}
