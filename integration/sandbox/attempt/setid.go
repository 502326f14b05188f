//go:build linux

package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setid leaves programs behind that run as their owner, who is the caller: in a
// workspace that is written through they would be his, on his disk.
func setid() map[string]Func {
	m := map[string]Func{}
	for name, do := range map[string]func(p string) error{
		"chmod": func(p string) error {
			return after(p, func() error { return unix.Chmod(p, 0o6755) })
		},
		"fchmod": func(p string) error {
			fd, err := unix.Open(p, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o755)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Fchmod(fd, 0o6755)
		},
		"fchmodat2": func(p string) error {
			return after(p, func() error { return unix.Fchmodat(unix.AT_FDCWD, p, 0o6755, unix.AT_SYMLINK_NOFOLLOW) })
		},
		"chmod with high bits": func(p string) error {
			return after(p, func() error {
				b := append([]byte(p), 0)
				_, _, e := unix.Syscall(unix.SYS_FCHMODAT, ^uintptr(99), uintptr(unsafe.Pointer(&b[0])), 0o6755|1<<40)
				return errnoOf(e)
			})
		},
		"open": func(p string) error {
			return closed(unix.Open(p, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o6755))
		},
		"openat2": func(p string) error {
			return closed(unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_RDWR | unix.O_CLOEXEC, Mode: 0o6755}))
		},
		"O_TMPFILE": func(p string) error {
			fd, err := unix.Open(filepath.Dir(p), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o6755)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
		},
		"mknod": func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o6755, 0) },
		"file capabilities": func(p string) error {
			return after(p, func() error {
				v := []byte{1, 0, 0, 2, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
				return unix.Setxattr(p, "security.capability", v, 0)
			})
		},
	} {
		m["set-ID: "+name] = func(t *Targets) (string, error) {
			p := filepath.Join(t.Workspace, fmt.Sprintf("setid-%d", os.Getpid()))
			defer os.Remove(p)
			old := unix.Umask(0)
			defer unix.Umask(old)
			if err := do(p); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			var st unix.Stat_t
			if err := unix.Stat(p, &st); err != nil {
				return "", err
			}
			if name != "file capabilities" && st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
				return "", fmt.Errorf("the bits were dropped: %w", unix.EPERM)
			}
			return fmt.Sprintf("made a file of mode %o", st.Mode&0o7777), nil
		}
	}
	return m
}

// after makes a plain file first.
func after(p string, do func() error) error {
	if err := os.WriteFile(p, nil, 0o755); err != nil {
		return err
	}
	return do()
}

func closed(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
