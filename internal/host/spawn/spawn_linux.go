package spawn

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Spec says what to start. The zero value of a field gives nothing.
type Spec struct {
	Binary *os.File   // opened by OpenBinary; verified again by Start
	Argv   []string   // the whole argument vector, name first
	Env    []string   // the whole environment; nothing is inherited
	Files  []*os.File // become descriptors 3, 4, …; the caller keeps its own

	Stdin, Stdout, Stderr *os.File // nil: /dev/null

	// UID and GID of the child; 0 and 0 keep this process's own. With them the
	// supplementary groups become exactly Groups.
	UID, GID uint32
	Groups   []uint32

	Dir    string   // working directory; empty: "/"
	Cgroup *os.File // a cgroup v2 directory to start in; nil: this process's own
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // exit code; -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited by itself
	User   time.Duration  // CPU time of it and the children that it reaped
	System time.Duration
	MaxRSS int64 // bytes
}

// Process is a started child. Its methods are safe for concurrent use.
type Process struct {
	pid   int
	proc  *os.Process
	pidfd int

	mu     sync.Mutex // guards reaped
	reaped bool       // the pid may be somebody else's from now on

	done chan struct{} // closed after exit and err are set
	exit Exit
	err  error
}

// Start runs s. When ctx ends the whole process group is killed. The error is a
// fault; after an error nothing runs.
func Start(ctx context.Context, s Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(err, fault.Cancelled, "", "start process")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := closeOnExec(); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "use linux 5.11 or newer", "keep descriptors from children")
	}
	p, err := s.start()
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "run `agentos doctor`", "start binary %q", s.Binary.Name())
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	go func() {
		p.wait()
		stop()
		close(p.done)
	}()
	return p, nil
}

func (s *Spec) check() error {
	if s.Binary == nil || len(s.Argv) == 0 {
		return fault.New(fault.Internal, "", "start process: no binary or no name")
	}
	if (s.UID == 0) != (s.GID == 0) || slices.Contains(s.Groups, 0) || (s.UID == 0 && len(s.Groups) > 0) {
		return fault.New(fault.Denied, "give the process its own non-root user and group",
			"start binary %q: uid %d, gid %d, groups %v", s.Binary.Name(), s.UID, s.GID, s.Groups)
	}
	return Verify(s.Binary)
}

// start forks. The binary is executed by its descriptor, so that neither its
// path nor the rights on the folders above it matter.
func (s *Spec) start() (*Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	files := []*os.File{s.Stdin, s.Stdout, s.Stderr}
	for i, f := range files {
		if f == nil {
			files[i] = null
		}
	}
	files = append(files, s.Files...)
	exe, err := above(s.Binary, files)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(exe) }()
	pidfd := -1
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd}
	if s.UID != 0 {
		sys.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID, Groups: s.Groups}
	}
	if s.Cgroup != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, int(s.Cgroup.Fd())
	}
	dir := s.Dir
	if dir == "" {
		dir = "/"
	}
	proc, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", exe), s.Argv, &os.ProcAttr{
		Dir: dir, Env: append([]string{}, s.Env...), Files: files, Sys: sys,
	})
	if err != nil {
		return nil, err
	}
	return &Process{pid: proc.Pid, proc: proc, pidfd: pidfd, done: make(chan struct{})}, nil
}

// above duplicates f to a number that the child's own shuffling of descriptors
// can't reach: it uses up to len(files) numbers past the highest of them.
func above(f *os.File, files []*os.File) (int, error) {
	highest := len(files)
	for _, g := range files {
		highest = max(highest, int(g.Fd()))
	}
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, highest+len(files)+2)
}

// closeOnExec marks every descriptor but the standard ones. Go opens all its
// files so; those that this process itself inherited are not.
func closeOnExec() error {
	return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// wait observes the end, kills what is left of the group while the dead leader
// still holds the number, and reaps it.
func (p *Process) wait() {
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // ESRCH when nobody is left
	st, err := p.proc.Wait()
	p.reaped = true
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
	}
	if err != nil {
		p.err = fault.Wrap(err, fault.Internal, "", "wait for process %d", p.pid)
		return
	}
	p.exit = Exit{Code: st.ExitCode(), User: st.UserTime(), System: st.SystemTime()}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal = ws.Signal()
	}
	if ru, ok := st.SysUsage().(*syscall.Rusage); ok {
		p.exit.MaxRSS = ru.Maxrss * 1024
	}
}

// PID is the process's number; after Done it may be another's.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process is gone and its group is killed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the process ended, or ctx's error when that comes first; the
// process then runs on.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

// Kill ends the whole process group at once. Killing what has ended is no error.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	if err := unix.Kill(-p.pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fault.Wrap(err, fault.Internal, "", "kill process group %d", p.pid)
	}
	return nil
}

// Terminate asks the leader, and only it, to end (SIGTERM).
func (p *Process) Terminate() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || p.pidfd < 0 {
		return nil
	}
	if err := unix.PidfdSendSignal(p.pidfd, unix.SIGTERM, nil, 0); err != nil && err != unix.ESRCH {
		return fault.Wrap(err, fault.Internal, "", "terminate process %d", p.pid)
	}
	return nil
}
