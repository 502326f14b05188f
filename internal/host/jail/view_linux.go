package jail

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/sandboxplan"
)

// build makes the whole view of p and moves into it. It returns the descriptor
// of the sandbox's terminals, or -1 when the plan has none.
func (v *view) build(p *sandboxplan.Plan) (pts int, err error) {
	// Nothing that is mounted here from now on shows outside, nor the reverse.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, failed(errno("mount", err), "mount namespace", "detach this mount namespace from the host's")
	}
	if err := v.openTrees(p); err != nil {
		return -1, err
	}
	if err := v.makeRoot(); err != nil {
		return -1, failed(err, "private root", "make the sandbox's root")
	}
	pts = -1
	for i := range p.Mounts {
		m := p.Mounts[i]
		fd, err := v.place(p, m)
		if err != nil {
			return -1, atMount(err, m)
		}
		if m.Kind == sandboxplan.Dev {
			pts = fd
		}
	}
	for _, f := range p.Files {
		if err := v.file(f); err != nil {
			return -1, asStep(err, "synthetic file", "make file %q", f.Path)
		}
	}
	if err := v.pivot(); err != nil {
		return -1, failed(err, "pivot_root", "leave the host's root")
	}
	return pts, nil
}

func atMount(err error, m sandboxplan.Mount) error {
	return asStep(err, string(m.Kind)+" mount", "make %s %q", m.Kind, m.Target)
}

func asStep(err error, step, format string, args ...any) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return failed(err, step, format, args...)
}

// openTrees takes every source of the host before anything is in place.
func (v *view) openTrees(p *sandboxplan.Plan) error {
	for _, m := range p.Mounts {
		if m.Kind != sandboxplan.Bind {
			continue
		}
		t, err := v.cloneTree(m)
		if m.Optional && errors.Is(err, unix.ENOENT) {
			t, err = tree{mount: m, fd: -1}, nil
		}
		if err != nil {
			return err
		}
		v.trees = append(v.trees, t)
	}
	return nil
}

// makeRoot mounts the private root over the host's root folder: a place that is
// on every machine, and that nobody sees but this namespace.
func (v *view) makeRoot() error {
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC,
		[2]string{"mode", "0755"}, [2]string{"size", "8m"})
	if err != nil {
		return err
	}
	v.root = fd
	at, err := openPath("/")
	if err != nil {
		return errno("open /", err)
	}
	defer unix.Close(at)
	if err := attach(fd, at); err != nil {
		return err
	}
	return v.note(fd, false)
}

// place puts one mount of the plan where it belongs. For Dev it returns the
// descriptor of the terminals.
func (v *view) place(p *sandboxplan.Plan, m sandboxplan.Mount) (int, error) {
	switch m.Kind {
	case sandboxplan.Bind:
		return -1, v.placeTree()
	case sandboxplan.Tmpfs:
		return -1, v.placeTmpfs(p, m)
	case sandboxplan.Proc:
		return -1, v.placeProc(m.Target)
	case sandboxplan.Dev:
		return v.placeDev(p, m.Target)
	case sandboxplan.Folder:
		fd, err := v.point(m.Target, unix.S_IFDIR)
		if err == nil {
			_ = unix.Close(fd)
		}
		return -1, err
	case sandboxplan.Link:
		dir, name, err := v.parent(m.Target)
		if err != nil {
			return -1, err
		}
		defer unix.Close(dir)
		return -1, v.link(m.Source, dir, name)
	}
	return -1, fmt.Errorf("unknown kind %q", m.Kind)
}

// ours refuses a folder that is not in a file system made here.
func (v *view) ours(dir int) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return errno("fstat", err)
	}
	if !v.own[st.Dev] {
		return fmt.Errorf("nothing is made in a tree of the host: %w", unix.ENOENT)
	}
	return nil
}

func (v *view) link(to string, dir int, name string) error {
	if err := v.ours(dir); err != nil {
		return err
	}
	return errno("symlinkat", unix.Symlinkat(to, dir, name))
}

// placeTree puts the next of the trees, which are in the order of the plan.
func (v *view) placeTree() error {
	t := v.trees[0]
	v.trees = v.trees[1:]
	if t.fd < 0 {
		return nil
	}
	defer unix.Close(t.fd)
	kind := uint32(unix.S_IFREG)
	if t.dir {
		kind = unix.S_IFDIR
	}
	return v.mountAt(t.fd, t.mount.Target, kind)
}

func (v *view) mountAt(fd int, target string, kind uint32) error {
	at, err := v.point(target, kind)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return attach(fd, at)
}

func (v *view) placeTmpfs(p *sandboxplan.Plan, m sandboxplan.Mount) error {
	attrs := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if !m.Exec {
		attrs |= unix.MOUNT_ATTR_NOEXEC
	}
	size := m.SizeBytes
	if size == 0 {
		size = p.Limits.TmpBytes
	}
	mode := "0755"
	if shared(m.Target) {
		mode = "1777"
	}
	fd, err := v.tmpfs(attrs, mode, size, true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := v.mountAt(fd, m.Target, unix.S_IFDIR); err != nil {
		return err
	}
	if err := v.note(fd, true); err != nil || m.Write {
		return err
	}
	return setAttr(fd, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// shared folders are those that programs expect to be open to everybody.
func shared(target string) bool {
	return target == "/tmp" || target == "/var/tmp" || target == "/dev/shm"
}

// tmpfs makes one; size 0 is the kernel's own limit, half of the memory.
func (v *view) tmpfs(attrs int, mode string, size int64, agent bool) (int, error) {
	options := [][2]string{{"mode", mode}}
	if size > 0 {
		options = append(options, [2]string{"size", strconv.FormatInt(size, 10)})
	}
	if agent {
		options = append(options, [2]string{"uid", strconv.Itoa(v.uid)}, [2]string{"gid", strconv.Itoa(v.gid)})
	}
	return newFS("tmpfs", attrs, options...)
}

// file makes a synthetic file; the read-only root keeps it as it is.
func (v *view) file(f sandboxplan.File) error {
	dir, name, err := v.parent(f.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := v.ours(dir); err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return errno("open", err)
	}
	defer unix.Close(fd)
	for b := []byte(f.Data); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			return errno("write", err)
		}
		b = b[n:]
	}
	return nil
}
