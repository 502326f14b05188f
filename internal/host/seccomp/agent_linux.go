package seccomp

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Agent is what the list for a wrapped agent depends on.
type Agent struct {
	// Nested allows namespaces and mounts: an agent that brings a sandbox.
	Nested bool
	// Bare is for a process without namespaces around it: no socket but a pair,
	// since the host's sockets would be within reach, and no System V IPC.
	Bare bool
}

// namespaces are the flags of clone and unshare that make one. CLONE_NEWTIME
// (0x80) lies in clone's exit signal, so that only unshare can carry it.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Filter is the list for a wrapped agent: what ordinary programs use. What is
// refused by name gets EPERM, what has no name here ENOSYS, so that programs of
// tomorrow fall back to calls that are known.
func (a Agent) Filter() Filter {
	f := Filter{Refuse: refused(), Absent: []string{
		"clone3",  // its flags are in memory, where a filter can't look
		"openat2", // nor at the mode in it
		"io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret",
	}, Else: ENOSYS}
	f.When = []Rule{
		{"ioctl", [][]Cond{{{1, LowNot, unix.TIOCSTI}, {1, LowNot, unix.TIOCLINUX}}}},
		// No READ_IMPLIES_EXEC; ADDR_NO_RANDOMIZE is what sanitizers ask for.
		OneOf("personality", 0, 0, 8, 0x20000, 0x20008, 0x40000, 0xffffffff),
		OneOf("socketpair", 0, unix.AF_UNIX),
	}
	f.When = append(f.When, modes()...)
	f.Allow = ordinary()
	if a.Nested {
		f.Allow = append(f.Allow, "clone", "unshare", "setns", "chroot", "sethostname", "setdomainname")
		f.Allow = append(f.Allow, mounts()...)
	} else {
		f.When = append(f.When, When("clone", Cond{0, NoneSet, namespaces}),
			When("unshare", Cond{0, NoneSet, namespaces | unix.CLONE_NEWTIME}))
		f.Refuse = append(f.Refuse, append(mounts(), "setns", "chroot", "sethostname", "setdomainname")...)
	}
	if a.Bare {
		f.Refuse = append(f.Refuse, append(sysv(), "socket")...)
	} else {
		f.Allow = append(f.Allow, sysv()...)
		s := OneOf("socket", 0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6)
		s.Any = append(s.Any, []Cond{{0, Equal, unix.AF_NETLINK}, {2, Equal, unix.NETLINK_ROUTE}})
		f.When = append(f.When, s)
	}
	return f
}

// Launcher is the list for the process that makes sandboxes, and so the outer
// bound of everything that it starts: a nested agent's calls, and those that
// make a sandbox and its groups.
func Launcher() Filter {
	f := Agent{Nested: true}.Filter()
	f.Absent = []string{"io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret"}
	// It starts into a control group, and opens what plans name without following
	// links.
	f.Allow = append(f.Allow, "clone3", "openat2")
	return f
}

// modes are the calls that give a file its mode: without the set-user-ID and
// set-group-ID bits. What an agent makes in the owner's folders is the owner's
// file, so one with those bits would let whoever runs it act as the owner. Opening
// takes a mode only when it creates.
func modes() []Rule {
	const special = unix.S_ISUID | unix.S_ISGID
	creates := uint64(unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY)
	open := func(name string, flags uint32) Rule {
		return Rule{name, [][]Cond{{{flags, NoneSet, creates}}, {{flags + 1, NoneSet, special}}}}
	}
	rules := []Rule{
		open("openat", 2), When("fchmod", Cond{1, NoneSet, special}), When("fchmodat", Cond{2, NoneSet, special}),
		When("fchmodat2", Cond{2, NoneSet, special}), When("mknodat", Cond{2, NoneSet, special}),
	}
	if runtime.GOARCH == "amd64" {
		rules = append(rules, open("open", 1), When("creat", Cond{1, NoneSet, special}),
			When("chmod", Cond{1, NoneSet, special}), When("mknod", Cond{1, NoneSet, special}))
	}
	return rules
}

func mounts() []string {
	return []string{
		"mount", "umount2", "pivot_root", "open_tree", "open_tree_attr", "move_mount",
		"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
	}
}

func sysv() []string {
	return []string{
		"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop",
		"msgget", "msgsnd", "msgrcv", "msgctl",
		"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
	}
}

// refused are calls that ordinary programs probe or do without.
func refused() []string {
	return append([]string{
		"bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load",
		"init_module", "finit_module", "delete_module", "add_key", "request_key", "keyctl",
		"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
		"open_by_handle_at", "quotactl", "quotactl_fd", "reboot", "swapon", "swapoff",
		"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "acct", "syslog",
		"vhangup", "fanotify_init", "fanotify_mark", "lookup_dcookie", "nfsservctl",
		"move_pages", "migrate_pages", "mbind", "set_mempolicy", "set_mempolicy_home_node",
		"process_madvise",
	}, perArch([]string{
		"iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "_sysctl", "create_module",
		"get_kernel_syms", "query_module", "vserver",
	}, nil)...)
}

// ordinary calls, the frequent ones first: the program is a list, and although
// the kernel remembers which of its numbers are always allowed, older ones don't.
func ordinary() []string {
	return append(append(append([]string{
		"read", "write", "close", "futex", "fstat", "mmap", "munmap", "mprotect",
		"lseek", "brk", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "pread64", "pwrite64",
		"readv", "writev", "getpid", "gettid", "fcntl", "dup", "dup3", "pipe2", "ppoll", "pselect6",
		"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "eventfd2", "signalfd4",
		"timerfd_create", "timerfd_settime", "timerfd_gettime", "madvise", "mremap", "msync",
		"mincore", "mlock", "mlock2", "munlock", "mlockall", "munlockall", "membarrier",
		"pkey_mprotect", "pkey_alloc", "pkey_free", "remap_file_pages", "get_mempolicy", "mseal",
		"memfd_create", "execve", "execveat", "exit", "exit_group", "wait4", "waitid",
		"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "rt_sigpending",
		"rt_sigtimedwait", "rt_sigsuspend", "sigaltstack", "pidfd_open", "pidfd_send_signal",
		"set_tid_address", "set_robust_list", "get_robust_list", "rseq", "restart_syscall",
		"futex_waitv", "futex_wake", "futex_wait", "futex_requeue", "process_mrelease",
		"nanosleep", "clock_gettime", "clock_getres", "clock_nanosleep", "gettimeofday",
		"getitimer", "setitimer", "timer_create", "timer_settime", "timer_gettime",
		"timer_getoverrun", "timer_delete", "times", "getrandom", "getcpu",
		"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_setparam", "sched_getparam",
		"sched_setscheduler", "sched_getscheduler", "sched_get_priority_max",
		"sched_get_priority_min", "sched_rr_get_interval", "sched_setattr", "sched_getattr",
		"getpriority", "setpriority", "ioprio_set", "ioprio_get",
	}, fileCalls()...), accountCalls()...), perArch([]string{
		"stat", "lstat", "newfstatat", "poll", "select", "access", "pipe", "dup2", "pause",
		"alarm", "fork", "vfork", "getdents", "rename", "mkdir", "rmdir", "link", "unlink",
		"symlink", "readlink", "chown", "lchown", "utime", "utimes", "futimesat",
		"getpgrp", "arch_prctl", "time", "epoll_create", "epoll_wait", "epoll_ctl_old",
		"epoll_wait_old", "inotify_init", "signalfd", "eventfd", "getrlimit", "set_thread_area",
		"get_thread_area", "map_shadow_stack",
	}, []string{"fstatat", "getrlimit"})...)
}

func fileCalls() []string {
	return []string{
		"statx", "statfs", "fstatfs", "getdents64", "getcwd", "chdir", "fchdir",
		"mkdirat", "unlinkat", "renameat", "renameat2", "linkat", "symlinkat",
		"readlinkat", "faccessat", "faccessat2", "fchown",
		"fchownat", "umask", "truncate", "ftruncate", "fallocate", "fsync", "fdatasync", "sync",
		"syncfs", "sync_file_range", "flock", "utimensat", "preadv", "pwritev", "preadv2",
		"pwritev2", "sendfile", "splice", "tee", "vmsplice", "copy_file_range", "readahead",
		"fadvise64", "cachestat", "close_range", "name_to_handle_at",
		"inotify_init1", "inotify_add_watch", "inotify_rm_watch",
		"setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr",
		"llistxattr", "flistxattr", "removexattr", "lremovexattr", "fremovexattr",
		"setxattrat", "getxattrat", "listxattrat", "removexattrat",
		"io_setup", "io_destroy", "io_getevents", "io_submit", "io_cancel", "io_pgetevents",
	}
}

// accountCalls are about identity, limits and messages. Without capabilities the
// kernel itself refuses any change of identity.
func accountCalls() []string {
	return []string{
		"getuid", "getgid", "geteuid", "getegid", "getppid", "getpgid", "setpgid", "getsid", "setsid",
		"getgroups", "setgroups", "setuid", "setgid", "setreuid", "setregid", "setresuid",
		"getresuid", "setresgid", "getresgid", "setfsuid", "setfsgid", "capget", "capset",
		"prctl", "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
		"prlimit64", "setrlimit", "getrusage", "sysinfo", "uname",
		"connect", "bind", "listen", "accept", "accept4", "getsockname", "getpeername",
		"setsockopt", "getsockopt", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg",
		"recvmmsg", "shutdown",
	}
}

func perArch(amd64, arm64 []string) []string {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}
