// Package policy is `agentos policy`: check, test, explain and format the rules
// that the gate enforces. Spec: AOS-08.
//
// State owned: none. Imports: cli, client, api/agentosv1, lib/{fault,termsafe}.
// Imported by: cmd/agentos. Invariants: files are read here and judged in
// agentosd, by the enforcing code. Tests: scripts in cmd/agentos/testdata.
package policy

import (
	"fmt"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Command makes `agentos policy`.
func Command(e *cli.Env) *cobra.Command {
	return cli.Noun("policy", "Check, test and explain the rules", cli.GroupWhy, check(e), test(e), explain(e), format(e))
}

func check(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "check [FILE|DIR...]", Short: "Check policy files against the schema",
		Long:    "Check policies against the schema. Without arguments the active set is checked. Problems end with exit code 22.",
		Example: "  agentos policy check\n  agentos policy check ./policies",
		RunE: func(c *cobra.Command, args []string) error {
			files, err := collect(args, e.In, ".cedar")
			if err != nil {
				return err
			}
			var resp *connect.Response[agentosv1.PolicyCheckResponse]
			err = e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Policy.Check(c.Context(), connect.NewRequest(&agentosv1.PolicyCheckRequest{Files: files}))
				return err
			})
			if err != nil {
				return err
			}
			m := resp.Msg
			errs := int64(0)
			for _, p := range m.GetProblems() {
				if p.GetSeverity() != "warning" {
					errs++
				}
			}
			if e.JSON {
				err = e.PrintJSON(m)
			} else {
				problems(e, m)
			}
			if err == nil && (!m.GetOk() || errs > 0) {
				err = &cli.Exit{Code: cli.ExitFinding, Kind: "finding", Msg: "policy check found " + cli.Count(max(errs, 1), "error"), Next: "fix the lines named above"}
			}
			return err
		},
	}
}

func problems(e *cli.Env, m *agentosv1.PolicyCheckResponse) {
	st := e.Style
	for _, p := range m.GetProblems() {
		sev := st.Bad("error")
		if p.GetSeverity() == "warning" {
			sev = st.Warn("warning")
		}
		who := ""
		if p.GetPolicy() != "" {
			who = " in " + termsafe.Line(p.GetPolicy())
		}
		e.Printf("%s:%d:%d: %s%s: %s\n", termsafe.Line(p.GetFile()), p.GetLine(), p.GetColumn(), sev, who, termsafe.Line(p.GetMessage()))
	}
	if m.GetOk() {
		n := fmt.Sprintf("%d policies", m.GetPolicies())
		if m.GetPolicies() == 1 {
			n = "1 policy"
		}
		e.Printf("%s %s in order, revision %s\n", st.Mark(true), n, termsafe.Line(m.GetRevision()))
	}
}

func test(e *cli.Env) *cobra.Command {
	var against []string
	c := &cobra.Command{
		Use: "test FILE|DIR...", Short: "Run policy tests",
		Long:    "Run policy tests against the active set, or against --policy. A failed test ends with exit code 22.",
		Example: "  agentos policy test ./policies/tests\n  agentos policy test --policy ./policies ./policies/tests",
		Args:    cli.Args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			req := &agentosv1.PolicyTestRequest{}
			var err error
			if req.Tests, err = collect(args, e.In, ".yaml", ".yml", ".json"); err != nil {
				return err
			}
			if req.Policies, err = collect(against, e.In, ".cedar"); err != nil {
				return err
			}
			var resp *connect.Response[agentosv1.PolicyTestResponse]
			err = e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Policy.Test(c.Context(), connect.NewRequest(req))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				err = e.PrintJSON(resp.Msg)
			}
			failed := int64(0)
			for _, r := range resp.Msg.GetResults() {
				if !r.GetPass() {
					failed++
				}
				if !e.JSON {
					result(e, r)
				}
			}
			n := int64(len(resp.Msg.GetResults()))
			if !e.JSON {
				e.Printf("%s, %d failed\n", cli.Count(n, "test"), failed)
			}
			if err == nil && failed > 0 {
				err = &cli.Exit{Code: cli.ExitFinding, Kind: "finding", Msg: cli.Count(failed, "policy test") + " failed", Next: "agentos policy explain shows how a decision comes about"}
			}
			return err
		},
	}
	c.Flags().StringSliceVar(&against, "policy", nil, "policy `FILE` or directory to test instead of the active set; repeat for more")
	return c
}

func result(e *cli.Env, r *agentosv1.PolicyTestResult) {
	e.Printf("%s %s %s\n", e.Style.Mark(r.GetPass()), termsafe.Line(r.GetFile()), termsafe.Line(r.GetName()))
	if r.GetPass() {
		return
	}
	e.Para("    ", fmt.Sprintf("want %s, got %s", r.GetWant(), r.GetGot()))
	for _, x := range r.GetRules() {
		e.Para("    ", "by "+rule(x))
	}
	e.Para("    ", r.GetDetail())
}

func rule(r *agentosv1.Rule) string {
	s := r.GetEffect() + " " + r.GetId()
	if r.GetFile() != "" {
		s += fmt.Sprintf(" (%s:%d)", r.GetFile(), r.GetLine())
	}
	if r.GetReason() != "" {
		s += ": " + r.GetReason()
	}
	return s
}
