package confine

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// defaultOpenFiles bounds descriptor numbers when the plan doesn't.
const defaultOpenFiles = 128

// AllPrctl is prctl on every thread of the process.
func AllPrctl(option int, arg uintptr) error {
	return ll.AllThreadsPrctl(option, arg, 0, 0, 0)
}

// checkNonRoot refuses any real, effective or saved ID 0, and group 0 among the
// supplementary groups.
func checkNonRoot() error {
	ru, eu, su := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read supplementary groups: %w", err)
	}
	if ru == 0 || eu == 0 || su == 0 {
		return fmt.Errorf("%w: uid real %d, effective %d, saved %d", ErrRoot, ru, eu, su)
	}
	if rg == 0 || eg == 0 || sg == 0 || slices.Contains(groups, 0) {
		return fmt.Errorf("%w: gid real %d, effective %d, saved %d, groups %v", ErrRoot, rg, eg, sg, groups)
	}
	return nil
}

// DropCapabilities empties every set on all threads, and the bounding set where
// the process may; without CAP_SETPCAP no_new_privs makes it meaningless.
func DropCapabilities() (bounding bool, err error) {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	if err := unix.Capget(hdr, &data[0]); err != nil {
		return false, fmt.Errorf("read capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		if err := dropBounding(); err != nil {
			return false, err
		}
		bounding = true
	}
	// Kernels before 4.3 have no ambient set: nothing to clear.
	if err := AllPrctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil && !errors.Is(err, unix.EINVAL) {
		return false, fmt.Errorf("clear ambient capabilities: %w", err)
	}
	*data = [2]unix.CapUserData{}
	_, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(data)), 0)
	if e != 0 {
		return false, fmt.Errorf("drop capabilities: %w", e)
	}
	if err := unix.Capget(hdr, &data[0]); err != nil {
		return false, fmt.Errorf("read capabilities: %w", err)
	}
	if *data != ([2]unix.CapUserData{}) {
		return false, errors.New("drop capabilities: some remain")
	}
	return bounding, nil
}

func dropBounding() error {
	for c := 0; c < 64; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // past the last capability of this kernel
		}
		if err != nil {
			return fmt.Errorf("read bounding capability %d: %w", c, err)
		}
		if has == 0 {
			continue
		}
		if err := AllPrctl(unix.PR_CAPBSET_DROP, uintptr(c)); err != nil {
			return fmt.Errorf("drop bounding capability %d: %w", c, err)
		}
	}
	return nil
}

// limit sets hard limits: no core (it would hold what the process read), no
// growth of any regular file, few descriptors. A limit of processes would count
// all threads of a shared user, so it is left to control groups.
func limit(files uint64) error {
	if files == 0 {
		files = defaultOpenFiles
	}
	var cur unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &cur); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	files = min(files, cur.Max)
	for _, l := range []struct {
		name string
		res  int
		max  uint64
	}{
		{"core size", unix.RLIMIT_CORE, 0},
		{"file size", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, files},
	} {
		if err := unix.Prlimit(0, l.res, &unix.Rlimit{Cur: l.max, Max: l.max}, nil); err != nil {
			return fmt.Errorf("limit %s to %d: %w", l.name, l.max, err)
		}
	}
	return nil
}
