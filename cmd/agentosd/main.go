//go:build linux

// Command agentosd holds the gate, the policies, the budgets, the audit log and
// the control API. In this version it serves one client for one session: the
// CLI starts it as `agentosd --inherit [--set KEY=VALUE]…` with the client's
// connection as descriptor 3, and it ends when that connection does.
//
// Exit codes: 0 the client hung up; otherwise the fault's, with the reason on
// standard error.
//
// Imports: control/{config,daemon}, api/wire, lib.
// Tests: integration/once, on the built binaries.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"agentos/internal/api/wire"
	"agentos/internal/control/config"
	"agentos/internal/control/daemon"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agentosd:", err)
		if next := fault.NextOf(err); next != "" {
			fmt.Fprintln(os.Stderr, "next:", next)
		}
		os.Exit(fault.KindOf(err).ExitCode())
	}
}

func run(argv []string) error {
	// The client handles interrupts; a group-wide one must not end the record.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(argv) == 0 || argv[0] != "--inherit" {
		return fault.New(fault.Usage, "run agentos; it starts agentosd by itself", "agentosd has no client")
	}
	sets, rest, err := setting.Parse(argv[1:])
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fault.New(fault.Usage, "run agentos; it starts agentosd by itself", "agentosd takes no argument %.80q", rest[0])
	}
	conn, err := wire.Inherited()
	if err != nil {
		return err
	}
	settings, err := config.Load(config.FromProcess(sets))
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "find the sister programs")
	}
	d := daemon.New(daemon.Config{StateDir: settings.Config.StateDir, Binaries: filepath.Dir(self)})
	err = wire.Serve(ctx, conn, d.Session(settings).Handler())
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
