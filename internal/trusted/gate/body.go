package gate

import (
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/risk"
)

// The fields stand in the order of their names, so that the encoder's output is
// the canonical form already (RFC 8785) and needs no sorting on the way to disk.

// IntentBody is the body of a call.intent record (docs/spec/audit-record.md).
type IntentBody struct {
	Action     call.Action   `json:"action"`
	DeadlineMS int64         `json:"deadline_ms"`
	Digest     string        `json:"digest"`
	Grant      string        `json:"grant"`
	Policy     string        `json:"policy"` // revision
	Reserved   budget.Amount `json:"reserved"`
	Resource   string        `json:"resource"`
	Risk       risk.Class    `json:"risk"`
	Rules      []string      `json:"rules"`
}

// OutcomeBody is the body of a call.outcome record.
type OutcomeBody struct {
	Facts       map[string]any `json:"facts,omitempty"`
	Label       label.Label    `json:"label"`
	Reason      string         `json:"reason,omitempty"`
	ResultBytes int            `json:"result_bytes,omitempty"`
	Status      call.Status    `json:"status"`
	TookUS      int64          `json:"took_us"`
	Used        budget.Amount  `json:"used,omitempty"`
}

// DeniedBody is the body of a call.denied record: proposal and refusal in one.
type DeniedBody struct {
	Action   call.Action `json:"action"`
	Digest   string      `json:"digest"`
	Policy   string      `json:"policy,omitempty"` // revision
	Reason   string      `json:"reason"`
	Resource string      `json:"resource"`
	Rules    []string    `json:"rules,omitempty"`
	Stage    Stage       `json:"stage"`
	Status   call.Status `json:"status"` // always denied
}
