// The runtime would keep descriptors of cgroup files open to follow CPU quotas.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos-loop runs the built-in agent for one run, in a process that
// can do nothing but read and write the descriptors that it was started with.
//
// Descriptors: 0 a Unix socket on which it says that it is locked and then reads
// one runspec.Spec; 1 one runspec.Report; 2 errors of the start; 3 the MCP
// connection; 4 the model endpoint. Its exit code is that of the report's reason. SIGTERM cancels the run. Arguments and
// environment are not read. Formats: docs/spec/loop.md. Tests: main_test.go.
// Spec: OSA-01, OSA-02, AOS-01.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"agentos/internal/api/runspec"
	"agentos/internal/host/confine"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"
	"agentos/internal/reasoning/loop"
	"agentos/internal/reasoning/loop/mcptools"
	"agentos/internal/reasoning/loop/modelhttp"
)

// Descriptor numbers.
const (
	fdControl = 0
	fdTools   = 3
	fdModel   = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	res := run(ctx)
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-loop: write report:", err)
		os.Exit(endreason.Internal.ExitCode())
	}
	os.Exit(res.Reason.ExitCode())
}

// run locks the process down before anything that somebody else wrote is read.
func run(ctx context.Context) runspec.Report {
	var conns [3]net.Conn
	for i, fd := range []uintptr{fdControl, fdTools, fdModel} {
		c, err := inherited(fd)
		if err != nil {
			return broken(err)
		}
		conns[i] = c
	}
	if _, err := confine.Apply(confine.Plan{Name: "agentos-loop", Profile: confine.Loop, NonRoot: true, OpenFiles: 64}); err != nil {
		return broken(err)
	}
	spec, err := instructions(ctx, conns[0])
	if ctx.Err() != nil {
		return runspec.Report{Reason: endreason.Cancelled, Detail: "cancelled before the run began"}
	}
	if err != nil {
		return broken(err)
	}
	// The connections are not closed: they end with the process, which is about
	// to write its report and must not wait for a peer.
	return loop.Run(ctx, spec, loop.Deps{Model: modelhttp.New(conns[2]), Tools: mcptools.New(conns[1])})
}

// instructions says that the process is locked, and reads what it shall do.
func instructions(ctx context.Context, c net.Conn) (runspec.Spec, error) {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if _, err := io.WriteString(c, runspec.Ready); err != nil {
		return runspec.Spec{}, fmt.Errorf("say ready: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(c, runspec.MaxSpec+1))
	if err != nil {
		return runspec.Spec{}, fmt.Errorf("read run spec: %w", err)
	}
	return runspec.DecodeSpec(b)
}

// inherited makes a connection of descriptor fd.
func inherited(fd uintptr) (net.Conn, error) {
	f := os.NewFile(fd, "inherited")
	c, err := net.FileConn(f)
	_ = f.Close() // FileConn has its own
	if err != nil {
		return nil, fmt.Errorf("open inherited connection: descriptor %d: %w", fd, err)
	}
	return c, nil
}

// broken is a start that failed.
func broken(err error) runspec.Report {
	msg := err.Error()
	if next := fault.NextOf(err); next != "" {
		msg += "; next: " + next
	}
	fmt.Fprintln(os.Stderr, "agentos-loop:", msg)
	return runspec.Report{Reason: endreason.Internal, Detail: chat.Clean(msg, 512)}
}
