// Command agentos-loop runs the built-in agent for one run, in a process that
// can do nothing but read and write the descriptors that it was started with.
//
// Descriptors: 0 one loop.Spec as JSON, to its end; 1 one loop.Result as JSON; 2
// errors of the start; 3 the MCP connection; 4 the model endpoint. Its exit code
// is that of the result's reason. SIGTERM cancels the run. Arguments and
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
	fdTools = 3
	fdModel = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	res := run(ctx, os.Stdin)
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-loop: write result:", err)
		os.Exit(endreason.Internal.ExitCode())
	}
	os.Exit(res.Reason.ExitCode())
}

// run locks the process down before anything that somebody else wrote is read.
func run(ctx context.Context, stdin io.Reader) loop.Result {
	toolsConn, err := inherited(fdTools, "mcp connection")
	if err != nil {
		return broken(err)
	}
	modelConn, err := inherited(fdModel, "model endpoint")
	if err != nil {
		return broken(err)
	}
	if _, err := confine.Apply(confine.Plan{Name: "agentos-loop", Profile: confine.Loop, NonRoot: true, OpenFiles: 64}); err != nil {
		return broken(err)
	}
	spec, err := loop.ParseSpec(stdin)
	if err != nil {
		return broken(err)
	}
	// The connections are not closed: they end with the process, which is about
	// to write its result and must not wait for a peer.
	return loop.Run(ctx, spec, loop.Deps{Model: modelhttp.New(modelConn), Tools: mcptools.New(toolsConn)})
}

// inherited makes a connection of descriptor fd.
func inherited(fd uintptr, name string) (net.Conn, error) {
	f := os.NewFile(fd, name)
	if f == nil {
		return nil, fmt.Errorf("open %s: descriptor %d is not there", name, fd)
	}
	c, err := net.FileConn(f)
	_ = f.Close() // FileConn has its own
	if err != nil {
		return nil, fmt.Errorf("open %s: descriptor %d: %w", name, fd, err)
	}
	return c, nil
}

// broken is a start that failed.
func broken(err error) loop.Result {
	msg := err.Error()
	if next := fault.NextOf(err); next != "" {
		msg += "; next: " + next
	}
	fmt.Fprintln(os.Stderr, "agentos-loop:", msg)
	return loop.Result{Reason: endreason.Internal, Detail: chat.Clean(msg, 512)}
}
