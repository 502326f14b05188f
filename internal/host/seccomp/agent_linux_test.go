package seccomp_test

import (
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
	"agentos/internal/host/seccomp/seccomptest"
)

func lists() map[string]seccomp.Filter {
	return map[string]seccomp.Filter{
		"agent": seccomp.Agent{}.Filter(), "nested": seccomp.Agent{Nested: true}.Filter(),
		"bare": seccomp.Agent{Bare: true}.Filter(), "launcher": seccomp.Launcher(),
	}
}

// Every list assembles, fits the kernel's limit, and answers as its lists mean;
// no call of this architecture is left to chance.
func TestAgentLists(t *testing.T) {
	t.Parallel()
	info := seccomptest.Info(t)
	for name, f := range lists() {
		raw, err := f.Assemble()
		if err != nil || len(raw) > 4096 {
			t.Fatalf("%s: %d instructions, %v", name, len(raw), err)
		}
		run := seccomptest.Machine(t, f)
		for nr := range uint32(600) {
			for _, args := range [][6]uint64{{}, {unix.CLONE_NEWUSER}, {unix.AF_PACKET}, {1, unix.TIOCSTI}, {1, unix.TIOCSTI | 1<<32}, {16, 0, 9}, {1 << 32}} {
				if got, want := run(uint32(info.ID), nr, args[:]...), seccomptest.Meaning(f, info, uint32(info.ID), nr, args); got != want {
					t.Errorf("%s: call %d %x: %#x, want %#x", name, nr, args, got, want)
				}
			}
		}
		if got := run(uint32(arch.I386.ID), 5); got != seccomp.EPERM {
			t.Errorf("%s: a foreign architecture gets %#x", name, got)
		}
		if got := run(uint32(info.ID), 0x40000000); info.ID == arch.X86_64.ID && got != seccomp.ENOSYS {
			t.Errorf("%s: x32 gets %#x", name, got)
		}
	}
}

func TestAgentRefuses(t *testing.T) {
	t.Parallel()
	info := seccomptest.Info(t)
	always := []string{"bpf", "perf_event_open", "userfaultfd", "keyctl", "ptrace", "process_vm_writev", "open_by_handle_at", "reboot", "init_module"}
	for name, f := range lists() {
		run := seccomptest.Machine(t, f)
		for _, c := range always {
			if run(uint32(info.ID), uint32(info.SyscallNames[c])) != seccomp.EPERM {
				t.Errorf("%s: %s is not refused", name, c)
			}
		}
	}
	run := seccomptest.Machine(t, seccomp.Agent{}.Filter())
	for _, flag := range []uint64{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET} {
		for _, c := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			if run(uint32(info.ID), c, flag|uint64(unix.SIGCHLD)) != seccomp.EPERM {
				t.Errorf("call %d with %#x is not refused", c, flag)
			}
		}
	}
}

// Every name is one of arm64, too, but for those that only amd64 has: a name that
// is missing there would be an error at the first start.
func TestAgentNames(t *testing.T) {
	t.Parallel()
	old := []string{
		"open", "stat", "lstat", "newfstatat", "poll", "select", "access", "pipe", "dup2", "pause", "alarm", "fork", "vfork", "getdents",
		"rename", "mkdir", "rmdir", "creat", "link", "unlink", "symlink", "readlink", "chmod", "chown", "lchown", "utime", "utimes", "futimesat",
		"mknod", "getpgrp", "arch_prctl", "time", "epoll_create", "epoll_wait", "epoll_ctl_old", "epoll_wait_old", "inotify_init", "signalfd",
		"eventfd", "getrlimit", "set_thread_area", "get_thread_area", "map_shadow_stack", "iopl", "ioperm", "modify_ldt", "uselib", "ustat",
		"sysfs", "_sysctl", "create_module", "get_kernel_syms", "query_module", "vserver",
	}
	for name, f := range lists() {
		names := slices.Concat(f.Allow, f.Refuse, f.Absent)
		for _, r := range f.When {
			names = append(names, r.Name)
		}
		for _, n := range names {
			if _, ok := arch.AARCH64.SyscallNames[n]; !ok && !slices.Contains(old, n) {
				t.Errorf("%s: %s is no call of arm64", name, n)
			}
		}
	}
}
