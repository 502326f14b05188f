// Package config is `agentos config`: every setting with its value and where it
// came from, as agentosd sees it. Spec: OSA-10.
//
// State owned: none. Imports: cli, client, api/agentosv1. Imported by:
// cmd/agentos. Tests: scripts in cmd/agentos/testdata.
package config

import (
	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Command makes `agentos config`.
func Command(e *cli.Env) *cobra.Command {
	return cli.Noun("config", "See the settings and where each comes from", cli.GroupHost, show(e))
}

func show(e *cli.Env) *cobra.Command {
	changed, explain := false, false
	c := &cobra.Command{
		Use: "show", Short: "Show every setting with its value and origin",
		Long: `Show every setting with its value and where it came from. A flag beats the
environment, the environment beats a file, a file beats the default. Files are
/etc/agentos/config.yaml and then ~/.config/agentos/config.yaml, or only the one
that --config or AGENTOS_CONFIG names.`,
		Example: "  agentos config show\n  agentos config show --changed\n  agentos config show --set agent.limits.iterations=3",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var resp *connect.Response[agentosv1.ConfigResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Host.Config(c.Context(), connect.NewRequest(&agentosv1.ConfigRequest{}))
				return err
			})
			if err != nil {
				return err
			}
			if changed {
				keep := resp.Msg.Values[:0]
				for _, v := range resp.Msg.Values {
					if v.GetOrigin() != "default" {
						keep = append(keep, v)
					}
				}
				resp.Msg.Values = keep
			}
			if e.JSON {
				return e.PrintJSON(resp.Msg)
			}
			render(e, resp.Msg, explain)
			return nil
		},
	}
	c.Flags().BoolVar(&changed, "changed", false, "only what differs from the defaults")
	c.Flags().BoolVar(&explain, "explain", false, "say what each setting means")
	return c
}

func render(e *cli.Env, m *agentosv1.ConfigResponse, explain bool) {
	t := e.NewTable("KEY", "VALUE", "ORIGIN")
	for _, v := range m.GetValues() {
		value, origin := v.GetValue(), v.GetOrigin()
		if value == "" {
			value = "-"
		}
		if v.GetSource() != "" {
			origin += " " + v.GetSource()
		}
		if explain {
			e.Printf("%s = %s  %s\n", e.Style.Bold(termsafe.Line(v.GetKey())), termsafe.Line(value), e.Style.Dim("("+termsafe.Line(origin)+")"))
			e.Para("    ", v.GetHelp())
			continue
		}
		t.Row(v.GetKey(), value, origin)
		if v.GetOrigin() == "default" {
			t.Paint(2, e.Style.Dim)
		} else {
			t.Paint(1, e.Style.Bold)
		}
	}
	switch {
	case len(m.GetValues()) == 0:
		e.Printf("nothing differs from the defaults\n")
	case !explain:
		t.Write(e.Out, "")
	}
	for _, f := range m.GetFiles() {
		e.Printf("%s\n", e.Style.Dim("read "+termsafe.Line(f)))
	}
	for _, n := range m.GetNotices() {
		e.Printf("%s %s\n", e.Style.Warn("note:"), termsafe.Line(n))
	}
}
