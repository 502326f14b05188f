package agent

import (
	"fmt"
	"strings"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/lib/endreason"
	"agentos/internal/lib/termsafe"
)

// jsonLines is the view for programs: each event as it came.
type jsonLines struct{ env *cli.Env }

func (v *jsonLines) event(ev *agentosv1.RunEvent) error { return v.env.PrintJSONLine(ev) }
func (v *jsonLines) tick(time.Time)                     {}
func (v *jsonLines) done()                              {}

// plain prints one line for each thing that happened, and moves no cursor.
type plain struct {
	env  *cli.Env
	run  string
	open []openCall // proposed and not ended, in order
	// erase takes the moving line away before a permanent one; nil: there is none.
	erase func()
}

type openCall struct {
	id, action, name, args string
	decided                *agentosv1.CallDecided
}

func (v *plain) tick(time.Time) {}
func (v *plain) done()          {}

func (v *plain) event(ev *agentosv1.RunEvent) error {
	if ev.GetRun() != "" {
		v.run = ev.GetRun()
	}
	if v.erase != nil {
		v.erase()
	}
	switch x := ev.GetEvent().(type) {
	case *agentosv1.RunEvent_Started:
		v.started(x.Started)
	case *agentosv1.RunEvent_Proposed:
		v.open = append(v.open, openCall{id: x.Proposed.GetCall(), action: x.Proposed.GetAction(), name: x.Proposed.GetResource(), args: x.Proposed.GetArgs()})
	case *agentosv1.RunEvent_Decided:
		v.decided(x.Decided)
	case *agentosv1.RunEvent_CallEnded:
		v.callEnded(x.CallEnded)
	case *agentosv1.RunEvent_Notice:
		v.env.Printf("%s %s\n", v.env.Style.Warn("note:"), termsafe.Line(x.Notice.GetText()))
	case *agentosv1.RunEvent_Ended:
		v.ended(x.Ended)
	}
	return nil
}

func (v *plain) started(s *agentosv1.Started) {
	e, st := v.env, v.env.Style
	backend := termsafe.Line(s.GetBackend())
	if s.GetBackendWhy() != "" {
		backend += " (" + termsafe.Line(s.GetBackendWhy()) + ")"
	}
	e.Printf("%s %s  %s\n", st.Bold("agent"), st.Name(termsafe.Line(s.GetAgent())), st.Dim(termsafe.Line(v.run)))
	e.Para("  ", fmt.Sprintf("owner %d, agent %d:%d, model %s, policy %s", s.GetOwnerUid(), s.GetAgentUid(), s.GetAgentGid(), backend, digest(s.GetPolicyRevision())))
	if len(s.GetStrength()) > 0 {
		e.Para("  ", "confined by "+strings.Join(layers(s.GetStrength()), ", "))
	}
	if s.GetMode() == "single-run" {
		e.Para("  ", "its parts were started for this run only")
	}
	e.Printf("\n")
}

// layers names what confines the loop. agentosd says "layer: state: detail";
// the detail is doctor's.
func layers(all []string) (out []string) {
	for _, s := range all {
		part := strings.SplitN(s, ": ", 3)
		switch {
		case len(part) == 1 || part[1] == "ok":
			out = append(out, part[0])
		case part[1] != "info":
			out = append(out, part[0]+" ("+part[1]+")")
		}
	}
	return out
}

// tokens is empty for a backend that counts none.
func tokens(in, out int64) string {
	if in == 0 && out == 0 {
		return ""
	}
	return fmt.Sprintf(", %d tokens in, %d out", in, out)
}

// digest shortens "sha256:…" for people; the full one is in --json.
func digest(s string) string {
	s = termsafe.Line(s)
	if h, ok := strings.CutPrefix(s, "sha256:"); ok && len(h) > 12 {
		return h[:12]
	}
	return s
}

// find returns the open call with this ID, nil when there is none.
func (v *plain) find(id string) *openCall {
	for i := range v.open {
		if v.open[i].id == id {
			return &v.open[i]
		}
	}
	return nil
}

func (v *plain) take(id string) openCall {
	for i, c := range v.open {
		if c.id == id {
			v.open = append(v.open[:i:i], v.open[i+1:]...)
			return c
		}
	}
	return openCall{id: id}
}

func (v *plain) decided(d *agentosv1.CallDecided) {
	if d.GetAllowed() {
		if c := v.find(d.GetCall()); c != nil {
			c.decided = d
		}
		return
	}
	c, st := v.take(d.GetCall()), v.env.Style
	v.line(st.Bad("✗"), c, st.Bad("denied at "+termsafe.Line(d.GetStage())))
	v.env.Para("    ", d.GetReason())
	for _, r := range d.GetRules() {
		v.env.Para("    ", "by "+Rule(r))
	}
	if d.GetNext() != "" {
		v.env.Para("    ", "next: "+d.GetNext())
	}
}

// Rule names a rule as every view does: id (file:line).
func Rule(r *agentosv1.Rule) string {
	s := r.GetId()
	if r.GetFile() != "" {
		s += fmt.Sprintf(" (%s:%d)", r.GetFile(), r.GetLine())
	}
	return s
}

func (v *plain) callEnded(x *agentosv1.CallEnded) {
	c, st := v.take(x.GetCall()), v.env.Style
	if c.name == "" {
		c.action, c.name = x.GetAction(), x.GetResource()
	}
	took := cli.Took(time.Duration(x.GetDurationUs()) * time.Microsecond)
	switch {
	case x.GetStatus() == "denied":
		return // decided said it, with the reason
	case x.GetStatus() != "ok":
		v.line(st.Bad("✗"), c, st.Bad(termsafe.Line(x.GetStatus()))+" after "+took)
		v.env.Para("    ", x.GetReason())
	case x.GetAction() == "model.generate":
		v.line(st.Dim("◇"), c, st.Dim(took+tokens(x.GetInputTokens(), x.GetOutputTokens())))
	default:
		tail := took
		if n := x.GetResultBytes(); n > 0 {
			tail += ", " + cli.Bytes(n)
		}
		if c.decided != nil && len(c.decided.GetRules()) > 0 {
			tail += ", allowed by " + termsafe.Line(c.decided.GetRules()[0].GetId())
		}
		v.line(st.Good("✓"), c, st.Dim(tail))
	}
}

// line is one call: mark, name, short arguments, what became of it.
func (v *plain) line(mark string, c openCall, what string) {
	name, args := termsafe.Line(c.name), ""
	if c.action == "model.generate" {
		name = "model " + name
	} else if c.args != "" && c.args != "{}" {
		args = cli.Short(c.args, 48)
	}
	head := name
	if args != "" {
		head += " " + args
	}
	const column = 42
	pad := max(column-termsafe.Width(head), 1)
	if args != "" {
		name += " " + v.env.Style.Dim(args)
	}
	v.env.Printf("%s %s%s %s\n", mark, name, strings.Repeat(" ", pad), what)
}

func (v *plain) ended(x *agentosv1.Ended) {
	e, st, t := v.env, v.env.Style, x.GetTotals()
	e.Printf("\n")
	if x.GetReport() != "" {
		e.Para("", x.GetReport())
		e.Printf("\n")
	}
	e.Printf("%s\n", st.Dim(strings.Repeat("─", 40)))
	reason, done := termsafe.Line(x.GetReason()), x.GetReason() == string(endreason.Completed)
	shown := st.Bad(reason)
	if done {
		shown = st.Good(reason)
	}
	e.Printf("%s %s in %s: %s, %s, %d denied%s\n", st.Mark(done), shown,
		cli.Took(time.Duration(t.GetElapsedMs())*time.Millisecond), cli.Count(t.GetIterations(), "turn"),
		cli.Count(t.GetToolCalls(), "tool call"), t.GetDenied(), tokens(t.GetInputTokens(), t.GetOutputTokens()))
	if x.GetAuditLast() > 0 {
		record := fmt.Sprintf("records %d to %d of the audit log", x.GetAuditFirst(), x.GetAuditLast())
		if x.GetVerified() {
			e.Printf("%s %s verify\n", st.Good("✓"), record)
		} else {
			e.Printf("%s %s were %s; run agentos audit verify\n", st.Warn("!"), record, st.Warn("not verified"))
		}
	}
	e.Printf("  why: %s\n", st.Name("agentos lineage "+termsafe.Line(v.run)))
}
