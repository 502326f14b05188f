//go:build linux

package supervisor

import (
	"context"

	"agentos/internal/api/gatewire"
	"agentos/internal/execution/toolproc"
	"agentos/internal/lib/canon"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"
)

func (r *run) subject() call.Subject {
	return call.Subject{Owner: r.s.cfg.Owner, Agent: r.s.cfg.Agent, Run: r.id}
}

// toolCall passes one tool call through the gate.
func (r *run) toolCall(ctx context.Context, m gatewire.Tool, args []byte) {
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
		as, id := r.toolIdentity(m.Name)
		out, err := toolproc.Run(ctx, r.s.deps.Binaries.Tool, d, c.Args, as, func(pid int) error { return r.checkIdentity(pid, id) })
		return toolOutcome(out, err)
	})
	r.answer(m.ID, &c, res, err)
}

// maxName bounds the name of a tool in bytes; a longer one names no tool.
const maxName = 128

// toolIdentity is who a tool's process is started as, and the binding that it is
// held against before it gets its arguments. It confines itself when it knows
// them.
func (r *run) toolIdentity(name string) (toolproc.Identity, principal.Binding) {
	b := r.s.cfg.Identities[principal.Tool]
	if !r.s.cfg.Root {
		return toolproc.Identity{}, b
	}
	as, ok := r.s.cfg.ToolAs[name]
	if !ok {
		as = toolproc.Identity{UID: b.UID, GID: b.GID}
	}
	b.UID, b.GID = as.UID, as.GID
	return as, b
}

// toolProposal makes the call. Arguments over the tool's limit are not parsed.
func (r *run) toolProposal(name string, args []byte, limit int) (call.Call, error) {
	if len(name) > maxName {
		name = clip(name, maxName) + "…"
	}
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
