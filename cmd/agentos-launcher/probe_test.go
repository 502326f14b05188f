//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is one attempt that ordinary programs never make; it reports its errno.
type call struct {
	name   string
	nested bool // the filter lets a plan that may nest do it
	do     func() error
	// namespace: the kernel lets it, too, without a capability.
	namespace bool
}

func sys(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if e != 0 {
			return e
		}
		return nil
	}
}

func socket(family, kind, proto int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, proto)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
}

// fork makes a child that ends at once.
func fork(flags uintptr) func() error {
	return func() error {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			return e
		}
		if pid == 0 {
			for {
				_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
		_, err := unix.Wait4(int(pid), nil, 0, nil)
		return err
	}
}

const all = ^uintptr(0)

// calls that are refused inside; with a null or a wrong argument the kernel's own
// answer is another than the filter's, or a success.
func calls() []call {
	var zero [16]uint64
	z := uintptr(unsafe.Pointer(&zero))
	ioctl := func(cmd uintptr) func() error {
		return func() error {
			// The kernel looks at the low half only: the filter has to, too.
			_, _, e := unix.RawSyscall(unix.SYS_IOCTL, 0, cmd, z)
			if e != 0 {
				return e
			}
			return nil
		}
	}
	return []call{
		{"mount", true, sys(unix.SYS_MOUNT, 0, 0, 0, 0, 0), false},
		{"umount2", true, sys(unix.SYS_UMOUNT2, 0, 0), false},
		{"pivot_root", true, sys(unix.SYS_PIVOT_ROOT, 0, 0), false},
		{"open_tree", true, sys(unix.SYS_OPEN_TREE, all, 0, 0), false},
		{"fsopen", true, sys(unix.SYS_FSOPEN, 0, 0), false},
		{"fspick", true, sys(unix.SYS_FSPICK, all, 0, 0), false},
		{"fsmount", true, sys(unix.SYS_FSMOUNT, all, 0, 0), false},
		{"move_mount", true, sys(unix.SYS_MOVE_MOUNT, all, 0, all, 0, 0), false},
		{"mount_setattr", true, sys(unix.SYS_MOUNT_SETATTR, all, 0, 0, 0, 0), false},
		{"setns", true, sys(unix.SYS_SETNS, all, 0), false},
		{"chroot", true, sys(unix.SYS_CHROOT, 0), false},
		{"unshare of a user namespace", true, fork2(unix.CLONE_NEWUSER), true},
		{"unshare of a time namespace", true, fork2(unix.CLONE_NEWTIME | unix.CLONE_NEWUSER), true},
		{"clone into a user namespace", true, fork(unix.CLONE_NEWUSER), true},
		{"clone into user and network namespaces", true, fork(unix.CLONE_NEWUSER | unix.CLONE_NEWNET), true},
		{"clone3", false, sys(unix.SYS_CLONE3, z, 1), false},
		{"bpf", false, sys(unix.SYS_BPF, 0, 0, 0), false},
		{"perf_event_open", false, sys(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, all, 0), false},
		{"io_uring_setup", false, sys(unix.SYS_IO_URING_SETUP, 1, z), false},
		{"userfaultfd", false, sys(unix.SYS_USERFAULTFD, 1), false},
		{"kexec_load", false, sys(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0), false},
		{"init_module", false, sys(unix.SYS_INIT_MODULE, 0, 0, 0), false},
		{"add_key", false, sys(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0), false},
		{"keyctl", false, sys(unix.SYS_KEYCTL, 0, all-2, 0), false}, // the session keyring's ID
		{"request_key", false, sys(unix.SYS_REQUEST_KEY, 0, 0, 0, 0), false},
		{"ptrace", false, sys(unix.SYS_PTRACE, unix.PTRACE_ATTACH, all, 0, 0), false},
		{"process_vm_readv", false, sys(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), 0, 0, 0, 0, 0), false},
		{"process_vm_writev", false, sys(unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getpid()), 0, 0, 0, 0, 0), false},
		{"pidfd_getfd", false, sys(unix.SYS_PIDFD_GETFD, all, 0, 0), false},
		{"kcmp", false, sys(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(os.Getpid()), 0, 0, 0), false},
		{"open_by_handle_at", false, sys(unix.SYS_OPEN_BY_HANDLE_AT, all, 0, 0), false},
		{"quotactl", false, sys(unix.SYS_QUOTACTL, 0, 0, 0, 0), false},
		{"reboot", false, sys(unix.SYS_REBOOT, 0, 0, 0, 0), false},
		{"swapoff", false, sys(unix.SYS_SWAPOFF, 0), false},
		{"settimeofday", false, sys(unix.SYS_SETTIMEOFDAY, 0, 0), false},
		{"acct", false, sys(unix.SYS_ACCT, 1), false},
		{"personality", false, sys(unix.SYS_PERSONALITY, 0x0400000), false}, // READ_IMPLIES_EXEC
		{"syslog", false, sys(unix.SYS_SYSLOG, 10, 0, 0), false},
		{"fanotify_init", false, sys(unix.SYS_FANOTIFY_INIT, 0x200, 0), false},
		{"packet socket", false, socket(unix.AF_PACKET, unix.SOCK_RAW, 0), false},
		{"netlink audit", false, socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT), false},
		{"netlink netfilter", false, socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), false},
		{"vsock", false, socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0), false},
		{"crypto socket", false, socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0), false},
		{"TIOCSTI", false, ioctl(unix.TIOCSTI), false},
		{"TIOCSTI with high bits", false, ioctl(unix.TIOCSTI | 1<<32), false},
		{"TIOCLINUX", false, ioctl(unix.TIOCLINUX), false},
		{"unknown call", false, sys(4000), false},
	}
}

// fork2 unshares in a child, so that this process stays where it is.
func fork2(flags uintptr) func() error {
	return func() error {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		var b [1]byte
		buf := uintptr(unsafe.Pointer(&b))
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			return e
		}
		if pid == 0 {
			_, _, e := unix.RawSyscall(unix.SYS_UNSHARE, flags, 0, 0)
			b[0] = byte(e)
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(p[1]), buf, 1)
			for {
				_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
		if _, err := unix.Read(p[0], b[:]); err != nil {
			return err
		}
		if b[0] != 0 {
			return syscall.Errno(b[0])
		}
		return nil
	}
}

// good are calls that ordinary programs make.
func good() []call {
	return []call{
		{"fork", false, fork(0), false},
		{"unix socket", false, socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), false},
		{"inet socket", false, socket(unix.AF_INET, unix.SOCK_STREAM, 0), false},
		{"inet6 socket", false, socket(unix.AF_INET6, unix.SOCK_DGRAM, 0), false},
		{"netlink route", false, socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), false},
		{"shared memory", false, sys(unix.SYS_SHMGET, 0, 4096, 0o600), false},
		{"personality query", false, sys(unix.SYS_PERSONALITY, 0xffffffff), false},
	}
}

// probe is a program inside: it prints what each call answered.
func probe() int {
	out := map[string]string{}
	for _, c := range append(calls(), good()...) {
		out[c.name] = ""
		if err := c.do(); err != nil {
			out[c.name] = fmt.Sprint(err)
			if e, ok := err.(syscall.Errno); ok {
				out[c.name] = unix.ErrnoName(e)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

// withProbe puts this program into a workspace.
func withProbe(t *testing.T) string {
	t.Helper()
	dir := workspace(t)
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(dir, "probe")
	if err := os.WriteFile(p, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(p, owner, owner); err != nil {
		t.Fatal(err)
	}
	return dir
}

// answers decodes what a probe printed.
func answers(t *testing.T, out string) map[string]string {
	t.Helper()
	var got map[string]string
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return got
}

func refusal(answer string) bool { return answer == "EPERM" || answer == "ENOSYS" }

// Spec: AOS-17. Outside, as root, the kernel itself answers: what it refuses there
// by itself is known, all else is the filter's work.
func TestCalls(t *testing.T) {
	t.Parallel()
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{"probe"}}
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	itself := map[string]bool{"kexec_load": true, "init_module": true, "unknown call": true} // not in this kernel
	for name, answer := range answers(t, string(b)) {
		if refusal(answer) && !itself[name] {
			t.Errorf("outside: %s: %s", name, answer)
		}
	}
	each(t, func(t *testing.T, m mode) {
		work := withProbe(t)
		l := launch(t, m.uid)
		for _, nested := range []bool{false, true} {
			p := m.plan(fmt.Sprintf("calls-%s-%v", m.name, nested), work, "")
			p.Command, p.Nested = []string{"/usr/bin/python3", "-c", `import os; os.execv("/project/probe", ["probe"])`}, nested
			x, out := l.start(p).end()
			if x.Code != 0 {
				t.Fatalf("%+v %q", x, out)
			}
			got := answers(t, out)
			for _, c := range calls() {
				if free := nested && c.nested; refusal(got[c.name]) == free && c.namespace || !free && !refusal(got[c.name]) {
					t.Errorf("nested %v: %s: %q", nested, c.name, got[c.name])
				}
			}
			for _, c := range good() {
				if got[c.name] != "" {
					t.Errorf("nested %v: %s: %s", nested, c.name, got[c.name])
				}
			}
		}
	})
}
