package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// overhead is what the first process of a sandbox needs beside the command.
const overhead = 16 // threads

// Group is one sandbox's set. Its methods are safe for concurrent use, except
// that Remove comes last.
type Group struct {
	paths []string   // of the groups, version 2 first
	locks []*os.File // they say that the maker lives
	dir   *os.File   // on version 2, where processes are
	v1    []string
}

// New makes the groups of a run. missing names the limits that nothing here
// enforces. After an error nothing is left.
func (m *Manager) New(run string, l Limits) (g *Group, missing []string, err error) {
	if run == "" || strings.ContainsAny(run, "/\x00") || run == "." || run == ".." {
		return nil, nil, fmt.Errorf("make control groups: run %q is no name", run)
	}
	g = &Group{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Remove())
			g = nil
		}
	}()
	v2 := ""
	if m.v2 != "" {
		if v2, err = g.make(m.v2, run); err != nil {
			return g, nil, err
		}
		// One folder deeper: a nested sandbox may mount its own group, which is
		// its user's, and must not find its limits there.
		box := filepath.Join(v2, inner)
		if err := os.Mkdir(box, 0o755); err != nil {
			return g, nil, fmt.Errorf("make control group: %w", err)
		}
		if g.dir, err = os.Open(box); err != nil {
			return g, nil, fmt.Errorf("open control group: %w", err)
		}
	}
	for _, r := range l.rules() {
		ok, err := g.limit(m, v2, run, r)
		if err != nil {
			return g, nil, err
		}
		if !ok {
			missing = append(missing, r.controller)
		}
	}
	if v2 == "" && m.v1["freezer"] != "" {
		if _, err := g.v1Group(m, "freezer", run); err != nil {
			return g, nil, err
		}
	}
	return g, missing, nil
}

// rule is a limit in both versions' words: file, value.
type rule struct {
	controller string
	v2, v1     [][2]string // the first is needed, others where they exist
}

func (l Limits) rules() []rule {
	var out []rule
	if l.PIDs > 0 {
		n := strconv.FormatInt(l.PIDs+overhead, 10)
		out = append(out, rule{"pids", [][2]string{{"pids.max", n}}, [][2]string{{"pids.max", n}}})
	}
	if l.MemoryBytes > 0 {
		n := strconv.FormatInt(l.MemoryBytes, 10)
		out = append(out, rule{"memory", [][2]string{{"memory.max", n}, {"memory.swap.max", "0"}},
			[][2]string{{"memory.limit_in_bytes", n}, {"memory.memsw.limit_in_bytes", n}}})
	}
	if l.CPUPercent > 0 {
		const period = 100_000 // microseconds, the kernel's own default
		n := strconv.FormatInt(l.CPUPercent*period/100, 10)
		out = append(out, rule{"cpu", [][2]string{{"cpu.max", n + " " + strconv.Itoa(period)}},
			[][2]string{{"cpu.cfs_quota_us", n}}})
	}
	return out
}

// limit sets r in whichever version has its controller; false when none has.
func (g *Group) limit(m *Manager, v2, run string, r rule) (bool, error) {
	if v2 != "" {
		if ok, err := set(v2, r.v2); ok || err != nil {
			return ok, err
		}
	}
	if m.v1[r.controller] == "" {
		return false, nil
	}
	dir, err := g.v1Group(m, r.controller, run)
	if err != nil {
		return false, err
	}
	return set(dir, r.v1)
}

// set writes values; false when the first file is not there.
func set(dir string, values [][2]string) (bool, error) {
	for i, v := range values {
		err := write(filepath.Join(dir, v[0]), v[1])
		if errors.Is(err, os.ErrNotExist) {
			if i == 0 {
				return false, nil
			}
			continue
		}
		if err != nil {
			return false, fmt.Errorf("set limit: %w", err)
		}
	}
	return true, nil
}

// write writes to a file that is there.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// v1Group makes the run's group in controller's hierarchy, once when several
// controllers share it.
func (g *Group) v1Group(m *Manager, controller, run string) (string, error) {
	dir := filepath.Join(m.v1[controller], prefix+run)
	if slices.Contains(g.v1, dir) {
		return dir, nil
	}
	if _, err := g.make(m.v1[controller], run); err != nil {
		return "", err
	}
	g.v1 = append(g.v1, dir)
	return dir, nil
}

func (g *Group) make(parent, run string) (string, error) {
	lock, err := lockDir(parent, unix.LOCK_EX) // nobody cleans before it is marked
	if err != nil {
		return "", fmt.Errorf("make control group: %w", err)
	}
	defer lock.Close()
	dir := filepath.Join(parent, prefix+run)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make control group: %w", err)
	}
	g.paths = append(g.paths, dir)
	mark, err := lockDir(dir, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return "", fmt.Errorf("mark control group %q: %w", dir, err)
	}
	g.locks = append(g.locks, mark)
	return dir, nil
}

// Paths are the group's folders.
func (g *Group) Paths() []string { return g.paths }

// Dir is the folder to start the first process in (CLONE_INTO_CGROUP), or nil.
func (g *Group) Dir() *os.File { return g.dir }

// Add moves a process, which must have no child yet, into the groups of version
// 1. A process that was started in Dir needs nothing for version 2.
func (g *Group) Add(pid int) error {
	for _, dir := range g.v1 {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d: %w", pid, err)
		}
	}
	return nil
}

// Kill ends every process in the group, whatever it forks meanwhile. Without
// version 2 and without the freezer controller a process that forks fast may
// escape: then the PID namespace has to end it.
func (g *Group) Kill() error {
	paths := g.paths
	if g.dir != nil {
		paths = paths[:1] // version 2 has them all
	} else if i := slices.IndexFunc(paths, hasFreezer); i >= 0 {
		paths = paths[i : i+1]
	}
	var errs []error
	for _, dir := range paths {
		errs = append(errs, killDir(dir))
	}
	return errors.Join(errs...)
}

func hasFreezer(dir string) bool {
	return unix.Access(filepath.Join(dir, "freezer.state"), unix.W_OK) == nil
}

// killDir kills by the kernel's own switch, else frozen, so that nothing forks.
func killDir(dir string) error {
	err := write(filepath.Join(dir, "cgroup.kill"), "1")
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, f := range [][3]string{{"cgroup.freeze", "1", "0"}, {"freezer.state", "FROZEN", "THAWED"}} {
		err := write(filepath.Join(dir, f[0]), f[1])
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return errors.Join(signalAll(dir), write(filepath.Join(dir, f[0]), f[2]))
	}
	return signalAll(dir) // a hierarchy that can't: beside the others, which can
}

// signalAll kills the processes of dir and of the groups below it.
func signalAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // a group that is gone by now
		}
		if d.IsDir() || d.Name() != "cgroup.procs" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, s := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(s); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		return nil
	})
}

// Remove takes the groups away; everything in them must have been killed. It
// waits a second for the kernel to let go.
func (g *Group) Remove() error {
	var errs []error
	if g.dir != nil {
		_ = g.dir.Close()
	}
	for _, dir := range g.paths {
		errs = append(errs, removeDir(dir))
	}
	for _, f := range g.locks {
		_ = f.Close()
	}
	return errors.Join(errs...)
}

func removeDir(dir string) error {
	var err error
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		if err = removeAll(dir); err == nil || !errors.Is(err, unix.EBUSY) {
			break
		}
		<-time.After(wait)
	}
	if err != nil {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}

// removeAll removes the groups below dir first; their files go by themselves.
func removeAll(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if e.IsDir() {
			if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("%q: %w", dir, err)
	}
	return nil
}
