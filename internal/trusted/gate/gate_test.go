package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/lib/canon"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/policy"
)

// bench is a gate with every dependency scripted and every step traced.
type bench struct {
	mu     sync.Mutex
	trace  []string
	fail   map[string]error // step → error
	target Target
	dec    policy.Decision
	ledger *budget.Ledger
	txs    []Tx
	gate   *Gate
	// onCommit runs while a record is being made durable.
	onCommit func(audit.Kind)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		fail: map[string]error{},
		target: Target{Type: "Tool", Effect: "read", Local: true, Deadline: time.Minute, MaxResult: 1 << 10,
			Upper: budget.Amount{budget.ToolCalls: 1}, Label: label.Label{Integrity: label.Untrusted}},
		dec:    policy.Decision{Allow: true, Revision: "rev", Rules: []policy.Rule{{ID: "r1", Effect: "permit"}}},
		ledger: budget.NewLedger(budget.State{}),
	}
	b.gate = New(Deps{Catalog: b, Grants: b, Policy: b, Ledger: tracedLedger{b}, Approver: b, Journal: b,
		Keys: func(s call.Subject) []budget.Key { return []budget.Key{budget.Key("run:" + s.Run)} },
		Now:  func() time.Time { return time.Unix(0, 0) }})
	if err := b.gate.OpenRun("r"); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) step(s string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trace = append(b.trace, s)
	return b.fail[s]
}

func (b *bench) Target(*call.Call) (Target, error) { return b.target, b.step("schema") }
func (b *bench) Check(*call.Call) (string, error)  { return "g1", b.step("capability") }
func (b *bench) Decide(*call.Call, *Target) policy.Decision {
	if err := b.step("policy"); err != nil {
		return policy.Decision{Allow: true, Rules: b.dec.Rules, Errors: []string{err.Error()}}
	}
	return b.dec
}
func (b *bench) Approve(context.Context, *call.Call, string) error { return b.step("approval") }

func (b *bench) Commit(_ context.Context, tx Tx) (Receipt, error) {
	if err := b.step("journal " + string(tx.Entries[0].Kind)); err != nil {
		return Receipt{}, err
	}
	if b.onCommit != nil {
		b.onCommit(tx.Entries[0].Kind)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.txs = append(b.txs, tx)
	return Receipt{FirstSeq: uint64(len(b.txs))}, nil
}

type tracedLedger struct{ b *bench }

func (l tracedLedger) Check(k []budget.Key, a budget.Amount) error { return l.b.ledger.Check(k, a) }
func (l tracedLedger) Reserve(c string, k []budget.Key, a budget.Amount) (budget.Reservation, error) {
	if err := l.b.step("reserve"); err != nil {
		return budget.Reservation{}, err
	}
	return l.b.ledger.Reserve(c, k, a)
}
func (l tracedLedger) Settle(c string, a budget.Amount) (budget.Settlement, error) {
	_ = l.b.step("settle")
	return l.b.ledger.Settle(c, a)
}
func (l tracedLedger) Release(c string) { _ = l.b.step("release"); l.b.ledger.Release(c) }

func mkCall(t *testing.T, id string) call.Call {
	t.Helper()
	c, err := call.New(id, call.Subject{Owner: 1, Agent: "a", Run: "r"}, call.ToolCall, "x", []byte(`{"k":"v"}`), time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bench) effect(context.Context, *Permit) Outcome {
	_ = b.step("effect")
	return Outcome{Status: call.OK, Result: []byte(`{}`), Media: "application/json", Used: budget.Amount{budget.ToolCalls: 1}}
}

// TestOrder pins AOS-07: the stages in their order, the record before the
// effect and the outcome after it.
func TestOrder(t *testing.T) {
	b := newBench(t)
	b.target.Effect = "write" // so that approval takes part
	res, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"schema", "capability", "policy", "reserve", "approval", "journal call.intent", "effect", "settle", "journal call.outcome"}
	if d := cmp.Diff(want, b.trace); d != "" {
		t.Error(d)
	}
	if res.Label.Integrity != label.Untrusted || res.Permit.Grant != "g1" || res.Seq != 2 {
		t.Errorf("%+v", res)
	}
	intent, outcome := b.txs[0], b.txs[1]
	if len(intent.Budget) != 1 || intent.Budget[0].Reserve == nil || len(outcome.Budget) != 1 || outcome.Budget[0].Settle == nil {
		t.Error("reservation or settlement not in the transaction of its record")
	}
}

// TestEveryRefusal: whichever step fails, the effect does not start, nothing
// stays reserved, one denial is recorded with the stage that refused.
func TestEveryRefusal(t *testing.T) {
	boom := errors.New("boom")
	for step, tc := range map[string]struct {
		stage Stage
		prep  func(*bench)
	}{
		"schema":     {StageSchema, nil},
		"capability": {StageCapability, nil},
		"policy":     {StagePolicy, nil}, // an evaluation error beside an allow
		"reserve":    {StageBudget, nil},
		"approval":   {StageApproval, func(b *bench) { b.target.Effect = "admin" }},
		"forbidden": {StagePolicy, func(b *bench) {
			b.dec = policy.Decision{Rules: []policy.Rule{{ID: "no", Effect: "forbid"}}}
		}},
		"no rule":          {StagePolicy, func(b *bench) { b.dec = policy.Decision{} }},
		"allow by no rule": {StagePolicy, func(b *bench) { b.dec = policy.Decision{Allow: true} }},
		"no deadline":      {StageSchema, func(b *bench) { b.target.Deadline = 0 }},
		"no result limit":  {StageSchema, func(b *bench) { b.target.MaxResult = 0 }},
		"unknown effect, no approver": {StageApproval, func(b *bench) {
			b.target.Effect = "???"
			b.fail["approval"] = boom
		}},
		"policy asks for a person": {StageApproval, func(b *bench) {
			b.dec.Obligations = map[string]string{"approval": "owner"}
			b.fail["approval"] = boom
		}},
		"budget empty": {StageBudget, func(b *bench) { b.ledger.SetLimit("run:r", budget.Amount{budget.ToolCalls: 0}) }},
	} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			if tc.prep != nil {
				tc.prep(b)
			}
			b.fail[step] = boom
			_, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect)
			var d *Denial
			if !errors.As(err, &d) || d.Stage != tc.stage {
				t.Fatalf("got %v, want a denial at %s", err, tc.stage)
			}
			if k := fault.KindOf(err); k != fault.Denied && k != fault.Limit {
				t.Errorf("kind %s", k)
			}
			if got := strings.Join(b.trace, " "); strings.Contains(got, "effect") || strings.Contains(got, "intent") {
				t.Errorf("went on after the refusal: %s", got)
			}
			if len(b.txs) != 1 || b.txs[0].Entries[0].Kind != audit.KindDenied {
				t.Errorf("records: %+v", b.txs)
			}
			for _, u := range b.ledger.Report() {
				if u.Reserved != 0 || u.Used != 0 {
					t.Errorf("denied call costs %+v", u)
				}
			}
		})
	}
}

func TestIntentNotDurableNoEffect(t *testing.T) {
	b := newBench(t)
	b.fail["journal call.intent"] = errors.New("disk full")
	if _, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect); err == nil {
		t.Fatal("no error")
	}
	if strings.Contains(strings.Join(b.trace, " "), "effect") {
		t.Error("effect without a durable intent")
	}
	for _, u := range b.ledger.Report() {
		if u.Reserved != 0 {
			t.Errorf("reserved %+v", u)
		}
	}
}

func TestDenialIsADenialEvenUnrecorded(t *testing.T) {
	b := newBench(t)
	b.fail["capability"], b.fail["journal call.denied"] = errors.New("no"), errors.New("disk full")
	_, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect)
	var d *Denial
	if !errors.As(err, &d) || !strings.Contains(err.Error(), "disk full") {
		t.Fatalf("got %v", err)
	}
}

func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		effect Effect
		want   call.Status
	}{
		"panic":          {func(context.Context, *Permit) Outcome { panic("x") }, call.Error},
		"made-up status": {func(context.Context, *Permit) Outcome { return Outcome{Status: "fine"} }, call.Error},
		"says denied":    {func(context.Context, *Permit) Outcome { return Outcome{Status: call.Denied} }, call.Error},
		"too large":      {func(context.Context, *Permit) Outcome { return Outcome{Status: call.OK, Result: make([]byte, 2<<10)} }, call.Error},
		"deadline": {func(ctx context.Context, p *Permit) Outcome {
			<-ctx.Done()
			return Outcome{Status: call.Timeout}
		}, call.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.target.Deadline = 10 * time.Millisecond
			res, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, tc.effect)
			if err != nil || res.Outcome.Status != tc.want || len(res.Outcome.Result) != 0 {
				t.Fatalf("%v %+v", err, res)
			}
			if len(b.txs) != 2 || b.txs[1].Entries[0].Kind != audit.KindOutcome {
				t.Fatal("not exactly one intent and one outcome")
			}
		})
	}
}

// TestBodiesAreCanonical: the encoder writes record bodies in canonical order.
func TestBodiesAreCanonical(t *testing.T) {
	a := budget.Amount{budget.Tokens: 1, budget.ToolCalls: 2}
	for _, body := range []any{
		IntentBody{Rules: []string{"r"}, Reserved: a},
		OutcomeBody{Reason: "r", Used: a, ResultBytes: 1, Facts: map[string]any{"b": 1, "a": 2}, Label: label.Label{Readers: []string{"x"}}},
		DeniedBody{Policy: "p", Rules: []string{"r"}},
	} {
		plain, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := canon.Marshal(body)
		if err != nil || string(plain) != string(canonical) {
			t.Errorf("%v\n%s\n%s", err, plain, canonical)
		}
	}
}

func TestCallsNeedAnOpenRun(t *testing.T) {
	b := newBench(t)
	b.gate.StopRun("r")
	_, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect)
	var d *Denial
	if !errors.As(err, &d) || d.Stage != StageRun || len(b.trace) != 0 {
		t.Fatalf("%v %v", err, b.trace)
	}
	if b.gate.OpenRun("r") != nil || b.gate.OpenRun("r") == nil {
		t.Error("a run opens exactly once")
	}
}

// TestNothingStartsAfterStop is INV-04 at its narrowest point: the run is
// stopped while the intent is being made durable. The effect must not start,
// and the intent still gets its outcome.
func TestNothingStartsAfterStop(t *testing.T) {
	b := newBench(t)
	b.onCommit = func(k audit.Kind) {
		if k == audit.KindIntent {
			b.gate.StopRun("r")
		}
	}
	res, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect)
	if err != nil || res.Outcome.Status != call.Cancelled {
		t.Fatalf("%+v, %v", res, err)
	}
	if strings.Contains(strings.Join(b.trace, " "), "effect") {
		t.Error("effect started after StopRun returned")
	}
}

// TestStopCancelsWhatIsUnderWay: every effect that runs is told to end.
func TestStopCancelsWhatIsUnderWay(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	started := make(chan struct{}, 8)
	for i := range 8 {
		c := mkCall(t, fmt.Sprint("c", i))
		wg.Add(1)
		go func() {
			defer wg.Done()
			res, err := b.gate.Do(t.Context(), c, nil, func(ctx context.Context, _ *Permit) Outcome {
				started <- struct{}{}
				<-ctx.Done()
				return Outcome{Status: call.Cancelled}
			})
			if err != nil || res.Outcome.Status != call.Cancelled {
				t.Errorf("%+v, %v", res, err)
			}
		}()
	}
	for range 8 {
		<-started
	}
	b.gate.StopRun("r")
	wg.Wait()
}

// TestIntentsAndOutcomesPair is INV-01 as a property: whatever fails, every
// durable intent has exactly one durable outcome, unless the journal is gone.
func TestIntentsAndOutcomesPair(t *testing.T) {
	steps := []string{"schema", "capability", "policy", "reserve", "approval", "journal call.intent", "journal call.denied"}
	rnd := rand.New(rand.NewSource(7))
	for i := range 500 {
		b := newBench(t)
		b.target.Effect = []string{"read", "write", "?"}[rnd.Intn(3)]
		for _, s := range steps {
			if rnd.Intn(8) == 0 {
				b.fail[s] = errors.New("injected")
			}
		}
		ran := 0
		_, _ = b.gate.Do(t.Context(), mkCall(t, "c"), nil, func(context.Context, *Permit) Outcome {
			ran++
			if rnd.Intn(3) == 0 {
				panic("effect")
			}
			return Outcome{Status: []call.Status{call.OK, call.Error, "?"}[rnd.Intn(3)]}
		})
		count := map[audit.Kind]int{}
		for _, tx := range b.txs {
			count[tx.Entries[0].Kind]++
		}
		if count[audit.KindIntent] != count[audit.KindOutcome] || count[audit.KindIntent] != ran || count[audit.KindIntent]+count[audit.KindDenied] > 1 {
			t.Fatalf("case %d: ran %d, records %v, trace %v", i, ran, count, b.trace)
		}
	}
}

func TestExplainDecidesLikeTheGateAndTouchesNothing(t *testing.T) {
	for _, fail := range []string{"", "schema", "capability", "policy"} {
		b := newBench(t)
		if fail != "" {
			b.fail[fail] = errors.New("no")
		}
		x := b.gate.Explain(t.Context(), mkCall(t, "c"))
		if len(b.txs) != 0 || strings.Contains(strings.Join(b.trace, " "), "reserve") {
			t.Fatalf("explain left %v %v", b.txs, b.trace)
		}
		_, err := b.gate.Do(t.Context(), mkCall(t, "c"), nil, b.effect)
		if x.Allowed != (err == nil) {
			t.Errorf("%s: explain says %v, the gate %v", fail, x.Allowed, err)
		}
		if fail != "" && x.Stages[len(x.Stages)-1].Stage != Stage(fail) {
			t.Errorf("%s: last stage %+v", fail, x.Stages)
		}
	}
	b := newBench(t)
	b.ledger.SetLimit("run:r", budget.Amount{budget.ToolCalls: 0})
	if x := b.gate.Explain(t.Context(), mkCall(t, "c")); x.Allowed || x.Denial.Kind != fault.Limit {
		t.Errorf("%+v", x)
	}
}
