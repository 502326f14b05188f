package endreason

import "testing"

func all() []Reason {
	return []Reason{Completed, NotUnderstood, Refused, LimitIterations, LimitToolCalls, LimitElapsed, LimitTurnTokens,
		LimitTotalTokens, DuplicateCallID, NoProgress, Cycle, ModelError, ModelMalformed, Cancelled, Crashed, Internal}
}

// Spec: OSA-01: each reason has an exit code of its own, and only success is 0.
func TestEveryReasonHasItsCode(t *testing.T) {
	t.Parallel()
	seen := map[int]Reason{}
	for _, r := range all() {
		c := r.ExitCode()
		if !r.Valid() || (c == 0) != (r == Completed) || seen[c] != "" {
			t.Errorf("%s: valid %v, code %d, which %q has too", r, r.Valid(), c, seen[c])
		}
		seen[c] = r
		if back := FromExitCode(c); back != r {
			t.Errorf("%s has code %d, which is %s", r, c, back)
		}
	}
	if len(all()) != len(exit) {
		t.Errorf("the set has %d reasons, %d are tested", len(exit), len(all()))
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	if r := Reason("done"); r.Valid() || r.ExitCode() != 1 {
		t.Errorf("%s: valid %v, code %d", r, r.Valid(), r.ExitCode())
	}
	for _, c := range []int{-1, 2, 99, 137, 255} {
		if r := FromExitCode(c); r != Crashed {
			t.Errorf("code %d is %s, want crashed", c, r)
		}
	}
}
