package client

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"agentos/internal/api/apierr"
	"agentos/internal/api/wire"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"

	"connectrpc.com/connect"
)

// Spawn starts an agentosd for each session. The zero value uses the defaults;
// set fields before the first Connect.
type Spawn struct {
	Dirs  []string      // where to look besides our own directory
	Grace time.Duration // how long Close waits before it ends agentosd; 0: 15 s

	mu   sync.Mutex
	live []*process
}

// Connect starts agentosd with a connected socket on descriptor 3.
func (s *Spawn) Connect(ctx context.Context, sets []setting.Set) (*Session, error) {
	return s.connect(ctx, sets, "--inherit")
}

// Shared is a Connector whose sessions are served by one agentosd for the whole
// state directory, which is started if there is none and outlives the session.
func (s *Spawn) Shared() Connector { return shared{s} }

type shared struct{ s *Spawn }

func (c shared) Connect(ctx context.Context, sets []setting.Set) (*Session, error) {
	return c.s.connect(ctx, sets, "--inherit", "--share")
}

func (s *Spawn) connect(ctx context.Context, sets []setting.Set, mode ...string) (*Session, error) {
	path, err := Find(s.Dirs)
	if err != nil {
		return nil, err
	}
	conn, child, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	p := &process{owner: s, grace: s.Grace, done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = 15 * time.Second
	}
	p.cmd = exec.Command(path, append(mode, setting.Args(sets)...)...)
	p.cmd.Stderr = &p.said
	p.cmd.ExtraFiles = []*os.File{child}
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, fault.Wrap(err, fault.Unavailable, "reinstall AgentOS, or check the file's mode", "start %q", path)
	}
	s.add(p)
	go p.wait()
	h, err := wire.Client(ctx, conn)
	if err != nil {
		err = p.explain(err)
		_ = p.close() // the reason is already known
		return nil, err
	}
	p.hangUp = conn.Close
	return newSession(h, p), nil
}

// Kill ends every agentosd that is still alive, without asking. For the second
// Ctrl-C: the next start finds what was open and records it as unknown.
func (s *Spawn) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.live {
		p.signal(syscall.SIGKILL)
	}
}

func (s *Spawn) add(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = append(s.live, p)
}

func (s *Spawn) remove(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = slices.DeleteFunc(s.live, func(x *process) bool { return x == p })
}

// process is one started agentosd.
type process struct {
	owner  *Spawn
	cmd    *exec.Cmd
	said   tail
	grace  time.Duration
	hangUp func() error
	done   chan struct{} // closed when it ended; err and cmd.ProcessState are then set
	err    error
}

func (p *process) wait() {
	p.err = p.cmd.Wait()
	p.owner.remove(p)
	close(p.done)
}

// signal goes to the whole group, as agentosd's own children may hold its pipes,
// and to agentosd itself, should it have left the group.
func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	_ = p.cmd.Process.Signal(sig)
}

// ended waits up to d.
func (p *process) ended(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// failure is nil when agentosd ended well.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	code, sig := p.cmd.ProcessState.ExitCode(), ""
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		sig = ws.Signal().String()
	}
	if code == 0 && errors.Is(p.err, exec.ErrWaitDelay) {
		return nil // ended well; something that it started held stderr open
	}
	return p.said.died(code, exitText(code, sig))
}

func (p *process) explain(err error) error {
	var f *fault.Error
	if errors.As(err, &f) || connect.IsWireError(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return apierr.FromConnect(err)
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return err // not about the connection
	}
	// The connection broke: agentosd knows why, once it has ended.
	if !p.ended(2 * time.Second) {
		return fault.New(fault.Internal, "run agentos doctor", "talk to agentosd: %s", ce.Message())
	}
	if f := p.failure(); f != nil {
		return f
	}
	return p.said.died(0, "exit status 0")
}

func (p *process) close() error {
	if p.hangUp != nil {
		_ = p.hangUp()
	}
	if p.ended(p.grace) {
		return p.failure()
	}
	p.signal(syscall.SIGTERM)
	if !p.ended(min(p.grace, 2*time.Second)) {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	return fault.New(fault.Timeout, "run agentos doctor; the next start records what was left open",
		"end agentosd: it did not finish within %s and was stopped", p.grace)
}
