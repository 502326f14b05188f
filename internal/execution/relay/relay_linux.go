// Package relay moves bytes between a wrapped program and the gate's process: the
// master side of the program's terminal, or the far ends of its three pipes. It
// has no authority and interprets nothing but the end of the sandbox.
//
// State owned: the descriptors, and little more than gatewire.RunWindow bytes of
// input that the program has not read. Imports: api/gatewire, host/pty. Imported
// by: cmd/agentos-shim. Linux only. Locks: none; one goroutine a descriptor, and one
// that owns the queue; Serve adds one for each connection. Invariants: memory is bounded whatever either side does;
// output that isn't taken holds the program back, input that the program doesn't
// read never holds back a signal or a window size; every byte that was written
// before the end is reported before Closed.
// Format: docs/spec/gate-wire.md. Tests: relay_linux_test.go,
// session_linux_test.go. Spec: OSA-02, AOS-14.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/host/pty"
)

// Input is one thing for the program; see gatewire.RunInput. Exactly one is set.
type Input struct {
	Bytes      []byte
	EOF        bool
	Rows, Cols uint16
	Signal     string
}

// Sink takes what comes back. Its methods may block, and are called from several
// goroutines. An error ends the relay.
type Sink interface {
	Output(stream uint8, b []byte) error // b is reused afterwards
	Taken(n int) error                   // bytes of input that were read or dropped
	Signal(name string) error            // no terminal could make it: deliver it otherwise
	Closed() error                       // no more output will come; once
}

// Deps is all that the relay may touch. It closes the files.
type Deps struct {
	TTY                   *os.File // or the other three
	Stdin, Stdout, Stderr *os.File
	Input                 <-chan Input    // closed: the relay ends
	Ended                 <-chan struct{} // closed when the sandbox is gone
	Sink                  Sink
}

// Times that the kernel makes us wait, since a terminal nobody has open can't be
// waited for.
const (
	signalGrace = 200 * time.Millisecond // for a control character to be taken
	reopenMin   = 5 * time.Millisecond
	reopenMax   = 100 * time.Millisecond
)

// What is read or written at once, in bytes. A terminal takes little at a time,
// and what it took is to be reported.
const (
	chunk    = 32 << 10
	ttyChunk = 1 << 10
)

// Run relays until Input is closed or ctx ends. All output is reported before
// Sink.Closed; inputs after that are dropped, and reported as taken. Its
// goroutines have ended when it returns.
func Run(ctx context.Context, d Deps) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &relay{d: d, cancel: cancel, jobs: make(chan job), upward: make(chan string, 8)}
	defer r.closeAll()
	for _, f := range []**os.File{&r.d.TTY, &r.d.Stdin, &r.d.Stdout, &r.d.Stderr} {
		if *f == nil {
			continue
		}
		var err error
		if *f, err = pty.Adopt(*f); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, r.closeAll) // ends reads and writes under way
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { r.output(ctx) })
	all.Go(r.write)
	all.Go(r.tellSignals)
	r.queue(ctx)
	close(r.jobs)
	close(r.upward)
	err := context.Cause(ctx)
	cancel(nil)
	r.closeAll()
	all.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type relay struct {
	d      Deps
	cancel context.CancelCauseFunc
	jobs   chan job    // to write
	upward chan string // signals for Sink.Signal

	last byte // written to a terminal; write's own
	shut bool // stdin is closed; write's own
}

// job is one write. Only input that was counted is reported as taken.
type job struct {
	b       []byte
	eof     bool
	counted bool
}

func (r *relay) closeAll() {
	for _, f := range []*os.File{r.d.TTY, r.d.Stdin, r.d.Stdout, r.d.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (r *relay) fail(err error) {
	if err != nil {
		r.cancel(err)
	}
}

// queue owns the input that waits. When it is full no more is accepted, which
// holds back whoever sends more than gatewire.RunWindow.
func (r *relay) queue(ctx context.Context) {
	var pending []job
	var urgent *job // a control character, before everything that waits
	var late <-chan time.Time
	var name string
	size := 0
	for {
		in, out, next := r.d.Input, r.jobs, job{}
		if size >= gatewire.RunWindow {
			in = nil
		}
		switch {
		case urgent != nil:
			next = *urgent
		case len(pending) > 0:
			next = pending[0]
		default:
			out = nil
		}
		select {
		case <-ctx.Done():
			return
		case i, ok := <-in:
			if !ok {
				return
			}
			if c, ok := r.character(i.Signal); ok {
				urgent, name, late = &job{b: []byte{c}}, i.Signal, time.After(signalGrace)
			} else if j, ok := r.accept(i); ok {
				pending = append(pending, j)
				size += len(j.b)
			}
		case out <- next:
			if urgent != nil {
				urgent, late = nil, nil
			} else {
				size -= len(next.b)
				pending = pending[1:]
			}
		case <-late:
			urgent, late = nil, nil
			r.report(name)
		}
	}
}

// accept does what can be done at once and returns what has to be written.
func (r *relay) accept(in Input) (job, bool) {
	switch {
	case in.Rows > 0:
		if r.d.TTY != nil {
			_ = pty.SetSize(r.d.TTY, in.Rows, in.Cols) // fails only when the terminal is gone
		}
		return job{}, false
	case in.Signal != "":
		r.report(in.Signal)
		return job{}, false
	case in.EOF:
		return job{eof: true}, true
	}
	return job{b: in.Bytes, counted: true}, len(in.Bytes) > 0
}

// character is what makes the signal on a terminal whose program left that on, so
// that it reaches the foreground job, as if it were typed.
func (r *relay) character(signal string) (byte, bool) {
	if r.d.TTY == nil || signal == "" {
		return 0, false
	}
	m, err := pty.ModeOf(r.d.TTY)
	if err != nil || !m.Signals {
		return 0, false
	}
	c := map[string]byte{"INT": m.Intr, "QUIT": m.Quit, "TSTP": m.Susp}[signal]
	return c, c != 0
}

// report drops a signal when eight wait: the gate reads nothing.
func (r *relay) report(signal string) {
	select {
	case r.upward <- signal:
	default:
	}
}

func (r *relay) tellSignals() {
	for s := range r.upward {
		r.fail(r.d.Sink.Signal(s))
	}
}

// write does the jobs in order. A program that reads no more loses what is sent
// to it, as with any pipe; that is no error of the relay.
func (r *relay) write() {
	to, most := r.d.Stdin, chunk
	if r.d.TTY != nil {
		to, most = r.d.TTY, ttyChunk
	}
	for j := range r.jobs {
		if j.eof {
			r.end(to)
			continue
		}
		for b := j.b; len(b) > 0; {
			n := min(len(b), most)
			if !r.shut {
				if _, err := to.Write(b[:n]); err != nil && r.d.TTY == nil {
					r.shut = true
					_ = to.Close()
				}
			}
			r.last = b[n-1]
			if j.counted {
				r.fail(r.d.Sink.Taken(n))
			}
			b = b[n:]
		}
	}
}

// end is the end of input. A terminal has a character for it, which has to be
// typed twice when the line has begun.
func (r *relay) end(to *os.File) {
	if r.d.TTY == nil {
		r.shut = true
		_ = to.Close()
		return
	}
	m, err := pty.ModeOf(to)
	if err != nil || m.EOF == 0 {
		return
	}
	b := []byte{m.EOF}
	if m.Canonical && r.last != '\n' && r.last != '\r' && r.last != 0 {
		b = append(b, m.EOF)
	}
	_, _ = to.Write(b)
	r.last = 0
}

// output reads every stream to its end and then says so.
func (r *relay) output(ctx context.Context) {
	var all sync.WaitGroup
	if r.d.TTY != nil {
		all.Go(func() { r.fail(r.readTTY(ctx)) })
	} else {
		all.Go(func() { r.fail(r.read(r.d.Stdout, 1)) })
		all.Go(func() { r.fail(r.read(r.d.Stderr, 2)) })
	}
	all.Wait()
	if ctx.Err() == nil {
		r.fail(r.d.Sink.Closed())
	}
}

// read returns nil at the end of f, however it came.
func (r *relay) read(f *os.File, stream uint8) error {
	b := make([]byte, chunk)
	for {
		n, err := f.Read(b)
		if n > 0 {
			if serr := r.d.Sink.Output(stream, b[:n]); serr != nil {
				return serr
			}
		}
		if err != nil {
			return nil
		}
		if n == 0 {
			return fmt.Errorf("relay stream %d: %w", stream, io.ErrNoProgress)
		}
	}
}

// readTTY reads a terminal to its end. It looks ended (EIO) whenever no process
// has it open, which a program may cause and undo; only with the sandbox it is.
func (r *relay) readTTY(ctx context.Context) error {
	wait := reopenMin
	for {
		ended := false
		select {
		case <-r.d.Ended:
			ended = true // before the read: what is there now is still read
		default:
		}
		before := time.Now()
		if err := r.read(r.d.TTY, 1); err != nil || ended || ctx.Err() != nil {
			return err
		}
		if wait = min(2*wait, reopenMax); time.Since(before) > time.Second {
			wait = reopenMin
		}
		t := time.NewTimer(wait)
		select {
		case <-r.d.Ended:
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}
