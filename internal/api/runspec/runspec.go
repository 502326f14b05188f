// Package runspec is what a loop process is told and what it reports: one JSON
// document each way.
//
// The loop's standard input is a connected Unix socket. The loop confines
// itself, writes one line "ready\n" to it, and then reads one Spec until the end
// of input; the supervisor sends the Spec only after it has checked the
// process's identity and locks. On standard output the loop writes one Report
// and exits with the reason's exit code.
//
// State owned: none. Imports: lib/endreason, go-json-experiment/json. Imported
// by: reasoning/loop's main, the shim, control. Invariant: documents are bounded
// before they are parsed and unknown members are errors.
// Tests: runspec_test.go, FuzzDecode. Format: docs/spec/loop.md.
package runspec

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"agentos/internal/lib/endreason"
)

// Ready is what the loop writes when it has confined itself.
const Ready = "ready\n"

// Limits in bytes.
const (
	MaxSpec   = 256 << 10
	MaxGoal   = 64 << 10
	MaxReport = 4 << 20
)

// Spec is one run, as its loop sees it.
type Spec struct {
	Run    string `json:"run"`
	Goal   string `json:"goal"`
	System string `json:"system"`
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	Limits Limits `json:"limits"`
}

// Limits end a run with a typed reason. The gate holds the same limits as
// budgets; these give the loop its own, earlier and more precise, end.
type Limits struct {
	Iterations   int `json:"iterations"`
	ToolCalls    int `json:"tool_calls"`
	ElapsedMS    int `json:"elapsed_ms"`
	OutputTokens int `json:"output_tokens"` // a turn
	TotalTokens  int `json:"total_tokens"`
	Parallel     int `json:"parallel"` // read-only calls of one turn at once
}

// Report is how the loop says a run went. It is the agent's word, not a fact:
// the exit code and the records count.
type Report struct {
	Reason     endreason.Reason `json:"reason"`
	Detail     string           `json:"detail,omitempty"`
	Report     string           `json:"report,omitempty"` // the final answer
	Iterations int              `json:"iterations"`
	ToolCalls  int              `json:"tool_calls"`
}

// DecodeSpec parses and checks a Spec.
func DecodeSpec(b []byte) (Spec, error) {
	var s Spec
	if len(b) > MaxSpec {
		return s, fmt.Errorf("decode run spec: %d bytes, limit %d", len(b), MaxSpec)
	}
	if err := json.Unmarshal(b, &s, json.RejectUnknownMembers(true)); err != nil {
		return s, fmt.Errorf("decode run spec: %w", err)
	}
	l := s.Limits
	if s.Goal == "" || len(s.Goal) > MaxGoal {
		return s, errors.New("decode run spec: goal is empty or too long")
	}
	if l.Iterations < 1 || l.ToolCalls < 0 || l.ElapsedMS < 1 || l.OutputTokens < 1 || l.TotalTokens < 1 || l.Parallel < 1 {
		return s, errors.New("decode run spec: a limit is missing")
	}
	return s, nil
}

// DecodeReport parses and checks a Report.
func DecodeReport(b []byte) (Report, error) {
	var r Report
	if len(b) > MaxReport {
		return r, fmt.Errorf("decode loop report: %d bytes, limit %d", len(b), MaxReport)
	}
	if err := json.Unmarshal(b, &r, json.RejectUnknownMembers(true)); err != nil {
		return r, fmt.Errorf("decode loop report: %w", err)
	}
	if !r.Reason.Valid() {
		return r, fmt.Errorf("decode loop report: unknown reason %.40q", r.Reason)
	}
	return r, nil
}
