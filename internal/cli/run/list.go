package run

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

func id(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func state(s *agentosv1.RunSummary) string {
	if s.GetReason() != "" {
		return s.GetState() + ": " + s.GetReason()
	}
	return s.GetState()
}

func ps(e *cli.Env) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ps", Short: "List your runs", GroupID: cli.GroupRun,
		Example: "  agentos ps\n  agentos ps --all",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var r *connect.Response[agentosv1.RunListResponse]
			err := e.WithShared(c.Context(), func(s *client.Session) (err error) {
				r, err = s.Run.List(c.Context(), connect.NewRequest(&agentosv1.RunListRequest{All: all}))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(r.Msg)
			}
			printRuns(e, r.Msg)
			return nil
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "ended ones too")
	return c
}

func printRuns(e *cli.Env, m *agentosv1.RunListResponse) {
	t := e.NewTable("RUN", "NAME", "PROFILE", "STATE", "STARTED", "PROCS", "MEMORY", "COMMAND")
	for _, r := range m.GetRuns() {
		procs, mem := "-", "-"
		if r.GetProcesses() > 0 {
			procs = strconv.FormatInt(r.GetProcesses(), 10)
		}
		if r.GetMemoryBytes() > 0 {
			mem = cli.Bytes(uint64(r.GetMemoryBytes()))
		}
		t.Row(r.GetRun(), r.GetName(), r.GetProfile(), state(r), cli.When(r.GetStarted().AsTime()), procs, mem, r.GetCommand())
		t.Paint(0, e.Style.Name)
	}
	if t.Empty() {
		e.Printf("no run; start one: agentos run -- CMD\n")
		return
	}
	t.Write(e.Out, "")
}

func logs(e *cli.Env) *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "logs RUN", Short: "Show the latest output of a run", GroupID: cli.GroupRun,
		Long: `Show the latest output of a run, at most 256 KiB, and with --follow what comes.
On a terminal it passes the same filter as the run's.`,
		Example: "  agentos logs nightly\n  agentos logs -f nightly",
		Args:    cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s := newSession(e, true)
			s.name = args[0]
			s.outputs()
			defer s.out.end()
			defer s.err.end()
			return e.WithShared(c.Context(), func(cs *client.Session) error {
				st, err := cs.Run.Logs(c.Context(), connect.NewRequest(&agentosv1.RunLogsRequest{Run: args[0], Follow: follow}))
				if err != nil {
					return err
				}
				defer func() { _ = st.Close() }()
				for st.Receive() {
					if err := s.log(st.Msg()); err != nil {
						return err
					}
				}
				if err := st.Err(); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run ends")
	return c
}

func (s *session) log(m *agentosv1.RunOutput) error {
	if s.e.JSON {
		return s.e.PrintJSONLine(m)
	}
	switch x := m.GetOutput().(type) {
	case *agentosv1.RunOutput_Stdout:
		return s.out.write(x.Stdout)
	case *agentosv1.RunOutput_Stderr:
		return s.err.write(x.Stderr)
	}
	return nil
}

func stop(e *cli.Env) *cobra.Command {
	grace := 10 * time.Second
	c := &cobra.Command{
		Use: "stop RUN...", Short: "Ask a run to end, then end it", GroupID: cli.GroupRun,
		Long: `Send SIGTERM to a run's program; after a while end everything in its sandbox, whatever
it did. When stop returns, nothing of the run is left.`,
		Example: "  agentos stop nightly\n  agentos stop --grace 1m nightly",
		Args:    cli.Args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			if grace < 0 || grace > time.Minute {
				return fault.New(fault.Usage, "choose between 0s and 1m", "stop run: grace %s", grace)
			}
			return stopAll(c.Context(), e, args, &agentosv1.RunStopRequest{GraceMs: uint32(grace.Milliseconds())})
		},
	}
	c.Flags().DurationVar(&grace, "grace", grace, "how long it may take to end by itself")
	return c
}

func kill(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "kill RUN...", Short: "End a run at once", GroupID: cli.GroupRun,
		Long:    "End everything in a run's sandbox at once. When kill returns, nothing of the run is left.",
		Example: "  agentos kill nightly",
		Args:    cli.Args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return stopAll(c.Context(), e, args, &agentosv1.RunStopRequest{Kill: true})
		},
	}
}

// stopAll goes on after a failure and reports the first.
func stopAll(ctx context.Context, e *cli.Env, refs []string, how *agentosv1.RunStopRequest) error {
	return e.WithShared(ctx, func(s *client.Session) error {
		var first error
		for _, ref := range refs {
			how.Run = ref
			r, err := s.Run.Stop(ctx, connect.NewRequest(how))
			switch {
			case err != nil:
				if first == nil {
					first = err
				}
			case e.JSON:
				if err := e.PrintJSONLine(r.Msg); err != nil {
					return err
				}
			default:
				e.Printf("%s %s: %s\n", cli.Short(ref, 80), cli.Short(r.Msg.GetState(), 40), cli.Short(r.Msg.GetReason(), 80))
			}
		}
		return first
	})
}

func profiles(ctx context.Context, e *cli.Env) (*agentosv1.ProfilesResponse, error) {
	var r *connect.Response[agentosv1.ProfilesResponse]
	err := e.WithShared(ctx, func(s *client.Session) (err error) {
		r, err = s.Run.Profiles(ctx, connect.NewRequest(&agentosv1.ProfilesRequest{}))
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

func profileList(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the profiles", Example: "  agentos profile list", Args: cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			m, err := profiles(c.Context(), e)
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(m)
			}
			t := e.NewTable("PROFILE", "COMMANDS", "FILE", "WHAT IT IS FOR")
			for _, p := range m.GetProfiles() {
				t.Row(p.GetName(), strings.Join(p.GetCommands(), " "), p.GetFile(), p.GetSummary())
				t.Paint(0, e.Style.Name)
			}
			t.Write(e.Out, "")
			return nil
		},
	}
}

func profileShow(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show what a profile gives a program started here",
		Example: "  agentos profile show generic", Args: cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := profiles(c.Context(), e)
			if err != nil {
				return err
			}
			for _, p := range m.GetProfiles() {
				if p.GetName() != args[0] {
					continue
				}
				o := options{profile: p.GetName()}
				command := append(p.GetCommands(), "true")[:1]
				spec, err := o.spec(e, command)
				if err != nil {
					return err
				}
				if !e.JSON {
					e.Para("", p.GetSummary())
				}
				return explain(c.Context(), e, spec)
			}
			return fault.New(fault.NotFound, "agentos profile list shows them", "find profile %q", args[0])
		},
	}
}
