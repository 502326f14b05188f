package confine

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
	"agentos/internal/host/seccomp/seccomptest"
)

func vm(t *testing.T, p Profile) func(archID, nr uint32, args ...uint64) seccomp.Verdict {
	t.Helper()
	return seccomptest.Machine(t, policy(p, 4242))
}

// The filter's own rules, also those that this machine's kernel can't show.
func TestFilterRules(t *testing.T) {
	t.Parallel()
	info := seccomptest.Info(t)
	own := uint32(info.ID)
	threadFlags := uint64(unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD)
	for _, p := range []Profile{Loop, Shim, Tool, ToolExec} {
		do := vm(t, p)
		exec := seccomp.EPERM
		if p == ToolExec {
			exec = seccomp.Allow
		}
		for _, tt := range []struct {
			name string
			arch uint32
			nr   uint32
			args []uint64
			want seccomp.Verdict
		}{
			{"read", own, unix.SYS_READ, nil, seccomp.Allow},
			{"read of another architecture", uint32(arch.I386.ID), 3, nil, seccomp.EPERM},
			{"unknown number", own, 4000, nil, seccomp.EPERM},
			{"thread", own, unix.SYS_CLONE, []uint64{threadFlags}, seccomp.Allow},
			{"thread in new user namespace", own, unix.SYS_CLONE, []uint64{threadFlags | unix.CLONE_NEWUSER}, seccomp.EPERM},
			{"process", own, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, exec},
			{"process in new network", own, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD) | unix.CLONE_NEWNET}, seccomp.EPERM},
			{"process whose flags are the number of mmap", own, unix.SYS_CLONE, []uint64{unix.SYS_MMAP}, exec},
			{"prctl whose option is the number of mmap", own, unix.SYS_PRCTL, []uint64{unix.SYS_MMAP}, seccomp.EPERM},
			{"clone3", own, unix.SYS_CLONE3, nil, seccomp.ENOSYS},
			{"signal to self", own, unix.SYS_TGKILL, []uint64{4242, 1, 9}, seccomp.Allow},
			{"signal to another", own, unix.SYS_TGKILL, []uint64{4243, 1, 9}, seccomp.EPERM},
			{"signal with high bits", own, unix.SYS_TGKILL, []uint64{1<<32 | 4242, 1, 9}, seccomp.EPERM},
			{"memory", own, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ | unix.PROT_WRITE}, seccomp.Allow},
			{"executable memory", own, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ | unix.PROT_EXEC}, exec},
			{"fcntl getfl", own, unix.SYS_FCNTL, []uint64{1, unix.F_GETFL}, seccomp.Allow},
			{"fcntl setown", own, unix.SYS_FCNTL, []uint64{1, unix.F_SETOWN}, seccomp.EPERM},
			{"prctl name memory", own, unix.SYS_PRCTL, []uint64{unix.PR_SET_VMA}, seccomp.Allow},
			{"prctl dumpable", own, unix.SYS_PRCTL, []uint64{unix.PR_SET_DUMPABLE, 1}, seccomp.EPERM},
			{"execve", own, unix.SYS_EXECVE, nil, exec},
			{"socket", own, unix.SYS_SOCKET, nil, seccomp.EPERM},
			{"connect", own, unix.SYS_CONNECT, nil, seccomp.EPERM},
			{"io_uring", own, unix.SYS_IO_URING_SETUP, nil, seccomp.ENOSYS},
			{"create file", own, unix.SYS_OPENAT, []uint64{0, 0, unix.O_WRONLY | unix.O_CREAT}, seccomp.EPERM},
		} {
			if got := do(tt.arch, tt.nr, tt.args...); got != tt.want {
				t.Errorf("%s: %s: got %#x, want %#x", p, tt.name, got, tt.want)
			}
		}
		if runtime.GOARCH == "amd64" { // pipe, read and openat by the x32 numbers
			for _, nr := range []uint32{0, 22, 257} {
				if got := do(own, 0x40000000|nr); got != seccomp.ENOSYS {
					t.Errorf("%s: x32 call %d: got %#x, want ENOSYS", p, nr, got)
				}
			}
		}
	}
	readOnly := vm(t, Tool)
	for flags, want := range map[uint64]seccomp.Verdict{
		unix.O_RDONLY | unix.O_CLOEXEC: seccomp.Allow, unix.O_WRONLY: seccomp.EPERM,
		unix.O_RDWR: seccomp.EPERM, unix.O_TRUNC: seccomp.EPERM, unix.O_CREAT: seccomp.EPERM,
	} {
		if got := readOnly(own, unix.SYS_OPENAT, 0, 0, flags); got != want {
			t.Errorf("tool: open with %#x: got %#x, want %#x", flags, got, want)
		}
	}
}

// Every name is a call of this architecture, and of arm64 (which CI only
// compiles), and stands once; the libc that misses one would get EPERM.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{Loop, Shim, Tool, ToolExec} {
		pol := policy(p, os.Getpid())
		names := append(slices.Clone(pol.Allow), pol.Absent...)
		for _, r := range pol.When {
			names = append(names, r.Name)
		}
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
			t.Errorf("%s: %d duplicate names", p, len(names)-n)
		}
		only64 := perArch([]string{
			"open", "newfstatat", "arch_prctl", "fork", "vfork", "pipe", "dup2", "stat", "lstat", "access", "readlink",
			"poll", "select", "epoll_wait", "getrlimit", "getpgrp", "time", "alarm",
		}, nil)
		for _, n := range names {
			if _, ok := arch.AARCH64.SyscallNames[n]; !ok && !slices.Contains(only64, n) {
				t.Errorf("%s: %s is no call of arm64", p, n)
			}
		}
	}
}
