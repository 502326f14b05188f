//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/api/runspec"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
)

// maxProposals bounds what a shim may have open at once.
const maxProposals = 64

// maxTokens is more than one model call can have used.
const maxTokens = 1 << 40

// proposal is one call of the shim that is not answered yet.
type proposal struct {
	cancel context.CancelFunc
	begun  bool           // a model call that the shim was told to make; guarded by run.mu
	done   chan modelDone // capacity 1: a model call's report
}

type modelDone struct {
	gatewire.ModelDone
	blob []byte
}

// readWire takes the shim's messages until the wire closes. A shim that breaks
// the protocol loses its wire, and with it the run.
func (r *run) readWire(ctx context.Context) {
	defer r.wireEnded()
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
			r.notice("the shim broke the protocol: " + err.Error())
			_ = r.parts.shim.Kill()
			break
		}
	}
}

// wireEnded gives up what the shim has open. That the wire is gone is told
// first: it is the reason.
func (r *run) wireEnded() {
	close(r.parts.wireDone)
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
		if len(blob) > runspec.MaxReport {
			return fmt.Errorf("report of %d bytes, limit %d", len(blob), runspec.MaxReport)
		}
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
	if !p.begun {
		return fmt.Errorf("proposal %d: a model call's end without its begin", d.ID)
	}
	// Figures of a remote server, once: they are recorded and they are debited.
	d.InputTokens, d.OutputTokens = min(max(d.InputTokens, 0), maxTokens), min(max(d.OutputTokens, 0), maxTokens)
	select {
	case p.done <- d:
		return nil
	default:
		return fmt.Errorf("model call %d ended twice", d.ID)
	}
}

// answer tells the owner, then closes a proposal towards the shim.
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
		r.notice(err.Error())
	}
	b, eerr := gatewire.EncodeDown(gatewire.Down{Answer: &a}, blob)
	if eerr != nil {
		r.notice(eerr.Error())
		return
	}
	r.forget(id) // the shim may use the place as soon as it has the answer
	_ = r.parts.wire.Write(b)
}

func resourceOf(err error) string {
	var ex *budget.Exceeded
	if errors.As(err, &ex) {
		return string(ex.Resource)
	}
	return ""
}
