package jail

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/sandboxplan"
)

// device is a node of the host that a sandbox sees.
type device struct {
	name         string
	major, minor uint32
}

// devices are harmless to everybody who may open them. Spec: C-10.
func devices() []device {
	return []device{
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
	}
}

// openDevice opens the host's node d for naming and holds it against its number:
// a file that somebody put in its place is refused.
func openDevice(d device) (int, error) {
	p := "/dev/" + d.name
	fd, err := openPath(p)
	if err != nil {
		return -1, fmt.Errorf("open %q: %w", p, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("stat %q: %w", p, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != d.major || unix.Minor(st.Rdev) != d.minor {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("%q is not device %d:%d", p, d.major, d.minor)
	}
	return fd, nil
}

// placeDev makes a minimal /dev at target: nodes of the host by bind mount, own
// terminals, own shared memory. It returns the terminals' descriptor.
func (v *view) placeDev(p *sandboxplan.Plan, target string) (int, error) {
	dev, err := v.tmpfs(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "0755", 1<<20, false)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dev)
	if err := v.mountAt(dev, target, unix.S_IFDIR); err != nil {
		return -1, err
	}
	if err := v.note(dev, false); err != nil {
		return -1, err
	}
	for _, d := range devices() {
		if err := v.placeDevice(d, path.Join(target, d.name)); err != nil {
			return -1, err
		}
	}
	pts, err := newFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		[2]string{"newinstance", ""}, [2]string{"ptmxmode", "0666"}, [2]string{"mode", "0620"})
	if err != nil {
		return -1, err
	}
	if err := v.mountAt(pts, path.Join(target, "pts"), unix.S_IFDIR); err != nil {
		return -1, err
	}
	shm, err := v.tmpfs(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "1777", p.Limits.TmpBytes, true)
	if err != nil {
		return -1, err
	}
	defer unix.Close(shm)
	if err := v.mountAt(shm, path.Join(target, "shm"), unix.S_IFDIR); err != nil {
		return -1, err
	}
	for _, l := range [][2]string{
		{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
	} {
		if err := unix.Symlinkat(l[0], dev, l[1]); err != nil {
			return -1, errno("symlinkat", err)
		}
	}
	return pts, setAttr(dev, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

func (v *view) placeDevice(d device, target string) error {
	src, err := openDevice(d)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	fd, err := unix.OpenTree(src, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return errno("open_tree /dev/"+d.name, err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := setAttr(fd, 0, &attr); err != nil {
		return err
	}
	return v.mountAt(fd, target, unix.S_IFREG)
}

// masked are entries of /proc that tell of the host or act on it: covered by an
// empty file or folder that nobody may open. Spec: C-10.
func masked() []string {
	return []string{
		"kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "sched_debug", "kallsyms",
		"kmsg", "kpagecount", "kpageflags", "kpagecgroup", "latency_stats", "vmallocinfo",
		"slabinfo", "pagetypeinfo", "modules", "iomem", "ioports", "mtrr", "interrupts", "softirqs",
		"acpi", "scsi", "asound", "bus", "fs", "irq", "driver", "tty", "dynamic_debug", "pressure",
	}
}

// placeProc mounts this PID namespace's own /proc. It hides processes that the
// agent can't inspect (the first one); what concerns the machine is covered, and
// sys is read only. Files elsewhere in it belong to processes.
func (v *view) placeProc(target string) error {
	proc, err := newFS("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, [2]string{"hidepid", "invisible"})
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	if err := v.mountAt(proc, target, unix.S_IFDIR); err != nil {
		return err
	}
	if err := v.readOnly(proc, "sys"); err != nil {
		return err
	}
	return v.covers(proc)
}

// readOnly mounts an entry of proc over itself.
func (v *view) readOnly(proc int, name string) error {
	at, err := unix.Openat(proc, name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return errno("open", err)
	}
	defer unix.Close(at)
	return bindOver(at, at)
}

// bindOver covers at with a read-only mount of src.
func bindOver(src, at int) error {
	fd, err := unix.OpenTree(src, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return errno("open_tree", err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := setAttr(fd, 0, &attr); err != nil {
		return err
	}
	return attach(fd, at)
}

// covers makes an empty file and an empty folder without any permission in the
// private root, and takes their names away once they cover what they have to.
func (v *view) covers(proc int) error {
	const file, dir = ".file", ".folder" // seen by nobody: the agent does not exist yet
	if err := unix.Mknodat(v.root, file, unix.S_IFREG, 0); err != nil {
		return errno("mknodat", err)
	}
	if err := unix.Mkdirat(v.root, dir, 0); err != nil {
		return errno("mkdirat", err)
	}
	f, err := unix.Openat(v.root, file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errno("open", err)
	}
	defer unix.Close(f)
	d, err := unix.Openat(v.root, dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errno("open", err)
	}
	defer unix.Close(d)
	for _, name := range masked() {
		if err := v.cover(proc, name, f, d); err != nil {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	if err := unix.Unlinkat(v.root, file, 0); err != nil {
		return errno("unlinkat", err)
	}
	return errno("unlinkat", unix.Unlinkat(v.root, dir, unix.AT_REMOVEDIR))
}

// cover hides one entry of proc; kernels that don't have it have nothing to hide.
// A file without any right for others is the host's root's alone, which no agent
// is, and needs no cover: each costs 0.1 ms.
func (v *view) cover(proc int, name string, file, dir int) error {
	at, err := unix.Openat(proc, name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return errno("open", err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return errno("fstat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return bindOver(dir, at)
	}
	if st.Mode&0o007 == 0 && int(st.Uid) != v.uid {
		return nil
	}
	return bindOver(file, at)
}
