//go:build linux

// The runtime would keep descriptors of cgroup files open to follow CPU quotas.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos-shim is the front of one run: it speaks with the agent and
// with the model's wire, and asks the gate for everything. It is started by
// agentosd with one descriptor, its standard input: the gate's wire. Everything
// else it uses arrives over that.
//
// Exit codes: 0 the run is over; 1 it could not be confined or the wire broke,
// with the reason on standard error.
//
// Imports: execution/{shim,relay,model and its backends}, host/{confine,fdframe}, api.
// Tests: execution/shim; integration/once, on the built binaries.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/execution/model"
	"agentos/internal/execution/model/replay"
	"agentos/internal/execution/model/rules"
	"agentos/internal/execution/model/socket"
	"agentos/internal/execution/relay"
	"agentos/internal/execution/shim"
	"agentos/internal/host/confine"
	"agentos/internal/host/fdframe"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-shim:", err)
		os.Exit(1)
	}
}

func run() error {
	os.Clearenv()
	wire, err := fdframe.Inherited(os.Stdin)
	if err != nil {
		return err
	}
	report, err := confine.Apply(confine.Plan{Name: "agentos-shim", Profile: confine.Shim, NonRoot: true})
	if err != nil {
		return err
	}
	conn := fdframe.New(wire, gatewire.MaxMessage)
	return shim.Run(context.Background(), shim.Deps{
		Wire:    conn,
		Backend: backend,
		Conn:    func(f *os.File) (net.Conn, error) { return fdframe.Inherited(f) },
		Wrapped: func(ctx context.Context, h gatewire.Hello, lifeline *os.File) error {
			c, err := fdframe.Inherited(lifeline)
			if err != nil {
				return err
			}
			return relay.Serve(ctx, conn, fdframe.New(c, maxLifeline), h.TTY)
		},
		Ready: gatewire.Ready{LandlockABI: report.LandlockABI, NotEnforced: report.NotEnforced},
	})
}

// maxLifeline bounds the sandbox's one message in bytes.
const maxLifeline = 256

// backend is the list of backends that this version has.
func backend(h gatewire.Hello, script io.Reader, dial model.Dialer) (model.Backend, error) {
	switch h.Backend {
	case "rules":
		return rules.New()
	case "socket":
		return socket.New(socket.Config{
			Model: h.Model, Stream: h.Stream, Timeout: time.Duration(h.TimeoutMS) * time.Millisecond,
		}, socket.Deps{Dialer: dial}), nil
	case "replay":
		text, err := io.ReadAll(io.LimitReader(script, replay.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("read replay script: %w", err)
		}
		parsed, err := replay.Parse(text)
		if err != nil {
			return nil, err
		}
		return replay.New(parsed), nil
	}
	return nil, fmt.Errorf("backend %.40q is not in this version", h.Backend)
}
