package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"agentos/internal/host/fdframe"
	"agentos/internal/host/seccomp"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// setupTime bounds how long a first process may take to start the command: a
// source on a network file system that hangs must not hold a run for ever.
const setupTime = 30 * time.Second

// Jail starts sandboxes. Its methods are safe for concurrent use.
type Jail struct {
	self     string // this binary, to be run with the single argument "init"
	landlock int
	filters  map[seccomp.Agent][]bpf.RawInstruction
	null     *os.File

	// forks is read-locked while a child is made and noted, so that no child of
	// this process's own is taken for an orphan.
	forks sync.RWMutex
	mu    sync.Mutex // guards own
	own   map[int]bool
}

// Groups are the control groups of one sandbox. host/cgroup has them; nil values
// of the interface are not allowed, a Groups without limits is.
type Groups interface {
	Dir() *os.File     // of control group v2, to start in; nil when there is none
	Add(pid int) error // to the hierarchies that Dir doesn't cover
	Kill() error       // everything inside
}

// Exit is how a sandbox ended.
type Exit struct {
	Code   int           // of the command; -1 when a signal ended it
	Signal int           // that ended the command, or 9 when the sandbox was ended around it
	CPU    time.Duration // of everything in it
	MaxRSS int64         // bytes, of its largest process
}

// Sandbox is one that runs. Its methods are safe for concurrent use.
type Sandbox struct {
	Layers []string // what confines the command, for the record

	jail   *Jail
	pid    int
	child  int // the command, as the first process sees it
	bare   bool
	groups Groups
	proc   *os.Process
	pidfd  *os.File
	wire   *fdframe.Conn
	stop   func() bool // detaches from Start's context

	mu     sync.Mutex // guards reaped
	reaped bool
}

// New prepares to start sandboxes by running self with the argument "init".
func New(self string) (*Jail, error) {
	j := &Jail{self: self, own: map[int]bool{}, filters: map[seccomp.Agent][]bpf.RawInstruction{}}
	if err := j.preflight(); err != nil {
		return nil, err
	}
	for _, a := range []seccomp.Agent{{}, {Nested: true}, {Bare: true}, {Bare: true, Nested: true}} {
		raw, err := a.Filter().Assemble()
		if err != nil {
			return nil, &Error{"seccomp", fault.Wrap(err, fault.Internal, "", "assemble the agent's filter")}
		}
		j.filters[a] = raw
	}
	var err error
	if j.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, failed(err, "null device", "open it")
	}
	return j, nil
}

// Start makes the sandbox of p and runs its command. The end of ctx kills it, now
// or later. lifeline stays the caller's to close. The error is an *Error; after it
// nothing runs. groups are the caller's to remove, after an error or after Wait.
func (j *Jail) Start(ctx context.Context, p *sandboxplan.Plan, lifeline *os.File, groups Groups) (*Sandbox, error) {
	if err := p.Check(); err != nil {
		return nil, &Error{"plan", asFault(err)}
	}
	if err := j.check(p); err != nil {
		return nil, err
	}
	files := []*os.File{lifeline}
	users, err := j.ownerMap(p)
	if err != nil {
		return nil, failed(err, "user namespace", "make the map of the owner to the agent")
	}
	if users != nil {
		defer users.Close()
		files = append(files, users)
	}
	bare := p.Strength == sandboxplan.LandlockOnly
	b, err := json.Marshal(order{Plan: *p, Filter: j.filters[seccomp.Agent{Nested: p.Nested, Bare: bare}], Landlock: j.landlock, Map: users != nil})
	if err != nil {
		return nil, &Error{"plan", fault.Wrap(err, fault.Internal, "", "encode order")}
	}
	s := &Sandbox{jail: j, bare: bare, groups: groups}
	c, err := j.clone(p, s)
	if err != nil {
		return nil, explain(err, p.Strength)
	}
	s.stop = context.AfterFunc(ctx, s.Kill)
	if err := s.begin(c, b, files); err != nil {
		s.Kill()
		_, _ = s.Wait()
		if ctx.Err() != nil {
			err = &Error{"first process", fault.Wrap(context.Cause(ctx), fault.Cancelled, "", "make sandbox")}
		}
		return nil, err
	}
	return s, nil
}

func asFault(err error) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(err, fault.Internal, "", "check plan")
}

// clone starts the first process, which waits for its order.
func (j *Jail) clone(p *sandboxplan.Plan, s *Sandbox) (*net.UnixConn, error) {
	ours, theirs, err := fdframe.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c, err := fdframe.Inherited(ours)
	if err != nil {
		return nil, err
	}
	pidfd := -1
	sys := &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if !s.bare {
		sys.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET
	}
	if p.Strength == sandboxplan.Rootless {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		uid, gid := os.Getuid(), os.Getgid()
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		// Only within the new namespace, and given up before the command starts.
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT}
	}
	if dir := s.groups.Dir(); dir != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}
	j.forks.RLock()
	defer j.forks.RUnlock()
	s.proc, err = os.StartProcess(j.self, []string{"agentos-sandbox", "init"}, &os.ProcAttr{
		// One at a time is enough, and makes fewer threads to change.
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []*os.File{j.null, j.null, os.Stderr, theirs}, Sys: sys,
	})
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("start the first process: %w", err)
	}
	s.pid = s.proc.Pid
	j.note(s.pid)
	if pidfd >= 0 {
		s.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	}
	s.wire = fdframe.New(c, maxMessage)
	return c, nil
}

// begin puts the waiting first process into its groups, gives the order, and
// hears that the command runs.
func (s *Sandbox) begin(c *net.UnixConn, order []byte, files []*os.File) error {
	if err := s.groups.Add(s.pid); err != nil {
		return failed(err, "control group", "put the first process into its groups")
	}
	if err := c.SetDeadline(time.Now().Add(setupTime)); err != nil {
		return failed(err, "first process", "set a deadline")
	}
	if err := s.wire.Write(order, files...); err != nil {
		return s.lost(err)
	}
	b, _, err := s.wire.Read()
	if err != nil {
		return s.lost(err)
	}
	a, err := decodeAnswer(b)
	switch {
	case err != nil:
		return s.lost(err)
	case a.Failed != nil:
		return hint(a.Failed.err())
	case a.Started == nil:
		return s.lost(errors.New("it told neither success nor failure"))
	}
	s.Layers, s.child = a.Started.Layers, a.Started.Child
	if err := c.SetDeadline(time.Time{}); err != nil {
		return failed(err, "first process", "clear the deadline")
	}
	return nil
}

// lost explains a first process that ended, or hung, without a word.
func (s *Sandbox) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Error{"first process", fault.New(fault.Timeout, "look for a source on a file system that hangs", "make sandbox: not ready after %s", setupTime)}
	}
	return &Error{"first process", fault.Wrap(err, fault.Internal, "", "make sandbox: the first process ended")}
}

// PID is the first process's number, as this process sees it.
func (s *Sandbox) PID() int { return s.pid }

// PIDFD is a descriptor of the first process, for others to watch; nil where the
// kernel has none. It is closed by Wait.
func (s *Sandbox) PIDFD() *os.File { return s.pidfd }

// Kill ends everything in the sandbox at once, whatever it did. It may be called
// at any time and more than once; Wait tells when it is over.
func (s *Sandbox) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaped {
		return
	}
	_ = s.groups.Kill() // the first process's end is what counts
	if s.bare {
		// It has to end what it reaps; Wait ends what is left without it.
		_ = s.wire.Close()
		return
	}
	_ = unix.Kill(s.pid, unix.SIGKILL)
}

// Wait returns when nothing of the sandbox is left. It must be called exactly
// once.
func (s *Sandbox) Wait() (Exit, error) {
	x := Exit{Code: -1, Signal: int(unix.SIGKILL)}
	if b, _, err := s.wire.Read(); err == nil {
		if a, err := decodeAnswer(b); err == nil && a.Exit != nil {
			x.Code, x.Signal = a.Exit.Code, a.Exit.Signal
		}
	}
	// The first process's end takes a PID namespace with it, and is reported only
	// after the last process there is gone.
	for {
		if err := unix.Waitid(unix.P_PID, s.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	s.stop()
	_ = s.groups.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.proc.Wait()
	s.reaped = true
	s.jail.forget(s.pid)
	if s.bare {
		if n := s.jail.orphans(); n > 0 {
			err = errors.Join(err, fmt.Errorf("%d processes did not end", n))
		}
	}
	_ = s.wire.Close()
	if s.pidfd != nil {
		_ = s.pidfd.Close()
	}
	if err != nil {
		return x, fmt.Errorf("wait for the first process: %w", err)
	}
	x.CPU = st.UserTime() + st.SystemTime()
	if ru, ok := st.SysUsage().(*syscall.Rusage); ok {
		x.MaxRSS = ru.Maxrss * 1024
	}
	return x, nil
}
