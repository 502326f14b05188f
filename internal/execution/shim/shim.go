// Package shim is a run's front: it speaks MCP and the Chat Completions HTTP API
// with the agent, and a model's wire with a backend, and turns every request
// into a proposal that the gate answers. It has no authority: it holds no key,
// opens no file and makes no connection; an admitted model call comes with the
// connection to use. A run that wraps a program of others has no such endpoints:
// it is handed on to Deps.Wrapped.
//
// State owned: the proposals under way. Imports: api/{gatewire,runspec}, lib/chat,
// lib/chat/completions, execution/model, trusted/modelcontext. Imported by:
// cmd/agentos-shim. Locks: gate.mu, a leaf. Invariants: INV-13: the agent reaches
// execution only by proposals; a model call is made only between Begin and its
// ModelDone; nothing is answered to the agent before the gate's Answer, except
// the text of a streamed turn.
// Tests: shim_test.go, wrapped_test.go.
package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"agentos/internal/api/gatewire"
	"agentos/internal/api/runspec"
	"agentos/internal/execution/model"
)

// Wire is the connection to the gate's process (host/fdframe).
type Wire interface {
	Write(body []byte, files ...*os.File) error
	Read() ([]byte, []*os.File, error)
	Close() error
}

// Deps is all that the shim may touch.
type Deps struct {
	Wire Wire
	// Backend makes the backend that Hello names. script is the replay script's
	// content; dial hands out the connection of the admitted call.
	Backend func(h gatewire.Hello, script io.Reader, dial model.Dialer) (model.Backend, error)
	// Conn turns a received descriptor into a connection and closes it.
	Conn func(*os.File) (net.Conn, error)
	// Wrapped serves a run of gatewire.KindRun in our stead until the wire closes
	// (execution/relay). It owns lifeline.
	Wrapped func(ctx context.Context, h gatewire.Hello, lifeline *os.File) error
	Ready   gatewire.Ready
}

// Run serves one run. It returns nil when the gate's process closed the wire,
// which is how a run ends, and an error on anything else. All goroutines have
// ended when it returns.
func Run(ctx context.Context, d Deps) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := newGate(d.Wire)
	if err := g.send(gatewire.Up{Ready: &d.Ready}, nil); err != nil {
		return err
	}
	hello, files, err := readHello(d.Wire)
	if err != nil {
		return err
	}
	if hello.Kind == gatewire.KindRun {
		return d.Wrapped(ctx, hello, files[0])
	}
	s := &session{gate: g, hello: hello}
	if err := s.open(d, files); err != nil {
		return err
	}
	return s.serve(ctx, cancel, d)
}

// readHello waits for the run. Its descriptors are checked for number here and
// for kind when they are used.
func readHello(w Wire) (gatewire.Hello, []*os.File, error) {
	b, files, err := w.Read()
	if err != nil {
		return gatewire.Hello{}, nil, fmt.Errorf("wait for the run: %w", err)
	}
	m, _, err := gatewire.DecodeDown(b)
	if err != nil || m.Hello == nil {
		closeFiles(files)
		return gatewire.Hello{}, nil, fmt.Errorf("wait for the run: not a hello: %w", err)
	}
	want := 3
	switch {
	case m.Hello.Kind == gatewire.KindRun:
		want = 1
	case m.Hello.Backend == "replay":
		want = 4
	}
	if len(files) != want {
		closeFiles(files)
		return gatewire.Hello{}, nil, fmt.Errorf("wait for the run: %d descriptors, want %d", len(files), want)
	}
	return *m.Hello, files, nil
}

// session is one run.
type session struct {
	gate    *gate
	hello   gatewire.Hello
	mcp     net.Conn
	chat    net.Conn
	loopOut *os.File
	backend model.Backend
}

func (s *session) open(d Deps, files []*os.File) (err error) {
	defer func() {
		if err != nil {
			closeFiles(files)
		}
	}()
	if s.mcp, err = d.Conn(files[0]); err != nil {
		return err
	}
	if s.chat, err = d.Conn(files[1]); err != nil {
		return err
	}
	s.loopOut = files[2]
	var script io.Reader
	if len(files) == 4 {
		script = files[3]
		defer files[3].Close()
	}
	s.backend, err = d.Backend(s.hello, script, s.gate)
	return err
}

// serve runs the fronts until the wire closes. Closing the agent's connections
// ends the fronts, closing the wire ends the reader.
func (s *session) serve(ctx context.Context, cancel context.CancelFunc, d Deps) error {
	wireErr := make(chan error, 1)
	go func() { wireErr <- s.gate.read(d.Conn); cancel() }()
	fronts := make(chan error, 3)
	go func() { fronts <- s.serveMCP(ctx) }()
	go func() { fronts <- s.serveChat(ctx) }()
	go func() { fronts <- s.relayLoopOutput() }()
	err := <-wireErr
	_ = s.mcp.Close()
	_ = s.chat.Close()
	_ = s.loopOut.Close()
	for range 3 {
		if ferr := <-fronts; ferr != nil && err == nil && ctx.Err() == nil {
			err = ferr
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// relayLoopOutput reads the loop's report, which is bounded and checked here so
// that the gate's process needn't parse it, and passes it up.
func (s *session) relayLoopOutput() error {
	b, err := io.ReadAll(io.LimitReader(s.loopOut, runspec.MaxReport+1))
	if err != nil && len(b) == 0 {
		return nil // closed by us: the run is over
	}
	r, err := runspec.DecodeReport(b)
	if err != nil {
		return s.gate.send(gatewire.Up{LoopEnd: &gatewire.LoopEnd{Detail: clip(err.Error(), 512)}}, nil)
	}
	return s.gate.send(gatewire.Up{LoopEnd: &gatewire.LoopEnd{
		Reason: string(r.Reason), Detail: clip(r.Detail, 4096), Iterations: r.Iterations,
	}}, []byte(r.Report))
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
