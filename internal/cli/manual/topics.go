package manual

import (
	"strconv"

	"agentos/internal/cli"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/fault"

	"github.com/spf13/cobra"
)

// code is one line of the list of exit codes.
type code struct {
	n    int
	name string
	help string
}

// Codes lists every exit code of agentos, as docs/spec/exit-codes.md does.
func Codes() []code {
	f := func(k fault.Kind, help string) code { return code{k.ExitCode(), string(k), help} }
	r := func(x endreason.Reason, help string) code { return code{x.ExitCode(), string(x), help} }
	return []code{
		{0, "ok", "it worked; a run completed"},
		f(fault.Internal, "a bug, or this host ran out of something"),
		f(fault.Usage, "the command or a setting is wrong"),
		f(fault.Denied, "the gate, or a permission, refused"),
		f(fault.NotFound, "the named thing does not exist"),
		f(fault.Unavailable, "this host or version lacks something"),
		f(fault.Limit, "a budget or size limit was reached"),
		f(fault.Timeout, "a deadline passed"),
		f(fault.Conflict, "another instance or version is in the way"),
		f(fault.Corrupt, "stored bytes fail verification"),
		r(endreason.NotUnderstood, "the rules backend has no intent for this goal"),
		r(endreason.LimitIterations, "run: the limit of model turns"),
		r(endreason.LimitToolCalls, "run: the limit of tool calls"),
		r(endreason.LimitElapsed, "run: the limit of time"),
		r(endreason.LimitTurnTokens, "run: the model's limit of a turn"),
		r(endreason.LimitTotalTokens, "run: the limit of tokens"),
		r(endreason.DuplicateCallID, "run: the model used a call ID twice"),
		r(endreason.NoProgress, "run: the same call with the same result again"),
		r(endreason.Cycle, "run: calls repeat in a circle"),
		r(endreason.ModelError, "run: the model failed"),
		f(fault.Malformed, "bytes from outside do not parse; run: model_malformed"),
		r(endreason.Crashed, "run: a part of it died"),
		{cli.ExitFinding, "finding", "a check that you asked for found something"},
		f(fault.Cancelled, "cancelled by Ctrl-C or a signal"),
	}
}

// ExitCodes makes the help topic.
func ExitCodes(e *cli.Env) *cobra.Command {
	return topic("exit-codes", "What the exit codes mean", func() {
		e.Printf("Exit codes of agentos. A run that the gate refused ends with 3, too.\n\n")
		t := e.NewTable("CODE", "NAME", "MEANING")
		for _, c := range Codes() {
			t.Row(strconv.Itoa(c.n), c.name, c.help)
		}
		t.Write(e.Out, "  ")
	})
}

// Environment makes the help topic.
func Environment(e *cli.Env) *cobra.Command {
	return topic("environment", "Which environment variables matter", func() {
		e.Printf("%s", `Settings: each key that agentos config show lists has a variable, such as
AGENTOS_STATE_DIR or AGENTOS_MODEL_BACKEND; docs/config.reference.yaml names them.

  AGENTOS_CONFIG    read only this configuration file
  XDG_CONFIG_HOME   where agentos/config.yaml is looked for (default ~/.config)
  XDG_DATA_HOME     where the state lives by default (default ~/.local/share)
  NO_COLOR          any value: print without colours
  TERM=dumb         no colours, no moving cursor
`)
	})
}

// topic is a page that `agentos help NAME` finds.
func topic(name, short string, print func()) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, GroupID: cli.GroupOther, Args: cli.Args(0, 0), RunE: func(*cobra.Command, []string) error {
		print()
		return nil
	}}
	c.SetHelpFunc(func(*cobra.Command, []string) { print() })
	return c
}
