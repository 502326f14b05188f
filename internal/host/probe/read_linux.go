package probe

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const maxFile = 1 << 20 // bytes of any file that is read

// Strength is Read().Strength(root).
func Strength(root bool) Isolation { return Read().Strength(root) }

// Read looks at this host. It takes a few milliseconds and changes nothing.
func Read() Raw {
	r := Raw{
		Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Distribution: release(file("/etc/os-release")),
		Init:         file("/proc/1/comm"),
		Systemd:      exists("/run/systemd/system"),
		Journal:      exists("/run/systemd/journal/socket"),
		LSM:          file("/sys/kernel/security/lsm"),

		UnprivBPF:      sysctl("kernel/unprivileged_bpf_disabled"),
		Ptrace:         sysctl("kernel/yama/ptrace_scope"),
		IOURing:        sysctl("kernel/io_uring_disabled"),
		AppArmorUserNS: sysctl("kernel/apparmor_restrict_unprivileged_userns"),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Release = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		r.Memory = uint64(si.Totalram) * uint64(si.Unit)
	}
	r.Virtual = virtual()
	r.syscalls()
	r.filesystems(file("/proc/filesystems"))
	r.UserNS = userNS()
	r.cgroups()
	return r
}

// syscalls asks for features by calls that fail in a telling way.
func (r *Raw) syscalls() {
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e == 0 {
		r.LandlockABI = int(abi)
	}
	const errata, signals = 2, 2 // LANDLOCK_CREATE_RULESET_ERRATA; erratum 2
	fixed, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, errata)
	r.SignalFix = e == 0 && fixed&signals != 0
	r.Seccomp = action(unix.SECCOMP_RET_ERRNO)
	r.UserNotify = action(unix.SECCOMP_RET_USER_NOTIF)
	_, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	r.NoNewPrivs = err == nil
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		r.PidfdOpen = true
		_ = unix.Close(fd)
	}
	const past = 1 << 30 // no descriptor has such a number
	r.CloseRange = unix.CloseRange(past, past, unix.CLOSE_RANGE_CLOEXEC) == nil
	r.IDMap = !errors.Is(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}), unix.ENOSYS)
}

func action(a uint32) bool {
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&a)))
	return e == 0
}

func (r *Raw) filesystems(list string) {
	for line := range strings.Lines(list) {
		switch f := strings.Fields(line); {
		case len(f) == 0:
		case f[len(f)-1] == "overlay":
			r.Overlay = true
		case f[len(f)-1] == "btrfs":
			r.Btrfs = true
		}
	}
}

// userNS tries to make a user and a mount namespace in a child that then tries
// to execute what isn't there: with ENOENT the namespaces had been made.
func userNS() string {
	cmd := exec.Cmd{
		Path: "/proc/self/no-such-file", Args: []string{"probe"}, Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		},
	}
	err := cmd.Run()
	if errors.Is(err, syscall.ENOENT) {
		return ""
	}
	if err == nil {
		return "unknown: the probe ran"
	}
	return err.Error()
}

func (r *Raw) cgroups() {
	const root = "/sys/fs/cgroup"
	v2 := ""
	switch {
	case fstype(root) == unix.CGROUP2_SUPER_MAGIC:
		r.Cgroup, v2 = "v2", root
	case fstype(root+"/unified") == unix.CGROUP2_SUPER_MAGIC:
		r.Cgroup, v2 = "hybrid", root+"/unified"
	case len(v1Controllers(file("/proc/cgroups"))) > 0:
		r.Cgroup = "v1"
	}
	if v2 != "" {
		r.Controllers = strings.Fields(file(v2 + "/cgroup.controllers"))
	}
	if r.Cgroup != "v2" {
		r.ControllersV1 = v1Controllers(file("/proc/cgroups"))
	}
}

// v1Controllers are those that are attached to a hierarchy: cgroups(7).
func v1Controllers(list string) []string {
	var out []string
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 4 && !strings.HasPrefix(f[0], "#") && f[1] != "0" && f[3] == "1" {
			out = append(out, f[0])
		}
	}
	return out
}

func virtual() string {
	if exists("/.dockerenv") || exists("/run/.containerenv") || exists("/run/systemd/container") {
		return "container"
	}
	if strings.Contains(firstLine(file("/proc/cpuinfo"), "flags"), " hypervisor") || exists("/sys/hypervisor/type") {
		return "virtual machine"
	}
	return ""
}

func firstLine(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// release is PRETTY_NAME of os-release(5).
func release(text string) string {
	v, ok := strings.CutPrefix(firstLine(text, "PRETTY_NAME="), "PRETTY_NAME=")
	if !ok {
		return ""
	}
	return strings.Trim(v, `"'`)
}

func fstype(path string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return 0
	}
	return int64(st.Type)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sysctl is a number below /proc/sys, or -1.
func sysctl(name string) int {
	n, err := strconv.Atoi(file("/proc/sys/" + name))
	if err != nil {
		return -1
	}
	return n
}

// file is a small file's text without surrounding space, or "".
func file(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(bufio.NewReader(f), maxFile))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
