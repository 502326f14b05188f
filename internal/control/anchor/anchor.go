//go:build linux

// Package anchor sends signed checkpoints to places outside the log, so that a
// tail that was cut off, or an old copy that was put back, can be found with
// what they keep.
//
// State owned: none. Imports: lib/fault, go-systemd/journal. Imported by:
// control. Invariants: a place that can't take a checkpoint is an error, never
// silently skipped; a file anchor lies outside the state directory and is only
// ever appended to. Tests: anchor_test.go. Format: docs/spec/audit-log.md.
package anchor

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"

	"agentos/internal/lib/fault"
)

// Anchor is one place that keeps checkpoints. Safe for concurrent use.
type Anchor interface {
	Name() string // as configured: "journald", "file:/PATH"
	// Check reports whether the place could take a checkpoint now; it writes
	// nothing.
	Check() error
	// Send returns when the place has taken note.
	Send(ctx context.Context, note []byte) error
}

// Journald sends to systemd's journal by its native protocol.
type Journald struct{ enabled func() bool }

// NewJournald connects to nothing.
func NewJournald() Journald { return Journald{journal.Enabled} }

// Name is "journald".
func (Journald) Name() string { return "journald" }

// Check looks for the journal's socket.
func (j Journald) Check() error {
	if !j.enabled() {
		return fault.New(fault.Unavailable, "use an anchor of the form file:/PATH, on another disk", "journald is not running here")
	}
	return nil
}

// Send writes one journal entry with the note in AGENTOS_CHECKPOINT.
func (j Journald) Send(_ context.Context, note []byte) error {
	if err := j.Check(); err != nil {
		return err
	}
	err := journal.Send("agentos audit checkpoint", journal.PriNotice, map[string]string{
		"AGENTOS_CHECKPOINT": string(note), "SYSLOG_IDENTIFIER": "agentos",
	})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "see `systemctl status systemd-journald`", "send checkpoint to journald")
	}
	return nil
}

// File appends to one file, best on another disk or an append-only mount.
type File struct{ path string }

// NewFile refuses a path inside the state directory, where whoever cuts the log
// could cut it too.
func NewFile(path, stateDir string) (File, error) {
	const next = "give an absolute path outside the state directory, on another disk if there is one"
	if !filepath.IsAbs(path) {
		return File{}, fault.New(fault.Usage, next, "anchor file %q: not an absolute path", path)
	}
	inside, err := within(path, stateDir)
	if err != nil {
		return File{}, fault.Wrap(err, fault.Usage, next, "anchor file %q", path)
	}
	if inside {
		return File{}, fault.New(fault.Usage, next, "anchor file %q lies inside the state directory", path)
	}
	return File{path}, nil
}

// within resolves links in both paths as far as they exist.
func within(path, dir string) (bool, error) {
	p, err := resolve(path)
	if err != nil {
		return false, err
	}
	d, err := resolve(dir)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(d, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../"), nil
}

func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || !os.IsNotExist(err) {
		return real, err
	}
	parent, base := filepath.Split(filepath.Clean(path))
	if parent == "" || base == "" {
		return path, nil
	}
	real, err = resolve(filepath.Clean(parent))
	return filepath.Join(real, base), err
}

// Name is "file:" and the path.
func (f File) Name() string { return "file:" + f.path }

// Check looks whether the folder is there.
func (f File) Check() error {
	if st, err := os.Stat(filepath.Dir(f.path)); err != nil || !st.IsDir() {
		return fault.New(fault.Unavailable, "make the folder, or correct audit.anchors", "anchor file %q: its folder is not there", f.path)
	}
	return nil
}

// Send appends the note and an empty line, and syncs.
func (f File) Send(_ context.Context, note []byte) error {
	const next = "make the file writable for the user that runs AgentOS, or correct audit.anchors"
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "open anchor file")
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return fault.New(fault.Usage, next, "anchor file %q is no regular file", f.path)
	}
	// One write: notes of two processes don't mix.
	if _, err := file.Write(append(append([]byte{}, note...), '\n')); err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "append to anchor file")
	}
	if err := file.Sync(); err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "sync anchor file")
	}
	return nil
}
