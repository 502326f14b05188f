//go:build linux

package auditapi

import (
	"context"
	"encoding/json"
	"strings"

	"connectrpc.com/connect"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/apierr"
	"agentos/internal/control/statestore"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
)

// maxShown is how much of a payload a lineage shows, in bytes.
const maxShown = 4 << 10

// Lineage answers "why did this happen": goal, context, model call, proposal,
// rules, effect, result (AOS-12). A run's tool calls belong to the model turn
// that ended last before they were proposed; the log's order says which.
func (s *Service) Lineage(ctx context.Context, req *connect.Request[pb.LineageRequest]) (*connect.Response[pb.LineageResponse], error) {
	var out *pb.LineageResponse
	err := s.deps.Reader(ctx, func(r *statestore.Reader) error {
		run, only, err := resolve(ctx, r, req.Msg.GetRef())
		if err != nil {
			return err
		}
		b := &lineage{ctx: ctx, r: r, out: &pb.LineageResponse{Run: run}, turns: map[string]*pb.LineageTurn{}, calls: map[string]*pb.LineageCall{}}
		filter := statestore.Filter{Run: run}
		if run == "" {
			filter.Call = only // of an owner in person: it belongs to no run
		}
		for it, err := range r.Log(ctx, filter) {
			if err == nil {
				err = b.add(it)
			}
			if err == nil {
				err = b.err
			}
			if err != nil {
				return err
			}
		}
		if st, err := r.RunByID(ctx, run); err == nil {
			b.out.State, b.out.Reason = st.State, st.Reason
		}
		out = b.out
		if only != "" {
			out.Turns = onlyTurn(out.Turns, only)
		}
		return nil
	})
	return connect.NewResponse(out), apierr.ToConnect(err)
}

// resolve finds the run, and the call when ref names one.
func resolve(ctx context.Context, r *statestore.Reader, ref string) (run, only string, err error) {
	run, err = r.ResolveRun(ctx, ref)
	if fault.KindOf(err) != fault.NotFound {
		return run, "", err
	}
	id, cerr := r.ResolveCall(ctx, ref)
	if cerr != nil {
		if fault.KindOf(cerr) == fault.NotFound {
			return "", "", fault.New(fault.NotFound, "list runs and calls with `agentos audit log`", "find run or call %.80q", ref)
		}
		return "", "", cerr
	}
	items, err := r.Call(ctx, id)
	if err != nil || len(items) == 0 {
		return "", "", err
	}
	return items[0].Record.Run, id, nil
}

func onlyTurn(turns []*pb.LineageTurn, id string) []*pb.LineageTurn {
	for _, t := range turns {
		if t.GetCall() == id {
			return []*pb.LineageTurn{t}
		}
		for _, c := range t.GetCalls() {
			if c.GetCall() == id {
				t.Calls = []*pb.LineageCall{c}
				return []*pb.LineageTurn{t}
			}
		}
	}
	return nil
}

// lineage builds the tree while the records pass.
type lineage struct {
	ctx   context.Context
	r     *statestore.Reader
	out   *pb.LineageResponse
	turn  *pb.LineageTurn // whose proposals come now
	turns map[string]*pb.LineageTurn
	calls map[string]*pb.LineageCall
	err   error // of a payload that could not be read
}

func (l *lineage) add(it statestore.Item) error {
	rec := it.Record
	switch rec.Kind {
	case audit.KindRunStart:
		var b struct{ Policy string }
		if err := body(rec, &b); err != nil {
			return err
		}
		l.out.Goal, l.out.Agent, l.out.Owner, l.out.PolicyRevision = l.text(rec, "goal"), rec.Agent, rec.Owner, b.Policy
	case audit.KindIntent:
		var b gate.IntentBody
		if err := body(rec, &b); err != nil {
			return err
		}
		l.intent(rec, b)
	case audit.KindOutcome:
		var b gate.OutcomeBody
		if err := body(rec, &b); err != nil {
			return err
		}
		l.outcome(rec, b)
	case audit.KindDenied:
		var b gate.DeniedBody
		if err := body(rec, &b); err != nil {
			return err
		}
		l.denied(rec, b)
	}
	return nil
}

func body(rec audit.Record, v any) error {
	if err := json.Unmarshal(rec.Body, v); err != nil {
		return fault.Wrap(err, fault.Corrupt, "run `agentos audit verify`", "read body of record %d", rec.Seq)
	}
	return nil
}

func (l *lineage) intent(rec audit.Record, b gate.IntentBody) {
	if b.Action == call.ModelGenerate {
		var args struct{ Context string }
		_ = json.Unmarshal([]byte(l.text(rec, "args")), &args)
		t := &pb.LineageTurn{Call: rec.Call, Backend: b.Resource, ContextHash: args.Context, Status: "open", IntentSeq: rec.Seq}
		l.turns[rec.Call] = t
		l.out.Turns = append(l.out.Turns, t)
		return
	}
	l.put(rec, &pb.LineageCall{
		Call: rec.Call, Tool: name(b.Action, b.Resource), Args: l.text(rec, "args"), Digest: b.Digest, Allowed: true,
		Rules: ruleIDs(b.Rules), Grant: b.Grant, Risk: string(b.Risk), Status: "open", IntentSeq: rec.Seq,
	})
}

// name is a tool's name, or the action for calls of the owner.
func name(a call.Action, resource string) string {
	if a == call.ToolCall {
		return resource
	}
	return string(a) + " " + resource
}

// put files a call under the turn that proposed it; calls before the first turn
// (the owner's agent.start) get a turn without a model.
func (l *lineage) put(rec audit.Record, c *pb.LineageCall) {
	l.calls[rec.Call] = c
	if l.turn == nil {
		l.turn = &pb.LineageTurn{Backend: "owner"}
		l.out.Turns = append(l.out.Turns, l.turn)
	}
	l.turn.Calls = append(l.turn.Calls, c)
}

func (l *lineage) outcome(rec audit.Record, b gate.OutcomeBody) {
	if t, ok := l.turns[rec.Call]; ok {
		t.Status, t.OutcomeSeq = string(b.Status), rec.Seq
		t.InputTokens, t.OutputTokens = number(b.Facts["input_tokens"]), number(b.Facts["output_tokens"])
		t.Text = b.Reason
		var resp chat.Response
		if data, ok := l.payload(rec, "result"); ok && json.Unmarshal(data, &resp) == nil {
			t.Text = clip(resp.Message.Text)
		}
		l.turn = t
		return
	}
	if c, ok := l.calls[rec.Call]; ok {
		c.Status, c.Reason, c.OutcomeSeq, c.DurationUs = string(b.Status), b.Reason, rec.Seq, b.TookUS
		c.Label, c.ResultCommitment, c.Result = string(b.Label.Integrity), rec.Payloads["result"], l.text(rec, "result")
	}
}

func (l *lineage) denied(rec audit.Record, b gate.DeniedBody) {
	if b.Action == call.ModelGenerate {
		l.out.Turns = append(l.out.Turns, &pb.LineageTurn{
			Call: rec.Call, Backend: b.Resource, Status: "denied", Text: "denied at " + string(b.Stage) + ": " + b.Reason, IntentSeq: rec.Seq, OutcomeSeq: rec.Seq,
		})
		return
	}
	l.put(rec, &pb.LineageCall{
		Call: rec.Call, Tool: name(b.Action, b.Resource), Args: l.text(rec, "args"), Digest: b.Digest, Stage: string(b.Stage),
		Rules: ruleIDs(b.Rules), Status: string(call.Denied), Reason: b.Reason, IntentSeq: rec.Seq, OutcomeSeq: rec.Seq,
	})
}

func ruleIDs(ids []string) []*pb.Rule {
	out := make([]*pb.Rule, len(ids))
	for i, id := range ids {
		out[i] = &pb.Rule{Id: id}
	}
	return out
}

func number(v any) int64 {
	f, _ := v.(float64)
	return int64(f)
}

// payload reads a payload; one that was forgotten is absent. One that is not
// what was recorded ends the lineage: it would tell a story.
func (l *lineage) payload(rec audit.Record, what string) ([]byte, bool) {
	c, ok := rec.Payloads[what]
	if !ok {
		return nil, false
	}
	p, err := l.r.Payload(l.ctx, c)
	if err != nil && fault.KindOf(err) != fault.NotFound && l.err == nil {
		l.err = err
	}
	return p.Data, err == nil
}

func (l *lineage) text(rec audit.Record, what string) string {
	b, ok := l.payload(rec, what)
	if !ok && rec.Payloads[what] != "" {
		return "(forgotten)"
	}
	return clip(string(b))
}

// clip cuts to whole letters: other bytes can't be sent.
func clip(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
