// Package cgroup makes one set of control groups a sandbox, on version 2,
// version 1 and both at once: limits, a place to start in, and the end of
// everything inside.
//
// State owned: folders named agentos-RUN below a folder agentos, at the root of
// each hierarchy for root, else where one was delegated to this user. Imports:
// x/sys. Imported by: cmd/agentos-launcher. Locks: none in memory; on disk a
// group is locked (flock) by the process that made it, and the folder above while
// groups are made and cleaned.
// Invariants: no process that is not in a group made here is moved or signalled;
// a limit that no controller enforces is reported by name; a group whose maker is
// gone is emptied and removed at the next start.
// Docs: docs/spec/launch-wire.md. Tests: cgroup_linux_test.go, FuzzMounts.
// Spec: AOS-17, INV-05.
package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	home   = "agentos"  // folder of all groups
	prefix = "agentos-" // of a run's
	inner  = "box"      // where a run's processes are, on version 2
)

// Limits of one sandbox; 0 is no limit.
type Limits struct {
	PIDs        int64 // processes and threads of the command
	MemoryBytes int64
	CPUPercent  int64 // of one CPU
}

// Manager makes groups. Safe for concurrent use.
type Manager struct {
	v2 string            // parent of groups on version 2, or ""
	v1 map[string]string // controller → parent of groups on version 1
}

// Open finds where this process may make groups. A host without any is no error.
func Open() (*Manager, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find own control groups: %w", err)
	}
	return open(parseMounts(string(mounts)), parseOwn(string(own)), os.Geteuid() == 0), nil
}

func open(found []hierarchy, own map[string]string, root bool) *Manager {
	m := &Manager{v1: map[string]string{}}
	for _, h := range found {
		base := h.base(own, root)
		if base == "" {
			continue
		}
		parent := filepath.Join(base, home)
		if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			continue // read-only, or not ours after all: its limits are reported as missing
		}
		if h.v2 {
			if m.v2 == "" {
				m.v2 = parent
				enable(base)
				enable(parent)
			}
			continue
		}
		for _, c := range h.controllers {
			if _, ok := m.v1[c]; !ok {
				m.v1[c] = parent
			}
		}
	}
	return m
}

// enable hands controllers down. What the kernel refuses is found missing where
// a limit needs it.
func enable(dir string) {
	for _, c := range []string{"pids", "memory", "cpu"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
}

// parents are all folders that groups may be in.
func (m *Manager) parents() []string {
	out := slices.Sorted(maps.Values(m.v1))
	if m.v2 != "" {
		out = append(out, m.v2)
	}
	return slices.Compact(out)
}

// Clean ends and removes what is left of makers that are gone.
func (m *Manager) Clean() error {
	var errs []error
	for _, p := range m.parents() {
		errs = append(errs, cleanParent(p))
	}
	return errors.Join(errs...)
}

func cleanParent(parent string) error {
	lock, err := lockDir(parent, unix.LOCK_EX)
	if err != nil {
		return fmt.Errorf("clean control groups in %q: %w", parent, err)
	}
	defer lock.Close()
	list, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("clean control groups in %q: %w", parent, err)
	}
	var errs []error
	for _, e := range list {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		f, err := lockDir(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // its maker lives
		}
		err = errors.Join(killDir(dir), removeDir(dir))
		_ = f.Close()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func lockDir(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		return f, nil
	}
}
