package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"agentos/internal/api/gatewire"
)

// gate is the shim's side of the wire: proposals out, answers in.
type gate struct {
	wire Wire
	mu   sync.Mutex
	next uint64
	open map[uint64]*proposal
	done error // why no more answers will come
	conn net.Conn
}

// proposal is one call that waits for the gate.
type proposal struct {
	begin  chan struct{}      // closed by Begin (model calls)
	call   string             // set before begin is closed
	conn   net.Conn           // set before begin is closed; may be nil
	abort  context.CancelFunc // set before the proposal is sent
	why    string             // reason of an abort
	answer chan reply         // capacity 1
}

type reply struct {
	gatewire.Answer
	blob []byte
	err  error
}

func newGate(w Wire) *gate { return &gate{wire: w, open: map[uint64]*proposal{}} }

func (g *gate) send(m gatewire.Up, blob []byte) error {
	b, err := gatewire.EncodeUp(m, blob)
	if err != nil {
		return err
	}
	return g.wire.Write(b)
}

func (g *gate) propose(abort context.CancelFunc) (uint64, *proposal, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done != nil {
		return 0, nil, g.done
	}
	g.next++
	p := &proposal{begin: make(chan struct{}), answer: make(chan reply, 1), abort: abort}
	g.open[g.next] = p
	return g.next, p, nil
}

// read handles messages until the wire closes, then fails whatever still waits.
func (g *gate) read(conn func(*os.File) (net.Conn, error)) error {
	err := g.readAll(conn)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = fmt.Errorf("the gate's process closed the run: %w", err)
	for id, p := range g.open {
		delete(g.open, id)
		p.abort()
		p.answer <- reply{err: g.done}
	}
	return err
}

func (g *gate) readAll(conn func(*os.File) (net.Conn, error)) error {
	for {
		b, files, err := g.wire.Read()
		if err != nil {
			return err
		}
		m, blob, err := gatewire.DecodeDown(b)
		if err != nil {
			closeFiles(files)
			return err
		}
		if err := g.handle(m, blob, files, conn); err != nil {
			closeFiles(files)
			return err
		}
	}
}

func (g *gate) handle(m gatewire.Down, blob []byte, files []*os.File, conn func(*os.File) (net.Conn, error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.Begin != nil && len(files) <= 1:
		p, ok := g.open[m.Begin.ID]
		if !ok || p.call != "" {
			return fmt.Errorf("begin of proposal %d, which does not wait for it", m.Begin.ID)
		}
		if len(files) == 1 {
			c, err := conn(files[0])
			if err != nil {
				return err
			}
			p.conn = c
		}
		p.call = m.Begin.Call
		close(p.begin)
	case m.Abort != nil && len(files) == 0:
		if p, ok := g.open[m.Abort.ID]; ok {
			p.why = m.Abort.Reason
			p.abort()
		}
	case m.Answer != nil && len(files) == 0:
		if p, ok := g.open[m.Answer.ID]; ok {
			delete(g.open, m.Answer.ID)
			p.answer <- reply{Answer: *m.Answer, blob: blob}
		}
	default:
		return errors.New("message out of place, or with descriptors that it may not have")
	}
	return nil
}

// aborted returns why a proposal was aborted, or "".
func (g *gate) aborted(p *proposal) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.why
}

// useConn makes c the one connection that Dial hands out next.
func (g *gate) useConn(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conn = c
}

// Dial hands the backend the connection of the admitted call, once.
func (g *gate) Dial(context.Context) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.conn
	g.conn = nil
	if c == nil {
		return nil, errors.New("no connection was admitted for this call")
	}
	return c, nil
}
