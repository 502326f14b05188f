// Package endreason is the closed set of typed reasons a run ends with, and the
// exit code of each, as docs/spec/exit-codes.md lists them.
//
// State owned: none. Imports: standard library. Imported by: the loop, the
// daemon, the CLI. Spec: OSA-01. Tests: endreason_test.go.
package endreason

// Reason says why a run ended.
type Reason string

// The reasons.
const (
	Completed        Reason = "completed"
	NotUnderstood    Reason = "goal_not_understood" // the rules backend has no intent for the goal
	Refused          Reason = "refused"             // the gate refused to start or to go on
	LimitIterations  Reason = "limit_iterations"
	LimitToolCalls   Reason = "limit_tool_calls"
	LimitElapsed     Reason = "limit_elapsed"
	LimitTurnTokens  Reason = "limit_turn_tokens" // the model hit its output cap in a turn
	LimitTotalTokens Reason = "limit_total_tokens"
	DuplicateCallID  Reason = "duplicate_call_id"
	NoProgress       Reason = "no_progress" // the same call with the same result again
	Cycle            Reason = "cycle"       // a sequence of calls repeats
	ModelError       Reason = "model_error"
	ModelMalformed   Reason = "model_malformed" // model output that is not the protocol
	Cancelled        Reason = "cancelled"
	Crashed          Reason = "crashed" // a part of the run died
	Internal         Reason = "internal"
)

var exit = map[Reason]int{
	Completed: 0, Internal: 1, Refused: 3, NotUnderstood: 10,
	LimitIterations: 11, LimitToolCalls: 12, LimitElapsed: 13, LimitTurnTokens: 14,
	LimitTotalTokens: 15, DuplicateCallID: 16, NoProgress: 17, Cycle: 18,
	ModelError: 19, ModelMalformed: 20, Crashed: 21, Cancelled: 130,
}

// ExitCode of the reason; 1 for an unknown one.
func (r Reason) ExitCode() int {
	if c, ok := exit[r]; ok {
		return c
	}
	return 1
}

// FromExitCode is the inverse, for the loop's own exit; Crashed for codes that
// name no reason.
func FromExitCode(code int) Reason {
	for r, c := range exit {
		if c == code {
			return r
		}
	}
	return Crashed
}

// Valid reports whether r is in the set.
func (r Reason) Valid() bool { _, ok := exit[r]; return ok }
