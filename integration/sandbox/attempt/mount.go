//go:build linux

package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// All are made where the mounts are the attempt's own when they could work.
func mounts() map[string]Func {
	m := map[string]Func{
		"mount: bind over passwd": func(t *Targets) (string, error) {
			return did("mount", unix.Mount("/dev/null", "/etc/passwd", "", unix.MS_BIND, ""))
		},
		"mount: remount read-write": remount,
		"mount: mount_setattr": func(*Targets) (string, error) {
			ro, err := readOnlyMount()
			if err != nil {
				return "", err
			}
			return did("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, ro, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
		},
		"mount: umount": func(*Targets) (string, error) {
			return did("umount2", unix.Unmount("/proc", unix.MNT_DETACH))
		},
		"mount: umount the root": func(*Targets) (string, error) {
			return did("umount2", unix.Unmount("/", unix.MNT_DETACH))
		},
		"mount: open_tree, move_mount": func(t *Targets) (string, error) {
			fd, err := unix.OpenTree(unix.AT_FDCWD, t.Workspace, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return "", fmt.Errorf("open_tree: %w", err)
			}
			return did("move_mount", unix.MoveMount(fd, "", unix.AT_FDCWD, t.Workspace, unix.MOVE_MOUNT_F_EMPTY_PATH))
		},
		"mount: move_mount": func(t *Targets) (string, error) {
			return did("move_mount", unix.MoveMount(unix.AT_FDCWD, "/proc", unix.AT_FDCWD, t.Workspace, 0))
		},
		"mount: fsopen": func(*Targets) (string, error) {
			_, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
			return did("fsopen", err)
		},
		"mount: fspick": func(*Targets) (string, error) {
			_, err := unix.Fspick(unix.AT_FDCWD, "/proc", unix.FSPICK_CLOEXEC)
			return did("fspick", err)
		},
		"mount: pivot_root": pivot,
		"chroot, then climb": func(t *Targets) (string, error) {
			runtime.LockOSThread()
			_ = unix.Unshare(unix.CLONE_FS)
			if err := unix.Chroot(t.Workspace + "/sub"); err != nil {
				return "", fmt.Errorf("chroot: %w", err)
			}
			return opens(strings.Repeat("../", 30)+"proc/self/status", unix.O_RDONLY)
		},
		"mount: overlay": func(t *Targets) (string, error) {
			opts := "lowerdir=/usr:/etc"
			return did("mount", unix.Mount("overlay", t.Workspace, "overlay", unix.MS_RDONLY, opts))
		},
	}
	for _, fs := range []string{"tmpfs", "proc", "sysfs", "debugfs", "tracefs", "cgroup2", "devtmpfs", "mqueue", "bpf", "securityfs"} {
		m["mount: "+fs] = func(t *Targets) (string, error) {
			return did("mount", unix.Mount("none", t.Workspace, fs, 0, ""))
		}
	}
	return m
}

// MountHere mounts in a namespace of its own; the program's name for it is
// mount-here.
func MountHere() error { return unix.Mount("none", "/dev", "tmpfs", 0, "") }

// readOnlyMount finds a mount point that may not be written.
func readOnlyMount() (string, error) {
	b, err := head("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 5 && strings.HasPrefix(f[5], "ro") && f[4] != "/" {
			return f[4], nil
		}
	}
	return "", errNothing
}

func remount(*Targets) (string, error) {
	ro, err := readOnlyMount()
	if err != nil {
		return "", err
	}
	return did("mount", unix.Mount("none", ro, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
}

func pivot(t *Targets) (string, error) {
	if err := unix.PivotRoot(".", "."); err != unix.EINVAL && err != unix.EBUSY {
		return did("pivot_root", err)
	}
	return "pivot_root passed its check of permission", nil
}

func cgroups() map[string]Func {
	return map[string]Func{
		"cgroup: leave": func(*Targets) (string, error) {
			last := error(errNothing)
			for _, p := range []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs"} {
				if s, err := opens(p, unix.O_WRONLY); err == nil {
					return s, nil
				} else if !os.IsNotExist(err) {
					last = err
				}
			}
			return "", last
		},
		"cgroup: release_agent": func(*Targets) (string, error) {
			return opens("/sys/fs/cgroup/pids/release_agent", unix.O_WRONLY)
		},
		"cgroup: make a group": func(*Targets) (string, error) {
			p := fmt.Sprintf("/sys/fs/cgroup/pids/agentos-escape-%d", os.Getpid())
			if err := os.Mkdir(p, 0o755); err != nil {
				return "", err
			}
			return "made " + p, os.Remove(p)
		},
		"cgroup: mount v1": func(t *Targets) (string, error) {
			return did("mount", unix.Mount("none", t.Workspace, "cgroup", 0, "pids"))
		},
	}
}

func terminal() map[string]Func {
	return map[string]Func{
		"tty: TIOCSTI": func(*Targets) (string, error) {
			c := byte('#')
			_, _, e := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
			return did("ioctl(TIOCSTI)", errnoOf(e))
		},
		// The kernel takes the command's low half only.
		"tty: TIOCSTI with high bits": func(*Targets) (string, error) {
			c := byte('#')
			_, _, e := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, uintptr(unsafe.Pointer(&c)))
			return did("ioctl(TIOCSTI)", errnoOf(e))
		},
		"tty: TIOCLINUX": func(*Targets) (string, error) {
			last := error(errNothing)
			for _, p := range []string{"/dev/stdin", "/dev/tty1"} {
				f, err := os.OpenFile(p, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
				if err != nil {
					last = err
					continue
				}
				defer f.Close()
				c := byte(6) // the state of the shift keys
				_, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.TIOCLINUX, uintptr(unsafe.Pointer(&c)))
				if e == 0 {
					return "ioctl(TIOCLINUX) worked on " + p, nil
				}
				last = e
			}
			return "", last
		},
		"tty: write to the caller's": func(t *Targets) (string, error) { return callers(t, unix.O_WRONLY) },
		"tty: is the caller's": func(t *Targets) (string, error) {
			var own unix.Stat_t
			if err := unix.Fstat(0, &own); err != nil {
				return "", err
			}
			if own.Dev != t.TTYDev {
				return "", errNothing
			}
			return "stdin is " + filepath.Base(t.TTY), nil
		},
	}
}
