//go:build linux

// Package toolproc runs one tool call in a process of its own: agentos-tool,
// under the tool role's identity, with the arguments on its standard input and
// one result document on its standard output.
//
// State owned: none; a process lives as long as its call. Imports: host/spawn,
// execution/tool, lib/canon, lib/fault. Imported by: control. Invariants: the
// process gets no environment, no descriptor but the three standard ones, and
// is gone with its group when Run returns; what it prints is bounded before it
// is parsed. Tests: toolproc_linux_test.go.
package toolproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"agentos/internal/execution/tool"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/canon"
	"agentos/internal/lib/fault"
)

// Identity is who the process runs as; UID 0 keeps the caller's own, for a
// caller that is not root.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// Verify is called with the process's number before it gets its arguments. An
// error ends it.
type Verify func(pid int) error

// Output is what a tool said.
type Output struct {
	Doc    []byte // canonical JSON of the result document
	Result tool.Result
}

const maxStderr = 4 << 10 // bytes kept for an error message

// Run starts binary for one call of d and returns its result document. Errors
// are faults: Timeout or Cancelled with ctx, Limit when the result is too large,
// Internal when the process broke its contract.
func Run(ctx context.Context, binary *os.File, d tool.Descriptor, args []byte, id Identity, verify Verify) (Output, error) {
	p, err := start(ctx, binary, d.Name, id)
	if err != nil {
		return Output{}, err
	}
	defer p.close()
	if err := verify(p.proc.PID()); err != nil {
		return Output{}, err
	}
	go p.feed(args)
	doc, readErr := p.collect(d.MaxResult)
	if readErr != nil {
		_ = p.proc.Kill()
	}
	exit, err := p.proc.Wait(ctx)
	if cerr := ctx.Err(); cerr != nil {
		return Output{}, ended(cerr, d)
	}
	switch {
	case readErr != nil:
		return Output{}, readErr
	case err != nil:
		return Output{}, err
	case exit.Code != 0:
		return Output{}, fault.New(fault.Internal, "", "tool %q ended with code %d, signal %d: %s", d.Name, exit.Code, exit.Signal, p.stderr())
	}
	return parse(d, doc)
}

func ended(err error, d tool.Descriptor) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "ask for less: fewer sections, fewer lines", "tool %q did not finish within %s", d.Name, d.Deadline.Round(time.Millisecond))
	}
	return fault.Wrap(err, fault.Cancelled, "", "tool %q was cancelled", d.Name)
}

func parse(d tool.Descriptor, doc []byte) (Output, error) {
	c, err := canon.Object(doc)
	if err != nil {
		return Output{}, fault.Wrap(err, fault.Internal, "", "tool %q printed no result document", d.Name)
	}
	out := Output{Doc: c}
	if err := json.Unmarshal(c, &out.Result); err != nil {
		return Output{}, fault.Wrap(err, fault.Internal, "", "tool %q printed no result document", d.Name)
	}
	switch out.Result.Status {
	case "ok", "unavailable", "error":
		return out, nil
	}
	return Output{}, fault.New(fault.Internal, "", "tool %q printed status %.40q", d.Name, out.Result.Status)
}

// process is a started tool with our ends of its pipes.
type process struct {
	proc        *spawn.Process
	in, out, er *os.File
}

func start(ctx context.Context, binary *os.File, name string, id Identity) (_ *process, err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "make pipes for tool %q", name)
	}
	files = []*os.File{inR, outW, errW}
	p := &process{in: inW, out: outR, er: errR}
	p.proc, err = spawn.Start(ctx, spawn.Spec{
		Binary: binary, Argv: []string{"agentos-tool", name}, Stdin: inR, Stdout: outW, Stderr: errW,
		UID: id.UID, GID: id.GID, Groups: id.Groups,
	})
	if err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

// feed writes the arguments; a tool that doesn't read them ends by its deadline.
func (p *process) feed(args []byte) {
	_, _ = p.in.Write(args)
	_ = p.in.Close()
}

func (p *process) collect(limit int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(p.out, int64(limit)+2)) // and a line end
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "read result")
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) > limit {
		return nil, fault.New(fault.Limit, "ask for less: fewer sections, fewer lines", "result is larger than %d bytes", limit)
	}
	return b, nil
}

func (p *process) stderr() string {
	_ = p.er.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	b, _ := io.ReadAll(io.LimitReader(p.er, maxStderr))
	return fmt.Sprintf("%.512q", b)
}

// close ends the process if it still runs and waits until its group is gone.
func (p *process) close() {
	_ = p.proc.Kill()
	<-p.proc.Done()
	p.closeFiles()
}

func (p *process) closeFiles() {
	for _, f := range []*os.File{p.in, p.out, p.er} {
		_ = f.Close()
	}
}
