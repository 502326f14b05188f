package run

import (
	"os"
	"path/filepath"
	"strings"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// options are the flags of `agentos run`.
type options struct {
	profile, name, strength string
	rw, ro, deny, limits    []string
	sockets                 []string
	detach, explain, quiet  bool
	tty                     bool
	ttySet                  bool
}

func start(e *cli.Env) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "run [--] CMD [ARG...]", Short: "Run any program in a sandbox", GroupID: cli.GroupRun,
		Long: `Run a program, such as an agent that you already use, in a sandbox. It sees the
system read only, a private /tmp, a home of its own (one that stays, if the profile
says so) and the current directory, read only unless profile or --rw say otherwise;
it has no network but its own, no socket of this machine, and none of your secrets.
What a profile gives: agentos profile show NAME.

On a terminal the program gets a terminal of its own; what it writes passes a
filter, so that it can't type into your shell or pose as somebody else. Otherwise
standard input, output and error are passed on byte for byte.

The exit code is the program's: 128 and the number of a signal that ended it, 127
when it was not found, 126 when it can't be executed. When AgentOS itself fails,
it says so on standard error after "agentos:"; see agentos help exit-codes.`,
		Example: `  agentos run -- claude
  agentos run --ro ~/notes --limit memory=2G -- codex exec "fix the tests"
  agentos run --explain -- aider
  agentos run -d --name nightly -- ./agent.sh && agentos logs -f nightly`,
		Args: cli.Args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			o.ttySet = c.Flags().Changed("tty")
			return o.run(c, e, args)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.SetInterspersed(false) // what follows CMD is CMD's
	o.sandboxFlags(f)
	f.BoolVarP(&o.detach, "detach", "d", false, "leave it running and print its ID")
	f.BoolVar(&o.explain, "explain", false, "show the sandbox and why it is so; run nothing")
	f.BoolVar(&o.tty, "tty", false, "a terminal of its own (otherwise: when all three streams are one)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing but errors")
	return c
}

// sandboxFlags are those that say what the sandbox is.
func (o *options) sandboxFlags(f *pflag.FlagSet) {
	f.StringVar(&o.profile, "profile", "", "what it gets; chosen by the command's name, see agentos profile list")
	f.StringVar(&o.name, "name", "", "what to call the run")
	f.StringArrayVar(&o.rw, "rw", nil, "a path that it may write; repeat for more")
	f.StringArrayVar(&o.ro, "ro", nil, "a path that it may read")
	f.StringArrayVar(&o.deny, "deny", nil, "a path that is absent for it")
	f.StringArrayVar(&o.sockets, "allow-sockets", nil, "a tree, or one socket or FIFO in a granted tree, that it may reach")
	f.StringArrayVar(&o.limits, "limit", nil, "KEY=VALUE: pids=200, memory=2G, cpu=150%, …")
	f.StringVar(&o.strength, "strength", "", "full, rootless or landlock-only; it never gets less than this")
}

func (o *options) run(c *cobra.Command, e *cli.Env, args []string) error {
	spec, err := o.spec(e, args)
	if err != nil {
		return err
	}
	if o.explain {
		return explain(c.Context(), e, spec)
	}
	s := newSession(e, o.quiet)
	if spec.GetTty() {
		if s.term, err = openTerminal(e); err != nil {
			return err
		}
		spec.Rows, spec.Cols = s.term.size()
	}
	s.name = runName(spec)
	ctx, done := s.own(c.Context())
	defer done()
	err = e.WithShared(ctx, func(cs *client.Session) error {
		st := cs.Run.Start(ctx)
		first := &agentosv1.RunInput{Input: &agentosv1.RunInput_Spec{Spec: spec}}
		return s.relay(ctx, st, first, spec.GetDetach())
	})
	return s.verdict(err)
}

// spec is what the API needs to know: paths made absolute, and the few variables
// of the environment that a profile may pass on.
func (o *options) spec(e *cli.Env, args []string) (*agentosv1.RunSpec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "change to a directory that exists", "find the working directory")
	}
	spec := &agentosv1.RunSpec{
		Command: args, Profile: o.profile, Name: o.name, Strength: o.strength, Detach: o.detach, Dir: dir,
		Limits: map[string]string{}, Env: passable(e.Getenv),
	}
	if spec.Tty = o.tty; !o.ttySet {
		spec.Tty = !o.detach && !e.JSON && isTerminal(e.In) && e.OutTerm && e.ErrTerm
	}
	if spec.Tty && e.JSON {
		return nil, fault.New(fault.Usage, "leave out --tty or --json", "run with a terminal: --json has none")
	}
	for _, p := range []struct {
		from []string
		to   *[]string
	}{{o.rw, &spec.Rw}, {o.ro, &spec.Ro}, {o.deny, &spec.Deny}, {o.sockets, &spec.AllowSockets}} {
		for _, path := range p.from {
			if path == "" {
				return nil, fault.New(fault.Usage, "name a path", "read paths: one is empty")
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			*p.to = append(*p.to, filepath.Clean(path))
		}
	}
	for _, l := range o.limits {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" || v == "" {
			return nil, fault.New(fault.Usage, "write --limit KEY=VALUE, such as --limit memory=2G", "read limit %q", l)
		}
		if _, dup := spec.Limits[k]; dup {
			return nil, fault.New(fault.Usage, "give each limit once", "read limit %q: given twice", k)
		}
		spec.Limits[k] = v
	}
	return spec, nil
}

// maxPath bounds the caller's PATH, in bytes.
const maxPath = 16 << 10

// passable are variables that say how to write for this person and terminal, and
// hold no secret; and PATH, in which the command is looked up.
func passable(getenv func(string) string) map[string]string {
	out := map[string]string{}
	if v := getenv("PATH"); v != "" && len(v) <= maxPath {
		out["PATH"] = v
	}
	for _, k := range []string{
		"TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLORFGBG", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE",
		"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LC_MONETARY", "TZ",
	} {
		if v := getenv(k); v != "" && len(v) <= 256 {
			out[k] = v
		}
	}
	return out
}

func runName(spec *agentosv1.RunSpec) string {
	for _, n := range []string{spec.GetName(), spec.GetProfile()} {
		if n != "" {
			return n
		}
	}
	return filepath.Base(spec.GetCommand()[0])
}

func attach(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "attach RUN", Short: "Attach to a run that goes on", GroupID: cli.GroupRun,
		Long: `Attach to a run that goes on: its latest output, then what comes, and your input.
Closing the terminal, or SIGTERM, leaves the run as it is; so does Ctrl-C when the
run has no terminal.`,
		Example: "  agentos attach nightly",
		Args:    cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s := newSession(e, true)
			s.attached, s.name = true, args[0]
			ctx, done := s.own(c.Context())
			defer done()
			err := e.WithShared(ctx, func(cs *client.Session) error {
				r, err := cs.Run.Inspect(ctx, connect.NewRequest(&agentosv1.RunInspectRequest{Run: args[0]}))
				if err != nil {
					return err
				}
				if hasTTY(r.Msg.GetPlan()) && isTerminal(e.In) && e.OutTerm && !e.JSON {
					if s.term, err = openTerminal(e); err != nil {
						return err
					}
				}
				if n := r.Msg.GetSummary().GetName(); n != "" {
					s.name = n
				}
				st := cs.Run.Attach(ctx)
				return s.relay(ctx, st, &agentosv1.RunInput{Input: &agentosv1.RunInput_Attach{Attach: args[0]}}, false)
			})
			return s.verdict(err)
		},
	}
}
