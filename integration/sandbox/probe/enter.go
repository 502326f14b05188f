//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"agentos/integration/sandbox/attempt"
)

// enter puts on some of the layers of a sandbox that runs, and not the others,
// so that each can be seen at work alone or missing. The namespaces, groups and
// limits, and its syscall filters, are those of the sandbox itself; identity and
// Landlock are made as the product makes them. It must be root.
func enter(spec string, argv []string) error {
	var s attempt.Layers
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	lockThread()
	if s.Inside {
		return lockAndRun(s, argv)
	}
	if s.Has("cgroup") {
		if err := joinGroups(s.PID); err != nil {
			return err
		}
	}
	if s.Has("rlimit") {
		var err error
		if s.Limits, err = limitsOf(s.PID); err != nil {
			return err
		}
	}
	if s.Has("seccomp") {
		var err error
		if s.Filters, err = filtersOf(s.PID); err != nil {
			return err
		}
	}
	if err := joinNamespaces(s); err != nil {
		return err
	}
	s.Inside = true
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// A child, because a PID namespace counts for children only.
	c := exec.Command(s.Probe, append([]string{"enter", string(b)}, argv...)...)
	c.Dir, c.Env = "/", []string{"PATH=/usr/bin:/bin", "TMPDIR=/tmp"}
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}

// filtersOf copies the syscall filters of a process, newest first, as a checkpoint
// would.
func filtersOf(pid int) (out [][]byte, err error) {
	const getFilter, size = 0x420c, 8
	ptrace := func(request, addr, data uintptr) (int, error) {
		n, _, e := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(pid), addr, data, 0, 0)
		if e != 0 {
			return 0, e
		}
		return int(n), nil
	}
	if _, err := ptrace(unix.PTRACE_SEIZE, 0, 0); err != nil {
		return nil, fmt.Errorf("seize %d: %w", pid, err)
	}
	if _, err := ptrace(unix.PTRACE_INTERRUPT, 0, 0); err != nil {
		return nil, fmt.Errorf("interrupt %d: %w", pid, err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return nil, fmt.Errorf("wait for %d: %w", pid, err)
	}
	defer func() {
		_, e := ptrace(unix.PTRACE_DETACH, 0, 0)
		err = errors.Join(err, e)
	}()
	for i := uintptr(0); ; i++ {
		n, err := ptrace(getFilter, i, 0)
		if err == unix.ENOENT && len(out) > 0 {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read filter %d: %w", i, err)
		}
		b := make([]byte, n*size)
		if _, err := ptrace(getFilter, i, uintptr(unsafe.Pointer(&b[0]))); err != nil {
			return nil, fmt.Errorf("read filter %d: %w", i, err)
		}
		out = append(out, b)
	}
}

// install puts a filter on every thread.
func install(f []byte) error {
	prog := &unix.SockFprog{Len: uint16(len(f) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&f[0]))}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(prog)))
	if e != 0 {
		return fmt.Errorf("install filter: %w", e)
	}
	return nil
}

// limitsOf reads the limits of a process; asking by call needs a capability that
// not every root has.
func limitsOf(pid int) (map[int][2]uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil, err
	}
	out := map[int][2]uint64{}
	for name, r := range map[string]int{
		"Max core file size": unix.RLIMIT_CORE, "Max open files": unix.RLIMIT_NOFILE, "Max file size": unix.RLIMIT_FSIZE,
		"Max processes": unix.RLIMIT_NPROC, "Max realtime priority": unix.RLIMIT_RTPRIO, "Max nice priority": unix.RLIMIT_NICE,
		"Max locked memory": unix.RLIMIT_MEMLOCK, "Max msgqueue size": unix.RLIMIT_MSGQUEUE,
	} {
		_, rest, ok := strings.Cut(string(b), "\n"+name)
		f := strings.Fields(rest)
		if !ok || len(f) < 2 {
			return nil, fmt.Errorf("no limit %q of process %d", name, pid)
		}
		var l [2]uint64
		for i := range l {
			if l[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
				l[i] = unix.RLIM_INFINITY
			}
		}
		out[r] = l
	}
	return out, nil
}

// joinGroups follows the sandbox into its control groups of either version.
func joinGroups(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[2] == "/" {
			continue
		}
		roots := []string{"/sys/fs/cgroup/" + strings.TrimPrefix(f[1], "name="), "/sys/fs/cgroup/unified", "/sys/fs/cgroup"}
		if f[1] == "" {
			roots = roots[1:]
		}
		for _, root := range roots {
			err = os.WriteFile(filepath.Join(root, f[2], "cgroup.procs"), []byte("0"), 0)
			if err == nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("join group %s: %w", f[2], err)
		}
	}
	return nil
}

func joinNamespaces(s attempt.Layers) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	kinds := []struct{ layer, file string }{
		{"ipc namespace", "ipc"}, {"net namespace", "net"}, {"pid namespace", "pid"}, {"uts namespace", "uts"}, {"mount view", "mnt"},
	}
	fds := map[string]int{}
	for _, k := range kinds {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", s.PID, k.file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		fds[k.layer] = fd
	}
	for _, k := range kinds {
		if !s.Has(k.layer) {
			continue
		}
		if err := unix.Setns(fds[k.layer], 0); err != nil {
			return fmt.Errorf("join %s: %w", k.layer, err)
		}
	}
	// Private copies, so that what works harms neither the host nor the sandbox.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if !s.Has("uts namespace") {
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
	}
	return nil
}

// lockAndRun is the second part, in the namespaces.
func lockAndRun(s attempt.Layers, argv []string) error {
	if err := procfs(s); err != nil {
		return err
	}
	for r, l := range s.Limits {
		if err := unix.Setrlimit(r, &unix.Rlimit{Cur: l[0], Max: l[1]}); err != nil {
			return fmt.Errorf("setrlimit %d: %w", r, err)
		}
	}
	if !s.Has("mount view") { // a mount to make writable again
		sub := s.Workspace + "/sub"
		if err := unix.Mount(sub, sub, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		if err := unix.Mount("", sub, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("remount: %w", err)
		}
	}
	if s.Has("no_new_privs") {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := os.Chdir(s.Workspace); err != nil {
		return err
	}
	if s.Has("landlock") {
		if err := restrict(s); err != nil {
			return err
		}
	}
	if s.Has("seccomp") {
		for _, f := range slices.Backward(s.Filters) {
			if err := install(f); err != nil {
				return err
			}
		}
	}
	if err := identity(s); err != nil {
		return err
	}
	return syscall.Exec(s.Probe, append([]string{"probe"}, argv...), os.Environ())
}

// procfs gives a process whose view and PID namespace are of different worlds the
// /proc of its own, with what the view hides.
func procfs(s attempt.Layers) error {
	view := s.Has("mount view")
	if view == s.Has("pid namespace") {
		return nil
	}
	options := ""
	if view {
		options = "hidepid=invisible"
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if !view {
		return nil
	}
	for _, name := range []string{"keys", "kallsyms", "kmsg", "kcore", "sysrq-trigger"} {
		if err := unix.Mount("/dev/null", "/proc/"+name, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// restrict is what Landlock adds to the view: where to write and execute, and
// whom to signal and connect to.
func restrict(s attempt.Layers) error {
	read := landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSReadDir)
	cfg := landlock.V6
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < 6 {
		return fmt.Errorf("landlock ABI %d: %w", abi, errors.Join(err, unix.EOPNOTSUPP))
	}
	cfg.HandledAccessNet = 0
	all := cfg.HandledAccessFS
	rules := []landlock.Rule{landlock.PathAccess(read, "/")}
	for _, g := range []struct {
		access landlock.AccessFSSet
		paths  []string
	}{
		{all &^ landlock.AccessFSSet(ll.AccessFSIoctlDev), []string{s.Workspace}},
		{all &^ landlock.AccessFSSet(ll.AccessFSIoctlDev|ll.AccessFSExecute), []string{"/dev/shm"}},
		{all &^ landlock.AccessFSSet(ll.AccessFSIoctlDev), []string{"/tmp", "/var/tmp"}},
		{read | landlock.AccessFSSet(ll.AccessFSExecute), []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", s.ReadOnly}},
		{read | landlock.AccessFSSet(ll.AccessFSWriteFile|ll.AccessFSTruncate), []string{"/proc"}},
		{read | landlock.AccessFSSet(ll.AccessFSWriteFile|ll.AccessFSTruncate|ll.AccessFSIoctlDev), []string{"/dev/pts"}},
	} {
		for _, p := range g.paths {
			if _, err := os.Stat(p); err == nil {
				rules = append(rules, landlock.PathAccess(g.access, p))
			}
		}
	}
	dev := landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSIoctlDev | ll.AccessFSTruncate)
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		rules = append(rules, landlock.PathAccess(dev, "/dev/"+d))
	}
	return cfg.Restrict(rules...)
}

// identity takes the agent's IDs, or gives up capabilities, or both; only of this
// thread, which is the one that becomes the attempt.
func identity(s attempt.Layers) error {
	caps := s.Has("capabilities")
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&h, &have[0]); err != nil {
		return err
	}
	if caps && s.Has("bounding set") {
		if err := dropBounding(); err != nil {
			return err
		}
	}
	if caps {
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, 3, 0, 0, 0); err != nil { // root is nobody special
			return fmt.Errorf("secure bits: %w", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	if s.Has("uid") {
		uid := uintptr(s.UID)
		for _, call := range [][2]uintptr{{unix.SYS_SETGROUPS, 0}, {unix.SYS_SETRESGID, uid}, {unix.SYS_SETRESUID, uid}} {
			a := call[1]
			if call[0] == unix.SYS_SETGROUPS {
				a = 0
			}
			if _, _, e := unix.RawSyscall(call[0], a, a, a); e != 0 {
				return fmt.Errorf("change identity: %w", e)
			}
		}
	}
	if caps {
		var none [2]unix.CapUserData
		return unix.Capset(&h, &none[0])
	}
	for i := range have {
		have[i].Effective, have[i].Inheritable = have[i].Permitted, have[i].Permitted
	}
	if err := unix.Capset(&h, &have[0]); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	for c := range 64 {
		if have[c/32].Permitted&(1<<(c%32)) != 0 {
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
				return fmt.Errorf("keep capability %d: %w", c, err)
			}
		}
	}
	if s.Has("bounding set") { // last: what is to be kept has to be in it first
		return dropBounding()
	}
	return nil
}

func dropBounding() error {
	for c := range 64 {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && has == 1 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
				return fmt.Errorf("drop capability %d: %w", c, err)
			}
		}
	}
	return nil
}
