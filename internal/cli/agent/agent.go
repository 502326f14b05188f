// Package agent is `agentos agent`: run an agent on a goal and watch it, list
// agents. Spec: OSA-01, OSA-02.
//
// State owned: what a view has shown so far of one run. Imports: cli, client,
// api/agentosv1, lib/{endreason,fault,termsafe}. Imported by: cmd/agentos.
// Invariants: one reader of the stream and one writer of the terminal; the exit
// code is the end reason's. Tests: view_test.go with testdata; scripts in
// cmd/agentos/testdata.
package agent

import (
	"strconv"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Command makes `agentos agent`.
func Command(e *cli.Env) *cobra.Command {
	return cli.Noun("agent", "Run an agent on a goal, list agents", cli.GroupRun, once(e), list(e))
}

func list(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List your agents and their Linux identities",
		Example: "  agentos agent list",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var resp *connect.Response[agentosv1.ListAgentsResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Agent.List(c.Context(), connect.NewRequest(&agentosv1.ListAgentsRequest{}))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(resp.Msg)
			}
			t := e.NewTable("AGENT", "OWNER", "UID", "GID", "BOUND SINCE")
			for _, a := range resp.Msg.GetAgents() {
				t.Row(a.GetId(), id(a.GetOwnerUid()), id(a.GetUid()), id(a.GetGid()), cli.When(a.GetBoundAt().AsTime()))
			}
			if t.Empty() {
				e.Printf("you have no agent yet; the first run makes one: agentos agent once \"inspect this machine\"\n")
				return nil
			}
			t.Write(e.Out, "")
			return nil
		},
	}
}

func id(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
