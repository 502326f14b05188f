//go:build linux

// Package crash kills the process that holds gate and journal at every step
// between a proposal and its outcome, and looks at what the next start finds.
package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/internal/control/statestore"
	"agentos/internal/trusted/approval"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/policy"
)

// The steps, in order; the child kills itself with SIGKILL at the one that it
// is told.
const (
	beforeIntent  = "before the intent is durable"
	afterIntent   = "after the intent is durable, before the effect"
	inEffect      = "in the middle of the effect"
	afterEffect   = "after the effect, before the outcome is durable"
	afterOutcome  = "after the outcome is durable"
	beforeDenial  = "before a denial is durable"
	afterDenial   = "after a denial is durable"
	noCrash       = "never"
	envStep       = "AGENTOS_TEST_CRASH_STEP"
	envDir        = "AGENTOS_TEST_CRASH_DIR"
	key           = budget.Key("run:r1")
	reservedUnits = 7
	usedUnits     = 3
)

func TestMain(m *testing.M) {
	if step := os.Getenv(envStep); step != "" {
		if err := child(step, os.Getenv(envDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// die is kill -9 of the very process: no deferred function runs.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// journal kills around commits of the kind that the step is about.
type journal struct {
	*statestore.Store
	step string
}

func (j journal) Commit(ctx context.Context, tx gate.Tx) (gate.Receipt, error) {
	kind := tx.Entries[0].Kind
	if kind == audit.KindIntent && j.step == beforeIntent || kind == audit.KindDenied && j.step == beforeDenial ||
		kind == audit.KindOutcome && j.step == afterEffect {
		die()
	}
	rc, err := j.Store.Commit(ctx, tx)
	if err == nil && (kind == audit.KindIntent && j.step == afterIntent || kind == audit.KindDenied && j.step == afterDenial ||
		kind == audit.KindOutcome && j.step == afterOutcome) {
		die()
	}
	return rc, err
}

type world struct{ deny bool }

func (w world) Target(*call.Call) (gate.Target, error) {
	return gate.Target{Type: "Tool", Effect: "read", Local: true, Deadline: time.Minute, MaxResult: 1024,
		Upper: budget.Amount{budget.Tokens: reservedUnits}, Label: label.Label{Integrity: label.Untrusted}}, nil
}
func (w world) Check(*call.Call) (string, error) { return "g", nil }
func (w world) Decide(*call.Call, *gate.Target) policy.Decision {
	if w.deny {
		return policy.Decision{}
	}
	return policy.Decision{Allow: true, Rules: []policy.Rule{{ID: "p", Effect: "permit"}}}
}

// child makes one call, whose effect appends a line to a file: the world
// outside, by which the parent sees whether the effect happened.
func child(step, dir string) error {
	ctx := context.Background()
	s, err := statestore.Open(ctx, statestore.Config{Dir: dir + "/state"})
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(run) }()
	st, err := s.Budget(ctx)
	if err != nil {
		return err
	}
	w := world{deny: step == beforeDenial || step == afterDenial}
	g := gate.New(gate.Deps{Catalog: w, Grants: w, Policy: w, Ledger: budget.NewLedger(st), Approver: approval.Absent{},
		Keys: func(call.Subject) []budget.Key { return []budget.Key{key} }, Journal: journal{s, step}, Now: time.Now})
	if _, err := s.Commit(ctx, gate.Tx{
		Entries: []audit.Entry{{Kind: audit.KindRunStart, At: time.Now().UTC(), Run: "r1", Agent: "a", Body: map[string]any{}}},
		Runs:    []gate.RunState{{Run: "r1", Agent: "a", State: "running"}},
	}); err != nil {
		return err
	}
	if err := g.OpenRun("r1"); err != nil {
		return err
	}
	c, err := call.New("call-1", call.Subject{Agent: "a", Run: "r1"}, call.ToolCall, "x", nil, time.Now())
	if err != nil {
		return err
	}
	_, _ = g.Do(ctx, c, nil, func(context.Context, *gate.Permit) gate.Outcome {
		f, err := os.OpenFile(dir+"/effect", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString("did it\n")
		}
		if err != nil {
			return gate.Outcome{Status: call.Error, Reason: err.Error()}
		}
		if step == inEffect {
			die()
		}
		return gate.Outcome{Status: call.OK, Used: budget.Amount{budget.Tokens: usedUnits}}
	})
	stop()
	<-done
	return s.Close()
}

// TestMatrix: wherever it dies, no effect lacks its intent, no intent lacks its
// one outcome, the budget is charged for what may have happened, and nothing
// that was acknowledged is lost.
func TestMatrix(t *testing.T) {
	for _, tc := range []struct {
		step    string
		effects int
		intent  bool
		status  string // of the outcome; "" when there is none
		denied  bool
		used    int64
	}{
		{beforeIntent, 0, false, "", false, 0},
		{afterIntent, 0, true, "unknown", false, reservedUnits},
		{inEffect, 1, true, "unknown", false, reservedUnits},
		{afterEffect, 1, true, "unknown", false, reservedUnits},
		{afterOutcome, 1, true, "ok", false, usedUnits},
		{beforeDenial, 0, false, "", false, 0},
		{afterDenial, 0, false, "", true, 0},
		{noCrash, 1, true, "ok", false, usedUnits},
	} {
		t.Run(strings.ReplaceAll(tc.step, " ", "_"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			crash(t, tc.step, dir)
			// The first start recovers; more starts change nothing.
			for range 3 {
				check(t, dir, tc.effects, tc.intent, tc.status, tc.denied, tc.used)
			}
		})
	}
}

func crash(t *testing.T, step, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envStep+"="+step, envDir+"="+dir)
	out, err := cmd.CombinedOutput()
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if killed := ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL; killed != (step != noCrash) {
		t.Fatalf("child: %v\n%s", err, out)
	}
}

func check(t *testing.T, dir string, effects int, intent bool, status string, denied bool, used int64) {
	t.Helper()
	b, _ := os.ReadFile(dir + "/effect")
	if n := strings.Count(string(b), "\n"); n != effects {
		t.Errorf("%d effects, want %d", n, effects)
	}
	s, err := statestore.Open(t.Context(), statestore.Config{Dir: dir + "/state"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kinds := map[audit.Kind]int{}
	got := ""
	for it, err := range s.Log(t.Context(), statestore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[it.Record.Kind]++
		if it.Record.Kind == audit.KindOutcome {
			for _, st := range []string{"ok", "unknown", "error"} {
				if strings.Contains(string(it.Record.Body), `"status":"`+st+`"`) {
					got = st
				}
			}
		}
	}
	if (kinds[audit.KindIntent] == 1) != intent || (kinds[audit.KindDenied] == 1) != denied || got != status || kinds[audit.KindOutcome] > 1 {
		t.Errorf("records %v, outcome %q, want intent %v, outcome %q, denied %v", kinds, got, intent, status, denied)
	}
	if kinds[audit.KindRunEnd] != 1 {
		t.Errorf("the run has %d ends", kinds[audit.KindRunEnd])
	}
	rep, err := s.Verify(t.Context(), audit.Options{})
	if err != nil || rep.First != nil {
		t.Errorf("log does not verify: %v %+v", err, rep.First)
	}
	st, err := s.Budget(t.Context())
	if err != nil || len(st.Open) != 0 {
		t.Errorf("open reservations %+v, %v", st.Open, err)
	}
	sum := int64(0)
	for _, bal := range st.Balances {
		if bal.Key == key && bal.Resource == budget.Tokens {
			sum += bal.Used
		}
	}
	if sum != used {
		t.Errorf("charged %d, want %d", sum, used)
	}
}
