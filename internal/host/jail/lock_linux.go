package jail

import (
	"fmt"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"agentos/internal/host/confine"
	"agentos/internal/host/seccomp"
	"agentos/internal/lib/sandboxplan"
)

// Secure bits: root means nothing special, capabilities are never kept or raised,
// and none of that can be changed. UIDs that change still lose capabilities.
const secureBits = 1<<0 | 1<<1 | // NOROOT, locked
	1<<3 | // NO_SETUID_FIXUP stays off, locked
	1<<5 | // KEEP_CAPS stays off, locked
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE, locked

// identity turns every thread into the agent: its IDs, no group besides, no
// capability in any set. Bounding set and secure bits are those of the thread that
// starts the command, which inherits them; on the others, which never execute
// anything, they mean nothing without capabilities, and a change of all threads
// costs a signal to each.
func (f *first) identity() error {
	if !f.bare() {
		if err := dropBounding(); err != nil {
			return failed(err, "capabilities", "empty the bounding set")
		}
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
			return failed(err, "capabilities", "lock the secure bits")
		}
	}
	if f.Plan.Strength == sandboxplan.Full {
		uid, gid := int(f.Plan.Identity.UID), int(f.Plan.Identity.GID)
		// The syscall package changes all threads.
		if err := syscall.Setgroups(nil); err != nil {
			return failed(err, "identity", "drop supplementary groups")
		}
		if err := syscall.Setresgid(gid, gid, gid); err != nil {
			return failed(err, "identity", "become group %d", gid)
		}
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			return failed(err, "identity", "become user %d", uid)
		}
		f.layers = append(f.layers, fmt.Sprintf("own uid %d", uid))
	}
	if _, err := confine.DropCapabilities(); err != nil {
		return failed(err, "capabilities", "empty all sets")
	}
	if err := confine.AllPrctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return failed(err, "no_new_privs", "set it")
	}
	// A change of IDs has set the system's default.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return failed(err, "not dumpable", "set it")
	}
	f.layers = append(f.layers, "no capabilities", "no_new_privs")
	return nil
}

func dropBounding() error {
	for c := uintptr(0); c < 64; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL {
			return nil // past the last capability of this kernel
		}
		if err == nil && has != 0 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
		if err != nil {
			return errno("prctl", err)
		}
	}
	return nil
}

// lock puts Landlock and the syscall filter on every thread; the command inherits
// both.
func (f *first) lock() error {
	if err := f.landlock(); err != nil {
		return err
	}
	if err := seccomp.InstallProgram(f.Filter); err != nil {
		return failed(err, "seccomp", "install the syscall filter")
	}
	// A kernel that took a filter and does not enforce it is caught here.
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT, ""); err != unix.EPERM {
		return failed(fmt.Errorf("mount returned %v", err), "seccomp", "see the filter work")
	}
	f.layers = append(f.layers, fmt.Sprintf("seccomp (%d instructions)", len(f.Filter)))
	return nil
}

const (
	lRead   = landlock.AccessFSSet(ll.AccessFSReadFile)
	lList   = landlock.AccessFSSet(ll.AccessFSReadDir)
	lExec   = landlock.AccessFSSet(ll.AccessFSExecute)
	lWrite  = landlock.AccessFSSet(ll.AccessFSWriteFile)
	lTrunc  = landlock.AccessFSSet(ll.AccessFSTruncate)
	lIoctl  = landlock.AccessFSSet(ll.AccessFSIoctlDev)
	lDevice = lRead | lWrite | lIoctl
)

// landlock repeats the plan's mounts as rules, and closes the domain for signals
// and abstract sockets. Agents that make sandboxes of their own get the second
// only: Landlock refuses every mount to a process whose files it rules.
func (f *first) landlock() error {
	cfg := confine.LandlockConfig(f.Landlock)
	if !f.bare() {
		cfg.HandledAccessNet = 0 // the network namespace has nobody but itself
	}
	if f.Plan.Nested {
		cfg.HandledAccessFS = 0
	}
	var rules []landlock.Rule
	if !f.Plan.Nested {
		var err error
		if rules, err = f.rules(cfg.HandledAccessFS); err != nil {
			return err
		}
	}
	if f.Plan.Nested && f.Landlock < 6 {
		f.layers = append(f.layers, "no landlock (nested sandboxes, ABI below 6)")
		return nil
	}
	if err := cfg.Restrict(rules...); err != nil {
		return failed(err, "landlock", "restrict files")
	}
	what := fmt.Sprintf("landlock (ABI %d", f.Landlock)
	if f.Plan.Nested {
		what += ", scopes only: nested sandboxes"
	}
	f.layers = append(f.layers, what+")")
	return nil
}

// rules are the mounts of the plan; handled is what this kernel can refuse.
func (f *first) rules(handled landlock.AccessFSSet) ([]landlock.Rule, error) {
	var out []landlock.Rule
	grant := func(p string, access landlock.AccessFSSet) error {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return failed(err, "landlock", "look at %q", p)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			access &= lRead | lExec | lWrite | lTrunc | lIoctl | landlock.AccessFSSet(ll.AccessFSResolveUnix)
		}
		out = append(out, landlock.PathAccess(access&handled, p))
		return nil
	}
	if !f.bare() {
		if err := grant("/", lList|lRead); err != nil { // links, files and folders of the private root
			return nil, err
		}
	}
	for _, m := range f.Plan.Mounts {
		if err := f.grantMount(m, handled, grant); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f *first) grantMount(m sandboxplan.Mount, handled landlock.AccessFSSet, grant func(string, landlock.AccessFSSet) error) error {
	access := lRead | lList
	if m.Exec {
		access |= lExec
	}
	if m.Write {
		access |= handled &^ (lExec | lIoctl)
	}
	switch m.Kind {
	case sandboxplan.Bind:
		if err := unix.Access(m.Target, unix.F_OK); m.Optional && err == unix.ENOENT {
			return nil
		}
		return grant(m.Target, access|landlock.AccessFSSet(ll.AccessFSResolveUnix))
	case sandboxplan.Tmpfs:
		return grant(m.Target, access|landlock.AccessFSSet(ll.AccessFSResolveUnix))
	case sandboxplan.Proc:
		return grant(m.Target, lRead|lList|lWrite|lTrunc)
	case sandboxplan.Dev:
		for _, d := range devices() {
			if err := grant(m.Target+"/"+d.name, lDevice|lTrunc); err != nil {
				return err
			}
		}
		if f.bare() {
			return nil // terminals and shared memory there are the host's
		}
		if err := grant(m.Target+"/pts", lDevice|lList|lTrunc); err != nil {
			return err
		}
		return grant(m.Target+"/shm", handled&^(lExec|lIoctl))
	}
	return nil
}
