//go:build linux

// Command agentosd holds the gate, the policies, the budgets, the audit log and
// the control API. The CLI starts it as
//
//	agentosd --inherit [--set KEY=VALUE]…          serve this one client
//	agentosd --inherit --share [--set KEY=VALUE]…  the same by a shared agentosd
//
// with the client's connection as descriptor 3. Where an agentosd serves the
// state directory already, the connection is handed over to it; with --share
// one is started if there is none, as
//
//	agentosd --serve [--set KEY=VALUE]…
//
// which ends when it has had neither a client nor a run for a while.
//
// Exit codes: 0 the client hung up or was handed over; otherwise the fault's,
// with the reason on standard error.
//
// Imports: control/{config,daemon,handover}, api/wire, lib. Tests:
// integration/{once,run}, on the built binaries.
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
	"agentos/internal/control/handover"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		complain(os.Stderr, err)
		os.Exit(fault.KindOf(err).ExitCode())
	}
}

func complain(to *os.File, err error) {
	fmt.Fprintln(to, "agentosd:", err)
	if next := fault.NextOf(err); next != "" {
		fmt.Fprintln(to, "next:", next)
	}
}

func run(argv []string) error {
	// The client handles interrupts; a group-wide one must not end the record.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	mode, argv := modeOf(argv)
	if mode == "" {
		return fault.New(fault.Usage, "run agentos; it starts agentosd by itself", "agentosd has no client")
	}
	sets, rest, err := setting.Parse(argv)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fault.New(fault.Usage, "run agentos; it starts agentosd by itself", "agentosd takes no argument %.80q", rest[0])
	}
	self, err := os.Executable()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "find the sister programs")
	}
	load := func() (*daemon.Daemon, *config.Result, error) {
		settings, err := config.Load(config.FromProcess(sets))
		if err != nil {
			return nil, nil, err
		}
		return daemon.New(daemon.Config{StateDir: settings.Config.StateDir, Binaries: filepath.Dir(self)}), settings, nil
	}
	if mode == "--serve" {
		return serve(ctx, load)
	}
	return inherit(ctx, mode == "--share", self, argv, load)
}

func clientOf(o handover.Offer) daemon.Client {
	return daemon.Client{Home: o.Home, ConfigDir: o.ConfigDir()}
}

// modeOf takes the mode off the arguments: --serve, --inherit, or --share for
// --inherit with it.
func modeOf(argv []string) (mode string, rest []string) {
	switch {
	case len(argv) >= 2 && argv[0] == "--inherit" && argv[1] == "--share":
		return "--share", argv[2:]
	case len(argv) >= 1 && (argv[0] == "--inherit" || argv[0] == "--serve"):
		return argv[0], argv[1:]
	}
	return "", argv
}

type loader = func() (*daemon.Daemon, *config.Result, error)

// inherit serves the client on descriptor 3, or hands it over.
func inherit(ctx context.Context, share bool, self string, args []string, load loader) error {
	conn, err := wire.Inherited()
	if err != nil {
		return err
	}
	d, settings, err := load()
	if err != nil {
		return err
	}
	given, err := giveAway(ctx, share, self, args, settings.Config.StateDir, conn)
	if err != nil || given {
		_ = conn.Close()
		return err
	}
	err = wire.Serve(ctx, conn, d.Session(settings, clientOf(handover.FromProcess(nil))).Handler())
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
