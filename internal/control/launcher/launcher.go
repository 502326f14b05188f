//go:build linux

// Package launcher is agentosd's side of the wire to agentos-launcher: it asks
// for sandboxes and hears how they ended.
//
// State owned: the wire and the sandboxes that live. Imports: api/launchwire,
// host/{fdframe,spawn}, lib/{fault,sandboxplan}. Imported by: control. Locks:
// Launcher.mu, a leaf. Invariants: a sandbox that Start reported is reported as
// exited exactly once; when the wire breaks every sandbox is reported gone,
// because the launcher ends them with its wire.
// Tests: launcher_test.go.
package launcher

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"agentos/internal/api/launchwire"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// Launcher is one launcher process or service. Safe for concurrent use.
type Launcher struct {
	wire *fdframe.Conn
	gone <-chan struct{}

	mu   sync.Mutex
	live map[string]*Sandbox
	err  error // why the wire is gone
}

// Sandbox is one that was started.
type Sandbox struct {
	Run     string
	Started launchwire.Started
	started chan error             // capacity 1
	exited  chan launchwire.Exited // capacity 1, closed after
}

// Exited yields once, when nothing of the sandbox is left.
func (s *Sandbox) Exited() <-chan launchwire.Exited { return s.exited }

// Start runs the launcher program for as long as this process uses it. ctx ends
// it with all its sandboxes.
func Start(ctx context.Context, binary *os.File) (*Launcher, error) {
	ours, theirs, err := fdframe.Pair()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "start launcher")
	}
	defer theirs.Close()
	c, err := fdframe.Inherited(ours)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "start launcher")
	}
	p, err := spawn.Start(ctx, spawn.Spec{Binary: binary, Argv: []string{"agentos-launcher"}, Stdin: theirs, Stderr: os.Stderr})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return attach(c, p.Done()), nil
}

// attach speaks with a launcher over c; gone is closed when it has ended.
func attach(c *net.UnixConn, gone <-chan struct{}) *Launcher {
	l := &Launcher{wire: fdframe.New(c, launchwire.MaxMessage), gone: gone, live: map[string]*Sandbox{}}
	go l.read()
	return l
}

// Alive reports whether the wire still stands.
func (l *Launcher) Alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil
}

// Close hangs up, which ends every sandbox, and waits for the program's end.
func (l *Launcher) Close() {
	_ = l.wire.Close()
	<-l.gone
}

// Launch makes the sandbox of p and starts its command; lifeline is the far end
// of the shim's connection and stays the caller's to close. The error is a
// fault; after it nothing of the sandbox is left.
func (l *Launcher) Launch(ctx context.Context, p sandboxplan.Plan, lifeline *os.File) (*Sandbox, error) {
	s := &Sandbox{Run: p.Run, started: make(chan error, 1), exited: make(chan launchwire.Exited, 1)}
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return nil, l.err
	}
	if _, dup := l.live[p.Run]; dup {
		defer l.mu.Unlock()
		return nil, fault.New(fault.Conflict, "", "sandbox %q runs already", p.Run)
	}
	l.live[p.Run] = s
	l.mu.Unlock()
	if err := l.send(launchwire.Request{Start: &launchwire.Start{Plan: p}}, lifeline); err != nil {
		l.drop(p.Run)
		return nil, err
	}
	select {
	case err := <-s.started:
		return s, err
	case <-ctx.Done():
		_ = l.Stop(p.Run)
		if err := <-s.started; err != nil {
			return nil, err
		}
		<-s.exited
		return nil, fault.Wrap(context.Cause(ctx), fault.Cancelled, "", "start sandbox %q", p.Run)
	}
}

// Stop ends a sandbox at once; how it ended comes from Exited.
func (l *Launcher) Stop(run string) error {
	return l.send(launchwire.Request{Stop: &launchwire.Stop{Run: run}})
}

// Signal sends a signal of gatewire.Signals to a sandbox's command.
func (l *Launcher) Signal(run, signal string) error {
	return l.send(launchwire.Request{Signal: &launchwire.Signal{Run: run, Signal: signal}})
}

func (l *Launcher) send(r launchwire.Request, files ...*os.File) error {
	b, err := launchwire.EncodeRequest(r)
	if err == nil {
		err = l.wire.Write(b, files...)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "run `agentos doctor`", "ask the launcher")
	}
	return nil
}

func (l *Launcher) drop(run string) *Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.live[run]
	delete(l.live, run)
	return s
}

// read takes replies until the wire ends.
func (l *Launcher) read() {
	err := l.readAll()
	l.mu.Lock()
	l.err = fault.Wrap(err, fault.Unavailable, "run `agentos doctor`", "the launcher is gone")
	gone := l.live
	l.live = map[string]*Sandbox{}
	l.mu.Unlock()
	for run, s := range gone {
		s.fail(l.err)
		s.exit(launchwire.Exited{Run: run, Code: -1, Signal: 9})
	}
}

func (l *Launcher) readAll() error {
	for {
		b, files, err := l.wire.Read()
		for _, f := range files {
			_ = f.Close() // the pidfd: the launcher itself watches the process
		}
		if err != nil {
			return err
		}
		r, err := launchwire.DecodeReply(b)
		if err != nil {
			return err
		}
		l.handle(r)
	}
}

func (l *Launcher) handle(r launchwire.Reply) {
	switch {
	case r.Started != nil:
		l.mu.Lock()
		s := l.live[r.Started.Run]
		l.mu.Unlock()
		if s != nil {
			s.Started = *r.Started
			s.started <- nil
		}
	case r.Failed != nil:
		if s := l.drop(r.Failed.Run); s != nil {
			msg := r.Failed.Message
			if r.Failed.Step != "" {
				msg = fmt.Sprintf("%s: %s", r.Failed.Step, msg)
			}
			s.fail(fault.New(fault.Kind(r.Failed.Kind), r.Failed.Next, "%s", msg))
			s.exit(launchwire.Exited{Run: r.Failed.Run, Code: -1})
		}
	case r.Exited != nil:
		if s := l.drop(r.Exited.Run); s != nil {
			s.exit(*r.Exited)
		}
	}
}

func (s *Sandbox) fail(err error) {
	select {
	case s.started <- err:
	default: // it had started
	}
}

func (s *Sandbox) exit(e launchwire.Exited) {
	s.exited <- e
	close(s.exited)
}
