package run

import (
	"context"
	"encoding/json"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// explain prints the sandbox that a command would get.
func explain(ctx context.Context, e *cli.Env, spec *agentosv1.RunSpec) error {
	var p *connect.Response[agentosv1.RunPlan]
	err := e.WithShared(ctx, func(s *client.Session) (err error) {
		p, err = s.Run.Plan(ctx, connect.NewRequest(spec))
		return err
	})
	if err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(p.Msg)
	}
	printPlan(e, p.Msg)
	return nil
}

func printPlan(e *cli.Env, p *agentosv1.RunPlan) {
	e.Printf("%s %s\n", e.Style.Bold("profile"), cli.Short(p.GetProfile(), 80))
	section := ""
	var t *cli.Table
	flush := func() {
		if t != nil {
			t.Write(e.Out, "  ")
		}
	}
	for _, l := range p.GetLines() {
		if l.GetSection() != section || t == nil {
			flush()
			section, t = l.GetSection(), e.NewTable()
			e.Printf("\n%s\n", e.Style.Bold(cli.Short(section, 40)))
		}
		t.Row(l.GetSubject(), l.GetAccess(), l.GetWhy())
		switch l.GetAccess() {
		case "absent":
			t.Paint(1, e.Style.Good)
		case "write", "read, write", "read, write, exec":
			t.Paint(1, e.Style.Warn)
		}
		t.Paint(2, e.Style.Dim)
	}
	flush()
	if len(p.GetNotices()) > 0 {
		e.Printf("\n")
	}
	for _, n := range p.GetNotices() {
		e.Para(e.Style.Warn("note: "), n)
	}
}

// hasTTY reads the one member of a plan that an attached client needs.
func hasTTY(p *agentosv1.RunPlan) bool {
	var doc struct {
		TTY bool `json:"tty"`
	}
	return json.Unmarshal([]byte(p.GetJson()), &doc) == nil && doc.TTY
}

func inspect(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "inspect RUN", Short: "Show a run and its sandbox", GroupID: cli.GroupRun,
		Example: "  agentos inspect nightly\n  agentos inspect nightly --json | jq -r .plan.json | jq .mounts",
		Args:    cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			var r *connect.Response[agentosv1.RunInspectResponse]
			err := e.WithShared(c.Context(), func(s *client.Session) (err error) {
				r, err = s.Run.Inspect(c.Context(), connect.NewRequest(&agentosv1.RunInspectRequest{Run: args[0]}))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(r.Msg)
			}
			printInspect(e, r.Msg)
			return nil
		},
	}
}

func printInspect(e *cli.Env, m *agentosv1.RunInspectResponse) {
	s := m.GetSummary()
	t := e.NewTable()
	for _, kv := range [][2]string{{"run", s.GetRun()}, {"name", s.GetName()}, {"state", state(s)}, {"command", s.GetCommand()},
		{"uid", id(s.GetUid())}, {"started", cli.When(s.GetStarted().AsTime())}} {
		t.Row(kv[0], kv[1])
		t.Paint(0, e.Style.Bold)
	}
	for i, l := range m.GetLayers() {
		head := ""
		if i == 0 {
			head = "layers"
		}
		t.Row(head, l)
		t.Paint(0, e.Style.Bold)
	}
	t.Write(e.Out, "")
	if m.GetPlan() != nil {
		e.Printf("\n")
		printPlan(e, m.GetPlan())
	}
}
