// Package doctor is `agentos doctor`: what this host can enforce, as it really
// is, and what would make it stronger. Spec: OSA-09.
//
// State owned: none. Imports: cli, client, api/agentosv1. Imported by:
// cmd/agentos. Tests: doctor_test.go, testdata/doctor.txt; scripts in
// cmd/agentos/testdata.
package doctor

import (
	"strings"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Command makes `agentos doctor`.
func Command(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Show what this machine can enforce, and what is missing", GroupID: cli.GroupHost,
		Long: `Show this host, its kernel features, how strongly agents are confined here, the
model backends, the identity and the state, each as it really is.

The verdict is "full", "reduced" (everything works, something is weaker) or
"unsafe", which ends with exit code 22.`,
		Example: "  agentos doctor\n  agentos doctor --json",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var resp *connect.Response[agentosv1.DoctorResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Host.Doctor(c.Context(), connect.NewRequest(&agentosv1.DoctorRequest{}))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				err = e.PrintJSON(resp.Msg)
			} else {
				Render(e, resp.Msg)
			}
			if err == nil && resp.Msg.GetVerdict() == "unsafe" {
				err = &cli.Exit{Code: cli.ExitFinding, Kind: "finding", Msg: "this host is not safe for agents", Next: "fix what is marked unsafe above"}
			}
			return err
		},
	}
}

// Render prints the report for people.
func Render(e *cli.Env, d *agentosv1.DoctorResponse) {
	st := e.Style
	for _, sec := range d.GetSections() {
		e.Printf("%s\n", st.Bold(termsafe.Line(sec.GetName())))
		pad := 0
		for _, it := range sec.GetItems() {
			pad = max(pad, termsafe.Width(termsafe.Line(it.GetName())))
		}
		for _, it := range sec.GetItems() {
			item(e, it, pad)
		}
		e.Printf("\n")
	}
	verdict := termsafe.Line(d.GetVerdict())
	switch verdict {
	case "full":
		verdict = st.Good(verdict)
	case "reduced":
		verdict = st.Warn(verdict)
	default:
		verdict = st.Bad(verdict)
	}
	e.Printf("%s %s\n", st.Bold("Strength:"), verdict)
	e.Para("  ", d.GetSummary())
}

func item(e *cli.Env, it *agentosv1.DoctorItem, pad int) {
	name, state := termsafe.Line(it.GetName()), termsafe.Line(it.GetState())
	shown := termsafe.Line(it.GetValue())
	mark, paint := look(e.Style, it.GetState())
	detail := it.GetDetail()
	if fits := termsafe.Width(termsafe.Line(detail)) <= max(e.Width-pad-6, 60); shown == "" && fits && !strings.Contains(detail, "\n") {
		shown, detail = termsafe.Line(detail), ""
	}
	if it.GetState() != "ok" && it.GetState() != "info" {
		if shown != "" {
			shown = ": " + shown
		}
		shown = state + shown
	}
	if e.Width > 0 {
		shown = termsafe.Cut(shown, max(e.Width-pad-6, 20))
	}
	line := name
	if shown != "" {
		line += strings.Repeat(" ", pad-termsafe.Width(name)+2) + paint(shown)
	}
	e.Printf("  %s %s\n", paint(mark), line)
	e.Para("      ", detail)
	if it.GetNext() != "" {
		e.Para("      ", "next: "+it.GetNext())
	}
}

func look(st cli.Style, state string) (string, func(string) string) {
	plain := func(s string) string { return s }
	switch state {
	case "ok":
		return st.Good("✓"), plain
	case "info":
		return "·", plain
	case "reduced", "absent":
		return "!", st.Warn
	}
	return "✗", st.Bad
}
