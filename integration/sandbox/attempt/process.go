//go:build linux

package attempt

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func processes() map[string]Func {
	return map[string]Func{
		"ptrace PID 1":      func(*Targets) (string, error) { return seize(1) },
		"ptrace another":    func(t *Targets) (string, error) { return seize(t.Victim.PID) },
		"process_vm_readv":  vmRead,
		"process_vm_writev": vmWrite,
		"process_vm_readv of PID 1": func(*Targets) (string, error) {
			b := make([]byte, 1)
			_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x1000, Len: 1}}, 0)
			return passed(err, unix.EFAULT, "process_vm_readv")
		},
		"pidfd_getfd": func(t *Targets) (string, error) {
			fd, err := unix.PidfdOpen(t.Victim.PID, 0)
			if err != nil {
				return "", fmt.Errorf("pidfd_open: %w", err)
			}
			got, err := unix.PidfdGetfd(fd, t.Victim.FD, 0)
			if err != nil {
				return "", fmt.Errorf("pidfd_getfd: %w", err)
			}
			return "took a descriptor", unix.Close(got)
		},
		"pidfd_getfd from PID 1": func(*Targets) (string, error) {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return "", fmt.Errorf("pidfd_open: %w", err)
			}
			last := error(errNothing)
			for n := range 16 {
				if _, err := unix.PidfdGetfd(fd, n, 0); err == nil {
					return fmt.Sprintf("took descriptor %d", n), nil
				} else if last = err; err == unix.EPERM || err == unix.ENOSYS {
					break
				}
			}
			return "", fmt.Errorf("pidfd_getfd: %w", last)
		},
		"kcmp": func(t *Targets) (string, error) {
			_, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(t.Victim.PID), 1, 0, 0, 0)
			return did("kcmp", errnoOf(e))
		},
		"prlimit of another": func(t *Targets) (string, error) {
			var l unix.Rlimit
			if err := unix.Prlimit(t.Victim.PID, unix.RLIMIT_NOFILE, nil, &l); err != nil {
				return "", fmt.Errorf("prlimit: %w", err)
			}
			return did("prlimit", unix.Prlimit(t.Victim.PID, unix.RLIMIT_NOFILE, &l, nil))
		},
		"priority of another": func(t *Targets) (string, error) {
			return did("setpriority", unix.Setpriority(unix.PRIO_PROCESS, t.Victim.PID, 1))
		},
		"affinity of another": func(t *Targets) (string, error) {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(t.Victim.PID, &set); err != nil {
				return "", fmt.Errorf("sched_getaffinity: %w", err)
			}
			return did("sched_setaffinity", unix.SchedSetaffinity(t.Victim.PID, &set))
		},
		"real-time priority": func(*Targets) (string, error) {
			p := int32(1)
			_, _, e := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&p)))
			return did("sched_setscheduler", errnoOf(e))
		},
		"raise priority": func(*Targets) (string, error) {
			return did("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, -20))
		},
	}
}

// seize attaches without stopping; the end of this thread detaches.
func seize(pid int) (string, error) {
	runtime.LockOSThread()
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
	return did("ptrace", errnoOf(e))
}

func vmRead(t *Targets) (string, error) {
	b := make([]byte, len(t.Canary))
	_, err := unix.ProcessVMReadv(t.Victim.PID, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: t.Victim.Address, Len: len(b)}}, 0)
	if err == nil && string(b) != t.Canary {
		err = errNothing
	}
	return did("process_vm_readv", err)
}

// vmWrite writes back what is there.
func vmWrite(t *Targets) (string, error) {
	b := []byte(t.Canary)
	_, err := unix.ProcessVMWritev(t.Victim.PID, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: t.Victim.Address, Len: len(b)}}, 0)
	return did("process_vm_writev", err)
}

func signals() map[string]Func {
	return map[string]Func{
		"kill": func(t *Targets) (string, error) {
			return did("kill", unix.Kill(t.Victim.PID, unix.SIGWINCH))
		},
		"kill group": func(t *Targets) (string, error) {
			return did("kill", unix.Kill(-t.Victim.PID, unix.SIGWINCH))
		},
		// The victim counts; ignored by everybody else.
		"kill all": func(*Targets) (string, error) { return did("kill(-1)", unix.Kill(-1, unix.SIGWINCH)) },
		"tgkill": func(t *Targets) (string, error) {
			return did("tgkill", unix.Tgkill(t.Victim.PID, t.Victim.PID, unix.SIGWINCH))
		},
		"pidfd_send_signal": func(t *Targets) (string, error) {
			fd, err := unix.PidfdOpen(t.Victim.PID, 0)
			if err != nil {
				return "", fmt.Errorf("pidfd_open: %w", err)
			}
			return did("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGWINCH, nil, 0))
		},
		"rt_sigqueueinfo": func(t *Targets) (string, error) {
			var info [128]byte
			info[0] = byte(unix.SIGWINCH)
			*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
			_, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(t.Victim.PID), uintptr(unix.SIGWINCH), uintptr(unsafe.Pointer(&info)))
			return did("rt_sigqueueinfo", errnoOf(e))
		},
		// A signal sent by the kernel on the sender's behalf.
		"signal by F_SETOWN": func(t *Targets) (string, error) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return "", err
			}
			_, err = unix.FcntlInt(uintptr(fds[0]), unix.F_SETOWN, t.Victim.PID)
			return did("fcntl(F_SETOWN)", err)
		},
	}
}
