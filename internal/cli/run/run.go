// Package run is `agentos run` and what belongs to it: start any program in a
// sandbox, attach to it, list, stop and look at runs and profiles.
//
// State owned: the person's terminal while a run is on it. Imports: cli, client,
// api/agentosv1, lib/{endreason,fault,sandboxplan,termfilter,termsafe}, x/term. Imported by:
// cmd/agentos. Locks: session.sendMu orders what is sent, session.mu guards its
// flags and credit, terminal.mu the terminal's mode; all are leaves. Invariants: whatever ends this process short
// of SIGKILL, the terminal has its mode back; what a program writes reaches a
// terminal only through termfilter, anything else byte for byte; at most 256 KiB
// of input are under way, so that a signal is never behind them. The reader of
// standard input can't be interrupted and ends with the process.
// Tests: exit_test.go, probe_test.go, view_test.go; cmd/agentos/run_test.go on terminals, and
// scripts in cmd/agentos/testdata. Spec: OSA-02, AOS-14.
package run

import (
	"agentos/internal/cli"

	"github.com/spf13/cobra"
)

// Commands makes `agentos run`, `attach`, `ps`, `logs`, `stop`, `kill`, `inspect`,
// `profile` and `sandbox`.
func Commands(e *cli.Env) []*cobra.Command {
	return []*cobra.Command{
		start(e), attach(e), ps(e), logs(e), stop(e), kill(e), inspect(e),
		cli.Noun("profile", "The profiles that say what a program gets", cli.GroupRun, profileList(e), profileShow(e)),
		cli.Noun("sandbox", "What confines a program, held against the kernel", cli.GroupRun, probe(e)),
	}
}
