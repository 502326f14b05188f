// Package gate is the only door: every effect is a call that passes its stages
// in a fixed order (AOS-07): schema, capability, policy, risk, budget, approval,
// intent record, effect, outcome record, labelled result.
//
// State owned: which runs are open. Everything else is behind Deps. Imports:
// trusted siblings call, audit, budget, label, policy, risk; lib/fault. Imported
// by: control. It knows no tool, no model and no wire.
// Locks: Gate.mu is a leaf; no stage is called with it held.
// Invariants: INV-01 (an intent is durable before its effect starts and gets
// exactly one outcome), INV-02 (an error while deciding is a denial), INV-03
// (reserve before, settle after), INV-04 (after StopRun returned no effect of
// that run starts).
// Tests: gate_test.go; crashes over a real store in control/statestore.
package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/policy"
	"agentos/internal/trusted/risk"
)

// Target is what a call is aimed at, as the registry knows it.
type Target struct {
	Type     string // "Tool", "Model", "Agent": the policy's resource type
	Effect   string // "read", "write", "admin", "generate", "start"
	Local    bool   // stays on this machine
	Owner    uint32 // agents: whose
	Upper    budget.Amount
	Deadline time.Duration
	// MaxResult bounds the result in bytes.
	MaxResult int
	// Label is put on the result.
	Label label.Label
}

// Deps is all that the gate may touch. Each is safe for concurrent use.
type Deps struct {
	// Catalog finds the target and checks the arguments against its schema.
	Catalog interface {
		Target(c *call.Call) (Target, error)
	}
	// Grants returns the ID of the grant that carries the call.
	Grants interface {
		Check(c *call.Call) (string, error)
	}
	// Policy decides; it must not fail open.
	Policy interface {
		Decide(c *call.Call, t *Target) policy.Decision
	}
	// Ledger holds budgets; Keys is the chain that pays for a call.
	Ledger interface {
		Check(keys []budget.Key, a budget.Amount) error
		Reserve(call string, keys []budget.Key, a budget.Amount) (budget.Reservation, error)
		Settle(call string, used budget.Amount) (budget.Settlement, error)
		Release(call string)
	}
	Keys func(s call.Subject) []budget.Key
	// Approver asks a person; nil error is consent.
	Approver interface {
		Approve(ctx context.Context, c *call.Call, why string) error
	}
	Journal Journal
	Now     func() time.Time
}

// Gate is the mediator. Safe for concurrent use.
type Gate struct {
	deps Deps
	runs runs
}

// New makes a gate. It starts nothing.
func New(d Deps) *Gate { return &Gate{deps: d, runs: newRuns()} }

// Denial is the typed refusal of a call: which stage, why, what to do next.
type Denial struct {
	Stage  Stage
	Reason string
	Next   string
	Rules  []policy.Rule
	// Kind is fault.Denied, or fault.Limit when a budget refused.
	Kind  fault.Kind
	Cause error // what the stage returned; may be nil
}

// Error renders stage and reason.
func (d *Denial) Error() string { return fmt.Sprintf("denied at %s: %s", d.Stage, d.Reason) }

// Unwrap gives the denial its fault kind and next step, and its cause.
func (d *Denial) Unwrap() []error {
	return []error{&fault.Error{Kind: d.Kind, Msg: d.Reason, Next: d.Next}, d.Cause}
}

// Permit is an admitted call whose intent is durable.
type Permit struct {
	Call     call.Call
	Target   Target
	Grant    string
	Decision policy.Decision
	Risk     risk.Class
	Seq      uint64 // of the intent record
}

// Outcome is what an effect reports.
type Outcome struct {
	Status   call.Status // OK, Error, Timeout, Cancelled; the gate alone says Denied and Unknown
	Reason   string      // why not OK, for people; no secrets, 512 bytes at most
	Used     budget.Amount
	Result   []byte // kept as a payload; bounded by Target.MaxResult
	Media    string
	Facts    map[string]any // effect-specific, small: token counts, truncation
	Payloads []audit.Payload
}

// Result is a finished call.
type Result struct {
	Permit  *Permit
	Outcome Outcome
	Label   label.Label
	Seq     uint64 // of the outcome record
	Took    time.Duration
}

// Effect does what was admitted. ctx ends at the deadline, when the run is
// stopped or when the caller gives up.
type Effect func(ctx context.Context, p *Permit) Outcome

// Do passes one call through all stages and runs effect if it is admitted. A
// refusal is a *Denial; other errors mean that the record could not be made
// durable (before the effect: it did not start; after: the log is closed and
// the next start finds the intent and records unknown).
func (g *Gate) Do(ctx context.Context, c call.Call, payloads []audit.Payload, effect Effect) (*Result, error) {
	p, err := g.admit(ctx, c, payloads)
	if err != nil {
		return nil, err
	}
	began := g.deps.Now()
	out := g.run(ctx, p, effect)
	return g.settle(p, out, g.deps.Now().Sub(began))
}

// run starts the effect unless its run was stopped in the meantime. A panic in
// an effect is an outcome, not the end of the gate.
func (g *Gate) run(ctx context.Context, p *Permit, effect Effect) (out Outcome) {
	timeout := p.Target.Deadline
	if p.Call.Timeout > 0 && p.Call.Timeout < timeout {
		timeout = p.Call.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done, ok := g.runs.begin(p.Call.Subject.Run, cancel)
	if !ok {
		return Outcome{Status: call.Cancelled, Reason: "the run was stopped before the effect began"}
	}
	defer done()
	defer func() {
		if r := recover(); r != nil {
			out = Outcome{Status: call.Error, Reason: fmt.Sprintf("effect failed: %.200v", r), Used: p.Target.Upper}
		}
	}()
	return effect(ctx, p)
}

// settle makes the outcome durable and closes the reservation. It ignores the
// caller's context: an effect that happened is recorded.
func (g *Gate) settle(p *Permit, out Outcome, took time.Duration) (*Result, error) {
	out = normalise(p, out)
	st, err := g.deps.Ledger.Settle(p.Call.ID, out.Used)
	if err != nil {
		return nil, fmt.Errorf("settle call %q: %w", p.Call.ID, err)
	}
	payloads := out.Payloads
	if len(out.Result) > 0 {
		payloads = append([]audit.Payload{{Name: "result", Media: out.Media, Data: out.Result}}, payloads...)
	}
	rc, err := g.deps.Journal.Commit(context.Background(), Tx{
		Entries: []audit.Entry{g.entry(audit.KindOutcome, &p.Call, OutcomeBody{
			Status: out.Status, Reason: out.Reason, Used: out.Used, TookUS: took.Microseconds(),
			ResultBytes: len(out.Result), Label: p.Target.Label, Facts: out.Facts,
		}, payloads)},
		Budget: []budget.Change{{Settle: &st}},
	})
	if err != nil {
		return nil, fmt.Errorf("record outcome of call %q: %w", p.Call.ID, err)
	}
	return &Result{Permit: p, Outcome: out, Label: p.Target.Label, Seq: rc.FirstSeq, Took: took}, nil
}

// normalise holds an outcome to the gate's rules: a status of the closed set, a
// bounded reason and result.
func normalise(p *Permit, out Outcome) Outcome {
	switch out.Status {
	case call.OK, call.Error, call.Timeout, call.Cancelled:
	default:
		out = Outcome{Status: call.Error, Reason: fmt.Sprintf("effect reported status %.40q", out.Status), Used: p.Target.Upper}
	}
	if len(out.Result) > p.Target.MaxResult {
		out.Status = call.Error
		out.Reason = fmt.Sprintf("result has %d bytes, limit %d", len(out.Result), p.Target.MaxResult)
		out.Result = nil
	}
	out.Reason = cut(out.Reason, 512)
	if out.Used == nil {
		out.Used = budget.Amount{}
	}
	return out
}

func (g *Gate) entry(k audit.Kind, c *call.Call, body any, payloads []audit.Payload) audit.Entry {
	return audit.Entry{
		Kind: k, At: g.deps.Now().UTC(), Run: c.Subject.Run, Call: c.ID,
		Agent: c.Subject.Agent, Owner: c.Subject.Owner, Body: body, Payloads: payloads,
	}
}

// asDenial turns whatever a stage returned into a refusal (INV-02).
func asDenial(s Stage, err error) *Denial {
	var d *Denial
	if errors.As(err, &d) {
		return d
	}
	d = &Denial{Stage: s, Reason: err.Error(), Next: fault.NextOf(err), Kind: fault.Denied, Cause: err}
	var ex *budget.Exceeded
	if errors.As(err, &ex) {
		d.Kind, d.Next = fault.Limit, fmt.Sprintf("raise the %s budget of %s, or start a new run if it is the run's", ex.Resource, ex.Key)
	}
	return d
}

// argsPayload keeps the exact arguments of a call, outside its record.
func argsPayload(c *call.Call) audit.Payload {
	return audit.Payload{Name: "args", Media: "application/json", Data: json.RawMessage(c.Args)}
}
