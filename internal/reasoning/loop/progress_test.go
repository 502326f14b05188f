package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"agentos/internal/api/runspec"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/endreason"
)

// play runs a model that calls, turn by turn, the tools that the letters name;
// result gives what the n-th call comes to.
func play(t *testing.T, letters string, result func(n int, args string) string) runspec.Report {
	t.Helper()
	model := each(func(n int) (chat.Response, error) {
		if n == len(letters) {
			return text("done"), nil
		}
		return calls(call(fmt.Sprint(n), "read", fmt.Sprintf(`{"a":"%c"}`, letters[n]))), nil
	})
	n := 0
	tools := &fakeTools{do: func(_ context.Context, _ string, args json.RawMessage) (ToolResult, error) {
		n++
		return ToolResult{Text: result(n, string(args))}, nil
	}}
	return Run(t.Context(), order(runspec.Limits{Iterations: 500, ToolCalls: 4096, TotalTokens: 1 << 30}), Deps{Model: &eachModel{f: model}, Tools: tools})
}

func TestStuck(t *testing.T) {
	t.Parallel()
	same := func(_ int, args string) string { return args }
	for letters, want := range map[string]struct {
		reason endreason.Reason
		calls  int
	}{
		"aab":          {endreason.Completed, 3},
		"aaa":          {endreason.NoProgress, 3},
		"baaa":         {endreason.NoProgress, 4},
		"ababa":        {endreason.Completed, 5},
		"ababab":       {endreason.Cycle, 6},
		"cababab":      {endreason.Cycle, 7},
		"abcabc":       {endreason.Cycle, 6},
		"abcdabcd":     {endreason.Cycle, 8},
		"abcdabc":      {endreason.Completed, 7},
		"abcdeabcde":   {endreason.Cycle, 10},
		"aabaab":       {endreason.NoProgress, 5}, // the fourth a
		"abcadcaefa":   {endreason.NoProgress, 10},
		"abcdefghijkl": {endreason.Completed, 12},
	} {
		if got := play(t, letters, same); got.Reason != want.reason || got.ToolCalls != want.calls {
			t.Errorf("%s: %s after %d calls (%s), want %s after %d", letters, got.Reason, got.ToolCalls, got.Detail, want.reason, want.calls)
		}
	}
}

// Polling whose answers change is progress, in any rhythm.
func TestPollingIsProgress(t *testing.T) {
	t.Parallel()
	changing := func(n int, args string) string { return fmt.Sprint(n, args) }
	for _, letters := range []string{"aaaaaaaaaaaaaaaaaaaa", "abababababababab", "abcabcabcabcabcabc"} {
		if got := play(t, letters, changing); got.Reason != endreason.Completed {
			t.Errorf("%s: %+v", letters, got)
		}
	}
	// A counter that stands still for two turns at a time, as a slow job does.
	if got := play(t, "aaaaaaaaaa", func(n int, _ string) string { return fmt.Sprint((n - 1) / 2) }); got.Reason != endreason.Completed {
		t.Errorf("slow counter: %+v", got)
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, rnd.IntN(40))
		for i := range b {
			b[i] = byte('a' + rnd.IntN(3))
		}
		if got := play(t, string(b), changing); got.Reason != endreason.Completed {
			t.Errorf("seed %d, %s: %+v", seed, b, got)
		}
	}
}

// Any sequence that repeats for ever is found, soon.
func TestEveryCycleIsFound(t *testing.T) {
	t.Parallel()
	for period := 1; period <= 12; period++ {
		block := "abcdefghijkl"[:period]
		long := ""
		for len(long) < 300 {
			long += block
		}
		got := play(t, "xyz"+long, func(_ int, args string) string { return args })
		if want := 3 + max(sameTurns, 2*period, min(cycleTurns, 6*(period-1))); got.ToolCalls > want ||
			(got.Reason != endreason.Cycle && got.Reason != endreason.NoProgress) {
			t.Errorf("period %d: %s after %d calls, want at most %d", period, got.Reason, got.ToolCalls, want)
		}
	}
}

// The parts of a fingerprint can't be shifted into one another.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	if fingerprint("a", []byte("bc"), "d") == fingerprint("ab", []byte("c"), "d") || fingerprint("a", []byte("b"), "cd") == fingerprint("a", []byte("bc"), "d") {
		t.Error("different calls have one fingerprint")
	}
}
