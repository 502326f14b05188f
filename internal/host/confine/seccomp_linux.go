package confine

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// installFilter puts profile's allow list on every thread. The library only
// assembles: its loader takes the thread ID, by which the kernel reports that
// one thread could not be filtered, for success.
func installFilter(profile Profile) error {
	insts, err := policy(profile, os.Getpid()).Assemble()
	if err != nil {
		return fmt.Errorf("%w: assemble profile %q: %w", ErrSeccomp, profile, err)
	}
	raw, err := bpf.Assemble(insts)
	if err != nil {
		return fmt.Errorf("%w: assemble profile %q: %w", ErrSeccomp, profile, err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, ins := range raw {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	prog := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// The return value matters: without an errno it is the thread that failed.
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(prog)))
	runtime.KeepAlive(filter)
	if e != 0 {
		return fmt.Errorf("%w: %w", ErrSeccomp, e)
	}
	if tid != 0 {
		return fmt.Errorf("%w: thread %d has another filter", ErrSeccomp, tid)
	}
	return nil
}

// policy builds the allow list of profile for the process pid. Everything that
// is not listed is EPERM; x32 and foreign architectures are refused by the
// assembler's own head (ENOSYS and the default).
func policy(profile Profile, pid int) *seccomp.Policy {
	allow, cond := base(), append(threads(), toSelf("tgkill", pid))
	switch profile {
	case Shim:
		allow = append(allow, messages()...)
	case Tool:
		allow = append(allow, messages()...)
		allow = append(allow, files()...)
		cond = append(cond, openReadOnly("openat", 2)...)
	case ToolExec:
		allow = append(allow, messages()...)
		allow = append(allow, files()...)
		allow = append(allow, children()...)
		cond = append(childThreads(), toSelf("tgkill", pid), toSelf("kill", pid))
		cond = append(cond, openNoCreate()...)
	}
	if profile != ToolExec {
		cond = append(cond, noExecMemory()...)
	}
	cond = append(cond, fcntls(profile)...)
	cond = append(cond, prctls(profile)...)
	return &seccomp.Policy{
		DefaultAction: seccomp.ActionErrno,
		Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionAllow, Names: allow, NamesWithCondtions: cond},
			{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: absent(profile)},
		},
	}
}
