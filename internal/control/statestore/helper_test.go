//go:build linux

package statestore

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
)

var testTime = time.Date(2026, 11, 29, 12, 0, 0, 1, time.UTC)

func fixedNow() time.Time { return testTime }

// stateDir is a fresh path for a state directory.
func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }

// open opens dir and runs its writer until stop is called.
func open(t testing.TB, dir string) (s *Store, stop func()) {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir, Now: fixedNow})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func intent(call string) audit.Entry {
	return audit.Entry{Kind: audit.KindIntent, At: testTime, Run: "run-1", Call: call, Agent: "agent-1", Owner: 1000,
		Body: map[string]any{"action": "tool.call", "resource": "system_inspect", "digest": "sha256:0", "rules": []string{"a", "b"}}}
}

func outcome(call string) audit.Entry {
	return audit.Entry{Kind: audit.KindOutcome, At: testTime, Run: "run-1", Call: call, Agent: "agent-1", Owner: 1000,
		Body: map[string]any{"status": "ok", "duration_us": 1234, "text": "zwölf"}}
}

var testKeys = []budget.Key{"owner:1000", "run:run-1"}

func reserve(call string, n int64) budget.Change {
	return budget.Change{Reserve: &budget.Reservation{Call: call, Keys: testKeys, Amount: budget.Amount{budget.ToolCalls: 1, budget.Tokens: n}}}
}

func settle(call string, n int64) budget.Change {
	return budget.Change{Settle: &budget.Settlement{Call: call, Keys: testKeys, Used: budget.Amount{budget.ToolCalls: 1, budget.Tokens: n}}}
}

func mustCommit(t testing.TB, s *Store, tx gate.Tx) gate.Receipt {
	t.Helper()
	r, err := s.Commit(t.Context(), tx)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return r
}

// fill commits whole calls until the log has n records (n must be odd: the
// first one is the log's own).
func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	for i := int(s.tree.size); i < n; i += 2 {
		call := fmt.Sprintf("call-%05d", i)
		mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent(call)}})
		mustCommit(t, s, gate.Tx{Entries: []audit.Entry{outcome(call)}})
	}
}

// verifyOK fails the test unless the log in dir verifies.
func verifyOK(t testing.TB, dir string, opts audit.Options) audit.Report {
	t.Helper()
	r, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatalf("open read-only: %v", err)
	}
	defer r.Close()
	rep, err := r.Verify(t.Context(), opts)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	if rep.First != nil {
		t.Fatalf("verify: %+v", *rep.First)
	}
	return rep
}
