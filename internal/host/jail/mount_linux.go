package jail

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/sandboxplan"
)

// view is the sandbox's root while it is built, from descriptors only: no path of
// the host is resolved after its source was opened.
type view struct {
	root  int             // the private root
	own   map[uint64]bool // devices of file systems that were made here: points may be created in them
	agent map[uint64]bool // of those, the agent's own
	uid   int
	gid   int
	users int // user namespace that maps the owner to the agent, or -1
	trees []tree
}

// tree is a detached mount, waiting for its place.
type tree struct {
	mount sandboxplan.Mount
	fd    int
	dir   bool
}

const openSource = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openPath opens a path of the host for naming, following no link.
func openPath(p string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: openSource})
}

// cloneTree opens m's source and detaches a copy of what is mounted there, with
// the attributes that m asks for.
func (v *view) cloneTree(m sandboxplan.Mount) (tree, error) {
	src, err := openPath(m.Source)
	if err != nil {
		return tree{}, failed(err, "open source", "open %q", m.Source)
	}
	defer unix.Close(src)
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return tree{}, failed(err, "open source", "stat %q", m.Source)
	}
	fd, err := unix.OpenTree(src, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, failed(errno("open_tree", err), "bind mount", "take a copy of the mount at %q", m.Source)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if !m.Write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if !m.Exec {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	if err := setAttr(fd, unix.AT_RECURSIVE, &attr); err != nil {
		_ = unix.Close(fd)
		return tree{}, failed(err, "bind mount", "limit the mount of %q", m.Source)
	}
	if m.Owned && v.users >= 0 {
		idmap := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(v.users)}
		if err := setAttr(fd, unix.AT_RECURSIVE, &idmap); err != nil {
			_ = unix.Close(fd)
			return tree{}, v.noIdmap(err, m.Source)
		}
	}
	return tree{m, fd, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

func (v *view) noIdmap(err error, source string) error {
	e := failed(err, "idmapped mount", "map the owner of the files below %q (file system %s)", source, fsName(source))
	e.Err.Next = "put the folder on ext4, xfs, btrfs or tmpfs, or run with --strength rootless"
	return e
}

func setAttr(fd int, flags uint, attr *unix.MountAttr) error {
	return errno("mount_setattr", unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, attr))
}

// newFS makes a detached file system of the given type.
func newFS(kind string, attrs int, options ...[2]string) (int, error) {
	ctx, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, errno("fsopen "+kind, err)
	}
	defer unix.Close(ctx)
	for _, o := range options {
		err := unix.FsconfigSetString(ctx, o[0], o[1])
		if o[1] == "" {
			err = unix.FsconfigSetFlag(ctx, o[0])
		}
		if err != nil {
			return -1, errno("fsconfig "+kind+" "+o[0]+"="+o[1], err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, errno("fsconfig "+kind, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	return fd, errno("fsmount "+kind, err)
}

// attach moves the detached mount fd onto the place at.
func attach(fd, at int) error {
	return errno("move_mount", unix.MoveMount(fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// note remembers that a file system was made here.
func (v *view) note(fd int, agent bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errno("fstat", err)
	}
	v.own[st.Dev] = true
	v.agent[st.Dev] = agent
	return nil
}

// point opens the place target for naming, and makes it, and the folders above
// it, where they are missing and lie in a file system that was made here: the
// host's own trees are never written. kind is S_IFDIR or S_IFREG.
func (v *view) point(target string, kind uint32) (int, error) {
	cur, err := unix.FcntlInt(uintptr(v.root), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, errno("dup", err)
	}
	parts := strings.Split(strings.TrimPrefix(target, "/"), "/")
	for i, name := range parts {
		want := uint32(unix.S_IFDIR)
		if i == len(parts)-1 {
			want = kind
		}
		next, err := v.step(cur, name, want)
		_ = unix.Close(cur)
		if err != nil {
			return -1, fmt.Errorf("%q: %w", "/"+path.Join(parts[:i+1]...), err)
		}
		cur = next
	}
	return cur, nil
}

var how = unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
	Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}

func (v *view) step(dir int, name string, kind uint32) (int, error) {
	fd, err := unix.Openat2(dir, name, &how)
	if errors.Is(err, unix.ENOENT) {
		if err := v.create(dir, name, kind); err != nil {
			return -1, err
		}
		fd, err = unix.Openat2(dir, name, &how)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if (st.Mode&unix.S_IFMT == unix.S_IFDIR) != (kind == unix.S_IFDIR) {
		_ = unix.Close(fd)
		return -1, unix.ENOTDIR
	}
	return fd, nil
}

// create makes name in dir if that is one of our own file systems.
func (v *view) create(dir int, name string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if !v.own[st.Dev] {
		return fmt.Errorf("nothing is made in a tree of the host: %w", unix.ENOENT)
	}
	if kind == unix.S_IFDIR {
		if err := unix.Mkdirat(dir, name, 0o755); err != nil {
			return err
		}
	} else if err := unix.Mknodat(dir, name, unix.S_IFREG|0o444, 0); err != nil {
		return err
	}
	if v.agent[st.Dev] {
		return unix.Fchownat(dir, name, v.uid, v.gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	return nil
}

// parent opens the folder above target, and returns the last name.
func (v *view) parent(target string) (int, string, error) {
	dir, name := path.Split(target)
	if dir = strings.TrimSuffix(dir, "/"); dir == "" {
		fd, err := unix.FcntlInt(uintptr(v.root), unix.F_DUPFD_CLOEXEC, 3)
		return fd, name, errno("dup", err)
	}
	fd, err := v.point(dir, unix.S_IFDIR)
	return fd, name, err
}

// fsName is the type of the file system at p, for errors.
func fsName(p string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(p, &st); err != nil {
		return "unknown"
	}
	names := map[uint32]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
		unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs",
		unix.ECRYPTFS_SUPER_MAGIC: "ecryptfs", 0x2fc12fc1: "zfs", unix.SMB2_SUPER_MAGIC: "smb", unix.DEVPTS_SUPER_MAGIC: "devpts",
	}
	if n, ok := names[uint32(st.Type)]; ok {
		return n
	}
	return fmt.Sprintf("%#x", st.Type)
}

// pivot makes the private root the root of this mount namespace and drops the
// host's.
func (v *view) pivot() error {
	if err := unix.Fchdir(v.root); err != nil {
		return errno("fchdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return errno("pivot_root", err)
	}
	// The old root is stacked on the new one now.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return errno("umount2", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return errno("chdir", err)
	}
	return setAttr(v.root, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}
