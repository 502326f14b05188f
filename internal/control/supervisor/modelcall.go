//go:build linux

package supervisor

import (
	"context"
	"errors"
	"os"
	"time"

	"agentos/internal/api/gatewire"
	"agentos/internal/control/registry"
	"agentos/internal/lib/canon"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/modelcontext"
)

// abortGrace is how long a shim may take to give up a model call.
const abortGrace = 2 * time.Second

// modelCall passes one model call through the gate; its effect is carried out
// by the shim, with the connection that it is handed.
func (r *run) modelCall(ctx context.Context, m gatewire.Model, p *proposal, request []byte) {
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
	r.mu.Lock()
	p.begun = true
	r.mu.Unlock()
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
	}
	select {
	case <-r.parts.wireDone: // also when that is what ended ctx
		return gate.Outcome{Status: call.Error, Reason: "crashed: the shim ended during the call", Used: permit.Target.Upper}
	default:
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
	tokens := d.InputTokens + d.OutputTokens
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
