//go:build linux

package attempt

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func kernel() map[string]Func {
	return map[string]Func{
		"kernel: io_uring": func(*Targets) (string, error) {
			var p [120]byte
			fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&p)), 0)
			if e == 0 {
				_ = unix.Close(int(fd))
			}
			return did("io_uring_setup", errnoOf(e))
		},
		"kernel: bpf": func(*Targets) (string, error) {
			attr := [4]uint32{2, 4, 4, 1} // an array of one
			fd, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			if e == 0 {
				_ = unix.Close(int(fd))
			}
			return did("bpf", errnoOf(e))
		},
		"kernel: perf_event_open": func(*Targets) (string, error) {
			a := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0, Config: unix.PERF_COUNT_SW_CPU_CLOCK}
			fd, err := unix.PerfEventOpen(&a, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err == nil {
				_ = unix.Close(fd)
			}
			return did("perf_event_open", err)
		},
		"kernel: userfaultfd": func(*Targets) (string, error) {
			fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0)
			if e == 0 {
				_ = unix.Close(int(fd))
			}
			return did("userfaultfd", errnoOf(e))
		},
		"kernel: fanotify": func(*Targets) (string, error) {
			fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID|unix.FAN_CLOEXEC, unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(fd)
			}
			return did("fanotify_init", err)
		},
		"kernel: quotas": func(*Targets) (string, error) {
			_, _, e := unix.Syscall6(unix.SYS_QUOTACTL, uintptr(0x800001)<<8, 0, 0, 0, 0, 0) // Q_SYNC of all
			return did("quotactl", errnoOf(e))
		},
		"kernel: load a module": func(*Targets) (string, error) {
			_, _, e := unix.Syscall(unix.SYS_INIT_MODULE, 0, 0, 0)
			return passed(errnoOf(e), unix.EFAULT, "init_module")
		},
		"kernel: kexec": func(*Targets) (string, error) {
			_, _, e := unix.Syscall6(unix.SYS_KEXEC_LOAD, 0, 1<<20, 0, 0, 0, 0)
			return passed(errnoOf(e), unix.EINVAL, "kexec_load")
		},
		"kernel: swap on": func(*Targets) (string, error) {
			p := append([]byte("/agentos-no-such-file"), 0)
			_, _, e := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(&p[0])), 0, 0)
			return passed(errnoOf(e), unix.ENOENT, "swapon")
		},
		"kernel: accounting": func(*Targets) (string, error) {
			return passed(unix.Acct("/agentos-no-such-file"), unix.ENOENT, "acct")
		},
		// The numbers that guard it are wrong.
		"kernel: reboot": func(*Targets) (string, error) {
			_, _, e := unix.Syscall6(unix.SYS_REBOOT, 0, 0, 0, 0, 0, 0)
			return passed(errnoOf(e), unix.EINVAL, "reboot")
		},
		"kernel: clock": func(*Targets) (string, error) {
			var t unix.Timex
			if _, err := unix.Adjtimex(&t); err != nil {
				return "", fmt.Errorf("adjtimex: %w", err)
			}
			t.Modes = 0x4000 // ADJ_TICK, to what it is
			_, err := unix.Adjtimex(&t)
			return did("adjtimex", err)
		},
		"kernel: host name": func(*Targets) (string, error) {
			name, err := os.Hostname()
			if err != nil {
				return "", err
			}
			return did("sethostname", unix.Sethostname([]byte(name)))
		},
		"kernel: ports": func(*Targets) (string, error) {
			return did("ioperm", ioperm())
		},
		"kernel: modify_ldt": func(*Targets) (string, error) {
			var b [16]byte
			_, _, e := unix.Syscall(unix.SYS_MODIFY_LDT, 0, uintptr(unsafe.Pointer(&b)), 16)
			return did("modify_ldt", errnoOf(e))
		},
		"kernel: personality": func(*Targets) (string, error) {
			_, _, e := unix.Syscall(unix.SYS_PERSONALITY, 0x0400000, 0, 0) // READ_IMPLIES_EXEC
			return did("personality", errnoOf(e))
		},
		"kernel: x32 call": func(*Targets) (string, error) {
			_, _, e := unix.RawSyscall(unix.SYS_GETPID|0x40000000, 0, 0, 0)
			return did("getpid by x32", errnoOf(e))
		},
		"kernel: 32-bit call": func(*Targets) (string, error) {
			r := int(int32(int80(20)))
			if r < 0 {
				return "", fmt.Errorf("int 0x80: %w", unix.Errno(-r))
			}
			if r != os.Getpid() {
				return "", fmt.Errorf("int 0x80 returned %d: %w", r, unix.ENOSYS)
			}
			return "getpid by int 0x80", nil
		},
		"kernel: move memory of another": func(t *Targets) (string, error) {
			old, to := [16]uint64{1}, [16]uint64{1}
			_, _, e := unix.Syscall6(unix.SYS_MIGRATE_PAGES, uintptr(t.Victim.PID), 64, uintptr(unsafe.Pointer(&old)), uintptr(unsafe.Pointer(&to)), 0, 0)
			return did("migrate_pages", errnoOf(e))
		},
	}
}
