//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// local is the machine that this process runs on.
type local struct{}

func (local) look(p string) (bool, error) {
	st, err := os.Lstat(p)
	return err == nil && st.IsDir(), err
}

func (local) list(p string) ([]string, error) {
	d, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(1 << 14) // EOF: there is none, which the plan never says
}

// open opens and closes. It never waits for the other end of a FIFO.
func open(p string, flags int) error {
	fd, err := unix.Open(p, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err == nil {
		_ = unix.Close(fd) // nothing was written
	}
	return call("open "+p, err)
}

func (local) read(p string) error  { return open(p, unix.O_RDONLY) }
func (local) write(p string) error { return open(p, unix.O_WRONLY) }

// scratchName is a name that nobody else uses, and that says whose it is.
func scratchName(dir string) string {
	return filepath.Join(dir, fmt.Sprintf(".agentos-probe-%d-%d", os.Getpid(), monotonic()))
}

// monotonic tells two probes of different sandboxes with the same PID apart.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail for this clock
	return ts.Nano()
}

// newFile makes a file for f and removes it.
func newFile(dir string, mode uint32, f func(p string) error) error {
	p := scratchName(dir)
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return call("create "+p, err)
	}
	defer unix.Unlink(p)
	_, err = unix.Write(fd, []byte("agentos-probe\n"))
	if e := unix.Close(fd); err == nil {
		err = e
	}
	if err != nil {
		return call("write "+p, err)
	}
	return f(p)
}

func (local) create(dir string) error {
	return newFile(dir, 0o600, func(string) error { return nil })
}

// run starts a file that is no program: the kernel says so (ENOEXEC) only where
// it would have started one.
func (local) run(dir string) error {
	return newFile(dir, 0o700, func(p string) error {
		return call("execve "+p, syscall.Exec(p, []string{p}, nil))
	})
}

func (local) load(p string) error {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return call("open "+p, err)
	}
	defer unix.Close(fd)
	b, err := unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Munmap(b)
	}
	return call("mmap "+p+" as code", err)
}

func (local) mount(p string) (ro, noexec bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(p, &st); err != nil {
		return false, false, call("statfs "+p, err)
	}
	return st.Flags&unix.ST_RDONLY != 0, st.Flags&unix.ST_NOEXEC != 0, nil
}

func (local) mode(p string) bool {
	var st unix.Stat_t
	if unix.Stat(p, &st) != nil {
		return false
	}
	bits := st.Mode & 7
	groups, _ := unix.Getgroups() // none is a narrower answer
	switch {
	case int(st.Uid) == os.Geteuid():
		bits = st.Mode >> 6 & 7
	case int(st.Gid) == os.Getegid() || contains(groups, int(st.Gid)):
		bits = st.Mode >> 3 & 7
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return bits&3 == 3
	}
	return bits&2 != 0
}

func contains(list []int, n int) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

func (local) identity() identity {
	var id identity
	id.uids[0], id.uids[1], id.uids[2] = unix.Getresuid()
	id.gids[0], id.gids[1], id.gids[2] = unix.Getresgid()
	id.groups, _ = unix.Getgroups() // can't fail with a list that fits
	id.caps = caps()
	for n := range uintptr(64) {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n, 0, 0, 0); err == nil && has != 0 {
			id.bounding++
		}
	}
	id.nnp, _ = unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	id.seccomp, _ = unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0) // refused: 0, which disagrees
	return id
}

// caps names the sets that hold a capability.
func caps() string {
	var data [2]unix.CapUserData
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &data[0]); err != nil {
		return "unknown: " + err.Error()
	}
	var out []string
	for _, s := range []struct {
		name string
		bits uint32
	}{
		{"effective", data[0].Effective | data[1].Effective}, {"permitted", data[0].Permitted | data[1].Permitted},
		{"inheritable", data[0].Inheritable | data[1].Inheritable},
	} {
		if s.bits != 0 {
			out = append(out, s.name)
		}
	}
	for n := range uintptr(64) {
		if has, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, n, 0, 0); err == nil && has != 0 {
			out = append(out, "ambient")
			break
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func (local) names() (host, dir string, env []string) {
	var u unix.Utsname
	_ = unix.Uname(&u) // can't fail; an empty name disagrees
	dir, _ = unix.Getwd()
	return unix.ByteSliceToString(u.Nodename[:]), dir, os.Environ()
}

func (local) interfaces() ([]string, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, i := range list {
		out = append(out, i.Name)
	}
	return out, nil
}

func (local) loopback() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err == nil {
		err = c.Close()
	}
	return err
}

// connect tries an address that stands for the internet in documents (RFC 5737,
// RFC 3849): it takes the route that others take and belongs to nobody.
func (local) connect(v6 bool) error {
	domain, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 443, Addr: [4]byte{192, 0, 2, 1}})
	if v6 {
		domain, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 443, Addr: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return call("socket", err)
	}
	defer unix.Close(fd)
	if err = unix.Connect(fd, to); err == unix.EINPROGRESS {
		return nil
	}
	return call("connect", err)
}

func (local) socket(domain, kind, protocol int) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		_ = unix.Close(fd) // it was never used
	}
	return call("socket", err)
}

func (local) processes() (others, ppid int, err error) {
	names, err := local{}.list("/proc")
	for _, n := range names {
		if pid, e := strconv.Atoi(n); e == nil && pid != os.Getpid() {
			others++
		}
	}
	return others, os.Getppid(), err
}

// call makes one system call that must be refused. What it does where it is not
// refused ends with this process.
func (local) call(name, scratch string) error {
	raw := func(n uintptr, a ...uintptr) error {
		a = append(a, 0, 0, 0, 0, 0, 0)
		if _, _, e := unix.Syscall6(n, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
			return call(name, e)
		}
		return nil
	}
	var zero [256]byte
	defer runtime.KeepAlive(&zero)
	const none = ^uintptr(0)
	switch name {
	case "unshare(CLONE_NEWUSER)": // EINVAL of a process with threads comes later
		return raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	case "mount": // no such file system: ENODEV
		return call(name, unix.Mount("none", "/", "agentos-none", 0, ""))
	case "ptrace": // of ourselves, whom nobody traces: ESRCH
		return raw(unix.SYS_PTRACE, unix.PTRACE_CONT, uintptr(os.Getpid()))
	case "process_vm_readv":
		return raw(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()))
	case "bpf": // no such command: EINVAL
		return raw(unix.SYS_BPF, 1<<16, uintptr(unsafe.Pointer(&zero)), unsafe.Sizeof(zero))
	case "io_uring_setup": // no parameters: EFAULT
		return raw(unix.SYS_IO_URING_SETUP, 1)
	case "keyctl":
		_, err := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_SESSION_KEYRING, 0, 0, 0)
		return call(name, err)
	case "perf_event_open": // no attributes: EFAULT
		return raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, none, none)
	case "userfaultfd": // no such flag: EINVAL
		return raw(unix.SYS_USERFAULTFD, 1<<30)
	case "chmod u+s":
		refused := errors.New("no file could be made in " + scratch)
		_ = newFile(scratch, 0o700, func(p string) error { // its own error says nothing about the call
			refused = call(name, unix.Chmod(p, 0o4700))
			return nil
		})
		return refused
	case "ioctl(TIOCSTI)": // of a pipe: ENOTTY
		return raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&zero)))
	case "setresuid(0)":
		err := raw(unix.SYS_SETRESUID, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // of a user namespace that doesn't map it
			return fmt.Errorf("%s: there is no such user here: %w", name, unix.EPERM)
		}
		return err
	case "kill(1)":
		return call(name, unix.Kill(1, 0))
	}
	return errors.New("no such call")
}

// call names what failed; nil stays nil.
func call(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
