//go:build linux

package supervisor

import (
	pb "agentos/internal/api/agentosv1"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
)

func (r *run) notice(text string) {
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Notice{Notice: &pb.Notice{Text: clip(text, 2048)}}})
}

func (r *run) proposed(c *call.Call) {
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Proposed{Proposed: &pb.CallProposed{
		Call: c.ID, Action: string(c.Action), Resource: clip(c.Resource, maxName), Args: clip(string(c.Args), 1024),
	}}})
}

func (r *run) admitted(p *gate.Permit) {
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Decided{Decided: &pb.CallDecided{
		Call: p.Call.ID, Allowed: true, Rules: rules(p.Decision.Rules),
	}}})
}

func (r *run) denied(c *call.Call, d *gate.Denial) {
	r.mu.Lock()
	r.totals.Denied++
	r.mu.Unlock()
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Decided{Decided: &pb.CallDecided{
		Call: c.ID, Stage: string(d.Stage), Reason: clip(d.Reason, 2048), Next: clip(d.Next, 1024), Rules: rules(d.Rules),
	}}})
}

func (r *run) ended(c *call.Call, res *gate.Result) {
	e := &pb.CallEnded{
		Call: c.ID, Action: string(c.Action), Resource: clip(c.Resource, maxName), Status: string(res.Outcome.Status), Reason: clip(res.Outcome.Reason, 2048),
		DurationUs: res.Took.Microseconds(), ResultBytes: uint64(len(res.Outcome.Result)),
	}
	e.InputTokens, _ = res.Outcome.Facts["input_tokens"].(int64)
	e.OutputTokens, _ = res.Outcome.Facts["output_tokens"].(int64)
	r.mu.Lock()
	r.totals.InputTokens += e.InputTokens
	r.totals.OutputTokens += e.OutputTokens
	r.mu.Unlock()
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_CallEnded{CallEnded: e}})
}

func rules(rs []policy.Rule) []*pb.Rule {
	out := make([]*pb.Rule, len(rs))
	for i, r := range rs {
		out[i] = &pb.Rule{Id: r.ID, Effect: r.Effect, File: r.File, Line: int32(r.Line), Reason: r.Reason}
	}
	return out
}
