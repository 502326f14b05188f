package gate

import (
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/risk"
)

// IntentBody is the body of a call.intent record (docs/spec/audit-record.md).
type IntentBody struct {
	Action     call.Action   `json:"action"`
	Resource   string        `json:"resource"`
	Digest     string        `json:"digest"`
	Grant      string        `json:"grant"`
	Policy     string        `json:"policy"` // revision
	Rules      []string      `json:"rules"`
	Risk       risk.Class    `json:"risk"`
	Reserved   budget.Amount `json:"reserved"`
	DeadlineMS int64         `json:"deadline_ms"`
}

// OutcomeBody is the body of a call.outcome record.
type OutcomeBody struct {
	Status      call.Status    `json:"status"`
	Reason      string         `json:"reason,omitempty"`
	Used        budget.Amount  `json:"used,omitempty"`
	TookUS      int64          `json:"took_us"`
	ResultBytes int            `json:"result_bytes,omitempty"`
	Label       label.Label    `json:"label"`
	Facts       map[string]any `json:"facts,omitempty"`
}

// DeniedBody is the body of a call.denied record: proposal and refusal in one.
type DeniedBody struct {
	Action   call.Action `json:"action"`
	Resource string      `json:"resource"`
	Digest   string      `json:"digest"`
	Status   call.Status `json:"status"` // always denied
	Stage    Stage       `json:"stage"`
	Reason   string      `json:"reason"`
	Policy   string      `json:"policy,omitempty"` // revision
	Rules    []string    `json:"rules,omitempty"`
}
