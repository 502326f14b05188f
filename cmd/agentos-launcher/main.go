//go:build linux

// The runtime would keep descriptors of cgroup files open to follow CPU quotas.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos-launcher makes sandboxes on request. Without arguments it
// serves the launch wire on its standard input, and ends with it. With the single
// argument `init` it is the first process of a sandbox: only the launcher itself
// starts that.
//
// It clears its environment, gives up what capabilities it does not need, puts a
// syscall filter on itself that its sandboxes inherit, and parses nothing but the
// launch wire.
//
// Exit codes: 0 the wire closed and every sandbox is gone; 1 something failed,
// with the reason on standard error.
//
// Imports: execution/jailer, host/{cgroup,fdframe,jail}, api/launchwire. Tests:
// main_test.go, on the built binary.
package main

import (
	"context"
	"fmt"
	"os"

	"agentos/internal/api/launchwire"
	"agentos/internal/execution/jailer"
	"agentos/internal/host/cgroup"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/jail"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		os.Exit(jail.Init())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-launcher:", err)
		os.Exit(1)
	}
}

func run() error {
	os.Clearenv()
	if len(os.Args) != 1 {
		return fmt.Errorf("usage: agentos-launcher < SOCKET, got %d arguments", len(os.Args)-1)
	}
	if err := jail.CloseOnExec(); err != nil {
		return err
	}
	c, err := fdframe.Inherited(os.Stdin)
	if err != nil {
		return err
	}
	if err := jail.Confine(); err != nil {
		return err
	}
	m, err := cgroup.Open()
	if err != nil {
		return err
	}
	if err := m.Clean(); err != nil {
		fmt.Fprintln(os.Stderr, "agentos-launcher:", err) // what is left of others stops nobody
	}
	j, err := jail.New("/proc/self/exe")
	if err != nil {
		return err
	}
	return jailer.Run(context.Background(), jailer.Deps{
		Wire: fdframe.New(c, launchwire.MaxMessage), Jail: j, Groups: groups(m),
	})
}
