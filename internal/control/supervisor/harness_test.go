//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/api/runspec"
	"agentos/internal/execution/tool"
	"agentos/internal/host/procstatus"
	"agentos/internal/host/spawn"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/capability"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
	"agentos/internal/trusted/principal"
)

// bench is a supervisor with a real gate over scripted facts, and real
// processes: the test binary as shim, loop and tool.
type bench struct {
	*gate.Gate
	t      *testing.T
	dir    string
	cfg    Config
	deps   Deps
	ledger *budget.Ledger

	mu      sync.Mutex
	fail    map[audit.Kind]error
	records []audit.Entry
	runs    []gate.RunState
	pids    map[string]int // part → process
	status  func(part string, s *procstatus.Status)
	atStop  []string // parts that lived when the run was stopped
	started time.Duration
	model   time.Duration // deadline of a model call
	events  []*pb.RunEvent
	onEvent func(*pb.RunEvent)
	over    bool
	hold    chan struct{} // what a decision about a model call waits for
	ids     int
}

func newBench(t *testing.T, shim, loop string) *bench {
	t.Helper()
	b := &bench{
		t: t, dir: t.TempDir(), ledger: budget.NewLedger(budget.State{}), fail: map[audit.Kind]error{}, pids: map[string]int{},
		started: 10 * time.Second, model: 5 * time.Second,
	}
	b.Gate = gate.New(gate.Deps{
		Catalog: b, Grants: b, Policy: b, Ledger: b.ledger, Approver: b, Journal: b, Now: time.Now,
		Keys: func(s call.Subject) []budget.Key { return []budget.Key{budget.RunKey(s.Run)} },
	})
	ids := map[principal.Role]principal.Binding{}
	for _, r := range principal.Roles() {
		ids[r] = principal.Binding{Agent: "a", Role: r, UID: 4000, GID: 4000}
	}
	b.cfg = Config{
		Agent: "a", Owner: 1000, Identities: ids, Policy: "sha256:p", BackendWhy: "asked for", Budget: budget.Amount{budget.ToolCalls: 1000},
		Hello:  gatewire.Hello{Backend: "socket", Model: "m", Tools: []gatewire.ToolInfo{{Name: "echo", Schema: "{}"}}, MaxOutput: 10},
		Limits: runspec.Limits{Iterations: 8, ToolCalls: 16, ElapsedMS: 20_000, OutputTokens: 10, TotalTokens: 100, Parallel: 4},
		Grants: []capability.Grant{{Action: call.ToolCall, Resource: "echo"}},
	}
	b.deps = Deps{
		Gate: b, Grants: capability.NewTable(), Limits: b.ledger, Journal: b, Tools: b, Status: b.readStatus,
		Seal: func(context.Context) Seal {
			return Seal{Checkpoint: "note", Verified: true, Notices: []string{"sealed \xff"}}
		},
		Binaries: Binaries{Shim: b.binary(shim), Loop: b.binary(loop), Tool: b.binary("any")},
		NewID:    b.newID, Now: time.Now,
	}
	return b
}

// binary is the test binary under a name that says how it behaves.
func (b *bench) binary(behaviour string) *os.File {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, behaviour)
	if err := os.Link(self, path); err != nil && !errors.Is(err, os.ErrExist) {
		b.t.Fatal(err)
	}
	f, err := spawn.OpenBinary(path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = f.Close() })
	return f
}

// marked reports whether a part left a mark.
func (b *bench) marked(behaviour, what string) bool {
	_, err := os.Stat(filepath.Join(b.dir, behaviour+"."+what))
	return err == nil
}

func (b *bench) newID(kind string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids++
	return fmt.Sprintf("%s-%d", kind, b.ids)
}

func (b *bench) Tool(name string) (tool.Descriptor, bool) {
	return tool.Descriptor{Name: name, MaxArgs: 4096, MaxResult: 4096, Deadline: 5 * time.Second}, name != "missing"
}

func (b *bench) Target(c *call.Call) (gate.Target, error) {
	switch c.Action {
	case call.ModelGenerate:
		return gate.Target{Type: "Model", Effect: "generate", MaxResult: 1 << 20, Deadline: b.model, Upper: budget.Amount{budget.ModelCall: 1, budget.Tokens: 100}}, nil
	case call.AgentStart:
		return gate.Target{Type: "Agent", Effect: "start", MaxResult: 1 << 10, Deadline: b.started}, nil
	}
	return gate.Target{Type: "Tool", Effect: "read", MaxResult: 1 << 16, Deadline: 5 * time.Second, Upper: budget.Amount{budget.ToolCalls: 1}}, nil
}

func (b *bench) Check(*call.Call) (string, error) { return "grant", nil }

func (b *bench) Decide(c *call.Call, _ *gate.Target) policy.Decision {
	if b.hold != nil && c.Action == call.ModelGenerate {
		select {
		case <-b.hold:
		case <-time.After(3 * time.Second):
		}
	}
	if c.Resource == "forbidden" || c.Subject.Owner == 0 {
		return policy.Decision{Rules: []policy.Rule{{ID: "no", Effect: "forbid", Reason: "not here"}}}
	}
	return policy.Decision{Allow: true, Rules: []policy.Rule{{ID: "yes", Effect: "permit"}}}
}

func (b *bench) Approve(context.Context, *call.Call, string) error { return nil }

// Commit holds entries to what the audit log can hold.
func (b *bench) Commit(ctx context.Context, tx gate.Tx) (gate.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return gate.Receipt{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range tx.Entries {
		if err := b.fail[e.Kind]; err != nil {
			return gate.Receipt{}, err
		}
		var commitments []string
		for range e.Payloads {
			commitments = append(commitments, "sha256:"+strings.Repeat("0", 64))
		}
		if _, err := audit.NewRecord(e, commitments); err != nil {
			b.t.Errorf("record %s does not fit the log: %v", e.Kind, err)
			return gate.Receipt{}, err
		}
		b.records = append(b.records, e)
	}
	b.runs = append(b.runs, tx.Runs...)
	return gate.Receipt{FirstSeq: uint64(len(b.records))}, nil
}

// readStatus is the kernel's word on a part, made to look locked.
func (b *bench) readStatus(pid int) (procstatus.Status, error) {
	part := partOf(pid)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pids[part] = pid
	s := procstatus.Status{UID: 4000, EUID: 4000, GID: 4000, EGID: 4000, NoNewPrivs: true, Seccomp: 2}
	if b.status != nil {
		b.status(part, &s)
	}
	if s.Seccomp < 0 {
		return s, errors.New("no such process")
	}
	return s, nil
}

func partOf(pid int) string {
	cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(cmd), "\x00")
	return name
}

// StopRun notes which parts are still there when it returns.
func (b *bench) StopRun(run string) {
	b.Gate.StopRun(run)
	b.mu.Lock()
	defer b.mu.Unlock()
	for part, pid := range b.pids {
		if partOf(pid) == part {
			b.atStop = append(b.atStop, part)
		}
	}
	slices.Sort(b.atStop)
}

func (b *bench) emit(e *pb.RunEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		b.t.Errorf("event after the end: %v", e)
	}
	if _, err := proto.Marshal(e); err != nil {
		b.t.Errorf("event can't be sent: %v", err)
	}
	b.events = append(b.events, e)
	if b.onEvent != nil {
		b.onEvent(e)
	}
}

// run performs a run, and checks what holds for every run.
func (b *bench) run(ctx context.Context) *pb.Ended {
	b.t.Helper()
	before := descriptors(b.t)
	end, err := New(b.cfg, b.deps).Run(ctx, "the goal", b.emit)
	if err != nil {
		b.t.Fatalf("run: %v", err)
	}
	b.checkNothingLeft(before)
	b.checkRecords(end)
	return end
}

func (b *bench) checkNothingLeft(before int) {
	b.t.Helper()
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	for part, pid := range b.pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			b.t.Errorf("%s is still there: %v", part, err)
		}
	}
	left := goroutines()
	for i := 0; i < 1000 && len(left) > 0; i++ { // one may be at its last instruction
		runtime.Gosched()
		left = goroutines()
	}
	for _, g := range left {
		b.t.Errorf("goroutine left:\n%s", g)
	}
	if after := descriptors(b.t); after > before {
		b.t.Errorf("%d descriptors before, %d after", before, after)
	}
	if _, err := b.Do(context.Background(), call.Call{Subject: call.Subject{Run: "run-1"}}, nil, nil); err == nil || !strings.Contains(err.Error(), "denied at run") {
		b.t.Errorf("the run's door is open: %v", err)
	}
	for _, u := range b.ledger.Report() {
		if u.Reserved != 0 {
			b.t.Errorf("still reserved: %+v", u)
		}
	}
}

// goroutines are the stacks of those that belong to a run.
func goroutines() (out []string) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(g, "supervisor.(*run)") || strings.Contains(g, "supervisor.(*tail)") {
			out = append(out, g)
		}
	}
	return out
}

func descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

// checkRecords: one start, one end and the same reason everywhere; every intent
// has its outcome.
func (b *bench) checkRecords(end *pb.Ended) {
	b.t.Helper()
	if n := len(b.records); b.records[0].Kind != audit.KindRunStart || b.records[n-1].Kind != audit.KindRunEnd {
		b.t.Errorf("records from %s to %s", b.records[0].Kind, b.records[n-1].Kind)
	}
	last := b.records[len(b.records)-1].Body.(endBody)
	state := b.runs[len(b.runs)-1]
	if last.Reason != end.GetReason() || state.Reason != end.GetReason() || state.Run != "run-1" {
		b.t.Errorf("reasons: told %s, recorded %s, state %s", end.GetReason(), last.Reason, state.Reason)
	}
	open := map[string]int{}
	for _, r := range b.records {
		switch r.Kind {
		case audit.KindIntent:
			open[r.Call]++
		case audit.KindOutcome:
			open[r.Call]--
		}
	}
	for c, n := range open {
		if n != 0 {
			b.t.Errorf("call %s: %d intents without an outcome", c, n)
		}
	}
	if e := b.events[len(b.events)-1].GetEnded(); e == nil {
		b.t.Errorf("last event %v", b.events[len(b.events)-1])
	}
}

// texts is what the shim showed, and notices.
func (b *bench) texts() string {
	var out []string
	for _, e := range b.events {
		out = append(out, e.GetText().GetText(), e.GetNotice().GetText())
	}
	return strings.Join(out, "\n")
}

func (b *bench) outcome(a call.Action) (gate.OutcomeBody, bool) {
	calls := map[string]call.Action{}
	for _, r := range b.records {
		switch body := r.Body.(type) {
		case gate.IntentBody:
			calls[r.Call] = body.Action
		case gate.OutcomeBody:
			if calls[r.Call] == a {
				return body, true
			}
		}
	}
	return gate.OutcomeBody{}, false
}
