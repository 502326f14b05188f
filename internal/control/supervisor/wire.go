//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/control/registry"
	"agentos/internal/execution/toolproc"
	"agentos/internal/lib/canon"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/modelcontext"
	"agentos/internal/trusted/policy"
	"agentos/internal/trusted/principal"
)

// maxProposals bounds what a shim may have open at once.
const maxProposals = 64

// abortGrace is how long a shim may take to give up a model call.
const abortGrace = 2 * time.Second

// proposal is one call of the shim that is not answered yet.
type proposal struct {
	cancel context.CancelFunc
	done   chan modelDone // capacity 1: a model call's report
}

type modelDone struct {
	gatewire.ModelDone
	blob []byte
}

// readWire takes the shim's messages until the wire closes. A shim that breaks
// the protocol loses its wire, and with it the run.
func (r *run) readWire(ctx context.Context) {
	defer close(r.parts.wireDone)
	for {
		b, files, err := r.parts.wire.Read()
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			break
		}
		m, blob, err := gatewire.DecodeUp(b)
		if err == nil {
			err = r.handle(ctx, m, blob)
		}
		if err != nil {
			r.emit(&pb.RunEvent{Event: &pb.RunEvent_Notice{Notice: &pb.Notice{Text: "the shim broke the protocol: " + err.Error()}}})
			_ = r.parts.shim.Kill()
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.proposals {
		p.cancel()
	}
}

func (r *run) handle(ctx context.Context, m gatewire.Up, blob []byte) error {
	switch {
	case m.Tool != nil:
		return r.open(ctx, m.Tool.ID, func(ctx context.Context, _ *proposal) { r.toolCall(ctx, *m.Tool, blob) })
	case m.Model != nil:
		return r.open(ctx, m.Model.ID, func(ctx context.Context, p *proposal) { r.modelCall(ctx, *m.Model, p, blob) })
	case m.ModelDone != nil:
		return r.modelEnded(modelDone{*m.ModelDone, blob})
	case m.Cancel != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		if p, ok := r.proposals[m.Cancel.ID]; ok {
			p.cancel()
		}
		return nil
	case m.Text != nil:
		r.emit(&pb.RunEvent{Event: &pb.RunEvent_Text{Text: &pb.TextDelta{Text: m.Text.Text}}})
		return nil
	case m.LoopEnd != nil:
		select {
		case r.parts.report <- loopReport{*m.LoopEnd, string(blob)}:
			return nil
		default:
			return errors.New("second end of the loop")
		}
	}
	return errors.New("message out of place")
}

// open handles one proposal in a goroutine of its own.
func (r *run) open(ctx context.Context, id uint64, handle func(context.Context, *proposal)) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &proposal{cancel: cancel, done: make(chan modelDone, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, dup := r.proposals[id]; dup || len(r.proposals) >= maxProposals {
		cancel()
		return fmt.Errorf("proposal %d: %d are open, limit %d, or it is one of them", id, len(r.proposals), maxProposals)
	}
	r.proposals[id] = p
	r.calls.Add(1)
	go func() {
		defer r.calls.Done()
		defer cancel()
		handle(ctx, p)
	}()
	return nil
}

func (r *run) forget(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.proposals, id)
}

func (r *run) modelEnded(d modelDone) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.proposals[d.ID]
	if !ok {
		return nil // the gate gave up waiting for it
	}
	select {
	case p.done <- d:
		return nil
	default:
		return fmt.Errorf("model call %d ended twice", d.ID)
	}
}

func (r *run) subject() call.Subject {
	return call.Subject{Owner: r.s.cfg.Owner, Agent: r.s.cfg.Agent, Run: r.id}
}

// toolCall passes one tool call through the gate.
func (r *run) toolCall(ctx context.Context, m gatewire.Tool, args []byte) {
	defer r.forget(m.ID)
	d, _ := r.s.deps.Tools.Tool(m.Name)
	c, err := r.toolProposal(m.Name, args, d.MaxArgs)
	r.proposed(&c)
	if err != nil { // the arguments have no canonical form: nothing to decide about
		err = r.s.deps.Gate.Refuse(c, err)
		r.answer(m.ID, &c, nil, err)
		return
	}
	res, err := r.s.deps.Gate.Do(ctx, c, nil, func(ctx context.Context, permit *gate.Permit) gate.Outcome {
		r.admitted(permit)
		id := toolproc.Identity{}
		if r.s.cfg.Root {
			b := r.s.cfg.Identities[principal.Tool]
			id = toolproc.Identity{UID: b.UID, GID: b.GID, Groups: r.s.cfg.ToolGroups[m.Name]}
		}
		out, err := toolproc.Run(ctx, r.s.deps.Binaries.Tool, d, c.Args, id, func(pid int) error { return r.checkPart(pid, principal.Tool) })
		return toolOutcome(out, err)
	})
	r.answer(m.ID, &c, res, err)
}

// toolProposal makes the call. Arguments over the tool's limit are not parsed.
func (r *run) toolProposal(name string, args []byte, limit int) (call.Call, error) {
	id, now := r.s.deps.NewID("call"), r.s.deps.Now()
	bad := func(err error) (call.Call, error) {
		// A call with no arguments stands for what can't be written down; the
		// digest of the bytes says which bytes they were.
		stand, serr := canon.Marshal(map[string]any{"bytes": len(args), "sha256": canon.Digest(args)})
		if serr != nil {
			return call.Call{}, serr
		}
		c, nerr := call.New(id, r.subject(), call.ToolCall, name, stand, now)
		if nerr != nil {
			return c, nerr
		}
		return c, err
	}
	if limit > 0 && len(args) > limit {
		return bad(fault.New(fault.Limit, "send smaller arguments", "arguments have %d bytes, limit %d", len(args), limit))
	}
	if limit == 0 && len(args) > canon.MaxBytes {
		return bad(fault.New(fault.Limit, "send smaller arguments", "arguments have %d bytes, limit %d", len(args), canon.MaxBytes))
	}
	c, err := call.New(id, r.subject(), call.ToolCall, name, args, now)
	if err != nil {
		return bad(fault.Wrap(err, fault.Malformed, "send one JSON object that follows the tool's schema", "arguments are not usable"))
	}
	return c, nil
}

func toolOutcome(out toolproc.Output, err error) gate.Outcome {
	used := budget.Amount{budget.ToolCalls: 1}
	if err != nil {
		st := call.Error
		switch fault.KindOf(err) {
		case fault.Timeout:
			st = call.Timeout
		case fault.Cancelled:
			st = call.Cancelled
		}
		return gate.Outcome{Status: st, Reason: reasonText(err), Used: used}
	}
	o := gate.Outcome{
		Status: call.OK, Used: used, Result: out.Doc, Media: "application/json",
		Facts: map[string]any{"tool_status": out.Result.Status},
	}
	if out.Result.Status == "error" {
		o.Status, o.Reason = call.Error, out.Result.Error
	}
	if n := len(out.Result.Truncated); n > 0 {
		o.Facts["truncated"] = n
	}
	return o
}

func reasonText(err error) string {
	if next := fault.NextOf(err); next != "" {
		return err.Error() + "; next: " + next
	}
	return err.Error()
}

// modelCall passes one model call through the gate; its effect is carried out
// by the shim, with the connection that it is handed.
func (r *run) modelCall(ctx context.Context, m gatewire.Model, p *proposal, request []byte) {
	defer r.forget(m.ID)
	args, err := canon.Marshal(registry.ModelArgs{
		Context: canon.Digest(request), Bytes: len(request), MaxOutput: m.MaxOutput, Model: r.s.cfg.Hello.Model, Stream: m.Stream,
	})
	var c call.Call
	if err == nil {
		c, err = call.New(r.s.deps.NewID("call"), r.subject(), call.ModelGenerate, r.s.cfg.Hello.Backend, args, r.s.deps.Now())
	}
	if err != nil {
		r.answer(m.ID, &c, nil, err)
		return
	}
	r.proposed(&c)
	payload := audit.Payload{Name: "request", Media: "application/json", Data: request}
	res, err := r.s.deps.Gate.Do(ctx, c, []audit.Payload{payload}, func(ctx context.Context, permit *gate.Permit) gate.Outcome {
		r.admitted(permit)
		return r.generate(ctx, m, p, permit, len(request))
	})
	r.answer(m.ID, &c, res, err)
}

func (r *run) generate(ctx context.Context, m gatewire.Model, p *proposal, permit *gate.Permit, size int) gate.Outcome {
	var files []*os.File
	if r.s.deps.Connect != nil {
		f, err := r.s.deps.Connect(ctx)
		if err != nil {
			return gate.Outcome{Status: call.Error, Reason: "unavailable: " + reasonText(err), Used: budget.Amount{budget.ModelCall: 1}}
		}
		defer f.Close()
		files = append(files, f)
	}
	b, err := gatewire.EncodeDown(gatewire.Down{Begin: &gatewire.Begin{ID: m.ID, Call: permit.Call.ID}}, nil)
	if err == nil {
		err = r.parts.wire.Write(b, files...)
	}
	if err != nil {
		return gate.Outcome{Status: call.Error, Reason: "unavailable: " + err.Error(), Used: permit.Target.Upper}
	}
	select {
	case d := <-p.done:
		return modelOutcome(d, permit, size)
	case <-ctx.Done():
	case <-r.parts.wireDone:
		return gate.Outcome{Status: call.Error, Reason: "crashed: the shim ended during the call", Used: permit.Target.Upper}
	}
	why := call.Cancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = call.Timeout
	}
	if b, err := gatewire.EncodeDown(gatewire.Down{Abort: &gatewire.Abort{ID: m.ID, Reason: string(why)}}, nil); err == nil {
		_ = r.parts.wire.Write(b)
	}
	select {
	case d := <-p.done:
		if d.Status == "ok" { // it finished in that moment
			return modelOutcome(d, permit, size)
		}
	case <-r.parts.wireDone:
	case <-time.After(abortGrace):
	}
	return gate.Outcome{Status: why, Reason: string(why) + ": the model call was ended", Used: permit.Target.Upper}
}

// free lists the failures of a backend that cost no tokens: no request was
// accepted.
var free = map[string]bool{"unavailable": true, "rejected": true, "context_exceeded": true, "not_understood": true, "exhausted": true}

// modelOutcome turns the shim's report into an outcome. A failed call of a
// metered model whose use is not known costs what was reserved (INV-03).
func modelOutcome(d modelDone, p *gate.Permit, size int) gate.Outcome {
	used := budget.Amount{budget.ModelCall: 1}
	metered := p.Target.Upper[budget.Tokens] > 0
	tokens := max(d.InputTokens, 0) + max(d.OutputTokens, 0)
	switch {
	case !metered:
	case d.Status == "ok" && tokens == 0:
		used[budget.Tokens] = modelcontext.TokenBound(size)
	case d.Status != "ok" && d.Estimated && !free[d.Reason]:
		used[budget.Tokens] = p.Target.Upper[budget.Tokens]
	default:
		used[budget.Tokens] = tokens
	}
	o := gate.Outcome{Status: call.Status(d.Status), Used: used, Facts: map[string]any{
		"input_tokens": d.InputTokens, "output_tokens": d.OutputTokens, "estimated": d.Estimated,
	}}
	if d.Status == "ok" {
		o.Result, o.Media = d.blob, "application/json"
		return o
	}
	o.Reason = d.Reason + ": " + d.Message
	if d.Next != "" {
		o.Reason += "; next: " + d.Next
	}
	return o
}

// answer closes a proposal towards the shim and tells the owner.
func (r *run) answer(id uint64, c *call.Call, res *gate.Result, err error) {
	a := gatewire.Answer{ID: id, Call: c.ID, Status: string(call.Denied)}
	var blob []byte
	var d *gate.Denial
	switch {
	case res != nil:
		r.note(res)
		a.Status, a.Reason, a.Label = string(res.Outcome.Status), clip(res.Outcome.Reason, 2048), string(res.Label.Integrity)
		if c.Action == call.ToolCall {
			blob = res.Outcome.Result
		}
		r.ended(c, res)
	case errors.As(err, &d):
		a.Denied = &gatewire.Denied{Stage: string(d.Stage), Kind: string(d.Kind), Reason: clip(d.Reason, 2048), Next: clip(d.Next, 1024), Resource: resourceOf(err)}
		r.denied(c, d)
	default:
		// Nothing is certain any more: without a record there is no effect.
		a.Status, a.Reason = string(call.Error), "internal: the call could not be recorded"
		r.emit(&pb.RunEvent{Event: &pb.RunEvent_Notice{Notice: &pb.Notice{Text: err.Error()}}})
	}
	b, eerr := gatewire.EncodeDown(gatewire.Down{Answer: &a}, blob)
	if eerr == nil {
		_ = r.parts.wire.Write(b)
	}
}

func resourceOf(err error) string {
	var ex *budget.Exceeded
	if errors.As(err, &ex) {
		return string(ex.Resource)
	}
	return ""
}

func (r *run) proposed(c *call.Call) {
	r.emit(&pb.RunEvent{Event: &pb.RunEvent_Proposed{Proposed: &pb.CallProposed{
		Call: c.ID, Action: string(c.Action), Resource: c.Resource, Args: clip(string(c.Args), 1024),
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
		Call: c.ID, Stage: string(d.Stage), Reason: d.Reason, Next: d.Next, Rules: rules(d.Rules),
	}}})
}

func (r *run) ended(c *call.Call, res *gate.Result) {
	e := &pb.CallEnded{
		Call: c.ID, Action: string(c.Action), Resource: c.Resource, Status: string(res.Outcome.Status), Reason: res.Outcome.Reason,
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
