package jail

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/sandboxplan"
)

// ownerMap makes the user namespace that idmapped mounts of p need: the owner's
// IDs on disk are the agent's in the mount. It is nil when p has no such mount.
func (j *Jail) ownerMap(p *sandboxplan.Plan) (*os.File, error) {
	id := p.Identity
	owned := slices.ContainsFunc(p.Mounts, func(m sandboxplan.Mount) bool { return m.Owned })
	if !owned || (id.UID == id.OwnerUID && id.GID == id.OwnerGID) {
		return nil, nil
	}
	pid, err := j.sleeper()
	if err != nil {
		return nil, errno("clone", err)
	}
	defer func() {
		defer j.forget(pid)
		_ = unix.Kill(pid, unix.SIGKILL)
		for {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
	for _, m := range []struct {
		file     string
		disk, in uint32
	}{{"uid_map", id.OwnerUID, id.UID}, {"gid_map", id.OwnerGID, id.GID}} {
		name := fmt.Sprintf("/proc/%d/%s", pid, m.file)
		if err := os.WriteFile(name, fmt.Appendf(nil, "%d %d 1\n", m.disk, m.in), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}

// sleeper makes a process in a new user namespace that does nothing at all: it
// shares no memory, never returns to the runtime, and ends with this thread.
func (j *Jail) sleeper() (int, error) {
	j.forks.RLock()
	defer j.forks.RUnlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// No handler of ours may run in the child, where the runtime isn't.
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, err
	}
	pid, e := forkAndSleep(uintptr(os.Getpid()))
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) // it was set a moment ago
	if e != 0 {
		return 0, e
	}
	j.note(int(pid))
	return int(pid), nil
}

// forkAndSleep is what runs in both processes: after the clone, the child may use
// nothing but its registers and system calls.
//
//go:noinline
//go:norace
func forkAndSleep(parent uintptr) (uintptr, syscall.Errno) {
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_NEWUSER, 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		return pid, e
	}
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	if p, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); p == parent || p == 0 {
		for {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
