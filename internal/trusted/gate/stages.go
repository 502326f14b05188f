package gate

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/policy"
	"agentos/internal/trusted/risk"
)

// Stage names a stage in records, events and explanations.
type Stage string

// The stages, in order. StageRun is no stage of a decision: it refuses calls of
// runs that are not open.
const (
	StageRun        Stage = "run"
	StageSchema     Stage = "schema"
	StageCapability Stage = "capability"
	StagePolicy     Stage = "policy"
	StageRisk       Stage = "risk"
	StageBudget     Stage = "budget"
	StageApproval   Stage = "approval"
	StageIntent     Stage = "intent"
)

// evaluation is one call on its way through the stages.
type evaluation struct {
	call     *call.Call
	target   Target
	grant    string
	decision policy.Decision
	class    risk.Class
	why      string // why a person is needed; empty: none is
	reserved bool
	dry      bool // explain: decide everything, hold and ask nothing
}

type stage struct {
	name Stage
	run  func(*Gate, context.Context, *evaluation) (detail string, err error)
}

// pipeline is the order of AOS-07. Explain walks the same list.
func pipeline() []stage {
	return []stage{
		{StageSchema, (*Gate).schema},
		{StageCapability, (*Gate).capability},
		{StagePolicy, (*Gate).policy},
		{StageRisk, (*Gate).risk},
		{StageBudget, (*Gate).budget},
		{StageApproval, (*Gate).approval},
	}
}

func (g *Gate) schema(_ context.Context, e *evaluation) (string, error) {
	t, err := g.deps.Catalog.Target(e.call)
	if err != nil {
		return "", err
	}
	if t.Deadline <= 0 || t.MaxResult <= 0 {
		return "", fmt.Errorf("target %q has no deadline or no result limit", e.call.Resource)
	}
	e.target = t
	return fmt.Sprintf("%d bytes of arguments fit %s %q", len(e.call.Args), t.Type, e.call.Resource), nil
}

func (g *Gate) capability(_ context.Context, e *evaluation) (string, error) {
	id, err := g.deps.Grants.Check(e.call)
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", errors.New("no grant")
	}
	e.grant = id
	return "carried by " + id, nil
}

func (g *Gate) policy(_ context.Context, e *evaluation) (string, error) {
	e.decision = g.deps.Policy.Decide(e.call, &e.target)
	if e.decision.Allow && len(e.decision.Errors) == 0 && len(e.decision.Rules) > 0 {
		return "permitted by " + ruleNames(e.decision.Rules), nil
	}
	d := &Denial{Stage: StagePolicy, Kind: fault.Denied, Rules: e.decision.Rules,
		Next: "`agentos policy explain " + e.call.ID + "` shows what would have to hold"}
	switch {
	case len(e.decision.Errors) > 0:
		d.Reason = "policy could not be evaluated: " + strings.Join(e.decision.Errors, "; ")
	case len(e.decision.Rules) > 0:
		d.Reason = "forbidden by " + ruleNames(e.decision.Rules)
	default:
		d.Reason = fmt.Sprintf("no policy permits %s on %s %q", e.call.Action, e.target.Type, e.call.Resource)
	}
	return "", d
}

func (g *Gate) risk(_ context.Context, e *evaluation) (string, error) {
	e.class = risk.Rate(risk.Facts{Effect: e.target.Effect, Local: e.target.Local})
	if e.class.NeedsApproval() {
		e.why = "risk " + string(e.class)
	}
	if who, ok := e.decision.Obligations["approval"]; ok {
		e.why = strings.TrimPrefix(e.why+"; policy asks for "+who, "; ")
	}
	if e.why != "" {
		return string(e.class) + "; needs approval: " + e.why, nil
	}
	return string(e.class), nil
}

func (g *Gate) budget(_ context.Context, e *evaluation) (string, error) {
	keys := g.deps.Keys(e.call.Subject)
	if len(keys) == 0 {
		return "", errors.New("no budget pays for this subject")
	}
	if e.dry {
		if err := g.deps.Ledger.Check(keys, e.target.Upper); err != nil {
			return "", err
		}
		return "would reserve " + amountText(e.target.Upper), nil
	}
	if _, err := g.deps.Ledger.Reserve(e.call.ID, keys, e.target.Upper); err != nil {
		return "", err
	}
	e.reserved = true
	return "reserved " + amountText(e.target.Upper), nil
}

func (g *Gate) approval(ctx context.Context, e *evaluation) (string, error) {
	if e.why == "" {
		return "not needed", nil
	}
	if e.dry {
		return "would ask: " + e.why, nil
	}
	if err := g.deps.Approver.Approve(ctx, e.call, e.why); err != nil {
		return "", err
	}
	return "given", nil
}

// admit runs the stages and makes the intent durable. Every error leaves
// nothing reserved and nothing started.
func (g *Gate) admit(ctx context.Context, c call.Call, payloads []audit.Payload) (p *Permit, err error) {
	if !g.runs.isOpen(c.Subject.Run) {
		return nil, &Denial{Stage: StageRun, Kind: fault.Denied, Reason: fmt.Sprintf("run %q is not open", c.Subject.Run), Next: "start a new run"}
	}
	e := &evaluation{call: &c}
	defer func() {
		if err != nil && e.reserved {
			g.deps.Ledger.Release(c.ID)
		}
	}()
	for _, s := range pipeline() {
		if err := ctx.Err(); err != nil {
			return nil, g.refuse(e, asDenial(s.name, fmt.Errorf("the caller gave up: %w", context.Cause(ctx))))
		}
		if _, err := s.run(g, ctx, e); err != nil {
			return nil, g.refuse(e, asDenial(s.name, err))
		}
	}
	tx := Tx{Entries: []audit.Entry{g.entry(audit.KindIntent, &c, IntentBody{
		Action: c.Action, Resource: c.Resource, Digest: c.Digest, Grant: e.grant,
		Policy: e.decision.Revision, Rules: ruleIDs(e.decision.Rules), Risk: e.class,
		Reserved: e.target.Upper, DeadlineMS: e.target.Deadline.Milliseconds(),
	}, append([]audit.Payload{argsPayload(&c)}, payloads...))}}
	tx.Budget = []budget.Change{{Reserve: &budget.Reservation{Call: c.ID, Keys: g.deps.Keys(c.Subject), Amount: e.target.Upper}}}
	rc, err := g.deps.Journal.Commit(context.WithoutCancel(ctx), tx)
	if err != nil {
		return nil, fmt.Errorf("record intent of call %q: %w", c.ID, err)
	}
	return &Permit{Call: c, Target: e.target, Grant: e.grant, Decision: e.decision, Risk: e.class, Seq: rc.FirstSeq}, nil
}

// Refuse records the denial of a call that never reached the stages, because it
// could not be put into canonical form. It always returns an error.
func (g *Gate) Refuse(c call.Call, reason error) error {
	return g.refuse(&evaluation{call: &c}, asDenial(StageSchema, reason))
}

// refuse records the denial. If even that fails the call stays denied and the
// error says both.
func (g *Gate) refuse(e *evaluation, d *Denial) error {
	_, err := g.deps.Journal.Commit(context.Background(), Tx{Entries: []audit.Entry{
		g.entry(audit.KindDenied, e.call, DeniedBody{
			Action: e.call.Action, Resource: e.call.Resource, Digest: e.call.Digest, Status: call.Denied,
			Stage: d.Stage, Reason: cut(d.Reason, 1024), Policy: e.decision.Revision, Rules: ruleIDs(d.Rules),
		}, []audit.Payload{argsPayload(e.call)}),
	}})
	if err != nil {
		return errors.Join(d, fmt.Errorf("record denial of call %q: %w", e.call.ID, err))
	}
	return d
}

// Trace is one stage of an explanation.
type Trace struct {
	Stage  Stage
	OK     bool
	Detail string
}

// Explanation is what the gate would decide, by the code that decides.
type Explanation struct {
	Allowed  bool
	Stages   []Trace // up to and including the one that refuses
	Denial   *Denial // nil when allowed
	Decision policy.Decision
	Target   Target
}

// Explain walks the stages without holding, asking, recording or doing
// anything.
func (g *Gate) Explain(ctx context.Context, c call.Call) Explanation {
	e := &evaluation{call: &c, dry: true}
	var x Explanation
	for _, s := range pipeline() {
		detail, err := s.run(g, ctx, e)
		x.Decision, x.Target = e.decision, e.target
		if err != nil {
			x.Denial = asDenial(s.name, err)
			x.Stages = append(x.Stages, Trace{s.name, false, x.Denial.Reason})
			return x
		}
		x.Stages = append(x.Stages, Trace{s.name, true, detail})
	}
	x.Allowed = true
	return x
}

func ruleIDs(rs []policy.Rule) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.ID
	}
	return out
}

func ruleNames(rs []policy.Rule) string { return strings.Join(ruleIDs(rs), ", ") }

func amountText(a budget.Amount) string {
	if len(a) == 0 {
		return "nothing"
	}
	var parts []string
	for r, n := range a {
		parts = append(parts, fmt.Sprintf("%d %s", n, r))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

// cut bounds text in bytes, at the border of a letter.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
