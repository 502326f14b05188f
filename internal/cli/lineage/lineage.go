// Package lineage is `agentos lineage`: why something happened, from the goal to
// the effect. Spec: AOS-12.
//
// State owned: none. Imports: cli, client, api/agentosv1, lib/termsafe. Imported
// by: cmd/agentos. Tests: lineage_test.go with testdata; scripts in
// cmd/agentos/testdata.
package lineage

import (
	"fmt"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Command makes `agentos lineage`.
func Command(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "lineage RUN|CALL", Short: "Explain why a run or a call did what it did", GroupID: cli.GroupWhy,
		Long: `Show how each effect came about: the goal, the context that the model saw (its
hash), what the model proposed, the rules that decided, the effect and its result.
A unique prefix of an ID is enough.`,
		Example: "  agentos lineage run-01J8\n  agentos lineage call-01J8XK --json",
		Args:    cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			var resp *connect.Response[agentosv1.LineageResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Audit.Lineage(c.Context(), connect.NewRequest(&agentosv1.LineageRequest{Ref: args[0]}))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(resp.Msg)
			}
			Render(e, resp.Msg)
			return nil
		},
	}
}

// Render draws the tree.
func Render(e *cli.Env, r *agentosv1.LineageResponse) {
	st := e.Style
	e.Printf("%s %s\n", st.Bold("goal"), cli.Short(r.GetGoal(), max(e.Width-5, 75)))
	end := termsafe.Line(r.GetState())
	if r.GetReason() != "" {
		end += ", " + termsafe.Line(r.GetReason())
	}
	e.Printf("%s\n", st.Dim(fmt.Sprintf("%s: agent %s of owner %d, %s", termsafe.Line(r.GetRun()), termsafe.Line(r.GetAgent()), r.GetOwner(), end)))
	e.Printf("%s\n", st.Dim("policy "+termsafe.Line(r.GetPolicyRevision())))
	turns := r.GetTurns()
	if len(turns) == 0 {
		e.Printf("└─ no model call was admitted\n")
	}
	n := 0
	for i, t := range turns {
		b := branch{env: e}.child(i == len(turns)-1)
		if t.GetCall() == "" { // what the owner asked for in person
			b.title(st.Bold(termsafe.Line(t.GetBackend())))
			b.effects(t.GetCalls())
			continue
		}
		n++
		turn(b, n, t)
	}
}

// branch draws lines below one node of the tree.
type branch struct {
	env    *cli.Env
	prefix string // of lines below this node
	head   string // of the node's own line
}

func (b branch) child(last bool) branch {
	if last {
		return branch{env: b.env, prefix: b.prefix + "   ", head: b.prefix + "└─ "}
	}
	return branch{env: b.env, prefix: b.prefix + "│  ", head: b.prefix + "├─ "}
}

func (b branch) title(text string) { b.env.Printf("%s%s\n", b.env.Style.Dim(b.head), text) }

// field is one labelled value under the node; more says that children follow.
func (b branch) field(more bool, label, text string) {
	if text == "" {
		return
	}
	p := b.prefix
	if more {
		p += "│ "
	} else {
		p += "  "
	}
	st := b.env.Style
	room := 400
	if b.env.Width > 0 {
		room = max(b.env.Width-termsafe.Width(p)-9, 20)
	}
	b.env.Printf("%s%s %s\n", st.Dim(p), st.Dim(fmt.Sprintf("%-8s", label)), cli.Short(text, room))
}

func turn(b branch, n int, t *agentosv1.LineageTurn) {
	st := b.env.Style
	calls := t.GetCalls()
	more := len(calls) > 0
	used := ""
	if t.GetInputTokens()+t.GetOutputTokens() > 0 {
		used = st.Dim(fmt.Sprintf("  %d tokens in, %d out", t.GetInputTokens(), t.GetOutputTokens()))
	}
	b.title(fmt.Sprintf("%s %s  %s%s", st.Bold(fmt.Sprintf("turn %d: model", n)), termsafe.Line(t.GetBackend()), status(st, t.GetStatus()), used))
	b.field(more, "call", t.GetCall())
	b.field(more, "context", t.GetContextHash())
	b.field(more, "said", t.GetText())
	b.field(more, "records", records(t.GetIntentSeq(), t.GetOutcomeSeq()))
	b.effects(calls)
}

func (b branch) effects(calls []*agentosv1.LineageCall) {
	for i, c := range calls {
		effect(b.child(i == len(calls)-1), c)
	}
}

func effect(b branch, c *agentosv1.LineageCall) {
	st := b.env.Style
	name := termsafe.Line(c.GetTool())
	if c.GetArgs() != "" && c.GetArgs() != "{}" {
		name += " " + st.Dim(cli.Short(c.GetArgs(), 60))
	}
	b.title(fmt.Sprintf("%s %s %s", st.Mark(c.GetAllowed() && c.GetStatus() == "ok"), st.Bold("proposed"), name))
	b.field(false, "call", c.GetCall())
	verdict := "allowed"
	if !c.GetAllowed() {
		verdict = "denied at " + c.GetStage()
	}
	for i, r := range c.GetRules() {
		if i == 0 {
			verdict += " by "
		} else {
			verdict += ", "
		}
		verdict += r.GetId()
		if r.GetFile() != "" {
			verdict += fmt.Sprintf(" (%s:%d)", r.GetFile(), r.GetLine())
		}
	}
	b.field(false, "gate", verdict)
	b.field(false, "grant", c.GetGrant())
	b.field(false, "risk", c.GetRisk())
	b.field(false, "why", c.GetReason())
	if c.GetAllowed() {
		b.field(false, "effect", c.GetStatus()+" in "+cli.Took(time.Duration(c.GetDurationUs())*time.Microsecond))
		b.field(false, "result", c.GetResult())
		b.field(false, "label", c.GetLabel())
	}
	b.field(false, "records", records(c.GetIntentSeq(), c.GetOutcomeSeq()))
}

func status(st cli.Style, s string) string {
	if s == "ok" {
		return st.Good(s)
	}
	return st.Bad(termsafe.Line(s))
}

// records are the sequence numbers that `agentos audit show` takes.
func records(intent, outcome uint64) string {
	switch {
	case outcome == 0 && intent == 0:
		return ""
	case outcome == 0:
		return fmt.Sprintf("%d, no outcome yet", intent)
	case intent == 0 || intent == outcome:
		return fmt.Sprint(outcome)
	}
	return fmt.Sprintf("%d → %d", intent, outcome)
}
