package confine

import (
	"runtime"

	"golang.org/x/sys/unix"

	"agentos/internal/host/seccomp"
)

// base is what the Go runtime needs to go on, and reading and writing of
// descriptors that are there. The hot calls come first: the filter is a list.
func base() []string {
	return []string{
		"futex", "read", "write", "epoll_pwait", "nanosleep", "clock_gettime",
		"sched_yield", "madvise", "munmap", "rt_sigreturn", "rt_sigprocmask",
		"sigaltstack", "gettid", "getpid", "close", "readv", "writev",
		"epoll_ctl", "epoll_create1", "eventfd2", "clock_nanosleep",
		"gettimeofday", "getrandom", "rt_sigaction", "restart_syscall",
		"sched_getaffinity", "exit", "exit_group", "fstat", "lseek",
		"pread64", // the runtime follows its CPU quota by descriptors it holds
		"shutdown", "getuid", "geteuid", "getgid", "getegid", "getppid",
		"rseq", "set_robust_list", // glibc threads of builds with cgo, such as race tests
	}
}

// messages on sockets that are there already, descriptors included.
func messages() []string {
	return []string{
		"recvmsg", "sendmsg", "recvfrom", "sendto",
		"getsockopt", "getsockname", "getpeername",
	}
}

// files are reading calls; Landlock says which files. Calls that only look at
// metadata are not limited by Landlock, only by file permissions.
func files() []string {
	return append([]string{
		"getdents64", "statx", "statfs", "fstatfs", "readlinkat", "faccessat",
		"faccessat2", "getcwd", "preadv", "fadvise64", "sysinfo", "uname",
		"getrusage", "times", "getgroups", "getpgid", "getsid", "dup", "dup3",
		"ppoll",
	}, perArch([]string{"newfstatat"}, []string{"fstatat"})...)
}

// children are what libc programs need to start, work and be waited for. Neither
// setsid nor setpgid: a child that left its process group would survive a kill.
func children() []string {
	return append([]string{
		"execve", "mmap", "mprotect", "mremap", "brk", "set_tid_address",
		"prlimit64", "wait4", "waitid", "pipe2",
		"umask", "chdir", "fchdir", "pselect6",
		"pidfd_send_signal", "capget", "clock_getres", "msync", "mincore",
		"rt_sigsuspend", "rt_sigtimedwait", "sched_getparam", "sched_getscheduler",
	}, perArch([]string{
		"arch_prctl", "fork", "vfork", "pipe", "dup2", "stat", "lstat", "access",
		"readlink", "poll", "select", "epoll_wait", "getrlimit", "getpgrp",
		"time", "alarm",
	}, []string{"getrlimit"})...)
}

// absent calls are told to be unknown to the kernel, so that callers use the
// older call, which the filter can look into.
func absent(profile Profile) []string {
	names := []string{
		"clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register",
		"copy_file_range", "sendfile", "splice", "epoll_pwait2", "close_range",
	}
	if profile != Tool && profile != ToolExec {
		names = append(names, "statx", "faccessat2")
	}
	return names
}

func perArch(amd64, arm64 []string) []string {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}

// cloneNew is every flag that makes a namespace; CLONE_NEWTIME shares its bit
// with the exit signal, so clone can't carry it.
const cloneNew = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// writing is every flag of open that writes or makes a file. Refusing them stands
// beside Landlock, which gives no write right either.
const writing = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND

// openNoCreate lets children open /dev/null for writing; Landlock gives the
// write right for nothing else, and the file size limit of 0 for no file.
func openNoCreate() []seccomp.Rule {
	out := []seccomp.Rule{seccomp.When("openat", seccomp.Cond{Arg: 2, Op: seccomp.NoneSet, Value: unix.O_CREAT | unix.O_TRUNC})}
	if runtime.GOARCH == "amd64" {
		out = append(out, seccomp.When("open", seccomp.Cond{Arg: 1, Op: seccomp.NoneSet, Value: unix.O_CREAT | unix.O_TRUNC}))
	}
	return out
}

// fcntls are the commands that concern one's own descriptors; those that make
// the kernel signal somebody (F_SETOWN, F_SETSIG, F_NOTIFY) are not among them.
func fcntls(profile Profile) seccomp.Rule {
	cmds := []uint64{unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC}
	if profile == ToolExec {
		cmds = append(cmds, unix.F_DUPFD, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW)
	}
	return seccomp.OneOf("fcntl", 1, cmds...)
}

// prctls name memory (the runtime) and threads, and tie a child's life to its
// parent's.
func prctls(profile Profile) seccomp.Rule {
	opts := []uint64{unix.PR_SET_VMA}
	if profile == ToolExec {
		opts = append(opts, unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_PDEATHSIG, unix.PR_CAPBSET_READ)
	}
	return seccomp.OneOf("prctl", 0, opts...)
}
