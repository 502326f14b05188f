//go:build linux

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/api/runspec"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/principal"
)

// readyTimeout is how long a part may take to confine itself.
const readyTimeout = 10 * time.Second

// parts are the processes of a run with our ends of their connections.
type parts struct {
	wire     *fdframe.Conn
	shim     *spawn.Process
	loop     *spawn.Process
	shimErr  *tail
	loopErr  *tail
	report   chan loopReport // capacity 1
	wireDone chan struct{}   // closed when no more messages will come
	reading  bool            // somebody will close wireDone
	ready    gatewire.Ready
}

// loopReport is what the loop said at its end, passed on by the shim.
type loopReport struct {
	end  gatewire.LoopEnd
	text string
}

// startParts brings up the shim, then the loop; each is checked before it is
// told anything. setup bounds the time to start them; they end by parts.end.
// Nobody hears the shim before both are there.
func (r *run) startParts(setup context.Context) error {
	r.parts = &parts{report: make(chan loopReport, 1), wireDone: make(chan struct{})}
	if err := r.startShim(setup); err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	if err := r.startLoop(setup); err != nil {
		return fmt.Errorf("start loop: %w", err)
	}
	return nil
}

func (r *run) startShim(setup context.Context) error {
	p := r.parts
	ours, theirs, err := fdframe.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	c, err := fdframe.Inherited(ours)
	if err != nil {
		return err
	}
	p.wire = fdframe.New(c, gatewire.MaxMessage)
	p.shim, p.shimErr, err = r.spawn(setup, principal.Shim, r.s.deps.Binaries.Shim, "agentos-shim", theirs, nil)
	if err != nil {
		return err
	}
	_ = theirs.Close() // so that the shim's end closes with the shim
	stop := context.AfterFunc(setup, func() { _ = p.shim.Kill() })
	defer stop()
	b, files, err := p.wire.Read()
	for _, f := range files {
		_ = f.Close() // a shim has no descriptor to give
	}
	if err != nil {
		return p.died(err, p.shim, p.shimErr)
	}
	m, _, err := gatewire.DecodeUp(b)
	if err != nil || m.Ready == nil {
		return errors.Join(errors.New("first message is not ready"), err)
	}
	p.ready = *m.Ready
	return r.checkPart(p.shim.PID(), principal.Shim)
}

// startLoop makes the loop's two connections, gives the far ends to the shim
// and, when the loop is locked, tells it its goal.
func (r *run) startLoop(setup context.Context) error {
	var pairs [3][2]*os.File // MCP, model, control; ours and the loop's
	var out [2]*os.File
	defer func() {
		for _, f := range []*os.File{pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1], pairs[2][0], pairs[2][1], out[0], out[1]} {
			if f != nil {
				_ = f.Close()
			}
		}
	}()
	for i := range pairs {
		a, b, err := fdframe.Pair()
		if err != nil {
			return err
		}
		pairs[i] = [2]*os.File{a, b}
	}
	rd, wr, err := os.Pipe()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "make pipe")
	}
	out = [2]*os.File{rd, wr}
	p := r.parts
	p.loop, p.loopErr, err = r.spawnLoop(setup, pairs[2][1], wr, []*os.File{pairs[0][1], pairs[1][1]})
	if err != nil {
		return err
	}
	for _, f := range []*os.File{pairs[0][1], pairs[1][1], pairs[2][1], wr} {
		_ = f.Close()
	}
	if err := r.hello(setup, pairs[0][0], pairs[1][0], rd); err != nil {
		return err
	}
	return r.instruct(setup, pairs[2][0])
}

// hello tells the shim its run and hands it the far ends.
func (r *run) hello(setup context.Context, mcp, chat, out *os.File) error {
	files := []*os.File{mcp, chat, out}
	if r.s.cfg.Replay != nil {
		f, err := r.s.cfg.Replay()
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	h := r.s.cfg.Hello
	h.Run = r.id
	b, err := gatewire.EncodeDown(gatewire.Down{Hello: &h}, nil)
	if err != nil {
		return err
	}
	p := r.parts
	stop := context.AfterFunc(setup, func() { _ = p.shim.Kill() }) // it may not read
	defer stop()
	if err := p.wire.Write(b, files...); err != nil {
		return p.died(err, p.shim, p.shimErr)
	}
	return nil
}

// instruct waits until the loop says that it is locked, checks that with the
// kernel, and only then sends the goal.
func (r *run) instruct(setup context.Context, control *os.File) error {
	c, err := fdframe.Inherited(control)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(readyTimeout))
	stop := context.AfterFunc(setup, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	line := make([]byte, len(runspec.Ready))
	if _, err := io.ReadFull(c, line); err != nil || string(line) != runspec.Ready {
		return r.parts.died(errors.Join(errors.New("did not confine itself"), err), r.parts.loop, r.parts.loopErr)
	}
	if err := r.checkPart(r.parts.loop.PID(), principal.Agent); err != nil {
		return err
	}
	b, err := json.Marshal(runspec.Spec{
		Run: r.id, Goal: r.goal, System: r.s.cfg.System, Model: r.s.cfg.Hello.Model, Stream: r.s.cfg.Hello.Stream, Limits: r.s.cfg.Limits,
	})
	if err != nil {
		return fmt.Errorf("encode run spec: %w", err)
	}
	if _, err := c.Write(b); err != nil {
		return r.parts.died(err, r.parts.loop, r.parts.loopErr)
	}
	return closeWrite(c)
}

func closeWrite(c *net.UnixConn) error {
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("end run spec: %w", err)
	}
	return nil
}

// checkPart compares what the kernel says of a process with its binding and
// with the locks that every part must have (OSA-02). Spec: INV-13.
func (r *run) checkPart(pid int, role principal.Role) error {
	if err := r.checkIdentity(pid, r.s.cfg.Identities[role]); err != nil {
		return err
	}
	st, err := r.s.deps.Status(pid)
	if err != nil {
		return fault.Wrap(err, fault.Denied, "run `agentos doctor`", "check the %s's process", role)
	}
	if !st.NoNewPrivs || st.Seccomp != 2 || st.CapEff != 0 || st.CapPrm != 0 {
		return fault.New(fault.Denied, "run `agentos doctor`; the run was not started",
			"the %s's process is not locked: no_new_privs %v, seccomp mode %d, capabilities %x/%x", role, st.NoNewPrivs, st.Seccomp, st.CapEff, st.CapPrm)
	}
	return nil
}

func (r *run) checkIdentity(pid int, b principal.Binding) error {
	st, err := r.s.deps.Status(pid)
	if err != nil {
		return fault.Wrap(err, fault.Denied, "run `agentos doctor`", "check the %s's process", b.Role)
	}
	return principal.Verify(b, principal.Credentials{UID: st.UID, EUID: st.EUID, GID: st.GID, EGID: st.EGID})
}

func (r *run) spawn(ctx context.Context, role principal.Role, bin *os.File, name string, stdin, stdout *os.File, files ...*os.File) (*spawn.Process, *tail, error) {
	er, ew, err := os.Pipe()
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, "", "make pipe")
	}
	defer ew.Close()
	spec := spawn.Spec{Binary: bin, Argv: []string{name}, Stdin: stdin, Stdout: stdout, Stderr: ew, Files: files}
	if r.s.cfg.Root {
		id := r.s.cfg.Identities[role]
		spec.UID, spec.GID = id.UID, id.GID
	}
	if err := ctx.Err(); err != nil {
		_ = er.Close()
		return nil, nil, err
	}
	p, err := spawn.Start(context.WithoutCancel(ctx), spec)
	if err != nil {
		_ = er.Close()
		return nil, nil, err
	}
	t := newTail(er)
	go t.read()
	return p, t, nil
}

func (r *run) spawnLoop(ctx context.Context, control, out *os.File, files []*os.File) (*spawn.Process, *tail, error) {
	return r.spawn(ctx, principal.Agent, r.s.deps.Binaries.Loop, "agentos-loop", control, out, files...)
}

// facts go into the record of agent.start.
func (p *parts) facts() map[string]any {
	f := map[string]any{"loop_pid": p.loop.PID(), "shim_pid": p.shim.PID(), "landlock_abi": p.ready.LandlockABI}
	var weak []string
	for _, s := range p.ready.NotEnforced[:min(len(p.ready.NotEnforced), 32)] {
		weak = append(weak, clip(s, 256)) // it goes into a record of bounded size
	}
	if len(weak) > 0 {
		f["not_enforced"] = weak
	}
	return f
}

// died explains a part that went away instead of answering.
func (p *parts) died(err error, proc *spawn.Process, said *tail) error {
	_ = proc.Kill()
	<-proc.Done()
	return fault.Wrap(err, fault.Unavailable, "run `agentos doctor`", "the process ended early%s", said.text())
}

func (p *parts) shimText() string { return p.shimErr.text() }
func (p *parts) loopText() string { return p.loopErr.text() }

func (p *parts) shimGone() bool {
	select {
	case <-p.shim.Done():
		return true
	case <-p.wireDone:
		return true
	default:
		return false
	}
}

// end takes every part down: first the loop, then the wire, which ends the
// shim. Nothing reads or is heard when it returns. Safe on parts that never
// started.
func (p *parts) end() {
	if p == nil {
		return
	}
	if p.loop != nil {
		_ = p.loop.Kill()
		<-p.loop.Done()
	}
	if p.wire != nil {
		_ = p.wire.Close()
	}
	if p.shim != nil {
		select {
		case <-p.shim.Done():
		case <-time.After(partGrace):
			_ = p.shim.Kill()
			<-p.shim.Done()
		}
	}
	if p.reading {
		<-p.wireDone
	}
	p.shimErr.close()
	p.loopErr.close()
}

// tail keeps the last words of a process for an error message.
type tail struct {
	f    *os.File
	done chan struct{}
	buf  []byte
}

const maxTail = 2 << 10 // bytes

func newTail(f *os.File) *tail { return &tail{f: f, done: make(chan struct{})} }

func (t *tail) read() {
	defer close(t.done)
	defer t.f.Close()
	b := make([]byte, 4<<10)
	for {
		n, err := t.f.Read(b)
		t.buf = append(t.buf, b[:n]...)
		if over := len(t.buf) - maxTail; over > 0 {
			t.buf = t.buf[over:]
		}
		if err != nil {
			return
		}
	}
}

// close ends the reading, whoever still holds the other end.
func (t *tail) close() {
	if t == nil {
		return
	}
	_ = t.f.Close()
	<-t.done
}

// text is what was said, once the process is gone.
func (t *tail) text() string {
	select {
	case <-t.done:
	case <-time.After(partGrace):
		return ""
	}
	if len(t.buf) == 0 {
		return ""
	}
	return fmt.Sprintf(": %q", t.buf)
}
