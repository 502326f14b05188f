//go:build linux

// Package jailer serves the launch wire: it makes sandboxes, many at once, tells
// how each ended, and ends them all with the wire.
//
// State owned: the sandboxes that live, by run. Imports: api/launchwire,
// host/{fdframe,jail}, lib/{fault,sandboxplan}. Imported by: cmd/agentos-launcher.
// Locks: server.mu, a leaf. Invariants: a Start is answered by Failed, or by
// Started and later Exited; when Exited or Failed is sent, nothing of the sandbox
// is left; Run returns after the last one is gone (INV-05).
// Format: docs/spec/launch-wire.md. Tests: cmd/agentos-launcher, on the
// built binary.
package jailer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"agentos/internal/api/launchwire"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/jail"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// Jail makes sandboxes; *jail.Jail does.
type Jail interface {
	Start(ctx context.Context, p *sandboxplan.Plan, lifeline *os.File, groups jail.Groups) (*jail.Sandbox, error)
}

// Groups are one sandbox's control groups.
type Groups interface {
	jail.Groups
	Paths() []string // of the groups
	Remove() error   // after everything inside ended
}

// Deps are what Run works with.
type Deps struct {
	Wire *fdframe.Conn
	Jail Jail
	// Groups makes control groups for a run. missing are the limits that no
	// controller here enforces.
	Groups func(run string, l sandboxplan.Limits) (g Groups, missing []string, err error)
}

// Run serves until the wire closes, then ends every sandbox and returns. A
// message that can't be read is an end, too, and an error.
func Run(ctx context.Context, d Deps) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = d.Wire.Close() })()
	s := &server{deps: d, live: map[string]context.CancelFunc{}, box: map[string]*jail.Sandbox{}}
	err := s.serve(ctx)
	cancel()
	s.all.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return nil // the other side is gone, noticed by the reader or by a reply
	}
	return err
}

type server struct {
	deps Deps
	all  sync.WaitGroup

	mu   sync.Mutex
	live map[string]context.CancelFunc
	box  map[string]*jail.Sandbox // those that have started
}

func (s *server) serve(ctx context.Context) error {
	for {
		b, files, err := s.deps.Wire.Read()
		if err != nil {
			return err
		}
		r, err := launchwire.DecodeRequest(b)
		if err != nil {
			closeAll(files)
			return err
		}
		if r.Start != nil {
			s.begin(ctx, &r.Start.Plan, files)
			continue
		}
		closeAll(files)
		switch {
		case r.Stop != nil:
			s.stop(r.Stop.Run)
		case r.Signal != nil:
			s.signal(r.Signal.Run, r.Signal.Signal)
		case r.Ping != nil:
			s.reply(launchwire.Reply{Pong: &launchwire.Pong{PID: os.Getpid(), Root: os.Geteuid() == 0}})
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// begin registers the run, so that a Stop that follows finds it, and goes on
// beside the reader.
func (s *server) begin(ctx context.Context, p *sandboxplan.Plan, files []*os.File) {
	if len(files) != 1 {
		closeAll(files)
		s.failed(p.Run, fault.New(fault.Malformed, "send one descriptor, the lifeline", "start sandbox %.64q: %d descriptors", p.Run, len(files)))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	_, dup := s.live[p.Run]
	if !dup {
		s.live[p.Run] = cancel
	}
	s.mu.Unlock()
	if dup {
		cancel()
		closeAll(files)
		s.failed(p.Run, fault.New(fault.Conflict, "use another run ID", "start sandbox %.64q: it runs already", p.Run))
		return
	}
	s.all.Go(func() {
		defer cancel()
		reply := s.run(ctx, p, files[0])
		s.mu.Lock()
		delete(s.live, p.Run)
		s.mu.Unlock()
		s.reply(reply)
	})
}

func (s *server) stop(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.live[run]; ok {
		cancel()
	}
}

// signal reaches a command that runs; a signal for one that has ended, or not
// yet started, is dropped.
func (s *server) signal(run, name string) {
	s.mu.Lock()
	box := s.box[run]
	s.mu.Unlock()
	if box == nil {
		return
	}
	if err := box.Signal(name); err != nil {
		fmt.Fprintf(os.Stderr, "agentos-launcher: sandbox %s: %v\n", run, err)
	}
}

// run is a sandbox's whole life. It returns the last reply about it.
func (s *server) run(ctx context.Context, p *sandboxplan.Plan, lifeline *os.File) launchwire.Reply {
	defer lifeline.Close()
	if err := p.Check(); err != nil { // before its name becomes the name of a group
		return failure(p.Run, err)
	}
	groups, missing, err := s.deps.Groups(p.Run, p.Limits)
	if err != nil {
		return failure(p.Run, err)
	}
	box, err := s.deps.Jail.Start(ctx, p, lifeline, groups)
	_ = lifeline.Close() // the first process has its own
	if err != nil {
		return failure(p.Run, errors.Join(err, groups.Remove()))
	}
	s.mu.Lock()
	s.box[p.Run] = box
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.box, p.Run)
	}()
	started := launchwire.Reply{Started: &launchwire.Started{
		Run: p.Run, PID: box.PID(), Cgroup: groups.Paths(), Missing: missing, Layers: box.Layers,
	}}
	if fd := box.PIDFD(); fd != nil {
		s.reply(started, fd)
	} else {
		s.reply(started)
	}
	x, err := box.Wait()
	if err := errors.Join(err, groups.Remove()); err != nil {
		fmt.Fprintf(os.Stderr, "agentos-launcher: end sandbox %s: %v\n", p.Run, err)
	}
	return launchwire.Reply{Exited: &launchwire.Exited{
		Run: p.Run, Code: x.Code, Signal: x.Signal, CPUMS: x.CPU.Milliseconds(), MaxRSS: x.MaxRSS,
	}}
}

func (s *server) failed(run string, err error) { s.reply(failure(run, err)) }

func failure(run string, err error) launchwire.Reply {
	f := &launchwire.Failed{Run: run, Kind: string(fault.KindOf(err)), Message: err.Error(), Next: fault.NextOf(err)}
	var step *jail.Error
	if errors.As(err, &step) {
		f.Step, f.Message = step.Step, step.Err.Error()
	}
	return launchwire.Reply{Failed: f}
}

// reply sends r. A caller that is gone hears nothing; the reader notices, too.
func (s *server) reply(r launchwire.Reply, files ...*os.File) {
	b, err := launchwire.EncodeReply(r)
	if err == nil {
		err = s.deps.Wire.Write(b, files...)
	}
	if err != nil {
		_ = s.deps.Wire.Close()
	}
}
