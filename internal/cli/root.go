package cli

import (
	"errors"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Groups of the root's help.
const (
	GroupRun   = "run"
	GroupWhy   = "why"
	GroupHost  = "host"
	GroupOther = "other"
)

// Root makes the root command; the caller adds the nouns. Every error that it
// returns is a fault or an Exit.
func Root(e *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "agentos",
		Short: "Run agents you don't have to trust",
		Long: `AgentOS runs agents that you don't have to trust. An agent may reason as it likes;
everything that it does to this machine passes one gate that checks policy and
budget first, and writes down what happened.`,
		Example: `  agentos agent once "why is this machine slow?"
  agentos doctor
  agentos audit verify`,
		Version:       e.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetHelpFunc(e.help)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddGroup(&cobra.Group{ID: GroupRun, Title: "Run an agent"}, &cobra.Group{ID: GroupWhy, Title: "See what happened, and why"},
		&cobra.Group{ID: GroupHost, Title: "This machine"}, &cobra.Group{ID: GroupOther, Title: "More"})
	root.SetHelpCommand(helpCommand())
	f := root.PersistentFlags()
	f.SortFlags = false
	f.BoolVar(&e.JSON, "json", false, "print JSON for programs")
	f.BoolVar(&e.noColor, "no-color", false, "print without colours (so does NO_COLOR=1)")
	for _, s := range setting.Flags() {
		f.Var(&setFlag{env: e, flag: s}, strings.TrimPrefix(s.Name, "--"), s.Help)
	}
	f.Var(&setFlag{env: e, flag: setting.Flag{Name: "--set", Arg: "KEY=VALUE"}}, "set", "set any configuration key; repeat for more")
	_ = root.RegisterFlagCompletionFunc("backend", cobra.FixedCompletions([]string{"auto", "socket", "replay", "rules"}, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRun = func(*cobra.Command, []string) { e.settle() }
	return root
}

// helpCommand is cobra's, but a topic that doesn't exist is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]", Short: "Help about a command or a topic", GroupID: GroupOther,
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noSuchCommand(found, rest)
			}
			return found.Help()
		}}
}

// settle derives the look of the output once the flags are known.
func (e *Env) settle() {
	e.Style = e.look(e.OutTerm)
	e.Width = 0
	if e.OutTerm {
		e.Width = 80
		if e.Columns >= 20 {
			e.Width = min(e.Columns, 140)
		}
	}
}

// look is the style of a stream that is a terminal or not.
func (e *Env) look(term bool) Style {
	return Style{Color: term && !e.JSON && !e.noColor && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"}
}

// setFlag appends to the settings that agentosd gets, in the order typed.
type setFlag struct {
	env  *Env
	flag setting.Flag
}

func (s *setFlag) String() string { return "" }
func (s *setFlag) Type() string   { return s.flag.Arg }
func (s *setFlag) Set(v string) error {
	set := setting.Set{Key: s.flag.Key, Value: v, Flag: s.flag.Name}
	if s.flag.Name == "--set" {
		var err error
		if set, err = setting.ParseSet(v); err != nil {
			return err
		}
	}
	s.env.Sets = append(s.env.Sets, set)
	return nil
}

func flagError(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.New(fault.Usage, "see "+c.CommandPath()+" --help", "%s", err)
}

// noSuchCommand is the Args of a command that only groups others.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	next := "see " + c.CommandPath() + " --help"
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		next = "did you mean " + c.CommandPath() + " " + near[0] + "? " + next
	}
	return fault.New(fault.Usage, next, "find command %q of %q: there is none", args[0], c.CommandPath())
}

// Noun makes a command that only groups its verbs.
func Noun(use, short, group string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, GroupID: group, Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}

// Args wants between lo and hi arguments; hi below 0 means any number.
func Args(lo, hi int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < lo {
			return fault.New(fault.Usage, "write "+c.UseLine()+"; see "+c.CommandPath()+" --help", "run %s: something is missing", c.CommandPath())
		}
		if hi >= 0 && len(args) > hi {
			return fault.New(fault.Usage, "write "+c.UseLine()+"; quote words that belong together", "run %s: %q is too much", c.CommandPath(), args[hi])
		}
		return nil
	}
}
