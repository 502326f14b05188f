package confine

import (
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A probe is one thing that confinement must stop. before is what it does in an
// unconfined process: "" for success, or the errno that shows that the kernel
// got past the permission to try. So no probe can pass by failing anyway.
type probe struct {
	name   string
	before string
	do     func() error
}

func errno(e error) string {
	if e == nil {
		return ""
	}
	var n syscall.Errno
	if errors.As(e, &n) {
		return unix.ErrnoName(n)
	}
	return e.Error()
}

func runProbes(ps []probe) map[string]string {
	out := make(map[string]string, len(ps))
	for _, p := range ps {
		out[p.name] = errno(p.do())
	}
	return out
}

func raw(nr uintptr, a ...uintptr) error {
	var v [6]uintptr
	copy(v[:], a)
	r, _, e := syscall.RawSyscall6(nr, v[0], v[1], v[2], v[3], v[4], v[5])
	if e != 0 {
		return e
	}
	if nr == unix.SYS_CLONE && r == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 9, 0, 0) // a child that must not be
	}
	return nil
}

// opened closes what a call opened.
func opened(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func socketOf(domain, typ int) func() error {
	return func() error { return opened(unix.Socket(domain, typ|unix.SOCK_CLOEXEC, 0)) }
}

func openOf(path string) func() error {
	return func() error { return opened(unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)) }
}

// cloneOf makes a process in new namespaces that exits at once, and reaps it.
func cloneOf(flags uintptr) func() error {
	return func() error {
		err := raw(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD))
		if err == nil {
			_, err = unix.Wait4(-1, nil, 0, nil)
		}
		return err
	}
}

func cstr(s string) uintptr {
	b := append([]byte(s), 0)
	pinned = append(pinned, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// pinned keeps strings of raw calls alive; heap objects don't move.
var pinned [][]byte

var (
	otherPID = os.Getppid()
)

// common is forbidden in every profile.
func common() []probe {
	var ring [120]byte
	var how [24]byte
	return []probe{
		{"socket unix", "", socketOf(unix.AF_UNIX, unix.SOCK_STREAM)},
		{"socket inet", "", socketOf(unix.AF_INET, unix.SOCK_STREAM)},
		{"socket inet6 udp", "", socketOf(unix.AF_INET6, unix.SOCK_DGRAM)},
		{"socket netlink", "", socketOf(unix.AF_NETLINK, unix.SOCK_RAW)},
		{"socketpair", "", func() error {
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				_, _ = unix.Close(p[0]), unix.Close(p[1])
			}
			return err
		}},
		{"connect", "EBADF", func() error { return raw(unix.SYS_CONNECT, 1000, 0, 0) }},
		{"bind", "EBADF", func() error { return raw(unix.SYS_BIND, 1000, 0, 0) }},
		{"listen", "EBADF", func() error { return raw(unix.SYS_LISTEN, 1000, 0) }},
		{"accept4", "EBADF", func() error { return raw(unix.SYS_ACCEPT4, 1000, 0, 0, 0) }},
		{"openat2", "EBADF", func() error {
			return raw(unix.SYS_OPENAT2, 1000, cstr("x"), uintptr(unsafe.Pointer(&how)), 24)
		}},
		{"open to write", "", func() error {
			return opened(unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0))
		}},
		{"create file", "EEXIST", func() error {
			return opened(unix.Open("/dev/null", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600))
		}},
		{"unlink", "ENOENT", func() error { return unix.Unlinkat(unix.AT_FDCWD, "/nonexistent/x", 0) }},
		{"mkdir", "ENOENT", func() error { return unix.Mkdirat(unix.AT_FDCWD, "/nonexistent/x", 0o700) }},
		{"rename", "ENOENT", func() error {
			return unix.Renameat2(unix.AT_FDCWD, "/nonexistent/x", unix.AT_FDCWD, "/nonexistent/y", 0)
		}},
		{"chmod", "ENOENT", func() error { return unix.Fchmodat(unix.AT_FDCWD, "/nonexistent/x", 0o700, 0) }},
		{"truncate", "ENOENT", func() error { return unix.Truncate("/nonexistent/x", 0) }},
		{"execveat", "EBADF", func() error {
			return raw(unix.SYS_EXECVEAT, 1000, cstr(""), 0, 0, unix.AT_EMPTY_PATH)
		}},
		{"io_uring_setup", "", func() error {
			r, _, e := syscall.RawSyscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&ring)), 0)
			if e != 0 {
				return e
			}
			return unix.Close(int(r))
		}},
		{"ptrace", "ESRCH", func() error { return raw(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1<<22-1) }},
		{"process_vm_readv", "", func() error { return raw(unix.SYS_PROCESS_VM_READV, 1<<22-1, 0, 0, 0, 0, 0) }},
		{"clone newuser", "", cloneOf(unix.CLONE_NEWUSER)},
		{"clone newns", "", cloneOf(unix.CLONE_NEWNS)},
		{"clone newnet", "", cloneOf(unix.CLONE_NEWNET)},
		{"clone newpid", "", cloneOf(unix.CLONE_NEWPID)},
		{"clone3", "EINVAL", func() error { return raw(unix.SYS_CLONE3, 0, 0) }},
		{"unshare", "EINVAL", func() error { return unix.Unshare(unix.CLONE_THREAD) }},
		{"setns", "EBADF", func() error { return unix.Setns(1000, 0) }},
		{"mount", "ENOENT", func() error { return unix.Mount("none", "/nonexistent", "tmpfs", 0, "") }},
		{"umount", "ENOENT", func() error { return unix.Unmount("/nonexistent", 0) }},
		{"fsopen", "", func() error { return opened(unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)) }},
		{"pivot_root", "ENOENT", func() error { return unix.PivotRoot("/nonexistent", "/nonexistent") }},
		{"chroot", "ENOENT", func() error { return unix.Chroot("/nonexistent") }},
		{"bpf", "EINVAL", func() error { return raw(unix.SYS_BPF, 9999, 0, 0) }},
		{"perf_event_open", "EFAULT", func() error { return raw(unix.SYS_PERF_EVENT_OPEN, 1, 0, 0, 0, 0) }},
		{"keyctl", "ENOTSUP", func() error { return raw(unix.SYS_KEYCTL, 9999) }},
		{"kill other", "", func() error { return unix.Kill(otherPID, 0) }},
		{"tgkill other", "", func() error { return unix.Tgkill(otherPID, otherPID, 0) }},
		{"pidfd_open", "", func() error { return opened(unix.PidfdOpen(otherPID, 0)) }},
		{"memfd_create", "", func() error { return opened(unix.MemfdCreate("x", unix.MFD_CLOEXEC)) }},
		{"setresuid", "", func() error { u := uintptr(os.Geteuid()); return raw(unix.SYS_SETRESUID, u, u, u) }},
		{"setpgid", "ESRCH", func() error { return unix.Setpgid(1<<22-1, 0) }},
		{"capset", "EFAULT", func() error { return raw(unix.SYS_CAPSET, 0, 0) }},
		{"prctl other", "", func() error { return raw(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE) }},
		{"fcntl setown", "", func() error { return raw(unix.SYS_FCNTL, 0, unix.F_SETOWN, 0) }},
		{"seccomp", "EINVAL", func() error { return raw(unix.SYS_SECCOMP, 999, 0, 0) }},
		{"userfaultfd", "EINVAL", func() error { return raw(unix.SYS_USERFAULTFD, 1<<20) }},
		{"name_to_handle_at", "EBADF", func() error {
			return raw(unix.SYS_NAME_TO_HANDLE_AT, 1000, cstr("x"), cstr("12345678"), cstr("1234"), 0)
		}},
		{"open_by_handle_at", "EFAULT", func() error { return raw(unix.SYS_OPEN_BY_HANDLE_AT, 1000, 0, 0) }},
		{"ioctl", "EBADF", func() error { return raw(unix.SYS_IOCTL, 1000, unix.TIOCSTI, 0) }},
		{"sethostname", "EINVAL", func() error { return raw(unix.SYS_SETHOSTNAME, cstr("x"), 1<<20) }},
		{"reboot", "EINVAL", func() error { return raw(unix.SYS_REBOOT, 0, 0, 0, 0) }},
	}
}

// notExec is forbidden where nothing may be executed.
func notExec() []probe {
	return []probe{
		{"execve", "ENOENT", func() error { return unix.Exec("/nonexistent", []string{"x"}, nil) }},
		{"fork", "", cloneOf(0)},
		{"mmap exec", "", func() error {
			b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err == nil {
				err = unix.Munmap(b)
			}
			return err
		}},
		{"mprotect exec", "", func() error {
			b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Munmap(b) }()
			return unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC)
		}},
	}
}

// notFiles is forbidden where no file may be read.
func notFiles() []probe {
	var st unix.Stat_t
	return []probe{
		{"openat", "", openOf("/etc/passwd")},
		{"open proc self", "", openOf("/proc/self/status")},
		{"stat", "", func() error { return unix.Fstatat(unix.AT_FDCWD, "/etc/passwd", &st, 0) }},
		{"readlink", "", func() error { _, err := unix.Readlink("/proc/self/exe", make([]byte, 99)); return err }},
		{"statfs", "", func() error { var s unix.Statfs_t; return unix.Statfs("/", &s) }},
		{"getdents", "EBADF", func() error { _, err := unix.Getdents(1000, make([]byte, 99)); return err }},
		{"dup", "EBADF", func() error { _, err := unix.Dup(1000); return err }},
	}
}

func notMessages() []probe {
	return []probe{
		{"recvmsg", "EBADF", func() error { return raw(unix.SYS_RECVMSG, 1000, 0, 0) }},
		{"sendmsg", "EBADF", func() error { return raw(unix.SYS_SENDMSG, 1000, 0, 0) }},
	}
}

func probesFor(o order) []probe {
	if o.Do == "files" {
		var ps []probe
		for _, f := range o.Files {
			ps = append(ps, probe{f, "", func() error {
				fh, err := os.Open(f)
				if err != nil {
					return err
				}
				defer func() { _ = fh.Close() }()
				if st, err := fh.Stat(); err == nil && st.IsDir() {
					_, err = fh.Readdirnames(-1)
					return err
				}
				if _, err = fh.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
					err = nil
				}
				return err
			}})
		}
		return ps
	}
	if o.Do != "probe" {
		return nil
	}
	ps := common()
	switch o.Plan.Profile {
	case Loop:
		ps = append(ps, notMessages()...)
		fallthrough
	case Shim:
		ps = append(ps, notFiles()...)
		fallthrough
	case Tool:
		ps = append(ps, notExec()...)
	}
	return ps
}
