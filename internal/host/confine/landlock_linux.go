package confine

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// configs are the full sets of each ABI; index is the ABI minus one. The
// library's best effort is never used: it enforces less without saying so.
var configs = []landlock.Config{
	landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6,
	landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
}

// gaps lists what an ABI below `abi` doesn't enforce and what stands in for it.
var gaps = []struct {
	abi  int
	what string
}{
	{3, "file truncation (the file size limit and the syscall filter cover it)"},
	{4, "tcp (the syscall filter allows no socket)"},
	{5, "ioctl on devices (the syscall filter covers it)"},
	{6, "signals and abstract unix sockets outside (the syscall filter covers them)"},
	{9, "pathname unix sockets (the syscall filter allows no socket)"},
	{10, "udp (the syscall filter allows no socket)"},
}

// LandlockConfig is everything that abi, at least 1, can restrict.
func LandlockConfig(abi int) landlock.Config { return configs[min(abi, len(configs))-1] }

const (
	readFile = landlock.AccessFSSet(ll.AccessFSReadFile)
	readDir  = landlock.AccessFSSet(ll.AccessFSReadDir)
	execFile = landlock.AccessFSSet(ll.AccessFSExecute)
	writeDev = landlock.AccessFSSet(ll.AccessFSWriteFile)
)

// LandlockABI is the kernel's ABI, or 0. An ABI of 6 or 7 without the fix of
// signal scoping (erratum 2) counts as 5: with it, Go's own threads could not
// signal each other.
func LandlockABI() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	if v >= 6 {
		if e, err := ll.LandlockGetErrata(); err != nil || e&2 == 0 {
			v = 5
		}
	}
	return v
}

// restrictFiles puts all threads into a Landlock domain with exactly the rights
// of p, at the full set of the kernel's ABI.
func restrictFiles(p Plan, r *Report) error {
	abi := LandlockABI()
	if abi == 0 {
		if !p.AllowNoLandlock {
			return fmt.Errorf("%w: enable CONFIG_SECURITY_LANDLOCK and add landlock to lsm=", ErrLandlock)
		}
		r.NotEnforced = append(r.NotEnforced, "file access by path (no landlock: only file permissions)")
		return nil
	}
	r.LandlockABI = abi
	for _, g := range gaps {
		if abi < g.abi {
			r.NotEnforced = append(r.NotEnforced, g.what)
		}
	}
	rules, err := fileRules(p, r)
	if err != nil {
		return err
	}
	cfg := LandlockConfig(abi)
	if err := cfg.Restrict(rules...); err != nil {
		return fmt.Errorf("%w: %w", ErrLandlock, err)
	}
	return nil
}

func fileRules(p Plan, r *Report) ([]landlock.Rule, error) {
	read := append([]string(nil), p.Read...)
	if p.Procs {
		read = append(read, "/proc")
	}
	var rules []landlock.Rule
	if p.Profile == ToolExec {
		// What every dynamically linked child and os/exec itself needs.
		read = append(read, "/etc/ld.so.cache")
		rules = append(rules, landlock.PathAccess(readFile|writeDev, "/dev/null"))
	}
	for _, list := range []struct {
		paths []string
		files landlock.AccessFSSet
	}{{read, readFile}, {p.Exec, readFile | execFile}} {
		for _, path := range list.paths {
			dir, err := r.pin(path)
			if errors.Is(err, unix.ENOENT) {
				r.Missing = append(r.Missing, path)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("open path %q: %w", path, err)
			}
			access := list.files
			if dir {
				access |= readDir
			}
			rules = append(rules, landlock.PathAccess(access, path))
		}
	}
	return rules, nil
}

// pin opens path for naming only and keeps it open until the process ends.
func (r *Report) pin(path string) (dir bool, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return false, err
	}
	r.paths = append(r.paths, fd)
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}
