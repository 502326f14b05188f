package policy

import (
	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

func explain(e *cli.Env) *cobra.Command {
	req := &agentosv1.PolicyExplainRequest{}
	c := &cobra.Command{
		Use: "explain [CALL]", Short: "Explain why a call is, or would be, allowed or denied",
		Long: `Explain a recorded call by its ID, or a call that you describe, stage by stage, by
the code that enforces. The answer is the exit code's business only when there is
none: a denial explained ends with 0.`,
		Example: `  agentos policy explain call-01J8XK
  agentos policy explain --action tool.call --resource service_inspect --args '{"unit":"ssh.service"}'`,
		Args: cli.Args(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if req.Action+req.Resource+req.Args != "" {
					return fault.New(fault.Usage, "give one of them", "explain: a recorded call needs no --action, --resource or --args")
				}
				req.Call = args[0]
			} else if req.Resource == "" {
				return fault.New(fault.Usage, "give a CALL, or --resource TOOL (and --args)", "explain: no call is named")
			} else if req.Action == "" {
				req.Action = "tool.call"
			}
			var resp *connect.Response[agentosv1.PolicyExplainResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Policy.Explain(c.Context(), connect.NewRequest(req))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(resp.Msg)
			}
			Stages(e, resp.Msg)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&req.Action, "action", "", "`ACTION`: agent.start, tool.call (default), model.generate")
	f.StringVar(&req.Resource, "resource", "", "tool, model or agent `NAME`")
	f.StringVar(&req.Args, "args", "", "arguments as a `JSON` object")
	return c
}

// Stages draws the way through the gate.
func Stages(e *cli.Env, m *agentosv1.PolicyExplainResponse) {
	st := e.Style
	if m.GetAllowed() {
		e.Printf("%s %s\n", st.Mark(true), st.Good("allowed"))
	} else {
		e.Printf("%s %s\n", st.Mark(false), st.Bad("denied"))
	}
	same := map[bool]string{true: "allowed", false: "denied"}[m.GetAllowed()]
	if m.GetRecorded() != "" && m.GetRecorded() != same {
		e.Printf("  %s %s\n", st.Warn("recorded then:"), termsafe.Line(m.GetRecorded()))
	}
	e.Printf("\n")
	t := e.NewTable()
	for _, s := range m.GetStages() {
		mark := "✓"
		if !s.GetOk() {
			mark = "✗"
		}
		t.Row(mark, s.GetStage(), s.GetDetail())
		if s.GetOk() {
			t.Paint(0, st.Good)
		} else {
			t.Paint(0, st.Bad)
		}
	}
	t.Write(e.Out, "  ")
	section(e, "rules that decided", len(m.GetRules()), func(i int) string { return rule(m.GetRules()[i]) })
	section(e, "missing", len(m.GetMissing()), func(i int) string { return m.GetMissing()[i] })
	if m.GetNext() != "" {
		e.Printf("\n%s %s\n", st.Bold("next:"), termsafe.Line(m.GetNext()))
	}
	if m.GetRevision() != "" {
		e.Printf("\n%s\n", st.Dim("policy "+termsafe.Line(m.GetRevision())))
	}
}

func section(e *cli.Env, title string, n int, text func(int) string) {
	if n == 0 {
		return
	}
	e.Printf("\n%s\n", e.Style.Bold(title))
	for i := range n {
		e.Para("  ", text(i))
	}
}
