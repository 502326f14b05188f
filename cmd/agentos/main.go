// Command agentos is the command line of AgentOS.
//
// State owned: none. Imports: cli and its nouns, client. It links no database,
// no policy engine and no agent protocol: agentosd has those. Tests:
// main_test.go runs the scripts in testdata against a fake agentosd.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"agentos/internal/cli"
	"agentos/internal/cli/agent"
	"agentos/internal/cli/audit"
	"agentos/internal/cli/config"
	"agentos/internal/cli/doctor"
	"agentos/internal/cli/lineage"
	"agentos/internal/cli/manual"
	"agentos/internal/cli/policy"
	"agentos/internal/cli/run"
	"agentos/internal/client"
	"agentos/internal/lib/fault"

	"golang.org/x/term"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = ""

func main() { os.Exit(command()) }

func command() int {
	spawn := &client.Spawn{Dirs: client.SystemDirs()}
	ctx, stop := signals(spawn)
	defer stop()
	out := &cli.Sink{W: os.Stdout}
	e := &cli.Env{
		In: os.Stdin, Out: out, Err: os.Stderr,
		OutTerm: term.IsTerminal(int(os.Stdout.Fd())), ErrTerm: term.IsTerminal(int(os.Stderr.Fd())),
		Getenv: os.Getenv, Connect: spawn, Share: spawn.Shared(), Version: versionText(),
	}
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		e.Columns = w
	}
	root := cli.Root(e)
	root.AddCommand(
		agent.Command(e),
		audit.Command(e), lineage.Command(e),
		doctor.Command(e), config.Command(e), policy.Command(e),
		manual.Version(e), manual.Completion(e), manual.Man(e), manual.ExitCodes(e), manual.Environment(e),
	)
	root.AddCommand(run.Commands(e)...)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.Err()
	}
	return e.Report(err)
}

// signals cancels the context at the first Ctrl-C, so that what runs is
// cancelled and recorded. The second one ends everything at once.
func signals(spawn *client.Spawn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-ch
		cancel()
		<-ch
		spawn.Kill()
		fmt.Fprintln(os.Stderr, "agentos: ended at once; the next start records what was left open as unknown")
		os.Exit(fault.Cancelled.ExitCode())
	}()
	return ctx, func() { signal.Stop(ch); cancel() }
}

func versionText() string {
	if version != "" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "devel " + s.Value[:12]
			}
		}
	}
	return "devel"
}
